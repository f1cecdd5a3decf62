# Turns, interruptions, calls and the button on a whole device, in every order of arrival.
from fake_device import LOUD, Device, opened
from vrt.tools import Tool

OPEN = {"listen": "open", "duplex": "full"}


def heard_frames(device):
    # Which of the frames sent hold sound, in order.
    return [any(byte not in (0xFF, 0x7F) for byte in frame[5:]) for frame in device.link.frames]


# --- being interrupted (vRT §6.2)


def test_a_press_silences_at_once_and_tells_in_order():
    device = opened()
    device.call("slow", 1)
    device.call("light", 1, call="c2", state="on")
    device.speak(count=20)
    assert device.done == ["slow begins"]
    device.link.order.clear()
    device.board.down = True
    device.run(50)  # debounced
    cut = device.now
    assert device.link.order[:4] == ["playback", "interrupt", "tool.result", "tool.result"]
    playback = device.sent("playback")[0]
    assert playback["itemId"] == "i1"
    assert 20 <= playback["playedMs"] <= 180
    assert device.sent("interrupt")[0] == {
        "v": 1,
        "seq": 2,
        "type": "interrupt",
        "epoch": 1,
        "reason": "user",
    }
    assert [m["callId"] for m in device.sent("tool.result")] == ["c1", "c2"]
    assert {m["code"] for m in device.sent("tool.result")} == {"INTERRUPTED"}
    device.run(200)
    assert (
        device.loud_at <= cut + 50
    )  # what the I2S had: a DMA of 32 ms and a piece of 16 ms on its way there
    device.run(3000)
    assert device.done == ["slow begins"]
    assert device.last("interrupt")["reason"] == "user"


def test_effects_come_before_anything_can_be_sent():
    device = opened()
    device.call("slow", 1)
    device.speak(count=20)
    device.link.stall(True)
    device.board.down = True
    device.run(150)
    assert device.silent()
    assert not device.app.tools.queue
    assert device.link.order.count("interrupt") == 0
    device.link.stall(False)
    device.run(20)
    order = [kind for kind in device.link.order if kind in ("playback", "interrupt", "tool.result")]
    assert order == ["playback", "interrupt", "tool.result"]


def test_effects_come_without_a_connection_too():
    device = opened()
    device.call("slow", 1)
    device.speak(count=20)
    device.link.cut()
    device.run(20)
    device.press(100)
    device.run(100)
    assert device.silent()
    device.run(1000)
    device.ready(resumedFrom=0)
    device.run(50)
    assert device.stream() == ["playback", "interrupt", "tool.result", "context"]


def test_nothing_of_a_closed_epoch_is_played_or_run_in_any_order():
    device = opened()
    device.speak(epoch=3)
    device.press(100)
    device.run(300)
    since = device.now
    device.audio(5)  # still on their way
    device.item("i2", 3)
    device.audio(5)
    device.call("light", 3, state="on")
    device.call("light", 2, call="c2", state="on")
    device.turn("speaking", 3)
    device.run(500)
    assert device.loud_at < since
    assert device.done == []
    assert {m["code"] for m in device.sent("tool.result")} == {"INTERRUPTED"}
    assert device.app.conversation.turn == "idle"
    device.call("light", 5, call="c3", state="on")  # and the next turn is a turn
    device.speak("i3", 5)
    assert device.done == ["light on"]


def test_a_second_press_sends_no_second_interrupt():
    device = opened()
    device.speak()
    for _ in range(3):
        device.press(100)
        device.run(100)
    assert len(device.sent("interrupt")) == 1


def test_a_press_in_silence_interrupts_nothing():
    device = opened()
    device.press(100)
    device.run(100)
    device.turn("thinking", 1)
    device.turn("idle", 1)
    device.run(50)
    device.press(100)
    device.run(100)
    assert device.sent("interrupt") == []


