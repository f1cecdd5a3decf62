"""Turns: the only place that makes vRT of what an agent emits (vRT §6, §7, §8; decisions 8, 11, 13-15).

A `TurnManager` serves one session and is told the time, in seconds of any clock that never goes back. The server

    manager.receive(message, now)   for each client message      manager.audio(payload)     for each input frame
    manager.tick(now)               after those, when `wake()` was called, and at `manager.deadline(now)`
    manager.parked(now), manager.resumed(now)                    when the session changes its state
    manager.stop(now)               to end the session in good order, then `manager.close(now)` when it has ended

The agent calls `emit`, which only queues: events take effect in the next `tick`, so nothing here is re-entered. At
most one turn is alive, the response in flight, from its start until `idle`. What names another turn is dropped,
wherever it comes from. An agent that ended a turn with a call open may go on with it while the call is open, and from
inside `tool_result`: an event that it emits there takes the end back, and it has to end the turn again.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Literal, get_args

from vrt_host.agents import base
from vrt_host.agents.base import Agent, AgentEvent, Format, Json, ToolResult
from vrt_host.calls import Calls
from vrt_host.config import TurnLimits
from vrt_host.consent import TRANSCRIPT_S, Consent
from vrt_host.outlet import Outlet
from vrt_host.playout import Item, Playout
from vrt_host.session import Session
from vrt_host.tools import DeclaredTools
from vrt_host.turn import Truncation, Turn

log = logging.getLogger(__name__)

_CODE = re.compile(r"[A-Z0-9]+(_[A-Z0-9]+)*")

Reason = Literal["speech", "user", "keyboard", "server"]
"""Why a response was interrupted; `server` stands for everything that is not the user's doing."""


