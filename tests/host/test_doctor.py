"""`vrt doctor` with a real host, MicroPython on a pseudo-terminal, and what can be wrong with each."""

import asyncio
import json
import os
import pty
import re
import socket
import subprocess
import sys
from pathlib import Path

import certificates
import device_profiles
import pytest
from fake_board import FakeBoard
from host_client import hosting
from vrt_host import cli
from vrt_host.config import ServerConfig
from vrt_host.device import build, deploy, doctor, ports, probes, repl
from vrt_host.resources import root

TOKEN = "vrt_0123456789012345678901234567890123456789012"
NETWORK = """
STA_IF = 0
class WLAN:
    def __init__(self, which): self.on = False
    def active(self, on): pass
    def disconnect(self): pass
    def config(self, **options): pass
    def scan(self): return [(b'Home', b'', 1, -60, 3, False), (b'', b'', 1, -60, 3, False)]
    def connect(self, name, password):
        self.name, self.password = name, password
        self.looks = 0
    def isconnected(self):
        self.looks += 1
        return self.looks > 1 and self.name == 'Home' and self.password == 'right password'
    def status(self, what=None):
        if what: return %d
        if not hasattr(self, 'name') or self.password == 'right password' and self.name == 'Home':
            return 201  # of a try before
        return 212 if self.name != 'Home' else 203 if self.password == 'right, crowded' else 202
    def ifconfig(self): return ('10.0.0.7', '', '', '')
"""


@pytest.fixture(scope="module")
def firmware(tmp_path_factory):
    """The files of a board with the real firmware."""
    made = device_profiles.made(
        tmp_path_factory.mktemp("doctor") / "board", mcu="unix", serial={"kind": "usb"}
    )
    (made.folder / "board.py").write_text("print('the board starts')\nraise ValueError\n")
    files = build.files(made, arch="x64")
    return made, {**{f"a/{path}": data for path, data in files.slot.items()}, **files.root}


@pytest.fixture
def board(firmware, tmp_path, monkeypatch):
    """Make a board with these settings and files, and let the doctor look: {name: Check}."""
    profile, files = firmware
    device_profiles.install(monkeypatch, profile)

    def look(config, *, network=True, **more):
        written = (
            {}
            if config is None
            else {"config.json": config if isinstance(config, bytes) else json.dumps(config).encode()}
        )
        extra = {name.replace("__", "/"): data for name, data in more.items()}
        kept = {path: data for path, data in {**files, **written, **extra}.items() if data is not None}
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        with FakeBoard(folder, files=kept) as fake:
            found = doctor.examine(fake.port, lambda check: None, network=network)
            fake.wait_for(b"soft reboot")
            look.printed = b" ".join(str(check).encode() for check in found)
        assert all(check.advice for check in found if check.state == "problem")
        return {check.name: check for check in found}

    return look


def wrong(checks):
    return [name for name, check in checks.items() if check.state == "problem"]


# --- the computer and the port


def test_missing_packages_are_named(monkeypatch):
    real = doctor.importlib.util.find_spec
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: None if name == "esptool" else real(name)
    )
    monkeypatch.setattr(ports, "listed", list)
    checks = doctor.examine(None, lambda check: None)
    assert (checks[0].name, checks[0].state) == ("tools", "problem")
    assert "vrt flash needs esptool" in checks[0].said
    assert "pip install" in checks[0].advice


@pytest.mark.parametrize(
    ("found", "said"),
    [([], "no serial port is here"), ([("/dev/a", "A"), ("/dev/b", "B")], "there are several serial ports")],
)
def test_no_port_and_several_are_problems(monkeypatch, capsys, found, said):
    monkeypatch.setattr(ports, "listed", lambda: found)
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert f"PROBLEM  port         {said}" in out
    assert "unknown  wifi         not asked: see above" in out


def test_missing_port_and_busy_one_and_permission(tmp_path, monkeypatch):
    found = {check.name: check for check in doctor.examine(str(tmp_path / "none"), lambda check: None)}
    assert wrong(found) == ["port"]
    master, slave = pty.openpty()
    with ports.serial.Serial(os.ttyname(slave), exclusive=True):
        found = {check.name: check for check in doctor.examine(os.ttyname(slave), lambda check: None)}
    os.close(master)
    os.close(slave)
    assert "is in use by another program" in found["port"].said
    monkeypatch.setattr(ports, "examine", lambda port: ports.explain(port, PermissionError(13, "no")))
    found = {check.name: check for check in doctor.examine("/dev/ttyACM0", lambda check: None)}
    assert wrong(found) == ["permission"]
    assert "usermod -a -G dialout" in found["permission"].advice