def test_a_press_while_the_agent_thinks_interrupts():
    device = opened()
    device.turn("thinking", 4)
    device.run(20)
    device.press(100)
    device.run(20)
    assert device.sent("interrupt")[0]["epoch"] == 4


def test_the_server_interrupts():
    device = opened()
    device.call("slow", 1)
    device.speak(count=20)
    device.say("interrupted", epoch=1, reason="speech")
    device.run(20)
    device.audio(3)
    device.run(150)
    assert device.silent()
    assert device.stream() == ["playback", "tool.result", "context"]
    assert device.last("interrupted")["epoch"] == 1
    device.say("interrupted", epoch=1)
    device.run(50)
    assert device.names().count("interrupted") == 1
    device.run(2500)
    assert device.done == ["slow begins"]


def test_interrupted_arrives_before_what_it_interrupts():
    device = opened()
    device.say("interrupted", epoch=9)
    device.turn("speaking", 9)
    device.item("i1", 9)
    device.audio(10)
    device.call("light", 9, state="on")
    device.run(300)
    assert device.silent()
    assert device.done == []
    assert device.sent("tool.result")[0]["code"] == "INTERRUPTED"


def test_turn_state_listening_silences():
    device = opened()
    device.speak(count=20)
    device.turn("listening", 2)
    device.run(150)
    assert device.silent()
    assert device.stream() == ["playback"]
    device.audio(5)  # of the old item
    device.run(100)
    assert device.silent()
    device.speak("i2", 2)


def test_playback_to_the_end_is_not_reported_as_cut():
    device = opened()
    device.speak(count=10)
    device.run(400)
    assert device.last("played")
    device.press(100)
    device.run(50)
    assert device.sent("playback") == []


# --- the user's voice


def test_speech_over_the_agent_interrupts_when_listening_is_open_and_full():
    device = opened(**OPEN)
    device.run(500)
    device.speak(count=30)
    device.board.hear(LOUD)
    device.run(200)
    assert device.sent("interrupt")[0]["reason"] == "speech"
    assert device.link.order.index("playback") < device.link.order.index("interrupt")
    device.run(100)
    assert device.silent()
    assert all(heard_frames(device)[-5:])  # and the host hears who interrupted


def test_speech_never_interrupts_otherwise():
    for settings in (
        {"listen": "open", "duplex": "half"},
        {"listen": "button", "duplex": "full"},
        {"listen": "open", "duplex": "full", "mute": True},
    ):
        device = opened(**settings)
        device.run(500)
        device.speak(count=30)
        device.board.hear(LOUD)
        device.run(400)
        assert device.sent("interrupt") == [], settings
        assert not device.silent()


def test_speech_that_began_before_the_reply_does_not_interrupt_it():
    device = opened(**OPEN)
    device.run(500)
    device.board.hear(LOUD)
    device.run(300)
    device.turn("thinking", 1)
    device.speak(count=30)
    device.run(200)
    assert device.sent("interrupt") == []
    device.board.hear(0)
    device.run(600)
    device.audio(20)
    device.run(100)
    device.board.hear(LOUD)
    device.run(200)
    assert len(device.sent("interrupt")) == 1


def test_speech_while_a_confirmation_waits_in_silence_does_not_interrupt():
    device = opened(**OPEN)
    device.run(500)
    device.call("unlock", 1)
    device.run(100)
    device.board.hear(LOUD)
    device.run(300)
    assert device.app.tools.confirm.asking
    assert device.sent("interrupt") == []
    device.board.hear(0)
    device.run(600)
    device.speak(count=30)  # the agent says what it asks for
    device.board.hear(LOUD)
    device.run(300)
    assert len(device.sent("interrupt")) == 1
    assert not device.app.tools.confirm.asking
    assert device.sent("tool.result")[0]["code"] == "INTERRUPTED"


def test_speech_cuts_a_tool_that_runs_in_silence():
    device = opened(**OPEN)
    device.run(500)
    device.call("slow", 1)
    device.run(100)
    device.board.hear(LOUD)
    device.run(300)
    assert device.sent("interrupt")[0]["reason"] == "speech"


