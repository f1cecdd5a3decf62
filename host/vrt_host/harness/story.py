"""Reads a log for people: lines and the status bar as it happens (`Narrator`), the picture afterwards (`picture`).

Both need only what the board, its hardware and the network tell, so they serve a simulated board of any host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vrt_host.harness.live import View
from vrt_host.harness.picture import Band, CallBar, Mark, Picture, Scene, Zoom
from vrt_host.harness.recorder import Event
from vrt_host.resources import root

_PIECE_S = 1.6
"""A piece of text that comes so soon belongs to the sentence before."""
_CHARS_PER_S = 15.0
"""How fast a voice reads."""
_MARGIN_S = 0.4
"""Of the picture, before and after a scene."""
_REASONS = {"speech": "speech interrupts", "user": "button interrupts", "keyboard": "key interrupts"}


def levels() -> dict[str, list[str]]:
    """What the levels of the simulated board's outputs are called."""
    board = json.loads((root() / "boards" / "sim" / "board.json").read_text("utf-8"))
    return {name: list(output["levels"]) for name, output in board["outputs"].items()}


def call_text(name: str, arguments: object) -> str:
    """A call as people write it: `lock(door=front, state=unlocked)`."""
    if not isinstance(arguments, Mapping):
        return f"{name}({json.dumps(arguments)})"
    words = (
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in sorted(arguments.items())
    )
    return f"{name}({', '.join(words)})"


class Narrator:
    """Give it every event (`recorder.listen(narrator.hear)`); it tells the view what matters to a person.

    `voices_only`: lines for what is said and what goes wrong; the rest moves the status bar alone.
    """

    def __init__(self, view: View, *, voices_only: bool = False) -> None:
        self._view = view
        self._brief = voices_only
        self._levels = levels()
        self._calls: dict[str, str] = {}
        self._outputs: dict[str, int] = {}
        self._pressed_at = 0.0
        self._sessions = 0
        self._error = ""
        self._failures = 0

    def hear(self, event: Event) -> None:
        """One event of the log."""
        handler = getattr(self, "_on_" + event["event"].replace(".", "_"), None)
        if handler is not None and (event["source"] != "host" or event["event"] == "log"):
            handler(event, event["t"])

    def _tell(self, t: float, who: str, text: str) -> None:
        """A line that a brief story leaves out."""
        if not self._brief:
            self._view.say(t, who, text)

    # --- the user

    def _on_says(self, event: Event, t: float) -> None:
        self._view.say(t, "user", f"“{event['text']}”" if event.get("text") else f"(plays {event['wav']})")

    def _on_open(self, event: Event, t: float) -> None:
        self._view.say(
            t, "user", f"(waits no longer: the answer stays open, silent for {event['silent']:g} s)"
        )

    def _on_button(self, event: Event, t: float) -> None:
        if event["down"]:
            self._pressed_at = t
        else:
            self._tell(t, "button", f"held for {t - self._pressed_at:.1f} s")

    # --- the board

    def _on_led(self, event: Event, t: float) -> None:
        self._view.light = event["state"]

    def _on_output(self, event: Event, t: float) -> None:
        name, value = event["name"], event["value"]
        if name in self._outputs and self._outputs[name] != value:
            self._tell(t, "board", f"{name.replace('_', ' ')}: {self._level(name, value)}")
        self._outputs[name] = value

    def _level(self, name: str, value: int) -> str:
        names = self._levels.get(name, [])
        return names[value] if 0 <= value < len(names) else str(value)

    def _on_console(self, event: Event, t: float) -> None:
        if event["text"].strip() and event["text"] != f"vrt: {self._error}":  # which was told already
            self._view.say(t, "board", f"prints: {event['text']}")

    def _on_traceback(self, event: Event, t: float) -> None:
        line = event["text"].splitlines()[-1]
        if line != self._error:
            self._view.say(t, "board", line)

    def _on_error(self, event: Event, t: float) -> None:
        self._error = event.get("message", "")
        self._view.say(t, "board", f"error {event['code']}: {self._error}")

    def _on_log(self, event: Event, t: float) -> None:
        self._view.say(t, "host", event["text"])

    # --- the conversation

    def _on_transcript(self, event: Event, t: float) -> None:
        if event["role"] == "agent":
            self._view.say(t, "speaker", f"“{event['text'].strip()}”")
        elif event["final"]:
            self._view.say(t, "host", f"heard “{event['text']}”")

    def _on_text(self, event: Event, t: float) -> None:
        self._view.say(t, "host", f"writes “{event['text']}”")

    def _on_turn(self, event: Event, t: float) -> None:
        self._view.turn = event["state"]

    def _on_interrupt(self, event: Event, t: float) -> None:
        self._tell(t, "board", f"{_REASONS.get(event['reason'], 'interruption')}: it falls silent")

    def _on_echo(self, event: Event, t: float) -> None:
        loss = event["loss_db"]
        told = "cannot be measured" if loss is None else f"is {loss} dB quieter in its microphone"
        how = (
            "it listens while it speaks"
            if event["duplex"] == "full"
            else "half duplex: it does not listen while it speaks"
        )
        self._tell(t, "board", f"its own voice {told}; {how}")

    def _on_playback(self, event: Event, t: float) -> None:
        self._tell(
            t, "board", f"tells the host that {event['played_ms'] / 1000:.2f} s of the answer were heard"
        )

    # --- calls

    def _on_call(self, event: Event, t: float) -> None:
        text = self._calls[event["call"]] = call_text(event["name"], event["arguments"])
        self._tell(t, "call", text)

    def _on_confirm_asked(self, event: Event, t: float) -> None:
        self._view.call = f"{self._calls.get(event['call'], event['name'])} awaits the button"
        self._tell(t, "board", "asks for the button: hold it for a second")

    def _on_call_start(self, event: Event, t: float) -> None:
        self._view.call = f"{self._calls.get(event['call'], event['name'])} runs"

    def _on_progress(self, event: Event, t: float) -> None:
        self._view.say(t, "board", event["text"])

    def _on_result(self, event: Event, t: float) -> None:
        self._view.call = ""
        text = self._calls.get(event["call"], event["name"])
        result = event["result"]
        told = (
            json.dumps(result.get("output"))
            if event["ok"]
            else f"{event['code']}: {result.get('message', '')}"
        )
        self._tell(t, "call", f"{text} → {told}")

    # --- the network

    def _on_ready(self, event: Event, t: float) -> None:
        self._view.connected = True
        self._sessions += 1
        self._failures = 0
        how = "the session goes on" if event["resumed"] else "a new session"
        self._tell(t, "network", f"connected, {how}")

    def _on_lost(self, event: Event, t: float) -> None:
        if self._view.connected or self._failures == 0:
            why = event["reason"] or event["code"]
            lost = (
                f"connection lost ({why}); the board tries again"
                if self._sessions
                else f"no connection ({why})"
            )
            self._tell(t, "network", lost)
        self._view.connected = False
        self._failures += 1