# --- the board


def test_board_that_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(repl, "KNOCK_S", 0.2)
    monkeypatch.setattr(repl, "LISTEN_S", 0.2)
    with FakeBoard(tmp_path, deaf=True) as fake:
        found = {check.name: check for check in doctor.examine(fake.port, lambda check: None)}
    assert wrong(found) == ["prompt"]
    assert "press RESET on the board" in found["prompt"].advice
    assert found["chip"].state == "unknown"
    assert "does not answer" in found["chip"].said


def test_chip_without_micropython_is_told_from_a_dead_one(tmp_path, monkeypatch):
    monkeypatch.setattr(repl, "KNOCK_S", 0.2)
    monkeypatch.setattr(repl, "LISTEN_S", 0.2)
    monkeypatch.setenv("ESP32_MOCK_BOOTLOADER_STATE_DIR", str(tmp_path / "mock"))
    words = [
        Path(sys.executable).parent / "esp32-mock-bootloader",
        "run",
        "--pty",
        "--chip",
        "esp32s3",
        "--timeout",
        "60",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as mock:
        port = tmp_path / "port"
        port.symlink_to(mock.stdout.readline().strip())
        found = {check.name: check for check in doctor.examine(str(port), lambda check: None)}
        mock.kill()
    assert wrong(found) == ["prompt"]
    assert found["chip"].said == "ESP32-S3 with 4 MB of flash answers in its bootloader"
    assert "vrt flash" in found["chip"].advice


def test_board_without_firmware_and_settings(tmp_path):
    with FakeBoard(tmp_path) as fake:
        found = {check.name: check for check in doctor.examine(fake.port, lambda check: None)}
    assert wrong(found) == ["firmware", "config"]
    assert "vrt deploy BOARD" in found["firmware"].advice
    assert "vrt provision" in found["config"].advice


def test_old_micropython(board, monkeypatch):
    real = repl.Repl.ask
    monkeypatch.setattr(
        repl.Repl, "ask", lambda self, code, **options: {**real(self, code), "version": [1, 24, 0]}
    )
    found = board({"url": "ws://h/"})
    assert wrong(found) == ["micropython"]
    assert "has MicroPython 1.24.0, and 1.27 is needed" in found["micropython"].said


def test_file_that_is_not_as_it_was_built(board):
    found = board({"url": "ws://h/"}, network=False, **{"a/vrt/ws.mpy": b"M"})
    assert wrong(found) == ["firmware"]
    assert "vrt/ws.mpy damaged" in found["firmware"].said
    assert "vrt deploy test-board" in found["firmware"].advice


def test_firmware_of_another_version_chip_and_update(board, firmware, monkeypatch):
    listing = json.loads(firmware[1]["a/files.json"])
    found = board(
        {"url": "ws://h/"},
        network=False,
        **{"a/files.json": json.dumps({**listing, "version": "0.0.9"}).encode()},
    )
    assert wrong(found) == ["firmware"]
    assert "0.0.9 of test-board in slot a, and this computer has" in found["firmware"].said
    found = board({"url": "ws://h/"}, network=False, slot=b"b? 0.2.0", **{"b/main.mpy": b"M"})
    assert re.fullmatch(r"one (waits for its|was on) trial.* \(b[?!] 0\.2\.0\)", found["update"].said)
    found = board({"url": "ws://h/"}, network=False, **{"a/files.json": None})
    assert found["firmware"].state == "unknown"
    monkeypatch.setattr(deploy, "fits", lambda machine, mcu: False)
    assert wrong(board({"url": "ws://h/"}, network=False)) == ["chip"]


def test_crashes_are_told(board):
    last = {
        "error": "ValueError: no",
        "at": "vrt/app.py:101",
        "uptime_s": 3,
        "reset": "",
        "firmware": "0.1.0",
    }
    log = {"early": 0, "told": True, "crashes": [last]}
    found = board({"url": "ws://h/"}, network=False, **{"crash.json": json.dumps(log).encode()})
    assert wrong(found) == []
    assert found["crash"].said == "the last: ValueError: no at vrt/app.py:101, 3 s after its start"
    log["told"] = False
    found = board({"url": "ws://h/"}, network=False, **{"crash.json": json.dumps(log).encode()})
    assert wrong(found) == ["crash"]
    assert "reached no host since" in found["crash"].advice
    log["early"] = 2
    assert wrong(board({"url": "ws://h/"}, network=False, **{"crash.json": json.dumps(log).encode()})) == [
        "crash"
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "the board has no config.json"),
        (b'{"url": ', "config.json on the board is damaged"),
        ({"url": "http://h/"}, "url must begin with ws:// or wss://"),
        ({"url": "ws://h/", "colour": 1}, "unknown setting 'colour'"),
        ({"url": "ws://h/", "token": 12345}, '"token" must be a text in quotes'),
        ({"url": "wss://h/"}, "a wss:// url needs ca"),
        ({"url": "wss://h/", "ca": "ca.pem"}, 'config: "ca" cannot be read: ca.pem'),
        ({"url": "ws://h/", "wifi_ssid": "x", "wifi_password": "short"}, "a Wi-Fi password has 8 to 63"),
    ],
)
def test_settings_that_are_wrong(board, config, said):
    found = board(config)
    assert wrong(found) == ["config"]
    assert said in found["config"].said
    assert b"12345" not in board.printed
    assert b"short" not in board.printed
    assert found["wifi"].state == "unknown"


