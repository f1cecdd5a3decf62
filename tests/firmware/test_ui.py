from vrt.ui import PRESSED, RELEASED, Button, Talk, light


def presses(levels, step=10):
    # The edges that a button sees, one level each 10 ms, as (time, edge).
    button = Button()
    seen = []
    for i, level in enumerate(levels):
        edge = button.poll(level, i * step)
        if edge:
            seen.append((i * step, edge))
    return seen


def test_button_reports_each_edge_once_after_it_is_stable():
    assert presses([False] * 3 + [True] * 10 + [False] * 10) == [(60, PRESSED), (160, RELEASED)]


def test_button_ignores_what_bounces():
    assert presses([False, True, False, True, False, True, False, False, False]) == []
    assert presses([True, False, True, True, True, True, True, False, True, True, True]) == [(50, PRESSED)]


def test_button_works_across_the_wrap_of_ticks():
    button = Button()
    assert button.poll(True, 0x3FFFFFF0) == 0
    assert button.poll(True, 20) == PRESSED
    assert button.down


def test_hold_to_talk():
    talk = Talk(False)
    assert not talk.asked
    talk.press(1000)
    assert talk.asked
    talk.poll(30_000)  # as long as it takes
    assert talk.asked
    talk.release(30_000)
    assert not talk.asked
    assert talk.tail
    talk.poll(30_799)
    assert talk.tail
    talk.poll(30_800)
    assert not talk.tail


def test_tap_to_talk_lasts_until_the_host_answers():
    talk = Talk(False)
    talk.press(1000)
    talk.release(1200)
    assert talk.asked
    talk.answered()
    assert not talk.asked
    assert not talk.tail


def test_tap_to_talk_ends_by_a_second_tap_and_its_release_changes_nothing():
    talk = Talk(False)
    talk.press(1000)
    talk.release(1200)
    talk.press(5000)
    assert not talk.asked
    assert talk.tail
    talk.release(5100)
    assert not talk.asked


def test_tap_to_talk_does_not_last_for_ever():
    talk = Talk(False)
    talk.press(1000)
    talk.release(1200)
    talk.poll(16_199)
    assert talk.asked
    talk.poll(16_200)
    assert not talk.asked
    assert talk.tail


def test_a_press_during_the_tail_talks_again():
    talk = Talk(False)
    talk.press(0)
    talk.release(1000)
    talk.press(1300)
    assert talk.asked
    assert not talk.tail


def test_an_answer_does_not_silence_who_holds_the_button():
    talk = Talk(False)
    talk.press(0)
    talk.answered()
    assert talk.asked


def test_open_listening_is_always_asked_for():
    talk = Talk(True)
    for act in (lambda: talk.press(0), lambda: talk.release(10), talk.answered, lambda: talk.poll(60_000)):
        act()
        assert talk.asked
        assert not talk.tail


def show(**changes):
    state = {
        "failed": False,
        "connected": True,
        "asking": False,
        "playing": False,
        "turn": "idle",
        "live": False,
        "mute": False,
    }
    state.update(changes)
    return light(**state)


def test_light_shows_what_matters_most():
    assert show() == "idle"
    assert show(mute=True) == "muted"
    assert show(live=True) == "listening"
    assert show(live=True, turn="listening") == "listening"
    for turn in ("thinking", "acting", "speaking"):
        assert show(live=True, turn=turn) == "thinking"
    assert show(playing=True, turn="acting", live=True) == "speaking"
    assert show(asking=True, playing=True) == "confirm"
    assert show(connected=False, asking=True) == "connecting"
    assert show(failed=True, connected=False) == "error"
