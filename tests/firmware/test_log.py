from vrt.log import Log


def logged():
    events = []
    return Log(lambda what, **fields: events.append((what, fields))), events


def test_events_go_to_the_board():
    log, events = logged()
    log.event("lost", code=1006)
    log.fault("X")
    log.fault("Y", "why")
    assert events == [
        ("lost", {"code": 1006}),
        ("error", {"code": "X", "message": ""}),
        ("error", {"code": "Y", "message": "why"}),
    ]


def test_a_flood_of_faults_is_counted():
    log, events = logged()
    start = 0x3FFFFFFF - 5000  # the ticks turn over
    log.step(start)
    for _ in range(100):
        log.fault("X")
    log.event("turn")
    assert [name for name, _ in events] == ["error"] * 8 + ["turn"]
    log.step((start + 9999) & 0x3FFFFFFF)
    assert len(events) == 9
    log.step((start + 10000) & 0x3FFFFFFF)
    assert events[9:] == [("error", {"code": "UNTOLD", "message": "92 more were not told"})]
    log.fault("Y")
    assert events[10][1]["code"] == "Y"
    log.step((start + 20000) & 0x3FFFFFFF)
    assert len(events) == 11


def test_a_line_that_the_heap_has_no_room_for_is_counted():
    def full(what, **fields):
        raise MemoryError

    log, events = logged()
    event, log._event = log._event, full
    log.event("transcript", text="long")
    log._event = event
    log.step(10000)
    assert events == [("error", {"code": "UNTOLD", "message": "1 more were not told"})]