def test_serial_board_needs_no_network(board, monkeypatch):
    found = board({"url": "serial:"})
    assert wrong(found) == []
    assert found["link"].state == "ok"
    assert "wifi" not in found


# --- Wi-Fi and clock


@pytest.mark.parametrize(
    ("name", "password", "said"),
    [
        ("", "", "the settings name no Wi-Fi"),
        ("Home", "bad passw0rd", "Home refuses the password"),
        ("Home", "right, crowded", "Home: no connection (error 203)"),
        ("Away", "right password", "Away is not in sight; in sight are Home"),
    ],
)
def test_wifi_that_does_not_come_up(board, name, password, said):
    config = {"url": "ws://127.0.0.1:1/", "wifi_ssid": name, "wifi_password": password}
    found = board({k: v for k, v in config.items() if v}, **{"lib/network.py": (NETWORK % -60).encode()})
    assert wrong(found) == ["wifi"]
    assert said in found["wifi"].said
    assert b"passw0rd" not in board.printed
    assert found["token"].state == "unknown"


@pytest.mark.parametrize(("rssi", "weak"), [(-60, False), (-85, True)])
def test_wifi_that_is_up_tells_its_strength(board, rssi, weak):
    config = {"url": "ws://127.0.0.1:1/", "wifi_ssid": "Home", "wifi_password": "right password"}
    found = board(config, **{"lib/network.py": (NETWORK % rssi).encode()})
    assert found["wifi"].said == f"Home: 10.0.0.7, {rssi} dBm"
    assert bool(found["wifi"].advice) == weak
    assert wrong(found) == ["host"]  # nobody listens there


ESP32 = """
HEAP_DATA = 4
def idf_heap_info(capabilities):
    return [(7288, 0, 0, 0), (300000, 2 * %d, %d, 0)]
"""


@pytest.mark.parametrize(
    ("block", "url", "state"), [(40 << 10, "wss", "ok"), (9 << 10, "ws", "ok"), (9 << 10, "wss", "problem")]
)
def test_memory_for_tls_is_told(board, block, url, state):
    config = {"url": f"{url}://127.0.0.1:1/", "ca": "ca.pem"}
    files = {"ca.pem": certificates.AUTHORITY.encode(), "lib/esp32.py": (ESP32 % (block, block)).encode()}
    found = board(config, **files)
    assert (found["memory"].state, wrong(found)) == (
        state,
        ["memory", "host"] if state == "problem" else ["host"],
    )
    assert found["memory"].said.startswith(f"{block >> 10} KiB")


def test_what_tls_takes_is_the_firmwares_figure():
    source = (root() / "firmware" / "vrt" / "links" / "wifi.py").read_text("utf-8")
    kib = re.search(r"^_TLS_BLOCK = const\((\d+) \* 1024\)", source, re.MULTILINE)[1]
    assert int(kib) << 10 == doctor._TLS_BLOCK


def test_clock_matters_with_tls_only(board, monkeypatch):
    monkeypatch.setattr(probes, "clock", lambda repl, server: [2000, 1, 1, 0, 0, 5])
    assert board({"url": "ws://127.0.0.1:1/"})["clock"].state == "ok"
    found = board(
        {"url": "wss://127.0.0.1:1/", "ca": "ca.pem"}, **{"ca.pem": certificates.AUTHORITY.encode()}
    )
    assert found["clock"].state == "problem"
    assert "2000-01-01 00:00 UTC, and certificates are not valid then" in found["clock"].said
    assert "pool.ntp.org, UDP port 123" in found["clock"].advice


# --- the host


