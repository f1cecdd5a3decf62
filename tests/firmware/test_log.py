from vrt.log import Log


def logged():
    events = []
    return Log(lambda what, **fields: events.append((what, fields))), events


def test_a_confirmed_call_in_the_words_of_the_log():
    log, events = logged()
    log.report("call.queued", call="c", name="lock")
    log.report("call.ask", call="c", name="lock", arguments={"door": "front"})
    log.report("call.start", call="c", name="lock")
    log.report("call.progress", call="c", name="lock", text="turning")
    log.report("call.end", call="c", name="lock", result={"ok": True, "output": 1})
    assert [name for name, _ in events] == ["confirm_asked", "confirm", "call_start", "progress", "result"]
    assert events[1][1] == {"call": "c", "outcome": "confirmed"}
    assert events[4][1]["ok"] is True
    assert events[4][1]["code"] is None


def test_a_confirmation_that_does_not_come():
    log, events = logged()
    log.report("call.ask", call="c", name="lock", arguments={})
    log.report(
        "call.end", call="c", name="lock", result={"ok": False, "code": "REJECTED", "message": "nobody"}
    )
    assert events[1] == ("confirm", {"call": "c", "outcome": "REJECTED", "message": "nobody"})
    assert events[2][1]["code"] == "REJECTED"
    log.report("call.start", call="d", name="lock")
    assert events[3][0] == "call_start"


def test_an_error_needs_no_message():
    log, events = logged()
    log.fault("X")
    assert events == [("error", {"code": "X", "message": ""})]
