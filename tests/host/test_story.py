import io

import pytest
from rich.console import Console
from vrt_host.harness import story
from vrt_host.harness.live import View
from vrt_host.harness.picture import Band, CallBar, Mark, Scene, Zoom


def device(t, event, **fields):
    return {"t": t, "source": "device", "event": event, **fields}


def hardware(t, event, **fields):
    return {"t": t, "source": "hardware", "event": event, **fields}


CALL = {"call": "c1", "name": "lock", "epoch": 1, "arguments": {"state": "unlocked", "door": "front"}}

UNLOCK = [
    hardware(0.0, "output", name="front_lock", value=0),
    device(0.1, "ready", resumed=False),
    hardware(0.1, "led", state="listening"),
    {"t": 1.0, "source": "demo", "event": "says", "text": "unlock it", "start": 1.0, "end": 2.0},
    device(2.5, "turn", state="thinking", epoch=1),
    device(2.6, "transcript", role="user", text="unlock it", final=True),
    device(2.6, "call", **CALL),
    device(2.7, "confirm_asked", call="c1", name="lock"),
    hardware(2.7, "led", state="confirm"),
    device(2.8, "transcript", role="agent", text="Hold the button.", final=True),
    hardware(4.0, "button", down=True),
    device(5.0, "confirm", call="c1", outcome="confirmed"),
    device(5.0, "call_start", call="c1", name="lock"),
    hardware(5.0, "output", name="front_lock", value=1),
    device(
        5.1, "result", call="c1", name="lock", ok=True, code=None, result={"output": {"state": "unlocked"}}
    ),
    hardware(5.2, "button", down=False),
    device(6.0, "turn", state="idle", epoch=1),
    hardware(6.0, "led", state="listening"),
]


def told(events, **options):
    view = View(Console(file=io.StringIO(), width=200))
    narrator = story.Narrator(view, **options)
    for event in events:
        narrator.hear(event)
    return view, [line[9:] for line in view.console.file.getvalue().splitlines()]


def test_story_tells_a_call_from_the_sentence_to_its_result():
    view, lines = told(UNLOCK)
    assert lines == [
        "network  connected, a new session",
        "user     “unlock it”",
        "host     heard “unlock it”",
        "call     lock(door=front, state=unlocked)",
        "board    asks for the button: hold it for a second",
        "speaker  “Hold the button.”",
        "board    front lock: unlocked",
        'call     lock(door=front, state=unlocked) → {"state": "unlocked"}',
        "button   held for 1.2 s",
    ]
    assert (view.light, view.turn, view.call, view.connected) == ("listening", "idle", "", True)


def test_story_keeps_to_the_voices_when_told():
    _, lines = told(UNLOCK, voices_only=True)
    assert [line.split()[0] for line in lines] == ["user", "host", "speaker"]


def test_story_shows_in_the_bar_what_is_going_on():
    assert told(UNLOCK[:9])[0].call == "lock(door=front, state=unlocked) awaits the button"
    assert told(UNLOCK[:13])[0].call == "lock(door=front, state=unlocked) runs"


def test_story_tells_a_lost_connection_once():
    lost = device(1, "lost", reason="refused", code=1006)
    view, lines = told([lost, lost, device(2, "ready", resumed=True), lost, lost])
    assert not view.connected
    assert [line.split()[1] for line in lines] == ["no", "connected,", "connection"]
    assert "refused" in lines[0]


def test_story_calls_nothing_lost_that_never_was():
    _, lines = told([device(1, "lost", reason="refused", code=1006), device(2, "lost", reason="", code=1006)])
    assert lines == ["network  no connection (refused)"]


def test_story_tells_that_an_answer_stays_open():
    _, lines = told([{"t": 1, "source": "demo", "event": "open", "silent": 5.0}], voices_only=True)
    assert lines == ["user     (waits no longer: the answer stays open, silent for 5 s)"]


def test_story_tells_what_the_board_measured_of_its_echo():
    measured = [
        device(1.0, "echo", loss_db=34, duplex="full"),
        device(2.0, "echo", loss_db=3, duplex="half"),
        device(3.0, "echo", loss_db=None, duplex="half"),
    ]
    assert told(measured)[1] == [
        "board    its own voice is 34 dB quieter in its microphone; it listens while it speaks",
        "board    its own voice is 3 dB quieter in its microphone; half duplex: it does not listen while it speaks",
        "board    its own voice cannot be measured; half duplex: it does not listen while it speaks",
    ]
    assert told(measured, voices_only=True)[1] == []


def test_story_tells_what_goes_wrong_even_when_brief():
    events = [
        device(1, "error", code="CONFIG", message="bad"),
        device(2, "console", text="hello"),
        device(3, "traceback", text="Traceback:\n  File x\nValueError: no"),
    ]
    _, lines = told(events, voices_only=True)
    assert lines == ["board    error CONFIG: bad", "board    prints: hello", "board    ValueError: no"]


def test_story_does_not_repeat_what_the_board_prints_of_its_error():
    _, lines = told(
        [
            device(1, "error", code="CONFIG", message="bad"),
            device(2, "console", text="vrt: bad"),
            device(3, "console", text=""),
            device(3, "console", text="vrt: worse"),
            device(4, "error", code="CRASH", message="ValueError: no"),
            device(4, "traceback", text="Traceback:\n  File x\nValueError: no"),
        ]
    )
    assert lines == [
        "board    error CONFIG: bad",
        "board    prints: vrt: worse",
        "board    error CRASH: ValueError: no",
    ]


