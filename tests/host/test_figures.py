from vrt_host.harness import figures


def event(t, source, what, /, **fields):
    return {"t": t, "source": source, "event": what, **fields}


def says(t, start, end):
    return event(t, "demo", "says", start=t, end=end + 0.2, speech_start=start, speech_end=end)


LOG = [
    event(0.1, "hardware", "i2s", mode="rx", depth_ms=64.0),
    event(0.1, "hardware", "i2s", mode="tx", depth_ms=42.7),
    event(0.5, "device", "ready", resumed=False),
    says(1.0, 1.1, 2.0),
    event(2.45, "hardware", "sound", on=True),
    event(2.5, "device", "call", call="a", name="f", arguments={}),
    says(3.0, 3.1, 3.5),
    event(3.2, "device", "interrupt", reason="speech", epoch=1),
    event(3.24, "hardware", "sound", on=False),
    event(3.25, "device", "result", call="a", ok=False, code="INTERRUPTED"),
    event(4.0, "device", "stats", heap_used=90_000, heap_free=10_000, underruns=0),
    event(5.0, "device", "call", call="b", name="g", arguments={"x": 1}),
    event(5.1, "device", "lost", reason="reset"),
    event(5.3, "device", "lost", reason="refused"),
    event(5.9, "device", "ready", resumed=True),
    event(6.0, "device", "result", call="b", ok=True, code=None),
    event(6.1, "hardware", "late", ms=31),
    event(7.0, "device", "stats", heap_used=60_000, heap_free=40_000, underruns=2),
    event(8.0, "device", "call", call="c", name="h", arguments={}),
]


def test_figures_of_a_whole_run():
    made = figures.figures(LOG, 350, 120)
    assert made == {
        "first_sound_ms": [450],
        "interruptions": [{"notice_to_silence": 40, "onset_to_silence": 140}],
        "dma_depth_ms": 42.7,
        "resumed_ms": [800],
        "frames": {"up": 350, "down": 120},
        "losses": {**dict.fromkeys(figures.LOSSES, 0), "underruns": 2},
        "heap": {"used": 60_000, "size": 100_000},
        "calls": [
            {"call": "f()", "outcome": "INTERRUPTED"},
            {"call": "g(x=1)", "outcome": "done"},
            {"call": "h()", "outcome": "no result"},
        ],
        "simulator_late": {"times": 1, "most_ms": 31},
    }


def test_figures_of_nothing():
    made = figures.figures([], 0, 0)
    assert made["heap"] == {"used": None, "size": None}
    assert made["first_sound_ms"] == made["interruptions"] == made["calls"] == []
    assert figures.table(made)


def test_figures_take_the_answer_to_the_sentence_before_the_next():
    log = [says(1, 1, 2), says(3, 3, 4), event(4.3, "hardware", "sound", on=True), says(5, 5, 6)]
    assert figures.first_sounds(log) == [300]


def test_figures_do_not_count_a_new_session_as_a_resume():
    log = [
        event(1, "device", "lost"),
        event(2, "device", "ready", resumed=False),
        event(3, "device", "ready", resumed=True),
    ]
    assert figures.resumes(log) == []


def test_figures_are_never_negative():
    log = [says(1, 1, 2), event(3.0, "hardware", "sound", on=True), says(4, 4.0, 5)]
    log += [
        event(4.5, "hardware", "sound", on=False),
        event(4.51, "device", "interrupt", reason="speech", epoch=1),
    ]
    log.sort(key=lambda one: one["t"])
    assert figures.interruptions(log) == [{"notice_to_silence": 0, "onset_to_silence": 500}]


def test_figures_for_people_name_what_was_lost():
    rows = {name: (value, remark) for name, value, remark in figures.table(figures.figures(LOG, 350, 120))}
    assert rows["lost or late audio"][0] == "underruns 2"
    assert rows["heap"][0] == "59 of 98 KiB"
    assert rows["interruption to silence"] == ("40 ms", "the DMA holds 42.7 ms")
    assert rows["calls"] == ("3", "1 INTERRUPTED, 1 done, 1 no result")
    assert rows["simulator late"][0] == "1 times, 31 ms"