# --- when the microphone is live


def test_half_duplex_sends_nothing_from_the_first_sample_until_playback_is_done():
    device = opened(listen="open")
    device.board.hear(300)
    device.run(500)
    assert device.link.frames
    device.speak(count=20)
    device.link.frames.clear()
    device.turn("idle", 1)
    while device.app.sound.playing:
        assert device.link.frames == []
        device.run(10)
    assert device.silent()
    device.run(250)  # the room's tail
    assert device.link.frames == []
    device.run(120)
    assert device.link.frames


def test_half_duplex_stays_closed_while_the_reply_pauses():
    device = opened(listen="open")
    device.run(300)
    device.speak(count=5)
    device.run(200)
    device.link.frames.clear()
    device.run(1000)  # the network pauses; the turn still speaks
    assert not device.app.sound.playing
    assert device.link.frames == []
    device.run(1000)  # for good, it seems
    assert device.link.frames


def test_full_duplex_sends_while_it_plays():
    device = opened(**OPEN)
    device.run(300)
    device.speak(count=20)
    device.link.frames.clear()
    device.run(200)
    assert len(device.link.frames) > 5


def test_listening_by_button_sends_only_while_held_and_then_silence():
    device = opened()
    device.board.hear(3000)
    device.run(1000)
    assert device.link.frames == []
    device.press(1000)
    assert device.board.lights[-1] == "listening"
    device.run(50)
    spoken = heard_frames(device)
    assert spoken.count(True) > 40
    device.run(2000)
    tail = heard_frames(device)[len(spoken) :]
    assert 35 <= len(tail) <= 45
    assert tail.count(True) <= 1
    assert device.board.lights[-1] == "idle"


def test_a_tap_listens_until_the_turn_moves_on():
    device = opened()
    device.board.hear(3000)
    device.press(100)
    device.run(2000)
    assert device.board.lights[-1] == "listening"
    device.turn("listening", 1)
    device.turn("thinking", 1)
    device.run(50)
    count = len(device.link.frames)
    device.run(500)
    assert len(device.link.frames) <= count + 1


def test_mute_overrides_everything():
    device = opened(listen="open", duplex="full", mute=True)
    device.board.hear(3000)
    device.press(500)
    device.run(1000)
    assert device.link.frames == []
    assert device.board.lights[-1] == "muted"
    device = opened(mute=True)
    device.press(500)
    device.run(2000)
    assert device.link.frames == []


# --- the button while a call awaits confirmation


def test_holding_the_button_confirms():
    device = opened()
    device.call("unlock", 1)
    device.run(100)
    assert device.board.lights[-1] == "confirm"
    assert device.last("confirm_asked")["call"] == "c1"
    device.press(1200)
    assert device.done == ["unlock"]
    assert device.last("confirm")["outcome"] == "confirmed"
    assert device.sent("tool.result")[0]["ok"] is True
    device.run(100)
    assert device.link.frames == []  # the press was no wish to talk
    device.press(500)
    assert device.link.frames


def test_a_hold_begun_before_the_request_confirms_nothing():
    device = opened()
    device.board.down = True
    device.run(300)
    device.call("unlock", 1)
    device.run(3000)
    assert device.done == []
    device.board.down = False
    device.run(100)
    assert device.app.tools.confirm.asking
    assert device.app.conversation.button.asked is False  # and the microphone is off when it is let go
    device.press(1200)
    assert device.done == ["unlock"]


def test_a_short_press_refuses():
    device = opened()
    device.call("unlock", 1)
    device.run(100)
    device.press(300)
    device.run(100)
    assert device.done == []
    assert device.sent("tool.result")[0]["code"] == "REJECTED"
    assert device.last("confirm")["outcome"] == "REJECTED"
    assert device.sent("interrupt") == []
    assert device.link.frames == []