def test_story_passes_over_what_it_does_not_know():
    _, lines = told(
        [device(1, "stats", heap_used=1), {"t": 1, "source": "host", "event": "transcript"}, device(2, "x.y")]
    )
    assert lines == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({}, "f()"), ({"b": True, "a": "x"}, "f(a=x, b=true)"), ([1], "f([1])"), (None, "f(null)")],
)
def test_story_writes_calls_as_people_do(arguments, text):
    assert story.call_text("f", arguments) == text


def test_story_draws_a_confirmed_call():
    made = story.picture(UNLOCK, 7.0)
    assert made.calls == [CallBar(2.6, 5.0, 5.1, "lock(door=front, state=unlocked)", "ok", ((2.7, 5.0),))]
    assert made.led == [
        Band(0.1, 2.7, "listening", "listening"),
        Band(2.7, 6.0, "confirm", "confirm"),
        Band(6.0, 7.0, "listening", "listening"),
    ]
    assert made.presses == [Band(4.0, 5.2, "held 1.2 s", "press")]
    assert made.turns == [Band(2.5, 6.0, "thinking · epoch 1", "thinking")]
    assert made.outputs == {
        "front_lock": [Band(0.0, 5.0, "locked", "safe"), Band(5.0, 7.0, "unlocked", "changed")]
    }
    assert made.link == [Band(0.1, 7.0, "connected", "up")]
    assert [band.text for band in made.said + made.spoken] == ["“unlock it”", "“Hold the button.”"]
    assert made.marks == []


def test_story_draws_what_did_not_end():
    made = story.picture(
        [
            device(1, "call", **CALL),
            hardware(2, "button", down=True),
            device(1, "turn", state="acting", epoch=3),
        ],
        5.0,
    )
    assert made.calls == [CallBar(1, None, 5.0, "lock(door=front, state=unlocked)", "no result")]
    assert made.presses == [Band(2, 5.0, "held", "press")]
    assert made.turns == [Band(1, 5.0, "acting · epoch 3", "acting")]


def test_story_draws_an_interruption_and_an_expired_confirmation():
    made = story.picture(
        [
            device(1, "call", **CALL),
            device(1, "turn", state="acting", epoch=1),
            device(1.1, "confirm_asked", call="c1", name="lock"),
            device(3, "confirm", call="c1", outcome="REJECTED"),
            device(3, "result", call="c1", name="lock", ok=False, code="REJECTED", result={}),
            device(4, "interrupt", epoch=1, reason="speech"),
            device(4.1, "turn", state="speaking", epoch=1),
            device(5, "interrupted", epoch=0),
        ],
        9.0,
    )
    assert made.calls[0].outcome == "REJECTED"
    assert made.calls[0].started is None
    assert made.calls[0].confirming == ((1.1, 3),)
    assert made.marks == [Mark(3, "not confirmed", "expired"), Mark(4, "speech interrupts", "interrupt")]
    assert made.turns[0] == Band(1, 4, "acting · epoch 1", "acting")


def test_story_draws_a_cut_connection():
    made = story.picture(
        [
            device(0, "ready", resumed=False),
            {"t": 3.0, "source": "proxy", "event": "cut", "how": "reset", "connections": 1},
            device(3.1, "lost", reason="reset", code=1006),
            device(3.5, "lost", reason="refused", code=1006),
            device(4.0, "ready", resumed=True),
        ],
        6.0,
    )
    assert made.link == [
        Band(0, 3.1, "connected", "up"),
        Band(3.1, 4.0, "lost", "down"),
        Band(4.0, 6.0, "connected", "up"),
    ]
    assert made.marks == [Mark(3.0, "connection cut", "cut"), Mark(4.0, "session resumed", "resume")]


def test_story_draws_scenes_and_what_is_enlarged():
    def demo(t, event, **fields):
        return {"t": t, "source": "demo", "event": event, **fields}

    mark = {"at": 2.5, "text": "here", "kind": "ok"}
    made = story.picture(
        [
            demo(1, "scene", number=1, title="one"),
            demo(2, "zoom", start=2.0, end=3.0, title="closer", marks=[mark]),
            demo(4, "scene.end", number=1, ok=True, note="quick"),
            demo(5, "scene", number=2, title="two"),
            demo(6, "scene.end", number=2, ok=False, note=""),
            demo(7, "scene", number=3, title="three"),
        ],
        9.0,
    )
    assert made.scenes == [
        Scene(0.6, 4.4, "one", True, "quick"),
        Scene(4.6, 6.4, "two", False),
        Scene(6.6, 9.4, "three", None),
    ]
    assert made.zooms == [Zoom(2.0, 3.0, "closer", [Mark(2.5, "here", "ok")])]


def test_story_of_nothing_is_empty():
    made = story.picture([], 1.0)
    assert (made.calls, made.led, made.link, made.turns, made.outputs) == ([], [], [], [], {})


def test_story_writes_sentences_where_they_are_heard():
    def told(t, text, role="agent"):
        return device(t, "transcript", role=role, text=text, final=True)

    long = "x" * 60  # four seconds of speech
    made = story.picture(
        [
            told(1.0, "One, "),
            told(1.5, "two."),
            told(5.0, long),
            device(6.0, "result", call="c", name="f", ok=True, code=None, result={}),
            told(6.1, "After it."),
            told(20.0, long),
            device(21.0, "interrupt", epoch=1, reason="speech"),
            told(21.5, "At once."),
            told(23.0, "user", role="user"),
        ],
        30.0,
    )
    assert [(band.start, band.text) for band in made.spoken] == [
        (1.0, "“One, two.”"),
        (5.0, f"“{long}”"),
        (9.0, "“After it.”"),
        (20.0, f"“{long}”"),
        (21.5, "“At once.”"),
    ]
    assert made.spoken[3].end == 21.0
