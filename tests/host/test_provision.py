"""`vrt provision` against MicroPython on a pseudo-terminal with the real firmware in its slot."""

import io
import json
import ssl
import sys

import certificates
import pytest
from fake_board import FakeBoard, content, mounted, operations
from vrt_host import cli
from vrt_host.commands import provision
from vrt_host.device import repl, settings
from vrt_host.errors import UsageError, VrtError
from vrt_host.resources import root

OLD = {
    "url": "ws://10.0.0.1:8765/",
    "wifi_ssid": "Old",
    "wifi_password": "old password",
    "token": "old-token",
}


def board_files(config=OLD, **more):
    """The firmware as source, as far as it checks settings, in slot a."""
    firmware = root() / "firmware"
    names = ["vrt/__init__.py", "vrt/config.py", "vrt/errors.py", "vrt/links/url.py", "vrt/links/tls.py"]
    made = {f"a/{name}": (firmware / name).read_bytes() for name in names}
    made["a/vrt/links/__init__.py"] = b""
    made["a/board.json"] = b'{"duplex": "half"}'
    made["main.py"] = b"import slots\nprint('started')\n# slots.boot()\n"
    made["slots.py"] = b""
    if config is not None:
        made["config.json"] = json.dumps(config).encode()
    return {**made, **more}


class Piped(io.StringIO):
    def isatty(self):
        return False


class Terminal(io.StringIO):
    def isatty(self):
        return True


def vrt(monkeypatch, board, *words, piped=""):
    monkeypatch.setattr(sys, "stdin", Piped(piped))
    return cli.main(["provision", "--port", board.port, *map(str, words)])


def config_of(board, name="config.json"):
    return json.loads(board.files()[name])


@pytest.fixture
def pem(tmp_path):
    path = tmp_path / "host.pem"
    path.write_text(certificates.AUTHORITY)
    return path


@pytest.fixture
def board(tmp_path):
    with FakeBoard(tmp_path, files=board_files()) as made:
        yield made


def test_provision_writes_and_keeps_what_was_before(board, monkeypatch, capsys):
    code = vrt(
        monkeypatch,
        board,
        "--wifi",
        "New",
        "--url",
        "ws://10.0.0.2:8765/",
        piped="wifi_password=new password\ntoken=new-token\n",
    )
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert config_of(board) == {
        "url": "ws://10.0.0.2:8765/",
        "wifi_ssid": "New",
        "wifi_password": "new password",
        "token": "new-token",
    }
    assert config_of(board, "config.old") == OLD
    assert "password: (set, not shown)" in said.out
    for secret in ("new password", "new-token", "old password", "old-token"):
        assert secret not in said.out + said.err
    board.wait_for(b"started")


def test_first_settings_need_no_old_ones(tmp_path, monkeypatch, capsys):
    with FakeBoard(tmp_path, files=board_files(None)) as board:
        code = vrt(monkeypatch, board, "--url", "ws://10.0.0.2:8765/", piped="a-token\n")
        assert code == 0
        assert config_of(board) == {"url": "ws://10.0.0.2:8765/", "token": "a-token"}
        assert "config.old" not in board.files()


def test_what_is_not_given_stays_but_the_password_of_another_network(board, monkeypatch, capsys):
    assert vrt(monkeypatch, board, "--set", "listen=open", "--set", "ping_ms=5000") == 0
    assert config_of(board) == {**OLD, "listen": "open", "ping_ms": 5000}
    assert vrt(monkeypatch, board, "--wifi", "Guest", "--set", "listen=") == 0
    assert config_of(board) == {
        "url": OLD["url"],
        "token": OLD["token"],
        "wifi_ssid": "Guest",
        "ping_ms": 5000,
    }
    assert vrt(monkeypatch, board, "--anew", "--url", "ws://h/") == 0
    assert config_of(board) == {"url": "ws://h/"}


def test_secrets_are_typed_without_an_echo(board, monkeypatch, capsys):
    asked, hidden = [], []
    answers = {"Wi-Fi name": "Home", "the host": ""}
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(
        "builtins.input",
        lambda text: asked.append(text) or next(v for k, v in answers.items() if text.startswith(k)),
    )
    monkeypatch.setattr(
        provision.getpass,
        "getpass",
        lambda text: hidden.append(text) or ("pass word 1" if "Wi-Fi" in text else ""),
    )
    assert cli.main(["provision", "--port", board.port]) == 0
    assert config_of(board) == {**OLD, "wifi_ssid": "Home", "wifi_password": "pass word 1"}
    assert [text.split(" ")[0] for text in hidden] == ["Wi-Fi", "token"]
    assert asked == [
        "Wi-Fi name [Old]: ",
        "the host's address, such as ws://192.168.1.20:8765/ [ws://10.0.0.1:8765/]: ",
    ]
    assert "Enter keeps the one it has" in hidden[1]
    said = capsys.readouterr()
    assert "pass word 1" not in said.out + said.err