def test_nobody_answers():
    device = opened()
    device.call("unlock", 1)
    device.run(15_200)
    assert device.sent("tool.result")[0]["code"] == "REJECTED"
    assert device.done == []
    device.press(2000)
    assert device.done == []


def test_a_confirmation_dies_with_its_epoch():
    device = opened()
    device.call("unlock", 1)
    device.run(100)
    device.board.down = True
    device.run(600)
    device.say("interrupted", epoch=1)
    device.run(1000)
    assert device.done == []
    assert device.sent("tool.result")[0]["code"] == "INTERRUPTED"
    device.board.down = False
    device.run(50)
    assert device.link.frames == []  # the press belonged to the confirmation to its end


def test_a_press_begun_before_the_request_interrupts_and_never_confirms():
    for lead in range(0, 80, 10):
        device = opened()
        device.turn("thinking", 1)
        device.run(40)
        device.board.down = True
        device.run(lead)
        device.call("unlock", 1)
        device.run(3000)
        assert device.done == [], lead
        assert [message["epoch"] for message in device.sent("interrupt")] == [1], lead
        assert device.sent("tool.result")[0]["code"] == "INTERRUPTED", lead


def test_a_press_that_bounces_while_it_is_asked_for_does_not_confirm():
    device = opened()
    device.turn("thinking", 1)
    device.run(40)
    device.board.down = True
    device.run(10)
    device.call("unlock", 1)
    device.board.down = False
    device.run(10)
    device.board.down = True
    device.run(3000)
    assert device.done == []
    assert len(device.sent("interrupt")) == 1


def test_a_press_during_a_tool_that_blocks_stops_what_waits_behind_it():
    def block():
        device.done.append("block")
        device.board.down = True  # in the midst of it
        device.now += 3000

    for name, arguments in (("unlock", {}), ("light", {"state": "on"})):
        device = opened()
        device.app.tools.add([Tool(block, "block", "Block.")])
        device.call("block", 1)
        device.call(name, 1, call="c2", **arguments)
        device.run(1500)
        assert device.done == ["block"]
        assert [message["epoch"] for message in device.sent("interrupt")] == [1]
        first, second = device.sent("tool.result")
        assert (first["callId"], first["ok"]) == ("c1", True)
        assert (second["callId"], second["code"]) == ("c2", "INTERRUPTED")


def test_a_flicker_of_the_button_only_delays_a_call():
    device = opened()
    device.board.down = True
    device.call("light", 1, state="on")
    device.run(10)
    device.board.down = False
    assert device.done == []
    device.run(60)
    assert device.done == ["light on"]
    assert device.sent("interrupt") == []


# --- a lost connection, a lost session, a reboot


def test_a_call_that_is_cut_off_from_the_host_runs_once_and_answers_once():
    device = opened()
    device.call("slow", 1)
    device.run(500)
    device.link.cut()
    device.run(3000)
    device.ready(resumedFrom=0)
    device.run(50)
    assert device.done == ["slow begins", "slow ends"]
    assert len(device.sent("tool.result")) == 1
    assert device.sent("hello")[-1]["resumeFrom"] == 1


def test_a_result_that_was_lost_is_sent_again():
    device = opened()
    device.call("light", 1, state="on")
    device.run(50)
    device.link.cut()
    device.run(1000)
    device.ready(resumedFrom=0)
    device.run(50)
    results = device.sent("tool.result")
    assert len(results) == 2
    assert results[0] == results[1]
    assert device.done == ["light on"]


def lose(device):
    device.link.cut()
    device.run(1000)
    device.receive("error", code="RESUME_FAILED", recoverable=False)
    device.run(2000)
    device.seq = 0
    device.link.texts[:-1] = []
    device.ready(sessionId="another-one")
    device.run(100)


