"""`vrt conformance client`, up to the client; tests/e2e/test_conformance_client.py has the rest."""

import asyncio
import json
import socket
import subprocess
import sys

import pytest
from vrt_host.cli import main
from vrt_host.conformance.client_cases import CHECKS
from vrt_host.resources import root


def test_list_shows_every_check(capsys):
    assert main(["conformance", "client", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [check.id for check in CHECKS]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "--listen"),
        (["--listen", "8765", "--", "client", "{url}"], "either a command"),
        (["--listen", "host"], "write PORT"),
        (["--listen", "0"], "write PORT"),
        (["--listen", "²"], "write PORT"),
        (["--listen", "a..b:8765"], "cannot listen at a..b:8765: this is no name of a host"),
        (["--serial", ""], "--serial: give the port"),
        (["--junit", "/", "--listen", "8765"], "cannot write /: it is a folder"),
        (["--", "client"], "needs {url}"),
        (["--", "/no/such/client", "{url}"], "cannot run /no/such/client"),
        (["--ping-interval", "0", "--listen", "8765"], "--ping-interval"),
        (["--only", "client.nothing", "--listen", "8765"], "--only client.nothing"),
        (["--factor", "0", "--listen", "8765"], "--factor"),
        (["--listen", "192.0.2.1:8765"], "cannot listen at 192.0.2.1:8765"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, reason, capsys):
    assert main(["conformance", "client", *words]) == 2
    said = capsys.readouterr()
    assert said.err.splitlines()[-1].startswith("vrt conformance: ")
    assert reason in said.err


def test_port_that_is_taken_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["conformance", "client", "--listen", str(port)]) == 2
    assert f"cannot listen at {port}" in capsys.readouterr().err


def test_client_that_never_connects_ends_with_its_output(capsys):
    code = main(
        [
            "conformance",
            "client",
            "--",
            sys.executable,
            "-c",
            "raise SystemExit('no board \x1b[2Jhere')",
            "{url}",
        ]
    )
    said = capsys.readouterr()
    assert code == 2
    assert "nothing to test: the command ended with code 1: no board \\x1b[2Jhere" in said.err
    assert "\x1b" not in said.err  # what a client prints moves no cursor
    assert "the last" in said.err


RUDE = """
import asyncio, sys
from websockets.asyncio.client import connect
async def main():
    async with connect(sys.argv[1], proxy=None) as ws:
        await ws.send('{"v":1,"seq":0,"type":"ping"}')
        await ws.send('{"v":1,"seq":0,"type":"hello","auth":{"token":"s3%s"}}' % "cret")
        print("rude client here", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def test_faults_are_reported_with_the_clients_output_and_no_secret(tmp_path, capsys):
    report = tmp_path / "report.json"
    words = ["--only", "client.sessions.hello-first", "--only", "client.sessions.opens", "--factor", "0.1"]
    code = main(
        ["conformance", "client", *words, "--json", str(report), "--", sys.executable, "-c", RUDE, "{url}"]
    )
    said = capsys.readouterr()
    assert code == 1
    outcomes = {check["id"]: check["outcome"] for check in json.loads(report.read_text())["checks"]}
    assert outcomes == {"client.sessions.hello-first": "failed", "client.sessions.opens": "failed"}
    assert "rude client here" in said.err
    assert "s3cret" not in said.out + report.read_text()


async def test_device_that_comes_by_itself_is_tested():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [
        "conformance",
        "client",
        "--listen",
        f"{port}",
        "--only",
        "client.gate",
        "--only",
        "client.tools",
    ]
    device = root() / "tests" / "conformance" / "client_on_cpython.py"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    suite = await asyncio.create_subprocess_exec(sys.executable, "-u", "-m", "vrt_host", *words, **pipes)
    async with asyncio.timeout(60):
        assert f"connect it to ws://127.0.0.1:{port}/" in (await suite.stdout.readline()).decode()
        client = await asyncio.create_subprocess_exec(
            sys.executable, device, f"ws://127.0.0.1:{port}/", stdout=subprocess.DEVNULL
        )
        try:
            said = (await suite.communicate())[0].decode()
        finally:
            client.terminate()
            await client.wait()
    assert suite.returncode == 0, said
    assert " passed" in said
    assert "failed" not in said
