"""`vrt serve` and `vrt token` as an operator uses them."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from host_client import DEADLINE_S, Client
from vrt_host.agents import registry
from vrt_host.agents.echo import EchoAgent
from vrt_host.cli import main
from vrt_host.commands import serve as serve_command
from vrt_host.config import ServerConfig
from vrt_host.errors import UsageError
from websockets.asyncio.client import connect

VRT = [sys.executable, "-m", "vrt_host"]
STARTUP_S = 3 * DEADLINE_S


class Serving:
    """A `vrt serve` process; `url` is what it printed."""

    def __init__(self, *options):
        self._options = options

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            *VRT, "serve", *self._options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        async with asyncio.timeout(STARTUP_S):
            line = (await self.process.stdout.readline()).decode()
        match = re.fullmatch(r"serving (\w+) on (ws://127\.0\.0\.1:\d+)\n", line)
        assert match, line
        self.agent, self.url = match.groups()
        return self

    async def __aexit__(self, *error):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def end(self, number):
        """Send a signal; (exit code, what was logged)."""
        self.process.send_signal(number)
        async with asyncio.timeout(STARTUP_S):
            out, err = await self.process.communicate()
        assert out == b""
        return self.process.returncode, err.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_serve_answers_until_it_is_told_to_stop(number):
    async with Serving("--agent", "echo", "--port", "0") as serving:
        async with connect(serving.url, proxy=None) as ws:
            client = Client(ws)
            await client.hello(auth={"token": "a-secret"}, device={"id": "evil\n\x1b[2J"})
            await client.send("text", text="hi")
            assert (await client.until("text"))["text"] == "Echo: hi"
            ended = asyncio.create_task(serving.end(number))
            assert (await client.until("error"))["code"] == "HOST_STOPPING"
            assert await client.closed() == 1001
        code, log = await ended
    assert code == 0
    assert "stopping: 1 sessions" in log
    assert "a-secret" not in log
    assert "\x1b" not in log
    assert "Traceback" not in log


async def test_serve_runs_a_script(tmp_path):
    script = tmp_path / "s.json"
    script.write_text(json.dumps({"rules": [{"on": {"start": True}, "do": [{"text": "from the script"}]}]}))
    async with Serving("--agent", "scripted", "--script", str(script), "--port", "0") as serving:
        assert serving.agent == "scripted"
        async with connect(serving.url, proxy=None) as ws:
            client = Client(ws)
            await client.send("hello")
            assert (await client.until("text"))["text"] == "from the script"


@pytest.fixture
def slow_agent(monkeypatch):
    """An agent that is loaded only when the test lets it be; (is being loaded, may be)."""
    loading, may = threading.Event(), threading.Event()

    class Slow(EchoAgent):
        @staticmethod
        def prepare():
            loading.set()
            assert may.wait(DEADLINE_S)

    monkeypatch.setattr(registry, "factory", lambda name, *, script=None: Slow)
    yield loading, may
    may.set()


async def test_board_that_comes_before_the_agent_is_loaded_is_served(slow_agent, monkeypatch, capsys):
    loading, may = slow_agent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = asyncio.create_task(
        serve_command._serve(ServerConfig(port=port), "echo", registry.factory("echo"))
    )
    await asyncio.to_thread(loading.wait, DEADLINE_S)
    async with connect(f"ws://127.0.0.1:{port}", proxy=None) as ws:
        client = Client(ws)
        await client.hello()
        assert "serving" not in capsys.readouterr().out
        may.set()
        await client.send("text", text="hi")
        assert (await client.until("text"))["text"] == "Echo: hi"
        os.kill(os.getpid(), signal.SIGTERM)
        await client.closed()
    await serving
    assert capsys.readouterr().out == f"serving echo on ws://127.0.0.1:{port}\n"


async def test_agent_that_cannot_be_loaded_ends_the_host(monkeypatch, capsys):
    class Broken(EchoAgent):
        @staticmethod
        def prepare():
            raise UsageError("install it")

    with pytest.raises(UsageError, match="install it"):
        await serve_command._serve(ServerConfig(port=0), "echo", Broken)
    assert capsys.readouterr().out == ""


def one_line(capsys, *words):
    """Run `vrt` in this process; it must fail with one line, which is returned."""
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_busy_port_is_one_line(capsys):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        line = one_line(capsys, "serve", "--agent", "echo", "--port", port)
    assert line.startswith("vrt serve: ")
    assert port in line
    assert "--port" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--port", "70000"], "0 to 65535"),
        (["--host", "0.0.0.0"], "--insecure"),
        (["--conformance"], "--agent scripted"),
        (["--agent", "scripted", "--conformance", "--script", "s.json"], "a script of its own"),
        (["--heartbeat", "0"], "--heartbeat 0"),
        (["--resume-window", "1e9"], "--resume-window 1e+09"),
        (["--tls-cert", "c.pem"], "--tls-key"),
        (["--tls-cert", "no.pem", "--tls-key", "no.key"], "no.pem"),
        (["--tokens", "no-tokens.json"], "vrt token add"),
        (["--agent", "scripted"], "--script FILE"),
        (["--script", "s.json"], "--script is for"),
        (["--agent", "scripted", "--script", "no.json"], "cannot read the script no.json"),
        (["--origin", "example.com"], "https://HOST"),
        (["--serial", ""], "--serial names no port"),
        (["--serial", " ", "--serial", "/dev/ttyACM0"], "--serial names no port"),
        (["--lend", "porch"], "--facade"),
        (["--facade", "aitp", "--lend", "/lock"], "BOARD/TOOL"),
    ],
)
def test_wrong_option_is_one_line_that_says_what_to_do(capsys, words, says):
    agent = [] if "--agent" in words else ["--agent", "echo"]
    assert says in one_line(capsys, "serve", "--port", "0", *agent, *words)


@pytest.mark.parametrize("command", ["serve", "token"])
def test_help_has_examples(capsys, command):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"  vrt {command} " in capsys.readouterr().out


@pytest.mark.parametrize("action", ["add", "list", "revoke"])
def test_help_of_every_token_action_has_examples(capsys, action):
    with pytest.raises(SystemExit, match="0"):
        main(["token", action, "--help"])
    examples = capsys.readouterr().out.partition("examples:")[2]
    assert examples.count(f"  vrt token {action}") >= 2


def test_token_is_printed_once_and_listed_by_name_alone(capsys, tmp_path):
    where = ["--tokens", str(tmp_path / "tokens.json")]
    assert main(["token", "add", "kitchen", *where]) == 0
    token = capsys.readouterr().out.strip()
    assert re.fullmatch(r"vrt_[\w-]{43}", token)
    assert main(["token", "list", *where]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("kitchen\t")
    assert token not in listed
    again = one_line(capsys, "token", "add", "kitchen", *where)
    assert f"revoke it first: `vrt token revoke kitchen {' '.join(where)}`" in again
    assert main(["token", "revoke", "kitchen", *where]) == 0
    capsys.readouterr()
    assert "no token named" in one_line(capsys, "token", "revoke", "kitchen", *where)
    assert main(["token", "list", *where]) == 0
    assert capsys.readouterr().out == ""


def test_tokens_have_a_place_of_their_own(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["token", "add", "kitchen"]) == 0
    assert (tmp_path / "vrt" / "tokens.json").exists()
    assert str(tmp_path) in capsys.readouterr().err
    if os.name == "posix":
        assert (tmp_path / "vrt").stat().st_mode & 0o777 == 0o700