class TurnManager:
    """The turns of one session. `idle` and `emit` make it the sans-I/O half of a `Port`."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        tools: DeclaredTools,
        output: Format,
        *,
        limits: TurnLimits = TurnLimits(),  # noqa: B008  (frozen)
        streams: bool = False,
        wake: Callable[[], None] = lambda: None,
        admit: Callable[[float], bool] = lambda seconds: True,
        observe: Callable[..., None] | None = None,
    ) -> None:
        """`streams`: tool-stream-v1 is in effect. `admit(seconds)`: the link takes more audio now.

        `wake()` asks for a `tick` soon; `observe(name, **fields)` is told what happens, for an event log.
        """
        peer = session.peer
        self.epoch = 0
        self.limits = limits
        self._session = session
        self._agent = agent
        self._wake = wake
        self._observe = observe
        self._out = Outlet(session)
        self.playout = Playout(
            session,
            output,
            buffer_s=(peer.buffer_ms or limits.buffer_ms) / 1000,
            frame_limit=None if peer.audio_bytes is None else max(1, peer.audio_bytes - 5),
            admit=admit,
        )
        self._consent = Consent()
        self._calls = Calls(
            session,
            tools,
            self._out,
            self._consent,
            streams=streams,
            window=peer.queued_calls or limits.queued_calls,
            limits=limits,
            answer=self._answer,
            note=self._note,
        )
        self._inbox: deque[AgentEvent] = deque()
        self._turn: Turn | None = None
        self._truncation: Truncation | None = None
        self._held: deque[Mapping[str, Json]] = deque()
        self._seen_calls: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._now = 0.0
        self._active = 0.0
        self.closed = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            base.TurnBegin: self._on_turn_begin,
            base.TurnState: self._on_turn_state,
            base.TurnEnd: self._on_turn_end,
            base.Transcript: self._on_transcript,
            base.Text: self._on_text,
            base.AudioBegin: self._on_audio_begin,
            base.Audio: self._on_audio,
            base.AudioEnd: self._on_audio_end,
            base.Call: self._on_call,
            **dict.fromkeys(get_args(base.Displayed), self._on_display),
            base.AgentError: self._on_error,
        }

    # --- the agent's side

    def emit(self, event: AgentEvent) -> None:
        """Queue an event of the agent (`Port.emit`)."""
        if self.closed:
            return
        if not self._inbox:
            self._wake()
        self._inbox.append(event)

    @property
    def idle(self) -> bool:
        """Whether no response is in flight (`Port.idle`)."""
        return self._turn is None and not self._inbox

    @property
    def open_calls(self) -> int:
        """Calls without a result."""
        return len(self._calls)

    # --- the server's side

    def audio(self, payload: bytes) -> None:
        """One frame of the user's audio."""
        if not self.closed:
            self._tell(self._agent.user_audio, payload)

    def receive(self, message: Mapping[str, Json], now: float) -> None:
        """One client message, as `session` hands it out."""
        self._now = now
        self._take_events()  # what the agent said before must not be taken for an answer to this
        if self.closed:
            return
        match message["type"]:
            case "interrupt":
                # An epoch below the current one is that of an older response: too late, or resent (decisions 13).
                if self._turn is not None and message["epoch"] >= self._turn.epoch:
                    self._interrupt(message["reason"])
            case "playback":
                self._on_playback(message["itemId"], message["playedMs"] / 1000)
            case "tool.result":
                self._on_result(message)
            case "text" | "context":
                if message["type"] == "text" and self._turn is not None:
                    self._interrupt("user")  # §6.3
                self._held.append(message)
                if self._truncation is None or len(self._held) > self.limits.held:
                    self._end_truncation()

    def tick(self, now: float) -> None:
        """Do what is due: the agent's events, audio, timers."""
        self._now = now
        if self.closed:
            return
        self._take_events()
        if self._truncation is not None and now >= self._truncation.deadline:
            self._end_truncation()
        self._calls.send(now)  # those that waited for a resume
        self._prepare_waiting(heard=False)
        if self._calls.overdue(now):
            self._time_out()
        self.playout.pump(now)
        self._finish()
        if self._turn is not None and now >= self._silent_at():
            self._abort(self._turn, f"the agent has done nothing for {self.limits.agent_silence:g} s")

    @property
    def pending(self) -> bool:
        """Whether the agent has said more than one `tick` takes; another one is due at once."""
        return bool(self._inbox)

    def deadline(self, now: float) -> float | None:
        """When `tick` is due, None when nothing is."""
        times = [self.playout.deadline(now), self._calls.due]
        if self._truncation is not None:
            times.append(self._truncation.deadline)
        if self._turn is not None:
            times.append(self._silent_at())
            if self._turn.ended and not self._calls and self.playout.empty:
                times.append(self.playout.due)
        return min((time for time in times if time is not None), default=None)

    def parked(self, now: float) -> None:
        """The link is gone: the deadlines of calls stand still; audio waits for `resumed`."""
        self._calls.freeze(now)

    def resumed(self, now: float) -> None:
        """There is a link again."""
        self._calls.thaw(now)
        self._wake()

    def stop(self, now: float) -> None:
        """Interrupt the response in flight, if any, because the host ends the session."""
        self._now = now
        self._inbox.clear()
        if self._turn is not None:
            self._interrupt("server")
        self._end_truncation()

    def close(self, now: float) -> None:
        """The session has ended: settle what is open for the agent's sake. Nothing is sent any more."""
        if self.closed:
            return
        self._now = now
        self._inbox.clear()
        self.closed = True
        if self._turn is not None:
            self._interrupt("server")
        self._end_truncation()
        self._held.clear()

    # --- what agents emit

    def _take_events(self) -> None:
        if len(self._inbox) > self.limits.events:
            self._inbox.clear()
            self._fail(f"the agent emitted more than {self.limits.events:,} events at once")
            return
        # Only those that are here now: an agent that answers every result at once with another call must not keep
        # the loop for itself. The rest is `pending`.
        for _ in range(len(self._inbox)):
            event = self._inbox.popleft()
            self._active = self._now
            self._handlers[type(event)](event)
            if self.closed:
                return

    def _live(self, key: str) -> Turn | None:
        """The turn of that name, if the agent may still emit in it."""
        turn = self._turn
        if turn is None or turn.key != key or (turn.ended and not self._calls):
            return None
        return turn

    def _on_turn_begin(self, event: base.TurnBegin) -> None:
        if self._turn is not None:
            if self._turn.key == event.turn:
                return
            self._finish()  # one that was complete
        if self._turn is not None:
            self._interrupt("speech" if event.state == "listening" else "server")
        self.epoch += 1
        self._turn = Turn(event.turn, str(uuid.uuid4()), self.epoch)
        self._consent.turn_began(event.turn, self._now)
        self._calls.begin_turn(event.turn, self._turn.id, self.epoch)
        self._set_state(self._turn, event.state)

    def _on_turn_state(self, event: base.TurnState) -> None:
        turn = self._live(event.turn)
        if turn is not None:
            self._set_state(turn, event.state)

    def _on_turn_end(self, event: base.TurnEnd) -> None:
        if self._turn is not None and self._turn.key == event.turn:
            self._turn.ended = True

    def _on_transcript(self, event: base.Transcript) -> None:
        turn = self._live(event.turn)
        if turn is None:
            return
        self._out.transcript(turn, event)
        if event.role == "agent":
            self._consent.agent_said(turn.key, event.text, "heard")
        elif event.final:
            self._consent.user_said(turn.key, event.text)
            self._prepare_waiting(heard=True)

    def _on_text(self, event: base.Text) -> None:
        turn = self._live(event.turn)
        if turn is None or not (event.text or event.final):
            return
        self._consent.agent_said(turn.key, event.text, "shown")
        self._out.text(turn, event)

    def _on_audio_begin(self, event: base.AudioBegin) -> None:
        turn = self._live(event.turn)
        if turn is None or event.item in turn.items:
            return
        if len(turn.items) >= self.limits.per_turn:
            self._abort(turn, "the agent began too many audio items in one turn")
            return
        turn.items[event.item] = item = Item(event.item, turn.id, turn.epoch)
        self.playout.begin(item)

    def _on_audio(self, event: base.Audio) -> None:
        turn = self._live(event.turn)
        if turn is None:
            return
        item = turn.items.get(event.item)
        if item is None or item.ended:
            log.warning("the agent emitted audio outside of an audio item; it was dropped")
            return
        if turn.state != "speaking":
            self._set_state(turn, "speaking")
        self.playout.push(item, event.payload, event.whole)
        if self.playout.queued_s > self.limits.agent_audio_s:
            self._abort(turn, f"the agent is more than {self.limits.agent_audio_s:g} s of audio ahead")

    def _on_audio_end(self, event: base.AudioEnd) -> None:
        turn = self._live(event.turn)
        item = None if turn is None else turn.items.get(event.item)
        if item is not None:
            self.playout.end(item)

    def _on_display(self, event: base.Displayed) -> None:
        turn = self._live(event.turn)
        if turn is not None:
            if isinstance(event, base.OwnCall):
                self._set_state(turn, "acting")
            self._calls.show(event)

    def _on_call(self, event: base.Call) -> None:
        if (event.turn, event.call) in self._seen_calls:
            log.warning("the agent issued a call twice; it runs once")
            return
        self._seen_calls[event.turn, event.call] = None
        if len(self._seen_calls) > 4 * self.limits.per_turn:
            self._seen_calls.popitem(last=False)
        turn = self._live(event.turn)
        if turn is not None and self._calls.issued >= self.limits.per_turn:
            self._abort(turn, "the agent made too many calls in one turn")
            turn = None
        if turn is None:
            result = ToolResult(event.call, False, code="INTERRUPTED", message="its turn is over")
            self._answer(event.turn, result)
            return
        self._calls.issued += 1
        self._prepare(turn, event, self._now + TRANSCRIPT_S)

    def _prepare(self, turn: Turn, event: base.Call, wait_until: float | None) -> None:
        call = self._calls.prepare(event, wait_until)
        if call is not None:
            self._set_state(turn, "acting")
            self._calls.issue(call, self._now)

    def _prepare_waiting(self, *, heard: bool) -> None:
        """Go on with the calls that waited for the user's words."""
        for event in self._calls.decided(self._now, heard=heard):
            if self._turn is not None:
                self._prepare(self._turn, event, None)

    def _on_error(self, event: base.AgentError) -> None:
        turn = None
        if event.turn is not None:
            turn = self._turn
            if turn is None or turn.key != event.turn:
                return
        if not event.recoverable:
            self._fail(event.message, event.code)
        elif turn is not None:
            self._abort(turn, event.message, event.code)
        else:
            self._report(event.message, event.code, recoverable=True)

    # --- calls

    def _on_result(self, message: Mapping[str, Json]) -> None:
        self._active = self._now
        self._calls.result(message, self._now)

    def _time_out(self) -> None:
        """The device did not answer: nothing of the turn may start any more, so its epoch is closed (decisions 8)."""
        self._calls.time_out(self._now)
        self._interrupt("server")

    def _answer(self, turn: str, result: ToolResult) -> None:
        """Give the agent a result; what it emits in its turn while it is told takes an end of that turn back."""
        before = len(self._inbox)
        self._tell(self._agent.tool_result, turn, result)
        if self._turn is not None and self._turn.key == turn and self._turn.ended:
            said = islice(self._inbox, before, None)
            if any(event.turn == turn and not isinstance(event, base.TurnEnd) for event in said):
                self._turn.ended = False

    # --- interruption and the end of a turn

    def _interrupt(self, reason: Reason) -> None:
        """Close the epoch of the response in flight (§6.2)."""
        self._end_truncation()
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self.epoch += 1
        self.playout.clear(self._now)
        self._consent.turn_interrupted(turn.key)
        results = self._calls.interrupt()
        self._out.send("interrupted", epoch=turn.epoch, reason=reason)
        self._note("turn.interrupted", turn=turn.key, id=turn.id, epoch=turn.epoch, reason=reason)
        for result in results:
            self._answer(turn.key, result)
        truncates = self._agent.abilities.interruption == "truncate"
        wait = self.limits.playback_wait if truncates and not self.closed else 0.0
        self._truncation = Truncation(turn, self._now, self._now + wait)
        if not wait or not self._truncation.waiting():
            self._end_truncation()

    def _on_playback(self, item_id: str, seconds: float) -> None:
        """How much of an item was heard; unknown and repeated ones are ignored (decisions 14)."""
        truncation = self._truncation
        for turn in (self._turn, None if truncation is None else truncation.turn):
            for item in [] if turn is None else turn.items.values():
                for segment in item.segments:
                    if segment.id == item_id and segment.reported is None:
                        segment.reported = seconds
        if truncation is not None and not truncation.waiting():
            self._end_truncation()

    def _end_truncation(self) -> None:
        """Tell the agent what was heard of the turn that was interrupted, then what the client said meanwhile."""
        truncation, self._truncation = self._truncation, None
        if truncation is not None:
            heard = truncation.heard()
            self._note(
                "turn.heard", turn=truncation.turn.key, heard={one.item: one.played_ms for one in heard}
            )
            self._tell(self._agent.interrupted, truncation.turn.key, heard)
        while self._held and self._truncation is None and not self.closed:
            message = self._held.popleft()
            if message["type"] == "text":
                self._consent.user_typed(message["text"])
                self._tell(self._agent.user_text, message["text"])
            else:
                self._tell(self._agent.context, message["context"])

    def _finish(self) -> None:
        """Send `idle` once nothing is due, open or to come (decisions 13)."""
        turn = self._turn
        if turn is None or not turn.ended or self._calls:
            return
        if turn.items:
            self.playout.end(next(reversed(turn.items.values())))
            self.playout.pump(self._now)
        if self.playout.busy(self._now):
            return
        self._calls.end_turn()
        self._consent.turn_ended(turn.key, self._now)
        self._set_state(turn, "idle")
        self._turn = None

    def _set_state(self, turn: Turn, state: str) -> None:
        if turn.state != state:
            turn.state = state
            self._out.send("turn.state", turnId=turn.id, epoch=turn.epoch, state=state)
            self._note("turn.state", turn=turn.key, id=turn.id, epoch=turn.epoch, state=state)

    # --- when something is wrong

    def _silent_at(self) -> float:
        """When the agent has been silent for too long; never while a call is open or the end of a turn is awaited."""
        assert self._turn is not None
        if self._turn.ended or self._calls:
            return float("inf")
        return max(self._active, self.playout.due) + self.limits.agent_silence

    def _abort(self, turn: Turn, message: str, code: str = "AGENT_ERROR") -> None:
        """Give up a turn, with an error that the session survives."""
        self._report(message, code, recoverable=True)
        if self._turn is turn:
            self._interrupt("server")

    def _fail(self, message: str, code: str = "AGENT_ERROR") -> None:
        """End the session with an error."""
        if not self.closed:
            self._report(message, code, recoverable=False)
            self.close(self._now)
            self._session.close(1011, "the agent failed")

    def _report(self, message: str, code: str, *, recoverable: bool) -> None:
        if not _CODE.fullmatch(code):  # an adapter may pass on what its provider calls it
            code = "AGENT_ERROR"
        message = message[:500]
        self._note("agent.error", code=code, message=message, recoverable=recoverable)
        self._session.error(code, message, recoverable)

    def _tell(self, method: Callable[..., None], *args: Any) -> None:
        """Call the agent; its failure ends its own session and no other."""
        try:
            method(*args)
        except Exception:
            log.exception("the agent %s failed in %s", self._agent.name, method.__name__)
            self._fail("the agent failed; the host's log says why")

    def _note(self, name: str, /, **fields: Json) -> None:
        if self._observe is not None:
            self._observe(name, **fields)
