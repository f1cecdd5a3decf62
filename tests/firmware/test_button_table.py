# What a press of the one button means when two of its meanings meet (docs/device.md, "The button").
from fake_device import STEP_MS, opened
from test_onboard import Held


def asked(device, call="c1"):
    device.call("unlock", 1, call)
    device.run(100)
    assert device.board.lights[-1] == "confirm"


def outcomes(device):
    return [result.get("code", "ok") for result in device.sent("tool.result")]


def hold(device, ms):
    device.board.down = True
    device.run(ms)


def let_go(device, ms=200):
    device.board.down = False
    device.run(ms)


def test_the_request_runs_out_while_the_button_is_held():
    device = opened()
    asked(device)
    device.run(14_300)
    hold(device, 3000)  # begun in time, but not for a second
    assert outcomes(device) == ["REJECTED"]
    let_go(device)
    assert device.done == []
    assert device.link.frames == []  # it means nothing else, to its end
    assert device.sent("interrupt") == []


def test_the_server_interrupts_while_the_button_is_held():
    device = opened()
    asked(device)
    hold(device, 900)
    device.say("interrupted", epoch=1)
    device.run(2000)
    assert outcomes(device) == ["INTERRUPTED"]
    let_go(device)
    assert device.done == []
    assert device.link.frames == []


def test_the_link_goes_while_the_button_is_held():
    # What is confirmed is done, once, and the host hears of it when it is back.
    device = opened()
    asked(device)
    hold(device, 500)
    device.link.cut("reset", 1006)
    device.run(700)
    assert device.done == ["unlock"]
    let_go(device, 2000)
    device.ready(resumedFrom=0)
    device.run(200)
    assert device.done == ["unlock"]
    assert outcomes(device) == ["ok"]


def test_a_short_press_without_a_link_refuses():
    device = opened()
    asked(device)
    device.link.cut("reset", 1006)
    device.run(100)
    assert device.board.lights[-1] == "confirm"
    hold(device, 300)
    let_go(device)
    assert device.done == []
    assert device.board.lights[-1] != "confirm"


def test_a_contact_that_bounces_in_a_hold_neither_refuses_nor_confirms_early():
    device = opened()
    asked(device)
    for _ in range(4):  # 800 ms, with bounces of 20 ms
        hold(device, 180)
        device.board.down = False
        device.run(2 * STEP_MS)
    assert outcomes(device) == []
    assert device.done == []
    hold(device, 500)
    assert device.done == ["unlock"]


def test_a_hold_answers_one_request():
    device = opened()
    asked(device)
    device.call("unlock", 1, "c2")
    hold(device, 5000)
    assert device.done == ["unlock"]
    assert outcomes(device) == ["ok"]
    let_go(device)
    assert device.app.tools.confirm.asking
    hold(device, 1200)
    assert device.done == ["unlock", "unlock"]


def test_a_press_refuses_also_while_the_agent_asks_aloud_and_stops_nothing_else():
    device = opened()
    device.speak(count=50)
    device.call("unlock", 1)
    device.run(100)
    assert device.app.tools.confirm.asking
    hold(device, 300)
    let_go(device, 50)
    assert outcomes(device) == ["REJECTED"]
    assert device.sent("interrupt") == []
    assert device.app.sound.playing


def test_what_began_as_an_answer_or_a_stop_never_forgets_wifi():
    held = Held()
    held.device.call("unlock", 1)
    held.run(100)
    held.run(14_300)
    held.hold(20_000)  # it runs out soon; nothing goes on from then
    assert held.restarted == 0
    held.device.board.down = False
    held.run(100)
    held.device.turn("thinking", 2)
    held.run(100)
    held.hold(20_000)  # stops the turn
    assert held.restarted == 0
    assert "forget" not in held.device.board.lights


def test_a_hold_that_is_let_go_for_a_moment_begins_anew():
    held = Held()
    held.hold(9500)
    held.device.board.down = False
    held.run(100)
    held.hold(9500)
    assert held.restarted == 0
    held.run(1000)
    assert held.restarted == 2
