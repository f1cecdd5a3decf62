"""`vrt sim` up to the moment when the board starts; tests/e2e/test_sim.py has the rest."""

import numpy as np
import pytest
from vrt_host import cli
from vrt_host.commands import sim
from vrt_host.sim import wav


@pytest.fixture(autouse=True)
def no_board(monkeypatch):
    """The plan and the board are made, and nothing is run."""
    made = []

    class Nothing:
        def __init__(self, plan, board):
            made.append((plan, board))

        async def run(self):
            return 0

    monkeypatch.setattr(sim, "_Run", Nothing)
    monkeypatch.delenv("VRT_TOKEN", raising=False)
    return made


@pytest.fixture
def tone(tmp_path):
    path = tmp_path / "a@b.wav"
    wav.save(path, np.full(1_600, 500, np.int16), 16_000)
    return path


def test_sim_makes_a_plan_of_its_words(no_board, tone, tmp_path):
    out = tmp_path / "out.wav"
    words = [
        "--wav",
        f"{tone}@2.5",
        "--wav",
        str(tone),
        "--press",
        "2@0.2",
        "--press",
        "auto",
        "--until",
        "result",
    ]
    assert cli.main(["sim", *words, "--until", "60", "--heap", "160K", "--json", "--out", str(out)]) == 0
    plan, board = no_board[0]
    assert [(one.wav, one.at) for one in plan.utterances] == [(tone, 2.5), (tone, None)]
    assert [len(sound) for sound in plan.sounds] == [1_600, 1_600]
    assert [plan.presses.hold(number) for number in (1, 2)] == [1.2, 0.2]
    assert (plan.events, plan.seconds, plan.json, plan.mic) == (["result"], 60.0, True, False)
    assert board._heap == "160k"
    assert board._config["url"] == "ws://127.0.0.1:8765/"
    assert "token" not in board._config
    assert out.exists()


def test_sim_takes_the_token_from_the_environment_or_a_file(no_board, monkeypatch, tmp_path):
    monkeypatch.setenv("VRT_TOKEN", "from-env")
    (tmp_path / "token").write_text("from-file\n")
    assert cli.main(["sim"]) == 0
    assert cli.main(["sim", "--token-file", str(tmp_path / "token")]) == 0
    assert [board._config["token"] for _, board in no_board] == ["from-env", "from-file"]


def test_sim_hands_settings_to_the_firmware(no_board):
    assert cli.main(["sim", "--set", "listen=button", "--set", "ping_ms=5000", "--set", "mute=true"]) == 0
    config = no_board[0][1]._config
    assert (config["listen"], config["ping_ms"], config["mute"]) == ("button", 5000, True)


def test_sim_takes_no_token_on_the_command_line(no_board, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["sim", "--token", "secret"])
    assert caught.value.code == 2
    assert no_board == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--url", "http://127.0.0.1/"], "--url"),
        (["--set", "mute"], "NAME=VALUE"),
        (["--set", "=1"], "NAME=VALUE"),
        (["--set", "token=secret"], "--token-file"),
        (["--url", "ws://"], "--url"),
        (["--url", "serial:"], "such as serial:/tmp/board"),
        (["--url", "ws://127.0.0.1:99999/"], "--url"),
        (["--url", "ws://[::1/"], "--url"),
        (["--url", "ws://me:secret@127.0.0.1/"], "VRT_TOKEN"),
        (["--url", "wss://127.0.0.1/"], "--ca FILE"),
        (["--say", " "], "--say ' ' says nothing"),
        (["--say", "hello@-1"], "0 seconds or more"),
        (["--wav", "{here}/none.wav"], "cannot read"),
        (["--wav", "{here}/text.wav"], "not a WAV file"),
        (["--press", "0@1"], "--press 0@1"),
        (["--press", "sometimes"], "--press sometimes"),
        (["--heap", "128"], "heap"),
        (["--heap", "8k"], "heap"),
        (["--until", "0"], "--until 0"),
        (["--tools", "{here}/none.py"], "none.py"),
        (["--tools", "{here}/syntax.py"], "syntax.py"),
        (["--token-file", "{here}/none"], "cannot read"),
        (["--token-file", "{here}/empty"], "holds no token"),
        (["--ca", "{here}/none.pem"], "cannot read"),
        (["--out", "{here}/text.wav/x.wav"], "cannot write"),
    ],
)
def test_sim_refuses_bad_input_in_one_line(no_board, tmp_path, capsys, words, reason):
    (tmp_path / "text.wav").write_text("not sound")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "syntax.py").write_text("def x(:\n")
    assert cli.main(["sim", *(word.format(here=tmp_path) for word in words)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("vrt sim: ")
    assert reason in said.err
    assert "secret" not in said.err
    assert no_board == []


@pytest.mark.parametrize(
    ("url", "reason", "advice"),
    [
        (sim.URL, "refused", "nobody answers at ws://127.0.0.1:8765/: `vrt serve` starts a host"),
        ("ws://localhost:99/", "timeout", "`vrt serve --port 99` starts a host"),
        ("wss://house.example:8765/", "dns", "`vrt serve` there starts a host"),
        ("wss://127.0.0.1:8765/", "tls: not trusted", "--ca FILE"),
        (sim.URL, "http 404", "no vRT host"),
        (sim.URL, "answer is not http", "no vRT host"),
        (sim.URL, "eof", "wss:// and --ca FILE"),
        ("wss://127.0.0.1:8765/", "eof", None),
        (sim.URL, "reset", None),
    ],
)
def test_sim_knows_what_to_do_about_a_connection_that_fails(url, reason, advice):
    given = sim._advice(url, reason)
    assert bool(given) == bool(advice)
    assert (advice or "") in given
    assert "\n" not in given


def test_sim_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit):
        cli.main(["sim", "--help"])
    said = capsys.readouterr().out
    assert said.count("  vrt sim ") >= 6
    codes = said.partition("exit code:")[2].splitlines()[1:]
    assert [line.split()[0] for line in codes] == ["0", "1", "2", "130"]
    assert max(map(len, said.splitlines())) <= 120
