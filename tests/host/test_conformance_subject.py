"""A client under test is started and ended: by a command, or by an operator."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque

import pytest
from vrt_host.conformance import subject as subjects
from vrt_host.conformance.subject import Command, Operator
from vrt_host.errors import UsageError

SOON_S = 10


class Lines(deque):
    """Output that can be waited for."""

    def __init__(self):
        super().__init__()
        self.news = asyncio.Event()

    def append(self, line):
        super().append(line)
        self.news.set()


def command(code):
    subject = Command([sys.executable, "-u", "-c", code, "{url}"])
    subject.output = Lines()
    return subject


async def output(subject, words):
    async with asyncio.timeout(SOON_S):
        while words not in "\n".join(subject.output):
            subject.output.news.clear()
            await subject.output.news.wait()


async def test_command_gets_the_address_and_keeps_its_output():
    subject = command("import sys, time; print('came to', sys.argv[1]); time.sleep(60)")
    await subject.start("ws://127.0.0.1:1/")
    await output(subject, "came to ws://127.0.0.1:1/")
    await subject.stop()
    assert subject.output[0].startswith("$ ")
    await subject.start("ws://127.0.0.1:2/")
    await output(subject, "came to ws://127.0.0.1:2/")
    await subject.stop()
    await subject.stop()


async def test_command_that_ends_says_how():
    subject = command("print('first'); raise SystemExit('no such board')")
    await subject.start("ws://127.0.0.1:1/")
    assert await asyncio.wait_for(subject.gone(), SOON_S) == "the command ended with code 1: no such board"
    await subject.stop()


async def test_command_is_ended_with_all_that_it_started():
    subject = command(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('both run'); time.sleep(60)"
    )
    await subject.start("ws://127.0.0.1:1/")
    await output(subject, "both run")
    reader = subject._reader  # ends when nobody holds the output any more
    await subject.stop()
    assert reader.done()
    assert not reader.cancelled()


async def test_command_prints_a_line_without_end():
    subject = command("print('x' * 200_000); print('done'); import time; time.sleep(60)")
    await subject.start("ws://127.0.0.1:1/")
    await output(subject, "done")
    await subject.stop()


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["client"], "needs {url}"), (["/no/such/client", "{url}"], "cannot run /no/such/client")],
)
async def test_command_that_cannot_work_is_refused(words, reason):
    with pytest.raises(UsageError, match=reason.replace("{", r"\{")):
        await Command(words).start("ws://127.0.0.1:1/")


async def test_operator_is_told_once_where_and_then_to_restart():
    said = []
    operator = Operator(said.append)
    await operator.start("ws://127.0.0.1:1/")
    await operator.stop()
    await operator.start("ws://127.0.0.1:1/")
    assert "connect it to ws://127.0.0.1:1/" in said[0]
    assert "restart it" in said[1]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(operator.gone(), 0.01)


async def test_output_is_let_go_that_something_else_holds_open(monkeypatch):
    monkeypatch.setattr(subjects, "_STOP_S", 0.2)
    subject = command(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "print('left', child.pid)"
    )
    await subject.start("ws://127.0.0.1:1/")
    await output(subject, "left ")
    child = int(subject.output[-1].split()[1])
    try:
        await subject.stop()
        assert subject._pipe.is_closing()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
