"""A peer's process, from both sides: `PeerProcess` in the test, `Peer` and `main` in the process.

They speak JSON lines: commands on the process's stdin, each answered once it is done; reports on its stdout.
The process ends when its stdin does.
"""

import asyncio
import json
import logging
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path

from peers.plan import DEFAULT, REFUSALS, checked

DEADLINE_S = 10 * float(os.environ.get("VRT_TESTS_TIMEOUT_FACTOR", "1"))
_START_S = 3 * DEADLINE_S  # a vendor's SDK takes its time to load
_LINE_BYTES = 1 << 24


class PeerProcess:
    """A peer, from the test's side. Leaving it fails the test if a frame was invalid or the peer broke."""

    def __init__(self, name, **settings):
        """`settings` are the keyword arguments of the peer's class: JSON values."""
        self.name = name
        self.port = None
        self.reports = []
        """All that the peer reported since the last `reset`: dicts with a `kind`."""
        self._settings = settings
        self._taken = set()
        self._arrived = asyncio.Event()
        self._answers = {}
        self._commands = 0

    async def __aenter__(self):
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"peers.{self.name}",
            json.dumps(self._settings),
            cwd=Path(__file__).parents[1],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        self._reader = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(_START_S):
                self.port = (await self._next("listening", {}))["port"]
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, kind, *_):
        await self._end()
        if kind is None:
            self.judge()
            assert self._process.returncode == 0, f"the peer {self.name} broke; its traceback is in stderr"

    def judge(self):
        """Fail if a frame was invalid."""
        wrong = [report for report in self.reports if report["kind"] == "invalid"]
        assert not wrong, f"{self.name}: {wrong}"

    async def respond(self, *responses):
        """The next responses, each a list of parts (`plan`), behind those that wait already."""
        await self.do("respond", responses=[[checked(part) for part in response] for response in responses])

    async def release(self, name):
        """Let a part `{"wait": name}` pass, the one that waits or the next to come."""
        await self.do("release", name=name)

    async def refuse(self, kind, times=1):
        """Refuse the next connections; one of `plan.REFUSALS`."""
        assert kind in REFUSALS
        await self.do("refuse", kind=kind, times=times)

    async def drop(self):
        """Cut every connection, without a farewell."""
        await self.do("drop")

    async def reset(self):
        """Forget what is planned and what was reported; open connections are cut."""
        await self.do("reset")
        try:
            self.judge()
        finally:
            self.reports.clear()
            self._taken.clear()

    async def do(self, verb, **fields):
        """A command, which is done when this returns: the peer's method `on_<verb>(**fields)`."""
        self._commands += 1
        number = self._commands
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        line = json.dumps({"number": number, "verb": verb, "fields": fields})
        self._process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(DEADLINE_S):
            await self._process.stdin.drain()
            said = await answer
        assert said is None, f"{self.name}, {verb}: {said}"

    async def seen(self, kind, **fields):
        """The next report of that kind with these members; each report is given out once."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._next(kind, fields)
        except TimeoutError:
            raise AssertionError(
                f"{self.name} has not reported {kind} {fields}; it reported {self.reports}"
            ) from None

    async def mentioned(self, text, since=0):
        """Wait until a report, of those from place `since` on, has this text in it; given out or not."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not any(text in json.dumps(report) for report in self.reports[since:]):
                    self._arrived.clear()
                    assert not self._reader.done(), f"the peer {self.name} has ended"
                    await self._arrived.wait()
        except TimeoutError:
            reports = self.reports[since:]
            raise AssertionError(f"{self.name} was not told {text!r}; it reported {reports}") from None

    def count(self, kind, **fields):
        """How many reports of that kind with these members there are, given out or not."""
        return sum(report["kind"] == kind and fields.items() <= report.items() for report in self.reports)

    async def _next(self, kind, fields):
        while True:
            for report in self.reports:
                if (
                    report["kind"] == kind
                    and id(report) not in self._taken
                    and fields.items() <= report.items()
                ):
                    self._taken.add(id(report))
                    return report
            self._arrived.clear()
            if self._reader.done():
                raise AssertionError(f"the peer {self.name} has ended; it reported {self.reports}")
            await self._arrived.wait()

    async def _read(self):
        while line := await self._process.stdout.readline():
            report = json.loads(line)
            if report["kind"] == "answer":
                self._answers.pop(report["number"]).set_result(report["error"])
                continue
            self.reports.append(report)
            self._arrived.set()
        for answer in self._answers.values():
            answer.set_result("the peer has ended")
        asyncio.get_running_loop().call_soon(self._arrived.set)  # when this task is done

    async def _end(self):
        self._process.stdin.close()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._reader
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            self._reader.cancel()
            raise AssertionError(f"the peer {self.name} did not end") from None


class Peer(ABC):
    """A peer, from its own side: what a provider's server adds is the protocol."""

    def __init__(self):
        self.responses = deque()
        self.transports = set()
        """The transports of the open connections: what `drop` cuts. The protocol keeps it."""
        self._refusals = deque()
        self._held = {}

    @abstractmethod
    async def serve(self):
        """Listen on the loopback; return the port."""

    def tell(self, kind, **fields):
        """Report to the test; `t` is the time on the machine's monotonic clock."""
        print(json.dumps({"kind": kind, "t": time.monotonic(), **fields}), flush=True)

    def next_response(self):
        """The parts of the response that is due."""
        return self.responses.popleft() if self.responses else [checked(part) for part in DEFAULT]

    def refusal(self):
        """Why this connection is refused, None: it is not. To be asked once for each connection."""
        if not self._refusals:
            return None
        kind = self._refusals.popleft()
        self.tell("refused", why=kind)
        return kind

    async def wait(self, name):
        """Play `{"wait": name}`; each release lets one pass."""
        self.tell("waiting", name=name)
        await self._hold(name).acquire()
        self.tell("released", name=name)

    def _hold(self, name):
        return self._held.setdefault(name, asyncio.Semaphore(0))

    def on_respond(self, responses):
        self.responses.extend(responses)

    def on_release(self, name):
        self._hold(name).release()

    def on_refuse(self, kind, times):
        self._refusals.extend([kind] * times)

    def on_drop(self):
        for transport in list(self.transports):
            transport.abort()

    def on_reset(self):
        self.responses.clear()
        self._refusals.clear()
        self._held.clear()
        self.on_drop()


def main(kind):
    """Run a peer of that class until stdin ends."""
    asyncio.run(_run(kind(**json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})))


class _Broken(logging.Handler):
    """What fails in a connection's handler fails the test."""

    def __init__(self, peer):
        super().__init__(logging.ERROR)
        self._peer = peer

    def emit(self, record):
        if record.exc_info and record.getMessage() != "opening handshake failed":  # a cut may come that early
            why = "".join(traceback.format_exception(*record.exc_info))
            self._peer.tell("invalid", why=f"{record.getMessage()}: {why}")


async def _run(peer):
    broken = _Broken(peer)
    logging.getLogger().addHandler(broken)  # asyncio and websockets report there
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    peer.tell("listening", port=await peer.serve())
    while line := await reader.readline():
        command = json.loads(line)
        error = None
        try:
            done = getattr(peer, f"on_{command['verb']}")(**command["fields"])
            if done is not None:
                await done
        except Exception as fault:
            traceback.print_exc()
            error = repr(fault)
        peer.tell("answer", number=command["number"], error=error)
    logging.getLogger().removeHandler(broken)  # what is open is cut now, wherever it stands
    peer.on_drop()
