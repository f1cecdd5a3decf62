"""One session at work: its agent, its turn manager and its timer on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from vrt_host.agents.base import Agent, AgentEvent, Json, SessionInfo
from vrt_host.agents.transcode import Transcoder, negotiate, to_json
from vrt_host.config import TurnLimits
from vrt_host.errors import AgentStartError
from vrt_host.session import AudioFrame, Hello, Limits, Message, Session, State, in_effect
from vrt_host.tools import DeclaredTools
from vrt_host.turns import TurnManager

log = logging.getLogger(__name__)

CAPABILITIES = ("tool-stream-v1", "global-tool-ids-v1")
"""What sessions support; the second asks for ids that are random anyway."""

_TOKEN = re.compile(r"vrt_[\w-]*")
"""A token that stands where it should not, whole or cut: a client that puts it into the wrong member, for one."""

Observer = Callable[[dict[str, Any]], None]
"""Is told `{"t": seconds on the monotonic clock, "event": name, "session": id, ...}` of all that happens."""


class Alarm:
    """One timer that moves often. It is set anew only when it has to ring earlier; ringing early does no harm."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._when = float("inf")

    def set(self, when: float | None) -> None:
        """Ring at `when` or before; None: nothing is due (an alarm already set may still ring once)."""
        if when is None or when >= self._when or when == float("inf"):
            return
        self.cancel()
        self._when = when
        self._handle = self._loop.call_at(when, self._fire)

    def cancel(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        self._when = float("inf")

    def _fire(self) -> None:
        self._handle = None
        self._when = float("inf")
        self._ring()


class Carrier(Protocol):
    """What a runner needs of the link that its session is bound to."""

    def flush(self) -> None:
        """Run the session (`Runner.run`), and send what waits."""

    def admit(self, seconds: float) -> bool:
        """Whether the link takes so much more audio now."""


class Runner:
    """A session's life: `start`, any number of links by way of `carrier`, `session.close`. Is its agent's `Port`."""

    def __init__(
        self,
        principal: str,
        hello: Hello,
        tools: DeclaredTools,
        agent: Agent,
        *,
        limits: Limits,
        turn_limits: TurnLimits,
        ended: Callable[[Runner], None],
        observer: Observer | None = None,
    ) -> None:
        """`ended(runner)` is called once, when the session is closed; `finish` is still to be awaited."""
        self._loop = asyncio.get_running_loop()
        message = hello.message
        input_, output = negotiate(message, agent.abilities)
        if input_.converts or output.converts:
            agent = Transcoder(agent, input_, output, self._bad_audio)
        capabilities = in_effect(message.get("capabilities", ()), CAPABILITIES)
        self.id = str(uuid.uuid4())
        self.token = hello.token
        """What the last link authenticated with."""
        for reason in tools.declined:
            log.warning("session %s: a tool is declined: %s", self.id[:8], printable(reason, 300))
        self.session = Session(
            self.id,
            principal,
            hello,
            input=to_json(input_.client),
            output=to_json(output.client),
            capabilities=capabilities,
            limits=limits,
            on_state=self._on_state,
        )
        if tools.beyond_limits:  # sent behind `ready`
            text = f"{len(tools.beyond_limits)} tools are declined, the first: {tools.beyond_limits[0]}"
            self.session.error("TOOLS_DECLINED", text)
        self.carrier: Carrier | None = None
        self._agent = agent
        self._info = SessionInfo(tools.tools, message.get("context"), input_.client, output.client)
        self._ended = ended
        self._observer = observer
        self.manager = TurnManager(
            self.session,
            agent,
            tools,
            output.client,
            limits=turn_limits,
            streams="tool-stream-v1" in capabilities,
            wake=self._wake,
            admit=self._admit,
            observe=None if observer is None else self.observe,
        )
        self._alarm = Alarm(self._loop, self.flush)
        self._scheduled = False
        self._running = False
        self._room = asyncio.Event()
        """Set whenever there is room for more of the agent's audio."""
        self._drain_s = turn_limits.drain_s

    # --- the agent's port

    def emit(self, event: AgentEvent) -> None:
        """`Port.emit`."""
        self.manager.emit(event)

    async def drain(self) -> None:
        """`Port.drain`."""
        self.flush()
        while self.manager.playout.queued_s > self._drain_s and not self.manager.closed:
            self._room.clear()
            await self._room.wait()

    def idle(self) -> bool:
        """`Port.idle`."""
        return self.manager.idle

    # --- the server's side

    def greeted(self, hello: Hello) -> None:
        """A link with this hello is bound to the session: the first, or one that resumes it."""
        self.token = hello.token
        device = hello.message.get("device")
        crash = device.get("crash") if isinstance(device, dict) else None
        if isinstance(crash, str) and crash:
            log.warning("session %s: the device crashed before: %s", self.id[:8], printable(crash, 300))

    async def start(self, timeout_s: float) -> None:
        """Let the agent get ready; raises `AgentStartError` with what the client may know."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._agent.start(self._info, self)
        except AgentStartError:
            raise
        except TimeoutError:
            raise AgentStartError(
                f"the agent {self._agent.name} was not ready after {timeout_s:g} s"
            ) from None
        except Exception as error:
            log.exception("session %s: the agent %s failed to start", self.id[:8], self._agent.name)
            raise AgentStartError(f"the agent {self._agent.name} failed to start") from error

    def run(self, now: float, events: Sequence[Message | AudioFrame] = ()) -> None:
        """Handle what the client sent, do what is due, and set the timer for what comes next."""
        if self._running:
            return
        manager = self.manager
        self._running = True  # what the agent emits meanwhile is taken below, without a wake
        try:
            for event in events:
                if isinstance(event, AudioFrame):
                    manager.audio(event.payload)
                else:
                    manager.receive(event.message, now)
            self.session.tick(now)
            manager.tick(now)
        except Exception:
            self._failed()
        self._running = False
        if manager.pending:
            self._wake()
        if not self._room.is_set() and manager.playout.queued_s <= self._drain_s:
            self._room.set()
        due = manager.deadline(now)
        window = self.session.deadline
        self._alarm.set(window if due is None or (window is not None and window < due) else due)

    def flush(self) -> None:
        """`run`, and send what it made."""
        self._scheduled = False
        if self.session.state is State.CLOSED:
            return
        if self.carrier is not None:
            self.carrier.flush()
        else:
            self.run(self._loop.time())

    def stop(self, now: float) -> None:
        """End the session because the host stops; the client is told, and so is the agent."""
        try:
            self.manager.stop(now)
            self.end("HOST_STOPPING", "the host is stopping", 1001)
        except Exception:
            self._failed()

    def end(self, code: str, message: str, close: int) -> None:
        """End the session with an error."""
        self.session.error(code, message, recoverable=False)
        self.session.close(close, message)

    def _failed(self) -> None:
        """A fault of ours in one session ends that session, and nothing else. Called while it is handled."""
        log.exception("session %s: failed", self.id[:8])
        with contextlib.suppress(Exception):
            self.end("AGENT_ERROR", "the session failed", 1011)

    async def finish(self, timeout_s: float) -> None:
        """After the end: let the agent free what it holds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._agent.close()
        except TimeoutError:
            log.warning(
                "session %s: the agent %s did not close within %g s", self.id[:8], self._agent.name, timeout_s
            )
        except Exception:
            log.exception("session %s: the agent %s failed to close", self.id[:8], self._agent.name)

    def observe(self, name: str, /, **fields: Json) -> None:
        """Tell the observer, if there is one."""
        if self._observer is not None:
            self._observer({"t": self._loop.time(), "event": name, "session": self.id, **fields})

    def _on_state(self, state: State) -> None:
        now = self._loop.time()
        self.observe(f"session.{state.value}")
        if state is State.CONNECTED:
            self.manager.resumed(now)
        elif state is State.PARKED:
            self.carrier = None
            self.manager.parked(now)
            self._wake()  # the resume window has begun: the timer has to know
        else:
            self.carrier = None
            self._alarm.cancel()
            self.manager.close(now)
            self._room.set()
            self._ended(self)

    def _bad_audio(self, text: str) -> None:
        self.observe("fault", code="BAD_PACKET", text=text)

    def _wake(self) -> None:
        if not self._running and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def _admit(self, seconds: float) -> bool:
        return self.carrier is not None and self.carrier.admit(seconds)


def without_tokens(text: str) -> str:
    """The text with every token made unreadable."""
    return _TOKEN.sub("vrt_***", text)


def printable(text: str, limit: int) -> str:
    """A peer's text for one line of a log: bounded, without a token and without anything that moves the cursor."""
    shown = without_tokens(text[: limit + 1]).encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= limit else shown[:limit] + "..."
