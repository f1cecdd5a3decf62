"""Looks at the log of a played scenario: what an expectation matches, and each event in one line (`player.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vrt_host.conformance.checks import shown
from vrt_host.harness.recorder import Event

_SHOWN: Final = 180
_PLAIN: Final = frozenset({"v", "type"})
_LAST: Final = 4
_FAULTS: Final = frozenset({"cut", "stalled", "flowing"})
_LIFE: Final = frozenset({"ack", "ping", "pong"})
_TOLD: Final = frozenset({"error", "console", "traceback"})


def matches(value: Mapping[str, Any], event: Event, calls: Mapping[str, str]) -> bool:
    """Whether an event is what `value` (of `expect`, `never` or `count`) looks for. `calls`: their ids by name."""
    wanted = named(value.get("with", {}), calls)
    source, name = event["source"], event["event"]
    if "event" in value:
        return source in {"device", "hardware"} and name == value["event"] and has(event, wanted)
    if source != "wire":
        return False
    if "end" in value:
        return name == "end" and (value["end"] is True or event["code"] == value["end"])
    message = event.get("message")
    if name != "in" or message is None:
        return False
    if "result" in value:
        wanted = {**wanted, "callId": calls[value["result"]]}
    return bool(message.get("type") == value.get("message", "tool.result")) and has(message, wanted)


def has(value: Any, wanted: Any) -> bool:
    """Whether a value has all that is wanted of it: an object may have more members, all else is equal."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            name in value and has(value[name], one) for name, one in wanted.items()
        )
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def named(value: Any, calls: Mapping[str, str]) -> Any:
    """With the id of each call where `$` and its name stand."""
    if isinstance(value, dict):
        return {name: named(member, calls) for name, member in value.items()}
    if isinstance(value, list):
        return [named(item, calls) for item in value]
    return calls[value[1:]] if isinstance(value, str) and value[:1] == "$" else value


def fatal(event: Event) -> bool:
    """Whether the board's firmware has failed."""
    if event["source"] != "device":
        return False
    return event["event"] == "traceback" or (event["event"] == "exit" and not event["asked"])


def teller(event: Event) -> str:
    """Who tells it in the terminal (a key of `live.STYLES`); empty for what is not shown."""
    source, name = event["source"], event["event"]
    if source == "wire" and name in {"in", "out"}:
        life = event["kind"] == "binary" or (event.get("message") or {}).get("type") in _LIFE
        return "" if life else "board" if name == "in" else "host"
    if source == "wire" or (source == "proxy" and name in _FAULTS):
        return "network"
    if source == "device" and name in _TOLD:
        return "board"
    return "button" if name == "button" else ""


def wanted(value: Mapping[str, Any]) -> str:
    """What was looked for."""
    if "result" in value:
        what = f"result of {value['result']!r}"
    elif "end" in value:
        what = "end of the connection" + ("" if value["end"] is True else f" with {value['end']}")
    else:
        what = value["message"] if "message" in value else f"event {value['event']}"
    return f"{what} with {shown(value['with'])}" if "with" in value else str(what)


def told(event: Event) -> str:
    """An event in one line."""
    message = event.get("message")
    if isinstance(message, dict):
        text = f"{message.get('type')} {shown({name: one for name, one in message.items() if name not in _PLAIN})}"
    elif event["event"] == "come":
        text = f"connection {event['number']}"
    elif event["source"] == "wire" and event["event"] == "end":
        text = f"connection {event['number']} ended, code {event['code']}"
    else:
        text = shown({name: one for name, one in event.items() if name not in {"t", "source"}})
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def came(events: Sequence[Event]) -> str:
    """What the device said instead."""
    said = [
        told(one)
        for one in events
        if one["source"] == "wire" and one["event"] in {"in", "end"} and teller(one)
    ]
    return f"it said {'; '.join(said[-_LAST:]) or 'nothing'}"
