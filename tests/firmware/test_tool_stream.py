# What a display may show of calls (vRT §7.5): exactly the phases of the text and one end each, and nothing runs because of them.
from fake_device import Device, opened

SHOWN = ("phase", "delta", "arguments", "progress", "ok", "code", "message")


def shown(device):
    # The events so far: (call, phase, what else it says).
    found = []
    for event in device.board.events:
        if event["event"] == "tool_stream":
            rest = [event[name] for name in SHOWN[1:] if event.get(name) is not None]
            rest[:0] = [event["call"], event["phase"]]
            found.append(tuple(rest))
    return found


def say(device, phase, call="c1", epoch=1, **fields):
    device.say(
        "tool.stream", callId=call, name="light", turnId=f"t{epoch}", epoch=epoch, phase=phase, **fields
    )


def streaming():
    device = opened(tool_stream=True)
    device.turn("thinking", 1)
    return device


def test_capability_is_offered_only_where_it_is_asked_for():
    assert Device(tool_stream=True).open()["capabilities"] == ["tool-stream-v1"]
    device = Device()
    assert "capabilities" not in device.open()
    assert device.app.conversation.stream is None
    say(device, "start")
    device.run(50)
    assert shown(device) == []
    assert not [event for event in device.board.events if event["event"] == "error"]


def test_capability_is_offered_for_a_new_session_alone():
    device = streaming()
    device.link.cut()
    device.run(1000)
    assert "capabilities" not in device.sent("hello")[-1]


def test_every_phase_is_shown():
    device = streaming()
    say(device, "start")
    say(device, "arguments-delta", delta='{"st')
    say(device, "arguments-delta", delta='ate":"on"}')
    say(device, "arguments-complete", arguments={"state": "on"})
    say(device, "progress", progress={"half": True})
    say(device, "settled", ok=True)
    say(device, "start", call="c2")
    say(device, "arguments-complete", call="c2", arguments=None)
    say(device, "settled", call="c2", ok=False, code="TIMEOUT")
    say(device, "start", call="c3")
    say(device, "failed", call="c3", message="the model stopped")
    say(device, "start", call="c4")
    say(device, "cancelled", call="c4")
    device.run(100)
    assert shown(device) == [
        ("c1", "start"),
        ("c1", "arguments-delta", '{"st'),
        ("c1", "arguments-delta", 'ate":"on"}'),
        ("c1", "arguments-complete", {"state": "on"}),
        ("c1", "progress", {"half": True}),
        ("c1", "settled", True),
        ("c2", "start"),
        ("c2", "arguments-complete"),
        ("c2", "settled", False, "TIMEOUT"),
        ("c3", "start"),
        ("c3", "failed", "the model stopped"),
        ("c4", "start"),
        ("c4", "cancelled"),
    ]
    assert device.done == [], "nothing runs because of it"
    assert device.sent("tool.result") == []


def test_what_is_out_of_order_is_not_shown():
    device = streaming()
    say(device, "arguments-delta", delta="{")
    say(device, "settled", ok=True)
    say(device, "start")
    say(device, "start")
    say(device, "progress", progress=1)
    say(device, "arguments-complete", arguments={})
    say(device, "arguments-complete", arguments={})
    say(device, "arguments-delta", delta="{")
    say(device, "settled", ok=True)
    say(device, "settled", ok=True)
    say(device, "cancelled")
    say(device, "progress", progress=1)
    device.run(100)
    assert shown(device) == [("c1", "start"), ("c1", "arguments-complete", {}), ("c1", "settled", True)]


def test_an_unknown_phase_is_not_shown_and_reported():
    device = streaming()
    say(device, "start")
    say(device, "paused")
    say(device, "settled", ok=True)
    device.run(100)
    assert shown(device) == [("c1", "start"), ("c1", "settled", True)]
    assert device.last("error")["code"] == "INVALID_FIELD"
    assert device.app.session.streams.handled == device.seq


def test_an_interruption_cancels_at_once_and_the_end_of_the_servers_is_ignored():
    device = streaming()
    say(device, "start")
    say(device, "start", call="c2")
    say(device, "settled", call="c2", ok=True)
    say(device, "start", call="c3", epoch=2)
    device.run(100)
    device.press(100)  # closes the observed epoch, 1
    assert shown(device)[-1] == ("c1", "cancelled")
    say(device, "cancelled")
    say(device, "start", call="c4")
    say(device, "settled", call="c3", epoch=2, ok=True)
    device.run(100)
    assert shown(device)[4:] == [("c1", "cancelled"), ("c3", "settled", True)]


def test_interrupted_cancels_too():
    device = streaming()
    say(device, "start")
    device.say("interrupted", epoch=1)
    say(device, "cancelled")
    device.run(100)
    assert shown(device) == [("c1", "start"), ("c1", "cancelled")]


def test_a_session_that_ends_cancels_all():
    device = streaming()
    say(device, "start", epoch=7)
    device.run(50)
    device.receive("error", code="RESUME_FAILED", recoverable=False)
    device.run(50)
    assert shown(device) == [("c1", "start"), ("c1", "cancelled")]


def test_a_resume_goes_on():
    device = streaming()
    say(device, "start")
    device.run(50)
    device.link.cut()
    device.run(1000)
    device.ready(resumedFrom=0)
    say(device, "settled", ok=True)
    device.run(50)
    assert shown(device) == [("c1", "start"), ("c1", "settled", True)]


def test_more_calls_than_a_display_has_room_for_are_not_shown():
    device = streaming()
    for number in range(9):
        say(device, "start", call=f"c{number}")
    say(device, "settled", call="c8", ok=True)
    say(device, "settled", call="c0", ok=True)
    say(device, "start", call="c9")
    device.run(100)
    assert [one[0] for one in shown(device) if one[1] == "start"] == [
        f"c{number}" for number in (0, 1, 2, 3, 4, 5, 6, 7, 9)
    ]
    assert len(shown(device)) == 10


def test_what_is_no_json_stays_out_of_the_log():
    device = streaming()
    say(device, "start")
    device.run(20)
    data = '{"v":1,"seq":%d,"type":"tool.stream","callId":"c1","name":"light","turnId":"t1","epoch":1,'
    data += '"phase":"arguments-complete","arguments":{"x":1e999}}'
    device.seq += 1
    device.link.inbox.append((2, (data % device.seq).encode()))
    device.run(50)
    assert "JSON has no" in shown(device)[-1][2]