def test_a_lost_session_ends_its_calls_and_replays_nothing():
    device = opened()
    device.speak(count=20)
    device.call("slow", 1)
    device.call("light", 1, call="c2", state="on")
    device.run(300)
    lose(device)
    assert device.last("error")["code"] == "RESUME_FAILED"
    hello = device.sent("hello")[0]
    assert "sessionId" not in hello
    assert hello["tools"]
    assert [kind for kind in device.stream() if kind != "context"] == []
    device.run(3000)
    assert device.done == ["slow begins"]
    device.call("light", 1, call="n1", state="off")  # epochs begin again
    device.run(50)
    assert device.done[-1] == "light off"
    assert device.sent("tool.result")[0]["ok"] is True


def test_a_rebooted_device_resumes_and_says_that_the_outcome_is_unknown():
    device = opened()
    device.call("slow", 1)
    device.run(500)
    device.boot()  # the power was cut
    device.run(100)
    hello = device.sent("hello")[0]
    assert hello["sessionId"] == "session-one-and-only"
    assert hello["resumeFrom"] == 1
    device.ready(resumedFrom=0)
    device.run(100)
    result = device.sent("tool.result")[0]
    assert (result["callId"], result["ok"], result["code"]) == ("c1", False, "FAILED")
    assert "unknown" in result["message"]
    assert device.done == ["slow begins"]


def test_a_rebooted_device_runs_nothing_until_it_has_read_what_it_missed():
    device = opened()
    device.call("slow", 1)
    device.run(500)
    device.boot()
    device.run(100)
    device.ready(resumedFrom=0)
    device.call("light", 5, call="c2", state="on")
    device.run(100)
    assert device.done == ["slow begins"]
    assert len(device.sent("ping")) == 1
    device.say("interrupted", epoch=5)
    device.receive("pong")
    device.call("light", 7, call="c3", state="off")
    device.run(100)
    assert device.done == ["slow begins", "light off"]
    assert [m["code"] for m in device.sent("tool.result") if m["callId"] == "c2"] == ["INTERRUPTED"]


def test_a_resumed_device_starts_nothing_until_it_has_read_what_it_missed():
    device = opened()
    device.link.cut()
    device.run(1000)
    device.ready(resumedFrom=0)
    device.call("light", 5, state="on")
    device.run(100)
    assert device.done == []
    device.say("interrupted", epoch=5)
    device.receive("pong")
    device.run(100)
    assert device.done == []
    assert [m["code"] for m in device.sent("tool.result")] == ["INTERRUPTED"]


def test_a_call_whose_interruption_came_in_the_same_burst_does_not_start():
    for before in range(12):
        device = opened()
        for _ in range(before):
            device.say("text", text="x", final=False)
        device.call("light", 5, state="on")
        device.say("interrupted", epoch=5)
        device.run(100)
        assert device.done == [], before
        assert [m["code"] for m in device.sent("tool.result")] == ["INTERRUPTED"]


def rebooted():
    # A device whose power failed while a tool ran, resumed; the server has read nothing of what it said.
    device = opened()
    device.call("slow", 1)
    device.run(300)
    device.boot()
    device.run(100)
    device.ready(resumedFrom=0)
    return device


def test_a_rebooted_device_starts_nothing_that_was_asked_for_before():
    device = rebooted()
    device.call("light", 1, call="c2", state="on")  # it had not arrived
    device.receive("pong")
    device.run(200)
    assert device.done == ["slow begins"]
    assert [(m["callId"], m["code"]) for m in device.sent("tool.result")] == [
        ("c1", "FAILED"),
        ("c2", "INTERRUPTED"),
    ]


def test_a_press_after_a_reboot_ends_the_turn_that_may_go_on():
    device = rebooted()
    device.receive("pong")
    device.run(100)
    device.press(100)
    device.run(100)
    assert [message["epoch"] for message in device.sent("interrupt")] == [1]
    device.press(100)
    device.run(100)
    assert len(device.sent("interrupt")) == 1


