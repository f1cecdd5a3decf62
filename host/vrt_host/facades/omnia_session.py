"""One session of Omnia's: a conversation, as a guest of the host; its messages become vRT and vRT becomes its messages.

A session outlives the connection that it was begun on: what was said is kept, and goes on in the context of the agent that the next
connection gets (page, "Session handling"). A call whose connection was lost is parked, with its agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vrt_host.agents.base import Format, Json
from vrt_host.facades.borrow import Borrowed
from vrt_host.facades.guest import Call, Guest, RefusedError
from vrt_host.facades.omnia_frames import Frame
from vrt_host.facades.omnia_sides import Client, Server
from vrt_host.facades.omnia_tools import Calls
from vrt_host.facades.omnia_turn import FAILED, Said, Turn, failure
from vrt_host.facades.omnia_voice import RATE, Voice

if TYPE_CHECKING:
    from vrt_host.lending import Lent

log = logging.getLogger(__name__)

FIRST_S = 90.0
"""Until something comes of an answer (`firstTokenTimeout`)."""
IDLE_S = 120.0
"""Until more comes of one."""
AGAIN_S = 5.0
"""After a call that failed, whose client may go on sending, until a frame begins another."""
SLACK_S = 1.0
"""The host gives up an answer after as long, a little before or after us."""
PARK_S = 15.0
"""How long a call without a connection is kept."""
KEPT = 256
"""Messages that are kept for it meanwhile."""
LAST_S = 10.0
"""After a client's last frame, until the answer to it has begun."""
EARLY = 256
"""Pieces of audio that may wait while a session is opened."""
BUSY = "the session's previous turn is still running; send it again after the reply"
ELSEWHERE = "audio forward failed: the call goes on on another connection"
ROOM_S = 0.1
"""Between two looks whether a client that reads slowly has caught up."""