def picture(events: Sequence[Event], end: float) -> Picture:
    """Everything but titles and sounds. `events` in the order of time."""
    made = Picture("")
    made.led = list(_bands(events, "hardware", "led", "state", end))
    made.turns = list(_turns(events, end))
    made.presses = list(_presses(events, end))
    made.outputs = _outputs(events, end)
    made.said = [
        Band(
            event["start"], event["end"], f"“{event['text']}”" if event.get("text") else event["wav"], "user"
        )
        for event in events
        if event["event"] == "says"
    ]
    made.spoken = _spoken(events)
    made.calls = _calls(events, end)
    made.link = list(_link(events, end))
    made.marks = list(_marks(events))
    made.scenes = list(_scenes(events, end))
    made.zooms = [
        Zoom(event["start"], event["end"], event["title"], [Mark(**mark) for mark in event["marks"]])
        for event in _of(events, "demo", "zoom")
    ]
    return made


def _scenes(events: Sequence[Event], end: float) -> Iterator[Scene]:
    ends = {event["number"]: event for event in _of(events, "demo", "scene.end")}
    for event in _of(events, "demo", "scene"):
        last = ends.get(event["number"], {"t": end, "ok": None, "note": ""})
        yield Scene(event["t"] - _MARGIN_S, last["t"] + _MARGIN_S, event["title"], last["ok"], last["note"])


def _of(events: Sequence[Event], source: str, *names: str) -> Iterator[Event]:
    return (event for event in events if event["source"] == source and event["event"] in names)


def _bands(events: Sequence[Event], source: str, name: str, member: str, end: float) -> Iterator[Band]:
    """A state that lasts until the next."""
    seen = list(_of(events, source, name))
    for event, after in zip(seen, [*seen, None][1:], strict=True):
        yield Band(event["t"], end if after is None else after["t"], str(event[member]), str(event[member]))