def test_a_press_before_a_rebooted_device_is_back_is_no_message():
    device = opened()
    device.call("slow", 1)
    device.run(300)
    device.boot()
    device.press(100)
    device.ready(resumedFrom=0)
    device.run(100)
    assert device.stream() == ["tool.result", "context"]


def test_calls_that_waited_have_their_result_after_a_reboot():
    device = opened()
    device.call("slow", 1, call="c1")
    device.call("nothing", 1, call="c2")
    device.call("light", 1, call="c3", state="off")
    device.run(300)
    assert [result["callId"] for result in device.sent("tool.result")] == ["c2"]
    for _ in range(2):
        device.boot()
        device.run(100)
        assert device.sent("hello")[0]["resumeFrom"] == 3
        device.ready(resumedFrom=1)
        device.receive("pong")
        device.run(300)
        results = device.sent("tool.result")
        assert [(result["callId"], result["code"]) for result in results] == [
            ("c1", "FAILED"),
            ("c3", "FAILED"),
        ]
        for result in results:
            assert "unknown" in result["message"]
    assert device.done == ["slow begins"]


def test_a_rebooted_device_that_comes_too_late_names_the_call_in_a_new_session():
    device = opened()
    device.call("slow", 1)
    device.run(500)
    device.boot()
    device.run(100)
    device.receive("error", code="RESUME_FAILED", recoverable=False)
    device.run(2000)
    hello = device.sent("hello")[-1]
    assert "sessionId" not in hello
    assert [call["callId"] for call in hello["context"]["unknownCalls"]] == ["c1"]
    device.seq = 0
    device.ready(sessionId="another-one")
    device.call("light", 1, call="c2", state="on")
    device.run(50)
    assert device.done[-1] == "light on"


def test_the_barrier_after_a_reboot_survives_another_cut():
    device = opened()
    device.call("slow", 1)
    device.run(300)
    device.boot()
    device.run(100)
    device.ready(resumedFrom=0)
    device.run(20)
    device.link.cut()
    device.run(1000)
    device.ready(resumedFrom=1)
    device.call("light", 5, call="c2", state="on")
    device.run(50)
    assert len(device.sent("ping")) == 2
    assert "light on" not in device.done
    device.receive("pong")
    device.run(50)
    assert "light on" in device.done


# --- refusals


def test_a_wrong_token_stops_the_device_until_there_is_another():
    device = Device()
    device.run(20)
    device.receive("error", code="UNAUTHORIZED", recoverable=False, message="no such device")
    device.run(60_000)
    assert device.link.opened == 1
    assert device.board.lights[-1] == "denied"
    assert device.last("error")["message"] == "no such device"
    device.press(100)
    device.run(2000)
    assert device.link.opened == 1  # the same token would be refused again
    device.board.raw = ["nonsense"]
    device.press(100)
    device.run(2000)
    assert device.last("error")["code"] == "CONFIG"
    assert device.link.opened == 1
    device.board.raw = device.raw
    device.raw["token"] = "fresh"
    device.press(100)
    device.run(2000)
    assert device.sent("hello")[-1]["auth"] == {"token": "fresh"}
    device.ready()
    device.run(50)
    assert device.app.session.state == "open"
    assert device.board.lights[-1] != "error"


def test_a_fresh_token_is_tried_once_without_being_asked():
    device = Device()
    device.run(20)
    device.receive("error", code="UNAUTHORIZED", recoverable=False)
    device.run(60_000)
    for opened_, token in ((2, "fresh"), (2, 17), (2, "fresh"), (3, "fresher"), (4, "")):
        device.raw["token"] = token
        device.run(15_000)
        assert device.link.opened == opened_, token
        if device.app.session.state == "waiting":
            assert device.sent("hello")[-1].get("auth", {}).get("token", "") == token
            device.receive("error", code="UNAUTHORIZED", recoverable=False)
            device.run(60_000)
            assert device.link.opened == opened_, "the same token would be refused again"
    device.raw["token"] = "good"
    device.run(15_000)
    device.ready()
    device.run(50)
    assert device.app.session.state == "open"


