"""What the event logs of both sides say of a soak: whether everything arrived, ran and was handled exactly once.

`judge(events)` takes the log of one board, as `vrt_host.harness.recorder` writes it, and compares

- what the host numbered (`message.out`) with what the firmware tells of having handled, in order;
- what the firmware tells of having sent with what reached the host (`message.in`), number by number, in order;
- that with what the agent was told (`agent.*`);
- every call with its runs: the firmware's word (`call_start`), the tool's own (`console`), and the pulses that the
  simulated hardware saw at its outputs.

Messages that come again after a cut are the protocol's business: by their number they are one message here, and have to
be the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Key = tuple[Hashable, ...]


@dataclass
class Verdict:
    """What went wrong, in words; `lost` and `doubled` count messages, calls, results and effects."""

    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)
    handled: int = 0
    """Numbered messages of both directions."""
    resent: int = 0
    calls: int = 0

    def compare(
        self, what: str, wanted: Sequence[Key], got: Sequence[Key], optional: Iterable[Key] = ()
    ) -> None:
        """`got` has to be `wanted`, in order, each once; those that are `optional` may be missing."""
        may = set(optional)
        asked, times = Counter(wanted), Counter(got)
        lost = [key for key in (asked - times).elements() if key not in may]
        doubled = list((times - asked).elements())
        self.lost += len(lost)
        self.doubled += len(doubled)
        if lost:
            self.problems.append(f"{what}: lost {lost[:5]}")
        if doubled:
            self.problems.append(f"{what}: doubled, or from nowhere {doubled[:5]}")
        if not lost and not doubled and [key for key in wanted if times[key]] != list(got):
            self.problems.append(f"{what}: in another order")


def judge(events: Sequence[Event]) -> Verdict:
    """The verdict on one board's log, taken after both sides have nothing left to say."""
    made = Verdict()
    down = _numbered(made, "to the device", events, "message.out")
    up = _numbered(made, "to the host", events, "message.in")
    made.handled = len(down) + len(up)
    calls = [message["callId"] for message in down if message["type"] == "tool.call"]
    made.calls = len(calls)
    results = {message["callId"]: message for message in up if message["type"] == "tool.result"}
    cut_off = {call for call, result in results.items() if not result["ok"]}
    stopped = {event["epoch"] for event in _of(events, "device", "interrupt")}

    handled = [key for event in events if event["source"] == "device" and (key := _told(event))]
    made.compare(
        "what the device handled",
        [key for message in down if (key := _expected(message))],
        handled,
        [*(("call", call) for call in cut_off), *(("interrupted", epoch) for epoch in stopped)],
    )
    # Type by type: on an interruption the log has the results before the messages that are sent before them.
    for kind in ("tool.result", "interrupt", "playback"):
        made.compare(
            f"{kind} of the device",
            [
                key
                for event in events
                if event["source"] == "device" and (key := _sent(event)) and key[0] == kind
            ],
            [key for message in up if (key := _arrived(message)) and key[0] == kind],
        )
    made.compare(
        "contexts that the agent was told",
        [(str(message["context"]),) for message in up if message["type"] == "context"],
        [(str(event["value"]),) for event in _of(events, "host", "agent.context")],
    )
    # Compared in the order of calls: an interruption settles some before the device's own results come.
    place = {call: number for number, call in enumerate(calls)}
    for what, ids in (
        ("results of the device", [message["callId"] for message in up if message["type"] == "tool.result"]),
        ("calls that the host settled", [event["id"] for event in _of(events, "host", "call.settled")]),
    ):
        ids.sort(key=lambda call: place.get(call, -1))
        made.compare(what, _keys(calls), _keys(ids))
    made.compare(
        "results that the agent was told",
        _keys(event["call"] for event in _of(events, "host", "call.settled")),
        _keys(event["call"] for event in _of(events, "host", "agent.result")),
    )
    _effects(made, events, down, results)
    sessions = len([event for event in _of(events, "device", "ready") if not event["resumed"]])
    if sessions != 1:
        made.problems.append(f"the device opened {sessions} sessions, instead of resuming the first")
    for source, name in (
        ("host", "fault"),
        ("host", "agent.error"),
        ("device", "traceback"),
        ("device", "error"),
    ):
        made.problems += [f"{source}: {event}" for event in _of(events, source, name)]
    return made