def test_certificate_goes_along_and_is_asked_for(board, pem, monkeypatch, capsys):
    assert vrt(monkeypatch, board, "--url", "wss://h:8765/", "--ca", pem) == 0
    name = config_of(board)["ca"]
    assert board.files()[name] == pem.read_bytes()
    other = pem.with_name("other.der")
    other.write_bytes(ssl.PEM_cert_to_DER_cert(pem.read_text()))
    answers = iter(["", "", str(other)])
    config = {**config_of(board)}
    del config["ca"]
    assert vrt(monkeypatch, board, "--set", "ca=", "--url", "ws://h:8765/") == 0
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda text: next(answers))
    monkeypatch.setattr(provision.getpass, "getpass", lambda text: "")
    assert (
        cli.main(["provision", "--port", board.port, "--url", "wss://h:8765/"]) == 2
    )  # "": what the board trusts
    assert "a wss:// url needs ca" in capsys.readouterr().err
    answers = iter(["", str(other)])
    assert cli.main(["provision", "--port", board.port, "--url", "wss://h:8765/"]) == 0
    assert board.files()[config_of(board)["ca"]] == other.read_bytes()
    assert name not in board.files()  # nobody needs it any more


@pytest.mark.parametrize(
    "case",
    [
        (["--set", "listen=sometimes"], "", 'config: "listen" must be "button" or "open"'),
        (["--set", "colour=red"], "", "config: unknown setting 'colour'"),
        (["--url", "http://h/"], "", "url must begin with ws:// or wss://"),
        (["--url", "ws://u:p@h/"], "", "url must not hold a user or password"),
        (["--url", "wss://h/"], "", "a wss:// url needs ca"),
        (["--url", "serial:"], "", "this board has no port for it"),
        (["--set", "duplex=full"], "", '"duplex" cannot be "full" on this board'),
        (["--wifi", "x" * 33], "", "a Wi-Fi's name has at most 32 bytes, and this has 33"),
        (["--wifi", "x"], "wifi_password=seven77", "a Wi-Fi password has 8 to 63 characters"),
        ([], "token=two words", "the token is not one that"),
        (["--set", "wifi_password=x"], "", "a secret on the command line can be seen by others"),
        (["--set", "listen"], "", "write it as NAME=VALUE"),
        ([], "one=1\ntwo=2\n", "a line of the standard input is none of wifi_password=..., token=..."),
        (["--token", "s3cret"], "", "unknown argument '--token'"),
        (["--ca", "none.pem"], "", "cannot read none.pem"),
    ],
)
def test_wrong_settings_are_refused_and_nothing_changes(board, monkeypatch, capsys, case):
    words, piped, reason = case
    before = board.files()
    try:
        code = vrt(monkeypatch, board, *words, piped=piped)
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    assert code == 2
    assert reason in said.err
    assert "seven77" not in said.err
    assert "two words" not in said.err
    assert len(said.err.splitlines()) == 1
    assert board.files() == before


def test_key_of_updates_goes_along(board, tmp_path, monkeypatch, capsys):
    key = tmp_path / "update.pem.pub"
    key.write_text("ab" * 256 + "\n")
    assert vrt(monkeypatch, board, "--update-key", key) == 0
    assert board.files()[config_of(board)["update_key"]] == b"ab" * 256
    key.write_text("-----BEGIN PRIVATE KEY-----")
    assert vrt(monkeypatch, board, "--update-key", key) == 2
    assert "is not the public key of updates" in capsys.readouterr().err


def test_key_is_not_taken_for_a_certificate(tmp_path, pem):
    pem.write_text(pem.read_text() + "-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match="holds a private key, which no board must have"):
        settings.certificate(pem)
    pem.write_text("hello")
    with pytest.raises(UsageError, match="is not a certificate in PEM or DER form"):
        settings.certificate(pem)


def test_damaged_settings_and_a_board_without_firmware_are_said(tmp_path, monkeypatch, capsys):
    with FakeBoard(tmp_path, files={**board_files(None), "config.json": b'{"url": '}) as board:
        assert vrt(monkeypatch, board, "--url", "ws://h/") == 1
        assert "config.json on the board is damaged: give all settings anew" in capsys.readouterr().err
        assert vrt(monkeypatch, board, "--url", "ws://h/", "--anew") == 0
    (tmp_path / "bare").mkdir()
    with FakeBoard(tmp_path / "bare") as board:
        assert vrt(monkeypatch, board, "--url", "ws://h/") == 1
        assert (
            "there is no firmware on the board that could check them: `vrt deploy` first"
            in capsys.readouterr().err
        )


def test_power_cut_at_every_write_leaves_the_old_settings_or_the_new(board, pem, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Piped(""))
    flash = bytearray(board.image.read_bytes())
    assert vrt(monkeypatch, board, "--url", "wss://h/", "--ca", pem, piped="token=" + "t" * 500) == 0
    final = board.files()
    new = json.loads(final["config.json"])
    seen = []
    for address, data in operations(board.log.read_bytes()):
        for part in (data[: len(data) // 2], data):
            flash[address : address + len(part)] = part
            files = content(mounted(bytes(flash)))
            found = json.loads(files["config.json"])
            assert found in (OLD, new)
            assert found == OLD or files[found["ca"]] == pem.read_bytes()
            seen.append(found == new)
    assert seen == sorted(seen)
    assert seen[-1]
    assert not seen[0]


def test_settings_that_do_not_read_back_change_nothing(board, monkeypatch):
    real = repl.Repl.write
    monkeypatch.setattr(
        repl.Repl, "write", lambda self, path, data, progress=None: real(self, path, data[:-1], progress)
    )
    with (
        repl.Repl(board.port, stay=True) as prompt,
        pytest.raises(VrtError, match=r"config\.json does not read back"),
    ):
        settings.replace(prompt, {**OLD, "listen": "open"})
    assert config_of(board) == OLD