class Session:
    """Is the `Listener` of its guest."""

    def __init__(self, server: Server, id_: str, owner: str, facet: str | None) -> None:
        self.id = id_
        self.owner = owner
        self.facet = facet
        self.client: Client | None = None
        """The connection that it is used on."""
        self.fresh = True  # nothing of it was opened yet
        self.maker: object = None  # what marks the connection that it was begun on
        self.voice: Voice | None = None
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._used = self._loop.time()
        self._guest: Guest | None = None
        self._rate = RATE
        self._opening: asyncio.Task[None] | None = None
        self._early: deque[bytes] = deque(maxlen=EARLY)
        self._text: str | None = None
        """A message that waits while the session is opened."""
        self._pending = False
        """A message has no turn yet."""
        self._turn: Turn | None = None
        self._said = Said()
        self._calls = Calls(server.tools, server.times, self._tell, self._settle)
        self._alarm: asyncio.TimerHandle | None = None
        self._more = False  # it rings for an answer that has begun
        self._last: asyncio.TimerHandle | None = None
        self._parking: asyncio.TimerHandle | None = None
        self._kept: deque[tuple[str, dict[str, Json]]] = deque(maxlen=KEPT)
        self._waits = False
        self._deaf = 0.0  # until then no call begins

    @property
    def answering(self) -> bool:
        """Whether a message is being answered."""
        return self._pending or (self._turn is not None and self._turn.text)

    @property
    def busy(self) -> bool:
        """Whether any turn runs."""
        return self._pending or self._turn is not None

    @property
    def parked(self) -> bool:
        """Whether its call waits for a connection."""
        return self._parking is not None

    def expired(self, ttl: float) -> bool:
        """Whether its context is gone; one that has none yet does not expire."""
        old = self._loop.time() - self._used > ttl
        return old and self.client is None and not self.parked and not self.fresh

    def forget(self) -> None:
        """Its context has expired."""
        self._said.forget()

    # --- its connection

    def take(self, client: Client) -> None:
        """It is used on this connection now."""
        if self.client is not None and self.client is not client:
            self.client.left(self)
        self.client = client
        self.fresh = False

    def attach(self, client: Client) -> None:
        """A call has a connection again."""
        self._unpark()
        self.take(client)
        while self._kept:
            kind, body = self._kept.popleft()
            client.send(kind, self.id, **body)
        if self._guest is not None:
            self._guest.writable()

    def leave(self) -> None:
        """Its connection is gone: a call waits for another one, all else ends."""
        self.client = None
        if self.voice is None or self.voice.ending:
            self.close()
        else:
            self._parking = self._loop.call_later(PARK_S, self.close)

    def close(self) -> None:
        """The agent goes; what was said stays."""
        self._unpark()
        self._kept.clear()
        self._over()
        self._calls.cancelled()
        self._hang_up()
        self._close_guest()
        self._used = self._loop.time()
        self.client = None

    def _unpark(self) -> None:
        if self._parking is not None:
            self._parking.cancel()
            self._parking = None

    def _tell(self, kind: str, **body: Json) -> None:
        if self.client is not None:
            self.client.send(kind, self.id, **body)
        elif self.parked:
            self._kept.append((kind, body))

    # --- what the client sends

    def say(self, client: Client, text: str) -> None:
        """Message; only while the session is not `busy`."""
        self.take(client)
        self._pending = True
        self._said.note("user", text)
        self._arm()
        if self._guest is not None:
            self._guest.say(text)
        else:
            self._text = text
            self._open()

    def frame(self, client: Client, frame: Frame) -> bool:
        """Binary media chunk; the first one begins a call. False: it is not heard, and the client was told why."""
        if self.voice is None and self._loop.time() < self._deaf:
            return False
        if self.voice is not None and self.client is not client:
            client.error("INVALID_MESSAGE", ELSEWHERE, self.id)
            return False
        if self.voice is not None and self.voice.ending:
            self._hang_up()
        if self.voice is None and not self._begin(client, Voice(self.id, frame.metadata)):
            return False
        assert self.voice is not None
        self._hear(self.voice.heard(frame))
        if frame.last:
            self._hear(bytes(2 * self.voice.rate))  # the agents listen for the silence behind an utterance
            self.voice.ending = True
            self._last = self._loop.call_later(LAST_S, self._nothing_more)
        return True

    def hangup(self) -> None:
        """Hangup."""
        if self.voice is not None:
            if self._guest is not None:
                self._guest.interrupt("user")
            self._over()
            self._hang_up()

    def acknowledged(self, call: str) -> bool:
        """Tool call acknowledgement. False: not a call of this session's."""
        return self._calls.acknowledged(call)

    def declined(self, call: str, reason: str) -> bool:
        """Tool call rejection. False: not a call of this session's."""
        return self._calls.declined(call, reason)

    def answered(self, call: str, result: Json, error: str | None) -> bool:
        """Tool result. False: not a call of this session's."""
        return self._calls.answered(call, result, error)

    def _begin(self, client: Client, voice: Voice) -> bool:
        if self.busy and (self._rate != voice.rate or self.client is not client):
            client.error("TURN_IN_PROGRESS", BUSY, self.id)
            return False
        if self._rate != voice.rate:
            self._close_guest()  # one that has the call's rate takes its place
        if not self._server.begins():
            client.error("RATE_LIMITED", "audio session limit reached", self.id)
            return False
        self.take(client)
        self.voice = voice
        self._tell("session_config", session_config=voice.config)
        return True

    def _hear(self, payload: bytes) -> None:
        if not payload:
            return
        if self._guest is not None:
            self._guest.audio(payload)
        else:
            self._early.append(payload)
            self._open()

    def _nothing_more(self) -> None:
        self._last = None
        if self._opening is not None:  # nobody has heard it yet
            self._last = self._loop.call_later(LAST_S, self._nothing_more)
        elif not self.busy:  # else its end is the call's
            self._hang_up()

    def _broken_off(self) -> None:
        """The call has failed: what is wrong with an agent's provider is not tried again with each frame."""
        self._hang_up()
        self._deaf = self._loop.time() + AGAIN_S

    def _hang_up(self) -> None:
        """The call is over."""
        if self._last is not None:
            self._last.cancel()
            self._last = None
        if self.voice is not None:
            self.voice = None
            self._early.clear()
            self._server.ends()

    # --- `Listener`

    def state(self, turn: str, state: str) -> None:
        """`Listener.state`."""
        if self._turn is None or self._turn.id != turn:
            if state == "idle":
                return
            text = self._pending
            self._finish()
            self._turn = Turn(turn, text=text)
        if state == "idle":
            self._finish()
            return
        self._turn.begun |= state != "listening"
        if state in ("acting", "listening"):
            self._disarm()
        else:
            self._arm()

    def transcript(self, turn: str, role: str, text: str, *, final: bool) -> None:
        """`Listener.transcript`: the caller's words in a call, and the agent's where it does not write them as well."""
        shown = self._shown(turn)
        if shown is None or not text:
            return
        if role == "user":
            if self.voice is not None and not shown.text and final:
                shown.begun = True
                self._said.note("user", text)
                self._tell("chunk", content=text, role="user")
        elif shown.kind in (None, "spoken"):
            self._say(shown, "spoken", text)

    def text(self, turn: str, text: str, *, final: bool) -> None:
        """`Listener.text`."""
        shown = self._shown(turn)
        if shown is not None and text and shown.kind in (None, "written"):
            self._say(shown, "written", text)

    def audio(self, turn: str, item: str, payload: bytes) -> None:
        """`Listener.audio`; heard in a call only."""
        if self._shown(turn) is None:
            return
        self._arm(more=True)
        if self.voice is not None and self.client is not None:
            self.client.write(self.voice.spoken(payload, item, binary=self.client.binary))

    def call(self, call: Call) -> None:
        """`Listener.call`."""
        self._disarm()
        self._calls.begin(call)

    def cancelled(self, call: Call) -> None:
        """`Listener.cancelled`."""
        self._calls.cancelled()

    def stream(self, message: Mapping[str, Json]) -> None:
        """`Listener.stream`; Omnia shows none of it."""

    def interrupted(self, reason: str) -> None:
        """`Listener.interrupted`: Interrupt, in a call."""
        turn = self._turn
        if turn is None:
            return
        if self.voice is not None and turn.begun:
            self._tell("interrupt")
        if turn.broken is not None and reason == "server":
            self._fail(*failure(turn.broken))
        else:
            self._finish()

    def error(self, code: str, message: str, *, recoverable: bool) -> None:
        """`Listener.error`. What the agent says of it is for the log alone: it may be its provider's words."""
        if code in ("HOST_STOPPING", "UNAUTHORIZED"):
            self._over()  # `closed` says it
        elif not recoverable:
            self._failed(code)
        elif self._alarm is not None and self._alarm.when() < self._loop.time() + SLACK_S:
            self._silent()  # the host does not wait any longer, either
        elif self._turn is not None:
            self._turn.broken = code  # if it is that turn's, its end comes next
        elif self._pending:
            self._fail(*failure(code))

    def closed(self, code: int, reason: str) -> None:
        """`Listener.closed`: the host stops, the token was revoked, or the agent failed."""
        self._guest = None
        if code == 1001:
            self._server.stops()
        elif code == 4401 and self.client is not None:
            self.client.expired()
        else:
            self._failed()
        if self.client is None:
            self.close()

    def _failed(self, code: str = "") -> None:
        """The agent is gone; the next message gets another one."""
        if self.voice is not None:
            self._fail("DUPLEX_ERROR", "the realtime audio session failed")
            self._broken_off()
        elif self.busy:
            self._fail(*failure(code))

    async def approves(self, call: Call, lent: Lent) -> bool:
        """`Listener.approves`: the protocol has no question for the user but that of a client's tool; the board asks itself."""
        return True

    def room(self) -> bool:
        """`Listener.room`."""
        if self.client is not None and not self.client.congested:
            return True
        if self.client is not None and not self._waits:
            self._waits = True
            self._loop.call_later(ROOM_S, self._look)
        return False

    def _look(self) -> None:
        self._waits = False
        if self._guest is not None:
            self._guest.writable()

    # --- a turn

    def _shown(self, turn: str) -> Turn | None:
        """The turn that is shown, if it is that one."""
        return self._turn if self._turn is not None and self._turn.id == turn else None

    def _say(self, shown: Turn, kind: str, text: str) -> None:
        shown.kind = kind
        shown.words.append(text)
        self._arm(more=True)
        self._tell("chunk", content=text)

    def _finish(self) -> None:
        """Done, for every turn of the agent's; a noise that came to nothing is none."""
        turn = self._turn
        self._over()
        if turn is None:
            return
        if turn.begun:
            said = "".join(turn.words)
            if said:
                self._said.note("agent", said)
            self._tell("done", **({"content": said} if said else {}))
        self._answered()

    def _answered(self) -> None:
        """With the answer to its last frame, a call is over."""
        if self.voice is not None and self.voice.ending:
            self._hang_up()

    def _fail(self, code: str, message: str) -> None:
        """Error; it takes the place of `done`."""
        self._over()
        self._tell("error", error={"code": code, "message": message})
        self._answered()

    def _over(self) -> None:
        """No turn runs any more, as far as the client is concerned."""
        self._disarm()
        self._pending = False
        self._text = None
        self._turn = None
        if self.voice is not None and self.client is not None:
            self.client.write(self.voice.rest())
        self._server.rests()

    def _arm(self, *, more: bool = False) -> None:
        """Ring when nothing (more) comes of the answer."""
        self._disarm()
        self._more = more
        self._alarm = self._loop.call_later(IDLE_S if more else FIRST_S, self._silent)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _silent(self) -> None:
        if self._turn is None:
            self._close_guest()  # it cannot be told what to stop, and would answer the next message with this one's answer
        elif self._guest is not None:
            self._guest.interrupt("user")
        self._fail(*failure("PROVIDER_STALLED" if self._more else "PROVIDER_TIMEOUT"))

    def _settle(self, call: str, **result: Any) -> None:
        self._arm()
        if self._guest is not None:
            self._guest.result(call, **result)

    # --- its guest

    def _open(self) -> None:
        if self._opening is None:
            self._rate = self.voice.rate if self.voice is not None else RATE
            assert self.client is not None  # what comes of a client opens it
            self._opening = self._loop.create_task(self._opened(self.client))

    async def _opened(self, client: Client) -> None:
        guest = Guest(self._server.host, self, client.peer, Borrowed(self._server.host.lending))
        times = self._server.times
        declared = [tool.declared(times.ack + times.result) for tool in self._server.tools.values()]
        format_ = Format("pcm16", self._rate)
        try:
            await guest.open(
                client.token,
                tools=declared,
                input_=format_,
                output=format_,
                context=self._said.context(opening=self._text is not None),
            )
        except RefusedError as error:
            self._opening = None
            log.info("%s: no session: %s", client.peer, error)
            self._refused(client, error)
            return
        except asyncio.CancelledError:
            guest.close()
            raise
        self._opening, self._guest = None, guest
        if self._text is not None:
            guest.say(self._text)
        self._text = None
        while self._early:
            guest.audio(self._early.popleft())

    def _refused(self, client: Client, error: RefusedError) -> None:
        told = failure(error.agent)
        if error.code == "UNAUTHORIZED":
            self._over()
            client.expired()
        elif self.voice is not None:
            words = "the agent could not be started" if told == FAILED else told[1]
            self._fail("INVALID_MESSAGE", f"audio session start failed: {words}")
            self._broken_off()
        else:
            self._fail(*(("INTERNAL_ERROR", "failed to create session") if told == FAILED else told))

    def _close_guest(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._guest is not None:
            self._guest.close()
            self._guest = None
