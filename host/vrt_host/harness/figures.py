"""The figures of a run, out of its log: latencies, frames, drops, heap, calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vrt_host.harness.recorder import Event
from vrt_host.harness.story import call_text

Figures = dict[str, Any]

LOSSES = (
    "mic_dropped",
    "mic_overruns",
    "speaker_dropped",
    "underruns",
    "missing",
    "invalid",
    "gaps",
)
"""Counters of the board that are zero when nothing went wrong."""


def figures(events: Sequence[Event], frames_up: int, frames_down: int) -> Figures:
    """Everything in one dict, times in milliseconds; `events` in the order of time."""
    stats = [event for event in events if event["event"] == "stats"]
    last: Event = stats[-1] if stats else {}
    depth = next(
        (event["depth_ms"] for event in events if event["event"] == "i2s" and event["mode"] == "tx"), None
    )
    late = [event["ms"] for event in events if event["event"] == "late"]
    return {
        "first_sound_ms": first_sounds(events),
        "interruptions": interruptions(events),
        "dma_depth_ms": depth,
        "resumed_ms": resumes(events),
        "frames": {"up": frames_up, "down": frames_down},
        "losses": {name: last.get(name, 0) for name in LOSSES},
        "heap": {
            "used": min((event["heap_used"] for event in stats[1:] if "heap_used" in event), default=None),
            "size": last["heap_used"] + last["heap_free"] if "heap_used" in last else None,
        },
        "calls": calls(events),
        "simulator_late": {"times": len(late), "most_ms": max(late, default=0)},
    }


def first_sounds(events: Sequence[Event]) -> list[int]:
    """From the last word of each sentence to the next sound of the speaker, when it came before the next sentence."""
    found = []
    said = [event for event in events if event["event"] == "says"]
    for event, after in zip(said, [*said, None][1:], strict=True):
        end, until = event["speech_end"], after["t"] if after is not None else float("inf")
        sound = next((one["t"] for one in _sounds(events, True) if end < one["t"] < until), None)
        if sound is not None:
            found.append(_ms(sound - end))
    return found


def interruptions(events: Sequence[Event]) -> list[dict[str, int]]:
    """Of each interruption by speech: from the device's notice, and from the voice's onset, to the last audible sample."""
    found = []
    for event in events:
        if event["event"] != "interrupt" or event["source"] != "device" or event["reason"] != "speech":
            continue
        onset = max(
            (one["speech_start"] for one in events if one["event"] == "says" and one["t"] <= event["t"]),
            default=None,
        )
        silent = next((one["t"] for one in _sounds(events, False) if one["t"] >= event["t"] - 0.1), None)
        if onset is not None and silent is not None:
            found.append(
                {
                    "notice_to_silence": max(0, _ms(silent - event["t"])),
                    "onset_to_silence": _ms(silent - onset),
                }
            )
    return found


def resumes(events: Sequence[Event]) -> list[int]:
    """From each loss of the connection, as the device saw it, to the resumed session."""
    found, lost = [], None
    for event in events:
        if event["source"] == "device" and event["event"] == "lost" and lost is None:
            lost = event["t"]
        elif event["source"] == "device" and event["event"] == "ready":
            if event["resumed"] and lost is not None:
                found.append(_ms(event["t"] - lost))
            lost = None
    return found


def calls(events: Sequence[Event]) -> list[dict[str, str]]:
    """Every call with its outcome, in order."""
    results = {
        event["call"]: event for event in events if event["source"] == "device" and event["event"] == "result"
    }
    return [
        {
            "call": call_text(event["name"], event["arguments"]),
            "outcome": _outcome(results.get(event["call"])),
        }
        for event in events
        if event["source"] == "device" and event["event"] == "call"
    ]


def table(made: Figures) -> list[tuple[str, str, str]]:
    """Rows of name, value and remark for people."""
    depth = made["dma_depth_ms"]
    rows = [
        ("last word to first sound", _list(made["first_sound_ms"], "ms"), "sentence by sentence"),
    ]
    for cut in made["interruptions"]:
        rows += [
            ("interruption to silence", f"{cut['notice_to_silence']} ms", f"the DMA holds {depth} ms"),
            (
                "voice's onset to silence",
                f"{cut['onset_to_silence']} ms",
                "with the time to notice the voice",
            ),
        ]
    if made["resumed_ms"]:
        rows.append(("connection lost to resumed", _list(made["resumed_ms"], "ms"), ""))
    frames = made["frames"]
    rows.append(("audio frames", f"{frames['up']} up, {frames['down']} down", "of 20 ms, mu-law"))
    lost = {name.replace("_", " "): count for name, count in made["losses"].items() if count}
    rows.append(
        ("lost or late audio", ", ".join(f"{name} {count}" for name, count in lost.items()) or "none", "")
    )
    heap = made["heap"]
    if heap["used"] is not None and heap["size"] is not None:
        rows.append(
            (
                "heap",
                f"{heap['used'] / 1024:.0f} of {heap['size'] / 1024:.0f} KiB",
                "in use after a collection, 64-bit",
            )
        )
    outcomes = Counter(call["outcome"] for call in made["calls"])
    rows.append(
        ("calls", str(len(made["calls"])), ", ".join(f"{count} {name}" for name, count in outcomes.items()))
    )
    late = made["simulator_late"]
    if late["times"]:
        rows.append(
            (
                "simulator late",
                f"{late['times']} times, {late['most_ms']} ms",
                "this machine was busy; sound may have gaps",
            )
        )
    return rows


def _sounds(events: Sequence[Event], on: bool) -> list[Event]:
    return [event for event in events if event["event"] == "sound" and event["on"] is on]


def _outcome(result: Event | None) -> str:
    if result is None:
        return "no result"
    return "done" if result["ok"] else str(result["code"])


def _list(values: Sequence[int], unit: str) -> str:
    return ", ".join(map(str, values)) + f" {unit}" if values else "-"


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