def test_a_fresh_token_resumes_the_session():
    device = opened()
    device.call("slow", 1)
    device.run(100)
    device.link.cut()
    device.run(1000)
    device.receive("error", code="UNAUTHORIZED", recoverable=False)
    device.run(3000)
    device.raw["token"] = "fresh"
    device.run(15_000)
    hello = device.sent("hello")[-1]
    assert hello["auth"] == {"token": "fresh"}
    assert hello["sessionId"] == "session-one-and-only"


def test_another_refusal_is_not_answered_by_a_token():
    device = Device()
    device.run(20)
    device.receive("error", code="NOT_TODAY", recoverable=False)
    device.raw["token"] = "fresh"
    device.run(60_000)
    assert device.link.opened == 1
    device.press(100)
    device.run(2000)
    assert device.link.opened == 2


def test_a_server_that_cannot_start_is_asked_again_without_haste():
    device = Device()
    device.run(20)
    device.receive("error", code="START_FAILED", recoverable=False)
    device.run(4000)
    assert device.link.opened == 1
    device.run(11_000)
    assert device.link.opened == 2


def test_an_unrecoverable_error_closes_and_resumes():
    device = opened()
    device.say("error", code="AGENT_ERROR", recoverable=False, message="the model is gone")
    device.run(20)
    assert device.link.closes == [1000]
    device.run(1000)
    assert device.sent("hello")[-1]["sessionId"] == "session-one-and-only"


def test_a_recoverable_error_is_only_reported():
    device = opened()
    device.say("error", code="AGENT_ERROR", recoverable=True, message="busy")
    device.run(20)
    assert device.link.closes == []
    assert device.last("error")["message"] == "busy"


# --- what the device tells


def test_the_log_tells_the_conversation():
    device = opened()
    device.say("transcript", role="user", text="light on", final=True, turnId="t", epoch=1)
    device.turn("thinking", 1)
    device.call("light", 1, state="on")
    device.say("text", text="Done.", final=True)
    device.speak()
    device.turn("idle", 1)
    device.run(500)
    names = [name for name in device.names() if name not in ("stats", "connecting")]
    assert names == [
        "ready",
        "transcript",
        "turn",
        "call",
        "text",
        "turn",
        "audio_start",
        "call_start",
        "result",
        "turn",
        "played",
    ]
    assert device.last("result")["ok"] is True
    stats = device.last("stats")
    assert stats["received"] == 10
    assert stats["missing"] == stats["underruns"] == stats["invalid"] == 0


def test_the_device_reports_its_true_state_after_an_interruption():
    device = opened()
    device.call("slow", 1)
    device.run(300)
    device.press(100)
    device.run(100)
    assert device.stream()[-1] == "context"


def test_long_results_that_nobody_acknowledges_fill_the_outbox_before_the_heap():
    device = opened()
    device.app.tools.tools[0].function = lambda state: "x" * 1000
    count = 0
    while not device.link.closes:
        count += 1
        device.call("light", 1, call=f"c{count}", state="on")
        device.run(20)
    assert device.link.closes == [4000]
    assert device.last("error")["code"] == "OUTBOX_FULL"
    results = len(device.sent("tool.result"))
    assert 4 < results < 10
    device.run(1000)
    device.ready(resumedFrom=results)
    device.receive("pong")
    device.seq = device.sent("hello")[-1]["resumeFrom"]
    assert device.seq in (count - 1, count)
    for number in range(device.seq + 1, 20):
        device.call("light", 1, call=f"c{number}", state="on")
        device.run(20)
        device.receive("ack", upTo=device.app.session.streams.last)
    device.run(100)
    answered = [result["callId"] for result in device.sent("tool.result")]
    assert answered == [f"c{number}" for number in range(1, 20)]