def test_host_that_is_not_there(board, monkeypatch):
    found = board({"url": "ws://127.0.0.1:1/?x=1"})
    assert wrong(found) == ["host"]
    assert "ws://127.0.0.1:1/ cannot be reached (refused)" in found["host"].said
    found = board({"url": "ws://no-such-host.invalid/"})
    assert wrong(found) == ["host"]
    assert "check the name server" in found["host"].advice


def test_other_server_is_no_vrt_host(board):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"ws://127.0.0.1:{server.getsockname()[1]}/"

        async def answer():
            async def speak(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 404 Not Found\r\n\r\n")
                await writer.drain()
                writer.close()

            async with await asyncio.start_server(speak, sock=server):
                return await asyncio.to_thread(board, {"url": url})

        found = asyncio.run(answer())
    assert found["token"].state == "unknown"
    assert "it is no vRT host: HTTP/1.1 404 Not Found" in found["token"].said


async def test_host_that_takes_anybody(board):
    async with hosting() as host:
        found = await asyncio.to_thread(board, {"url": f"ws://127.0.0.1:{host.port}/"})
    assert wrong(found) == []
    assert found["token"].said == "none is set, and the host asks for none"
    assert "can be listened to" in found["tls"].said
    assert found["wifi"].state == "unknown"


async def test_host_that_wants_a_token(board, tmp_path, capsys):
    path = tmp_path / "tokens.json"
    assert cli.main(["token", "add", "kitchen", "--tokens", str(path)]) == 0
    token = capsys.readouterr().out.strip().splitlines()[-1]
    async with hosting(config=ServerConfig(port=0, tokens=path)) as host:
        url = f"ws://127.0.0.1:{host.port}/"
        good = await asyncio.to_thread(board, {"url": url, "token": token})
        assert token.encode() not in board.printed
        bad = await asyncio.to_thread(board, {"url": url, "token": TOKEN})
        assert TOKEN.encode() not in board.printed
        none = await asyncio.to_thread(board, {"url": url})
    assert wrong(good) == []
    assert good["token"].said == "the host takes it"
    assert (wrong(bad), bad["token"].said) == (["token"], "the host refuses it")
    assert (wrong(none), none["token"].said) == (["token"], "the host asks for one")
    assert "vrt token add" in bad["token"].advice


async def test_tls(board, tmp_path):
    (tmp_path / "server.pem").write_text(certificates.SERVER)
    key = f"-----BEGIN EC PRIVATE KEY-----\n{certificates.KEY}\n-----END EC PRIVATE KEY-----\n"
    (tmp_path / "server.key").write_text(key)
    config = ServerConfig(port=0, tls_cert=tmp_path / "server.pem", tls_key=tmp_path / "server.key")
    async with hosting(config=config) as host:
        url = f"wss://localhost:{host.port}/"
        good = await asyncio.to_thread(
            board, {"url": url, "ca": "ca.pem"}, **{"ca.pem": certificates.AUTHORITY.encode()}
        )
        bad = await asyncio.to_thread(
            board, {"url": url, "ca": "ca.pem"}, **{"ca.pem": certificates.STRANGER.encode()}
        )
    assert wrong(good) == []
    assert good["tls"].said == "the host's certificate is trusted"
    assert wrong(bad) == ["tls"]
    assert "the host's certificate is not trusted" in bad["tls"].said
    assert "--ca FILE" in bad["tls"].advice
    async with hosting() as host:
        plain = await asyncio.to_thread(
            board,
            {"url": f"wss://localhost:{host.port}/", "ca": "ca.pem"},
            **{"ca.pem": certificates.AUTHORITY.encode()},
        )
    assert wrong(plain) == ["tls"]
    assert "does the host serve TLS" in plain["tls"].advice


def test_doctor_prints_for_people_and_programs(board, firmware, tmp_path, capsys):
    (tmp_path / "x").mkdir()
    with FakeBoard(tmp_path / "x", files={**firmware[1], "config.json": b'{"url": "ws://h/"}'}) as fake:
        assert cli.main(["doctor", "--port", fake.port, "--offline"]) == 0
        people = capsys.readouterr().out
        assert cli.main(["doctor", "--port", fake.port, "--offline", "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
    assert "ok       firmware     0.1.0 of test-board in slot a, every file as it was built" in people
    assert made["ok"] is True
    assert {row["name"] for row in made["checks"]} >= set(doctor._ALL)
    assert [row for row in made["checks"] if row["name"] == "wifi"] == [
        {"name": "wifi", "state": "unknown", "said": "not asked (--offline)", "advice": ""}
    ]
