"""Looks at what a server sends of turns, calls and tool streams, message by message (vRT §6, §7)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from vrt_host.conformance.checks import Ledger, must, shown
from vrt_host.protocol.wire import Message

TURNS = (
    must("server.turns.epoch-never-falls", "§6.1", "the epoch of a session never decreases"),
    must("server.turns.epoch-rises", "§6.1", "a new turn's epoch is above those of all earlier turns"),
    must("server.turns.silent-after-interrupt", "§6.2", "nothing of an epoch follows the interrupted that closes it"),
    must("server.turns.idle-is-last", "§6.1", "idle is the last that is heard of a turn"),
    must("server.tools.call-ids-unique", "§7.1", "no callId serves two calls of a session"),
    must("server.tools.calls-declared-tools", "§7.1", "only tools that the client declared are called"),
    must("server.streams.same-identifiers", "§6.3", "all messages of a call carry its callId, name, turn and epoch"),
    must("server.turns.turn-ids-global", "§6.3", "with global-tool-ids-v1 no turnId serves two sessions"),
    must("server.tools.call-ids-global", "§6.3", "with global-tool-ids-v1 no callId serves two sessions"),
    must("server.streams.start-first", "§7.5", "start is the first message of a call's stream, and comes once"),
    must("server.streams.arguments-once", "§7.5", "no arguments-delta after arguments-complete, which comes at most once"),
    must("server.streams.progress-in-between", "§7.5", "progress comes after arguments-complete only"),
    must("server.streams.nothing-after-the-end", "§7.5", "a terminal phase is the last that is heard of a call"),
    must("server.streams.no-call-deltas", "§7.4", "no tool.call.delta while tool-stream-v1 is in effect"),
)  # fmt: skip

TERMINAL = frozenset({"settled", "cancelled", "failed"})


class Ids:
    """The identifiers of all sessions that promise to share none."""

    def __init__(self, ledger: Ledger) -> None:
        self._settle = ledger.settle
        self._owners: dict[tuple[str, str], str] = {}

    def note(self, member: str, value: str, session: str) -> None:
        """A session used an identifier."""
        owner = self._owners.setdefault((member, value), session)
        check = "server.turns.turn-ids-global" if member == "turnId" else "server.tools.call-ids-global"
        self._settle(check, owner == session, lambda: f"{member} {value} in two sessions")


@dataclass
class _Call:
    """What a call's first message said of it, and how far its stream is."""

    said: dict[str, object]
    started: bool = False
    complete: bool = False
    over: str | None = None


class TurnEye:
    """The turns of one session."""

    def __init__(
        self,
        ledger: Ledger,
        session: str,
        capabilities: frozenset[str],
        tools: frozenset[str] | None,
        ids: Ids,
    ) -> None:
        """`tools`: what the client declared; None: not known."""
        self._settle = ledger.settle
        self._session = session
        self._tools = tools
        self._streams = "tool-stream-v1" in capabilities
        self._ids = ids if "global-tool-ids-v1" in capabilities else None
        self._epoch = 0
        self._closed = -1
        self._turns: dict[str, int] = {}
        self._idle: set[str] = set()
        self._calls: dict[str, _Call] = {}
        self._issued: set[str] = set()

    def take(self, message: Message) -> None:
        """The next sequenced message, or an `audio.start`."""
        type_ = message["type"]
        if type_ == "interrupted":
            self._closed = max(self._closed, message["epoch"])
            return
        if "epoch" not in message:
            return
        over = message.get("phase") in TERMINAL or message.get("state") == "idle" or type_ == "transcript"
        if not over:  # what says that something has ended may come late
            self._gate(message)
        if message.get("turnId") is not None:
            self._turn(message, over)
        if "callId" in message:
            self._call(message)

    def audio(self, start: Message) -> None:
        """An output frame of the item that `start` announced."""
        self._settle(
            "server.turns.silent-after-interrupt",
            start["epoch"] > self._closed,
            lambda: f"audio of {shown(start)}",
        )

    def _gate(self, message: Message) -> None:
        epoch = message["epoch"]
        self._settle(
            "server.turns.silent-after-interrupt",
            epoch > self._closed,
            lambda: f"epoch {self._closed} is closed, {shown(message)}",
        )
        if message["type"] in ("turn.state", "audio.start", "tool.call"):
            self._settle(
                "server.turns.epoch-never-falls",
                epoch >= self._epoch,
                lambda: f"after {self._epoch}, {shown(message)}",
            )
            self._epoch = max(self._epoch, epoch)

    def _turn(self, message: Message, over: bool) -> None:
        turn, epoch = message["turnId"], message["epoch"]
        if self._ids is not None:
            self._ids.note("turnId", turn, self._session)
        if turn not in self._turns and message["type"] == "turn.state":
            highest = max(self._turns.values(), default=-1)
            self._settle(
                "server.turns.epoch-rises", epoch > highest, lambda: f"after {highest}, {shown(message)}"
            )
            self._turns[turn] = epoch
        if turn in self._idle:
            self._settle("server.turns.idle-is-last", over, lambda: f"idle, then {shown(message)}")
        if message.get("state") == "idle":
            self._settle("server.turns.idle-is-last", True)
            self._idle.add(turn)

    def _call(self, message: Message) -> None:
        type_, call_id = message["type"], message["callId"]
        if self._ids is not None:
            self._ids.note("callId", call_id, self._session)
        said: dict[str, object] = {
            name: message[name] for name in ("name", "turnId", "epoch") if name in message
        }
        call = self._calls.setdefault(call_id, _Call(said))
        before = {**said, **call.said}
        call.said = before
        same = all(before[name] == value for name, value in said.items())
        self._settle(
            "server.streams.same-identifiers", same, lambda: f"first {shown(before)}, then {shown(message)}"
        )
        if type_ == "tool.call":
            self._settle(
                "server.tools.call-ids-unique", call_id not in self._issued, lambda: f"again {shown(message)}"
            )
            self._issued.add(call_id)
            if self._tools is not None:
                self._settle(
                    "server.tools.calls-declared-tools",
                    message["name"] in self._tools,
                    lambda: shown(message),
                )
        elif type_ == "tool.stream":
            self._phase(call, message)
        if self._streams:
            self._settle("server.streams.no-call-deltas", type_ != "tool.call.delta", lambda: shown(message))

    def _phase(self, call: _Call, message: Message) -> None:
        phase, told = message["phase"], partial(shown, message)
        self._settle(
            "server.streams.nothing-after-the-end", call.over is None, lambda: f"{call.over}, then {told()}"
        )
        self._settle("server.streams.start-first", (phase == "start") != call.started, told)
        call.started = True
        if phase in ("arguments-delta", "arguments-complete"):
            self._settle("server.streams.arguments-once", not call.complete, told)
        if phase == "progress":
            self._settle("server.streams.progress-in-between", call.complete, told)
        call.complete |= phase == "arguments-complete"
        if phase in TERMINAL:
            call.over = phase