def _of(events: Iterable[Event], source: str, name: str) -> list[Event]:
    return [event for event in events if event["source"] == source and event["event"] == name]


def _numbered(made: Verdict, what: str, events: Sequence[Event], name: str) -> list[dict[str, Any]]:
    """The messages of one direction by their numbers, each once."""
    found: dict[int, dict[str, Any]] = {}
    for event in _of(events, "host", name):
        message = event.get("message") or {}
        seq = message.get("seq", 0)
        if not seq:
            continue
        if seq in found:
            made.resent += 1
            if found[seq] != message:
                made.problems.append(f"{what}: number {seq} was two messages")
        found[seq] = message
    missing = max(found, default=0) - len(found)
    if missing:
        made.lost += missing
        made.problems.append(f"{what}: {missing} numbers were never seen")
    return [found[seq] for seq in sorted(found)]


def _expected(message: Event) -> Key | None:
    """A server message as `_told` has it; None: the device has nothing to tell of it."""
    match message["type"]:
        case "turn.state":
            return ("turn", message["epoch"], message["state"])
        case "transcript" | "text":
            return (message["type"], message["text"])
        case "tool.call":
            return ("call", message["callId"])
        case "interrupted":
            return ("interrupted", message["epoch"])
    return None


def _told(event: Event) -> Key | None:
    """What the device tells of a message that it handled."""
    match event["event"]:
        case "turn":
            return ("turn", event["epoch"], event["state"])
        case "transcript" | "text":
            return (event["event"], event["text"])
        case "call":
            return ("call", event["call"])
        case "interrupted":
            return ("interrupted", event["epoch"])
    return None


def _sent(event: Event) -> Key | None:
    """What the device tells of a message that it gave a number."""
    match event["event"]:
        case "result":
            return ("tool.result", event["call"])
        case "interrupt":
            return ("interrupt", event["epoch"])
        case "playback":
            return ("playback", event["item"])
    return None


def _arrived(message: Event) -> Key | None:
    """A client message as `_sent` has it."""
    match message["type"]:
        case "tool.result":
            return ("tool.result", message["callId"])
        case "interrupt":
            return ("interrupt", message["epoch"])
        case "playback":
            return ("playback", message["itemId"])
    return None


def _effects(
    made: Verdict, events: Sequence[Event], down: Sequence[Event], results: dict[str, dict[str, Any]]
) -> None:
    """What ran: each call with a good result once, each other at most once."""
    calls = [message for message in down if message["type"] == "tool.call"]
    cut_off = [call["callId"] for call in calls if not results.get(call["callId"], {}).get("ok")]
    started = [event["call"] for event in _of(events, "device", "call_start")]
    made.compare("calls that ran", _keys(call["callId"] for call in calls), _keys(started), _keys(cut_off))
    number = {call["callId"]: call["arguments"]["n"] for call in calls}
    console = [event["text"].split() for event in _of(events, "device", "console")]
    ran = [int(words[1]) for words in console if words[:1] == ["ran"]]
    made.compare(
        "effects, by the tools' own word",
        _keys(number[call["callId"]] for call in calls),
        _keys(ran),
        _keys(number[call] for call in cut_off),
    )
    pulses = [event for event in _of(events, "hardware", "output") if event["value"]]
    difference = len(pulses) - len(ran)
    made.doubled += max(0, difference)
    made.lost += max(0, -difference)
    if difference:
        made.problems.append(f"the outputs saw {len(pulses)} pulses, the tools made {len(ran)}")


def _keys(values: Iterable[Hashable]) -> list[Key]:
    return [(value,) for value in values]
