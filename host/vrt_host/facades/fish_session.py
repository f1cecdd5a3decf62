"""One session of a Fish client's: a guest of the host, in a LiveKit room.

Sections are those of Fish Audio's page "Wire Protocol". The agent is in the room from the start, its model from when the user comes.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import uuid
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vrt_host.agents.base import PCM16_24K, Json, ToolResult
from vrt_host.errors import AgentStartError
from vrt_host.facades import fish_messages as wire
from vrt_host.facades.borrow import Borrowed
from vrt_host.facades.fish_room import Room
from vrt_host.facades.fish_tools import Calls, ClientTool, Lifecycle
from vrt_host.facades.fish_words import Words
from vrt_host.facades.guest import Call, Guest, RefusedError
from vrt_host.facades.web import Window
from vrt_host.runner import printable

if TYPE_CHECKING:
    from vrt_host.lending import Lent
    from vrt_host.server import Host

log = logging.getLogger(__name__)

RETURN_S = 15.0
"""For a user who has left to come again."""
PACKETS_PER_S = 100
EARLY = 32
"""Texts that may wait while the agent starts."""
EARLY_SOUND = 256
"""Pieces of sound that may."""
STATES: Mapping[str, wire.State] = {
    "listening": "listening",
    "thinking": "thinking",
    "speaking": "speaking",
    "acting": "thinking",
    "idle": "listening",
}
"""A turn's state (vRT §6.1) -> the agent's. It is `initializing` until it can answer, and `idle` while nobody is there."""
_OURS = frozenset(
    {"TOOLS_DECLINED", "MALFORMED", "INVALID_FIELD", "TOO_LARGE", "OVERFLOW", "CLOSED", "UNAUTHORIZED"}
)
"""Codes of errors that are not an agent's, and so no provider's."""


class Server(Protocol):
    """What a session needs of the facade."""

    host: Host
    tools: Mapping[str, ClientTool]

    def over(self, session: Session, *, farewell: bool) -> None: ...


class Session:
    """Is the `Listener` of its guest and the `Events` of its room."""

    def __init__(
        self, server: Server, id_: str, asked: wire.SessionRequest, token: str | None, *, most_s: float
    ) -> None:
        """`token` is what its guest shows the host; `most_s` how long it may be, from the user's arrival on."""
        self.id = id_
        self.user = f"user-{id_[:8]}"
        self.place = Room(self.user, self)
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._asked = asked
        self._token = token
        self._most_s = most_s
        self._peer = f"{self.user} (fish)"
        self._guest: Guest | None = None
        self._opening: asyncio.Task[None] | None = None
        self._early: deque[wire.UserMessage] = deque(maxlen=EARLY)
        self._early_sound: deque[bytes] = deque(maxlen=EARLY_SOUND)
        self._asking: wire.UserMessage | None = None
        """The user's text that is not answered yet."""
        self._turn: _Turn | None = None
        self._state: wire.State = "initializing"
        self._there = False
        self._rate = Window(PACKETS_PER_S, 1.0)
        self._told = False
        self._lifecycle = Lifecycle(self.place.event, self._source)
        self._calls = Calls(server.tools, self.place.event, self._settle)
        self._borrowed = _Told(server.host, self._lifecycle)
        self._alarm: asyncio.TimerHandle | None = None
        self._end_at: asyncio.TimerHandle | None = None
        self._over = False

    def waits(self, seconds: float) -> bool:
        """The user has so long to come (the join deadline). False: the agent is not in the room."""
        if self.place.joined and not self._there and not self._over:
            self._alarm = self._loop.call_later(seconds, self._nobody, "nobody came")
        return self.place.joined and not self._over

    # --- `Events`

    def arrived(self) -> None:
        """`Events.arrived`."""
        if self._over:
            return
        self._there = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._end_at is None:
            self._end_at = self._loop.call_later(self._most_s, self.end, "conversation_timeout")
        if self._guest is None and self._opening is None:
            self._opening = self._loop.create_task(self._open())
        self._tell_state()

    def left(self) -> None:
        """`Events.left`."""
        self._there = False
        self._tell_state()
        if not self._over:
            self._alarm = self._loop.call_later(RETURN_S, self._nobody, "the user left")

    def packet(self, data: bytes) -> None:
        """`Events.packet`. What is malformed or unknown is passed over (Client events)."""
        if self._over:
            return
        if not self._rate.admit():
            if self._rate.first:
                log.info(
                    "%s: more than %d packets in a second: the rest is dropped", self._peer, PACKETS_PER_S
                )
            return
        try:
            event = wire.decode(data)
        except wire.InvalidError as error:
            (log.debug if self._told else log.info)("%s: ignored: %s", self._peer, printable(str(error), 200))
            self._told = True
            return
        match event:
            case wire.UserMessage():
                self._say(event)
            case wire.UserInterrupt():
                self._interrupt()
            case wire.UserHangup():
                self.end("user_hangup")
            case wire.ClientToolResult():
                self._calls.answered(event)
            case wire.UserActivity():
                pass  # agents here do not speak up when nobody says anything

    def heard(self, payload: bytes) -> None:
        """`Events.heard`."""
        if self._guest is not None:
            self._guest.audio(payload)
        elif not self._over:
            self._early_sound.append(payload)

    def roomy(self) -> None:
        """`Events.roomy`."""
        if self._guest is not None:
            self._guest.writable()

    def lost(self, why: str) -> None:
        """`Events.lost`."""
        log.info("%s: the room was lost: %s", self._peer, printable(why, 100))
        self.end(None)

    # --- its end

    def end(self, reason: str | None) -> None:
        """The session is over; `reason` is for the client (session.ended)."""
        if self._over:
            return
        self._over = True
        for timer in (self._alarm, self._end_at):
            if timer is not None:
                timer.cancel()
        self._finish(cut=True)
        self._calls.cancelled()
        self._lifecycle.interrupted()
        if self._opening is not None:
            self._opening.cancel()
        if self._guest is not None:
            self._guest.close()
            self._guest = None
        self.place.hush()
        if reason is not None:
            self.place.event(wire.encode("session.ended", reason=reason))
        log.info("%s: the session is over: %s", self._peer, reason or "nobody is there")
        self._server.over(self, farewell=reason not in (None, "user_hangup"))

    def _nobody(self, why: str) -> None:
        log.info("%s: %s", self._peer, why)
        self.end(None)

    # --- what the client does

    def _say(self, message: wire.UserMessage) -> None:
        if not message.text.strip():
            return
        if self._guest is None:
            self._early.append(message)
            return
        self._asking = message
        self._guest.say(message.text)

    def _interrupt(self) -> None:
        if self._guest is not None and self._turn is not None:
            self._asking = None
            self._guest.interrupt("user")
            self._cut()

    # --- `Listener`

    def state(self, turn: str, state: str) -> None:
        """`Listener.state`."""
        if self._turn is None or self._turn.id != turn:
            if state == "idle":
                return
            self._finish(cut=False)
            if state == "listening":  # the user speaks
                self._asking = None
            aloud = self._asking is None or self._asking.audio
            words = Words(self.place, lambda: self.place.played, aloud=aloud)
            self._turn = _Turn(turn, words, text=self._asking is not None, aloud=aloud)
        if state == "idle":
            self._asking = None
            self._finish(cut=False)
        if state != "speaking" or self._turn.aloud:
            self._becomes(STATES[state])

    def transcript(self, turn: str, role: str, text: str, *, final: bool) -> None:
        """`Listener.transcript`. What the user typed comes back to nobody (no server echo)."""
        shown = self._shown(turn)
        if shown is None or not text:
            return
        if role == "agent":
            shown.words.spoken(text)
        elif not shown.text:
            self.place.said(shown.heard, text, final=final)
            if final:
                shown.heard = _segment()

    def text(self, turn: str, text: str, *, final: bool) -> None:
        """`Listener.text`."""
        shown = self._shown(turn)
        if shown is not None:
            shown.words.written(text)

    def audio(self, turn: str, item: str, payload: bytes) -> None:
        """`Listener.audio`."""
        shown = self._shown(turn)
        if shown is not None and shown.aloud:
            shown.words.sound()
            self.place.play(payload)

    def call(self, call: Call) -> None:
        """`Listener.call`."""
        self._calls.begin(call)

    def cancelled(self, call: Call) -> None:
        """`Listener.cancelled`."""
        self._calls.cancelled()

    def stream(self, message: Mapping[str, Json]) -> None:
        """`Listener.stream`."""
        self._lifecycle.stream(message)

    def interrupted(self, reason: str) -> None:
        """`Listener.interrupted`."""
        self._cut()

    def error(self, code: str, message: str, *, recoverable: bool) -> None:
        """`Listener.error`: by its category alone; the words, which can be a provider's, are in the log."""
        if code not in ("HOST_STOPPING", "UNAUTHORIZED"):  # `closed` says that
            self._fail(code, message)

    def closed(self, code: int, reason: str) -> None:
        """`Listener.closed`."""
        self._guest = None
        log.info("%s: the host ended its session: %d %s", self._peer, code, printable(reason, 100))
        self.end("agent_hangup")

    async def approves(self, call: Call, lent: Lent) -> bool:
        """`Listener.approves`: the protocol has no question for the user; the board asks itself."""
        self._borrowed.under_way = call.id
        return True

    def room(self) -> bool:
        """`Listener.room`."""
        return self.place.room()

    # --- a turn

    def _shown(self, turn: str) -> _Turn | None:
        """The turn that is shown, if it is that one."""
        return self._turn if self._turn is not None and self._turn.id == turn else None

    def _finish(self, *, cut: bool) -> None:
        """The turn is over; `cut`: before its time."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if cut:
            turn.words.cut()
        else:
            turn.words.end()

    def _cut(self) -> None:
        self._lifecycle.interrupted()
        if self._turn is not None:
            self._finish(cut=True)
            self._becomes("listening")
        self.place.hush()

    def _becomes(self, state: wire.State) -> None:
        self._state = state
        self._tell_state()

    def _tell_state(self) -> None:
        self.place.state(self._state if self._there else "idle")

    def _fail(self, code: str, message: str) -> None:
        log.info("%s: %s: %s", self._peer, code, printable(message, 300))
        self.place.event(wire.encode("error", code="internal_error" if code in _OURS else "provider_error"))

    # --- tools

    def _source(self, name: str) -> str:
        if name in self._server.tools:
            return "client"
        return "board" if self._borrowed.has(name) else "builtin"

    def _settle(self, call: str, **result: Any) -> None:
        self._lifecycle.result(call, **result)
        if self._guest is not None:
            self._guest.result(call, **result)

    # --- its guest

    async def _open(self) -> None:
        guest = Guest(self._server.host, self, self._peer, self._borrowed)
        declared = [tool.declared for tool in self._server.tools.values()]
        try:
            await guest.open(
                self._token,
                tools=declared,
                input_=PCM16_24K,
                output=PCM16_24K,
                context=self._context(),
                streams=self._asked.tool_events,
            )
        except (RefusedError, AgentStartError) as error:
            self._opening = None
            self._fail(getattr(error, "code", "START_FAILED"), str(error))
            self.end("agent_hangup")
            return
        except asyncio.CancelledError:
            guest.close()
            raise
        self._opening, self._guest = None, guest
        self._becomes("listening")
        if (first := self._first()) is not None:
            guest.say(first)
        while self._early:
            self._say(self._early.popleft())
        while self._early_sound:
            guest.audio(self._early_sound.popleft())

    def _first(self) -> str | None:
        """What makes the agent begin: vRT has no word for it but the user's."""
        overrides = self._asked.overrides
        if overrides.first_message is not None:
            return f"Begin the conversation with exactly these words: {overrides.first_message}"
        return overrides.first_message_prompt

    def _context(self) -> Json:
        """What the model is told of the session, as data."""
        asked = self._asked
        told: dict[str, Json] = {}
        if asked.zone is not None:
            told["timezone"] = asked.zone.key
        if asked.world_context:
            told["time"] = datetime.datetime.now(asked.zone or datetime.UTC).isoformat(timespec="minutes")
        if asked.dynamic_variables:
            told["variables"] = asked.dynamic_variables
        told |= {name: value for name, value in asked.overrides.given.items() if "first" not in name}
        return told or None


class _Turn:
    """What the client sees of a turn."""

    def __init__(self, id_: str, words: Words, *, text: bool, aloud: bool) -> None:
        self.id = id_
        self.words = words
        self.text = text
        """It answers a text."""
        self.aloud = aloud
        self.heard = _segment()
        """The segment of what the user says."""


class _Told(Borrowed):
    """Tells what became of a board's tool, which vRT does not tell the client of a call."""

    def __init__(self, host: Host, lifecycle: Lifecycle) -> None:
        super().__init__(host.lending)
        self._lifecycle = lifecycle
        self.under_way = ""

    async def call(self, name: str, arguments: Mapping[str, Json]) -> ToolResult:
        """`Borrowed.call`."""
        made = await super().call(name, arguments)
        self._lifecycle.result(self.under_way, ok=made.ok, output=made.output, message=made.message)
        return made


def _segment() -> str:
    return f"SG_{uuid.uuid4().hex[:12]}"
