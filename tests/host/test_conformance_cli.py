"""`vrt conformance server`, as an operator uses it."""

import asyncio
import contextlib
import json
import subprocess
import sys

import pytest
from host_client import DEADLINE_S, hosting
from self_signed import self_signed
from test_cli_serve import Serving
from vrt_host.agents.script import load
from vrt_host.agents.scripted import ScriptedAgent
from vrt_host.auth import TokenFile
from vrt_host.cli import main
from vrt_host.commands.serve import PROFILE
from vrt_host.config import ServerConfig
from vrt_host.conformance.server_cases import CHECKS
from websockets.asyncio.server import serve

SOME = (
    "--only",
    "server.sessions.opens",
    "--only",
    "server.turns.acting",
    "--only",
    "server.sessions.unauthorized",
)


async def conformance(*words):
    """Run it to its end: (exit code, output, errors)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vrt_host", "conformance", "server", *map(str, words),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(6 * DEADLINE_S):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def profile_host(tmp_path):
    """Our host with the profile, over TLS and with two tokens: (URL, options)."""
    cert, key, _ = self_signed(tmp_path)
    options = ["--ca", cert]
    for name in ("token", "other-token"):
        path = tmp_path / name
        path.write_text(TokenFile(tmp_path / "tokens.json").add(name) + "\nthe first line counts\n")
        options += [f"--{name}-file", path]
    script = load(PROFILE)
    config = ServerConfig(port=0, tls_cert=cert, tls_key=key, tokens=tmp_path / "tokens.json")
    async with hosting(lambda: ScriptedAgent(script), config=config) as host:
        yield f"wss://127.0.0.1:{host.port}", options


async def test_server_is_tested_and_reported_without_its_tokens(tmp_path):
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "html")}
    outputs = [word for name, path in files.items() for word in (f"--{name}", path)]
    async with profile_host(tmp_path) as (url, options):
        code, out, err = await conformance(url, *options, *SOME, "--all", *outputs)
    assert (code, err) == (0, "")
    assert "3 passed" in out
    report = json.loads(files["json"].read_text())
    assert [check["id"] for check in report["checks"]] == [
        "server.sessions.opens",
        "server.sessions.unauthorized",
        "server.turns.acting",
    ]
    tokens = [(tmp_path / name).read_text().split()[0] for name in ("token", "other-token")]
    for text in (out, *(path.read_text() for path in files.values())):
        assert "server.turns.acting" in text
        assert not any(token in text for token in tokens)


async def test_token_that_is_not_taken_is_told_before_anything_is_tested(tmp_path):
    (tmp_path / "wrong").write_text("nobody's")
    async with profile_host(tmp_path) as (url, options):
        for words, told in (((), "without a token"), (("--token-file", tmp_path / "wrong"), "--token-file")):
            code, out, err = await conformance(url, *options[:2], *words)
            assert (code, out) == (2, "")
            assert told in err
            assert err.count("\n") == 1


async def test_server_without_a_profile_is_tested_as_far_as_that_goes():
    async def respond(link):
        async for frame in link:
            message = json.loads(frame)
            formats = {"input": {"encoding": "pcm16"}, "output": {"encoding": "pcm16"}}
            if message["type"] == "hello":
                await link.send(
                    json.dumps({"v": 1, "seq": 0, "type": "ready", "sessionId": "always", **formats})
                )
            elif message["type"] == "ping":
                await link.send('{"v":1,"seq":0,"type":"pong"}')

    async with serve(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code, out, _ = await conformance(
            f"ws://127.0.0.1:{port}", *SOME, "--only", "server.sessions.session-ids-unguessable"
        )
    assert code == 1
    assert "no answer to 'test profile'" in out
    words = " ".join(out.split())
    assert "failed MUST §5.2 server.sessions.session-ids-unguessable" in words
    assert "not testable SHOULD §6.1 server.turns.acting" in words
    assert "1 passed, 1 failed, 2 not testable" in out


async def test_served_profile_is_tested_with_the_times_that_the_operator_sets():
    times = ("--heartbeat", "2", "--resume-window", "2")
    async with Serving("--agent", "scripted", "--conformance", "--port", "0", *times) as serving:
        rules = (
            "server.reliability.heartbeat-timeout",
            "server.resume.window-ends",
            "server.turns.truncated-to-playback",
        )
        code, out, _ = await conformance(serving.url, *(word for rule in rules for word in ("--only", rule)))
        assert (code, out.split(" (")[0]) == (0, "3 passed")
        code, out, _ = await conformance(
            serving.url, "--only", "server.resume.window-ends", "--patience", "0.5"
        )
        assert code == 0
        assert "2 s (announced) are more than the patience of 0.5 s" in " ".join(out.split())


async def test_what_cannot_be_reached_is_one_clear_line():
    async def http(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    async with await asyncio.start_server(http, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code, out, err = await conformance(f"ws://127.0.0.1:{port}")
    assert (code, out) == (2, "")
    assert "does not take a WebSocket" in err
    code, out, err = await conformance(f"ws://127.0.0.1:{port}")  # nobody listens there any more
    assert (code, out) == (2, "")
    assert err.startswith(f"vrt conformance: cannot reach ws://127.0.0.1:{port}: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give the server's URL"),
        (["http://x"], "ws://HOST:PORT"),
        (["ws://"], "ws://HOST:PORT"),
        (["ws://[::1"], "ws://HOST:PORT"),
        (["ws://[x]:80"], "ws://HOST:PORT"),
        (["ws://x:0"], "ws://HOST:PORT"),
        (["ws://x:99999"], "ws://HOST:PORT"),
        (["ws://me:secret@x"], "no credentials in the URL"),
        (["ws://x", "--patience", "nan"], "--patience nan"),
        (["ws://x", "--json", "/"], "cannot write /: it is a folder"),
        (["ws://x", "--json", "/no/such/folder/x"], "there is no folder /no/such/folder"),
        (["ws://x", "--only", "server.no-such"], "--only server.no-such"),
        (["ws://x", "--factor", "0"], "--factor"),
        (["ws://x", "--jobs", "0"], "--jobs"),
        (["ws://x", "--token-file", "no-such-file"], "cannot read the token file no-such-file"),
        (["ws://x", "--token-file", "/dev/null"], "is empty"),
        (["ws://x", "--ca", "no-such-file"], "--ca is for wss:"),
        (["wss://x", "--ca", "no-such-file"], "cannot use the certificates no-such-file"),
    ],
)
def test_mistake_of_the_operator_is_one_clear_line(capsys, words, told):
    assert main(["conformance", "server", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1


def test_checks_are_listed_with_level_section_and_title(capsys):
    assert main(["conformance", "server", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CHECKS)
    assert main(["conformance", "server", "--list", "--only", "server.turns"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("server.turns.") for line in lines)
    assert lines[0].split(maxsplit=3)[1:3] == ["MUST", "§6.1"]
