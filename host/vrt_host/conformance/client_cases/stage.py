"""Where scenarios meet the client under test: one client, many sessions.

A scenario asks for a `session()`. The one before is ended by `RESUME_FAILED`, after which a client opens a new one (§5.4); one
that does not come is started again. Tools whose names begin with `test.` steer the client (docs/conformance.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from vrt_host.conformance.checks import NotTestable, Sheet, Unmet, shown
from vrt_host.conformance.run import Pace
from vrt_host.conformance.server import PCMU, Connection, Listener, Message, Session, tool_names
from vrt_host.conformance.subject import Subject
from vrt_host.conformance.watch_client import ClientWatch

ANSWER_S: Final = 5.0
"""For an answer of the client's."""
COME_S: Final = 20.0
"""For a client to connect again: well beyond a cautious backoff."""
OPERATOR_S: Final = 600.0
"""For an operator to connect one, or to restart it."""
NOTHING: Final = "test.nothing"
"""A tool that nobody has."""


@contextlib.contextmanager
def proves(sheet: Sheet, *checks: str) -> Iterator[None]:
    """These checks pass when what is inside happens, and fail when it does not."""
    try:
        yield
    except Unmet as unmet:
        for check in checks:
            sheet.settle(check, False, f"not reached: {unmet}")
        raise
    for check in checks:
        sheet.settle(check, True)


class Stage:
    """The client under test, and the server that it talks to."""

    def __init__(
        self,
        listener: Listener,
        url: str,
        subject: Subject,
        watch: ClientWatch,
        *,
        pace: Pace,
        ping_s: float = 15.0,
    ) -> None:
        """`ping_s`: the client's ping interval."""
        self.listener = listener
        self.url = url
        self.subject = subject
        self.watch = watch
        self.pace = pace
        self.ping_s = ping_s
        self.current: Connection | None = None
        self.formats: dict[str, Message] = {"input": PCMU, "output": PCMU}
        self.mute = False
        """It was found to send no audio."""
        self.reports = False
        """It was found to report what it plays."""
        self._runs = False

    # --- connections

    async def arrive(self) -> tuple[Connection, Message]:
        """The client's next connection and its hello. A client that does not come is started, once."""
        why = ""
        for _ in range(2):
            if not self._runs:
                await self.subject.start(self.url)
                self._runs = True
            try:
                connection = await self._accept()
            except Unmet as unmet:
                why = str(unmet)
                await self.restart()
            else:
                return connection, await connection.message("hello", self.s(ANSWER_S))
        raise Unmet(why)

    async def stay_away(self, seconds: float) -> tuple[Connection, Message] | None:
        """Nothing, or the connection that comes in this time although none should."""
        try:
            async with asyncio.timeout(seconds):
                connection = await self._next()
                return connection, await connection.message("hello", self.s(ANSWER_S))
        except (TimeoutError, Unmet):
            return None

    async def restart(self) -> None:
        """A client that has stopped is made to come again."""
        await self.subject.stop()
        self._runs = False

    async def _accept(self) -> Connection:
        """The next connection."""
        arrival = asyncio.ensure_future(self._next())
        gone = asyncio.ensure_future(self.subject.gone())
        patience = self.s(COME_S) if self.subject.restarts else OPERATOR_S
        before = len(self.listener.attempts)
        try:
            await asyncio.wait({arrival, gone}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if arrival.done():
                return arrival.result()
            if gone.done():
                raise Unmet(gone.result())
            came = len(self.listener.attempts) - before
            told = f": it came {came} times, and opened none" if came else ""
            raise Unmet(f"the client did not open a connection within {patience:g} s{told}")
        finally:
            for task in (arrival, gone):
                task.cancel()
            await asyncio.gather(arrival, gone, return_exceptions=True)

    async def _next(self) -> Connection:
        while True:
            connection = await self.listener.accept()
            if not connection.ended:
                self.watch.look(connection)
                self.current = connection
                return connection

    # --- sessions

    async def session(self, **ready: Any) -> Session:
        """A new session, open. `ready`: further or other members of `ready`."""
        connection, hello = await self.fresh()
        session = self.made()
        session.open(connection, hello, **ready)
        return session

    def made(self) -> Session:
        """A session that is still to be opened."""
        return Session(str(uuid.uuid4()), input_=self.formats["input"], output=self.formats["output"])

    async def fresh(self) -> tuple[Connection, Message]:
        """A connection on which a new session is asked for, not yet answered; whatever session there was is over."""
        connection = self.current
        if connection is not None and not connection.ended:
            greeting = connection.heard("hello")
            fresh = greeting and "sessionId" not in greeting[0]
            if fresh and not any(frame.sent for frame in connection.frames):
                return connection, greeting[0]
            connection.refuse("RESUME_FAILED", 4404)
        for again in range(4):
            connection, hello = await self.arrive()
            if "sessionId" not in hello:
                return connection, hello
            connection.refuse("RESUME_FAILED", 4404)
            if again:
                await self.restart()  # it asks for the old session again, whatever it is told
        raise Unmet("the client asks for an old session even when it begins")

    async def back(self, session: Session) -> tuple[Connection, Message]:
        """The client's next connection, on which it asks for its session again."""
        connection, hello = await self.arrive()
        if hello.get("sessionId") != session.id:
            raise Unmet(f"the client came back without its session: {shown(hello)}")
        return connection, hello

    async def cut(self, session: Session) -> tuple[Connection, Message]:
        """Cut the session's connection, and wait for the next one."""
        assert session.connection is not None
        session.connection.cut()
        return await self.back(session)

    # --- steering

    def needs(self, session: Session, *tools: str) -> None:
        """Raises `NotTestable` unless the client offers these tools."""
        offered = tool_names(session.hello)
        missing = [tool for tool in tools if tool not in offered]
        if missing:
            raise NotTestable(f"the client has no tool {' and no '.join(missing)}")

    async def barrier(self, session: Session) -> None:
        """Wait until the client has handled all that was said: it answers a call of a tool that it does not have."""
        await session.result(session.call(NOTHING, {}), self.s(2 * ANSWER_S))

    async def slow(self, session: Session, ms: int = 0, **call: Any) -> int:
        """Have it run `test.slow`; returns how many of the test tools have been started by then."""
        result = await session.result(
            session.call("test.slow", {"ms": ms}, **call), self.s(2 * ANSWER_S) + ms / 1000
        )
        output = result.get("output")
        if not isinstance(output, dict) or not isinstance(output.get("started"), int):
            raise Unmet(f"test.slow does not return {{'started': number}}: {result}")
        started: int = output["started"]
        return started

    async def running(self, session: Session, call: str) -> None:
        """Wait until a call that takes long can be taken to run: it was acknowledged, and a moment has gone by."""
        seq = next(message["seq"] for message in session.kept if message.get("callId") == call)
        with contextlib.suppress(Unmet):  # acks are a rule of their own
            await session.until(lambda: session.acked >= seq, self.s(1), "")
        await self.rest(0.05)

    # --- time

    def s(self, seconds: float) -> float:
        """A deadline."""
        return self.pace.s(seconds)

    def ms(self, seconds: float) -> int:
        """For a tool, which has to take longer than something else does: milliseconds."""
        return round(1000 * self.pace.s(seconds))

    async def rest(self, seconds: float) -> None:
        """Let time go by where there is no event to wait for: something must not happen."""
        await asyncio.sleep(self.s(seconds))

    async def holds(self, session: Session, broken: Callable[[], bool], seconds: float) -> bool:
        """Whether something stays false for so long."""
        try:
            await session.until(broken, self.s(seconds), "")
        except Unmet:
            return not broken()
        return False