def _turns(events: Sequence[Event], end: float) -> Iterator[Band]:
    """The turn's states; an interruption ends a turn at the device at once."""
    since, state, epoch = 0.0, "idle", 0
    for event in _of(events, "device", "turn", "interrupt", "interrupted"):
        if event["event"] != "turn" and event["epoch"] < epoch:
            continue  # of a turn that is over
        told = event["state"] if event["event"] == "turn" else "idle"
        if state != "idle":
            yield Band(since, event["t"], f"{state} · epoch {epoch}", state)
        since, state, epoch = event["t"], told, event["epoch"]
    if state != "idle":
        yield Band(since, end, f"{state} · epoch {epoch}", state)


def _spoken(events: Sequence[Event]) -> list[Band]:
    """The agent's sentences about when they are heard: the text comes ahead of the sound, piece by piece."""
    made: list[Band] = []
    free = last = 0.0  # when the voice has said what it was given; when the last piece came
    goes_on = False
    for event in _of(events, "device", "transcript", "interrupt", "result"):
        t = event["t"]
        if event["event"] == "interrupt":
            free = min(free, t)
            if made and made[-1].end > t:
                made[-1] = Band(made[-1].start, t, made[-1].text, "speaker")
        if event["event"] != "transcript" or event["role"] != "agent":
            goes_on = False
            continue
        words = event["text"].strip()
        start = max(t, free)
        free = start + len(words) / _CHARS_PER_S
        if goes_on and t - last < _PIECE_S:
            before = made.pop()
            start, words = before.start, f"{before.text[1:-1]} {words}"
        made.append(Band(start, free, f"“{words}”", "speaker"))
        goes_on, last = True, t
    return made


def _presses(events: Sequence[Event], end: float) -> Iterator[Band]:
    down: float | None = None
    for event in _of(events, "hardware", "button"):
        if event["down"]:
            down = event["t"]
        elif down is not None:
            yield Band(down, event["t"], f"held {event['t'] - down:.1f} s", "press")
            down = None
    if down is not None:
        yield Band(down, end, "held", "press")


def _outputs(events: Sequence[Event], end: float) -> dict[str, list[Band]]:
    names = levels()
    found: dict[str, list[Band]] = {}
    for event in _of(events, "hardware", "output"):
        bands = found.setdefault(event["name"], [])
        if bands:
            bands[-1] = Band(bands[-1].start, event["t"], bands[-1].text, bands[-1].kind)
        words = names.get(event["name"], [])
        value = event["value"]
        text = words[value] if 0 <= value < len(words) else str(value)
        bands.append(Band(event["t"], end, text, "changed" if value else "safe"))
    return found


def _calls(events: Sequence[Event], end: float) -> list[CallBar]:
    """One bar a call, made of all that the device tells of it."""
    calls: dict[str, dict[str, Any]] = {}
    for event in _of(events, "device", "call", "confirm_asked", "confirm", "call_start", "result"):
        call = calls.setdefault(event["call"], {"queued": event["t"], "text": event.get("name", "?")})
        if event["event"] == "call":
            call["text"] = call_text(event["name"], event["arguments"])
        elif event["event"] == "result":
            call["ended"], call["outcome"] = event["t"], "ok" if event["ok"] else event["code"]
        else:
            call[event["event"]] = event["t"]
    bars = []
    for call in calls.values():
        ended = call.get("ended", end)
        asked = call.get("confirm_asked")
        confirming = () if asked is None else ((asked, call.get("confirm", ended)),)
        bars.append(
            CallBar(
                call["queued"],
                call.get("call_start"),
                ended,
                call["text"],
                call.get("outcome", "no result"),
                confirming,
            )
        )
    return bars


def _link(events: Sequence[Event], end: float) -> Iterator[Band]:
    since: float | None = None
    up = False
    for event in _of(events, "device", "ready", "lost"):
        now_up = event["event"] == "ready"
        if since is not None and now_up != up:
            yield Band(since, event["t"], "connected" if up else "lost", "up" if up else "down")
        if since is None or now_up != up:
            since, up = event["t"], now_up
    if since is not None:
        yield Band(since, end, "connected" if up else "lost", "up" if up else "down")


def _marks(events: Sequence[Event]) -> Iterator[Mark]:
    for event in events:
        name = (event["source"], event["event"])
        if name == ("device", "interrupt"):
            yield Mark(event["t"], _REASONS.get(event["reason"], "interruption"), "interrupt")
        elif name == ("proxy", "cut"):
            yield Mark(event["t"], "connection cut", "cut")
        elif name == ("device", "ready") and event["resumed"]:
            yield Mark(event["t"], "session resumed", "resume")
        elif name == ("device", "confirm") and event["outcome"] == "REJECTED":
            yield Mark(event["t"], "not confirmed", "expired")
