from vrt.ui import Button


def presses(levels, step=10):
    # What a button sees, one level each 10 ms, as (time, is it down).
    button = Button()
    seen = []
    for i, level in enumerate(levels):
        before = button.down
        pressed = button.poll(level, i * step)
        assert pressed == (button.down and not before)
        if button.down != before:
            seen.append((i * step, button.down))
    return seen


def test_button_reports_each_edge_once_after_it_is_stable():
    assert presses([False] * 3 + [True] * 10 + [False] * 10) == [(60, True), (160, False)]


def test_button_ignores_what_bounces():
    assert presses([False, True, False, True, False, True, False, False, False]) == []
    assert presses([True, False, True, True, True, True, True, False, True, True, True]) == [(50, True)]


def test_button_works_across_the_wrap_of_ticks():
    button = Button()
    assert not button.poll(True, 0x3FFFFFF0)
    assert button.poll(True, 20)
    assert button.down


def move(button, level, now):
    # The level is there 30 ms before `now`, when it counts; a press means to talk.
    button.poll(level, now - 30)
    if button.poll(level, now):
        button.press(now)
    return button


def test_hold_to_talk():
    button = Button()
    assert not button.asked
    move(button, True, 1000)
    assert button.asked
    button.poll(True, 29_000)  # as long as it takes
    assert button.asked
    move(button, False, 30_000)
    assert not button.asked
    assert button.tail
    button.poll(False, 30_799)
    assert button.tail
    button.poll(False, 30_800)
    assert not button.tail


def tapped():
    return move(move(Button(), True, 1000), False, 1200)


def test_tap_to_talk_lasts_until_the_host_answers():
    button = tapped()
    assert button.asked
    button.answered()
    assert not button.asked
    assert not button.tail


def test_tap_to_talk_ends_by_a_second_tap_and_its_release_changes_nothing():
    button = tapped()
    move(button, True, 5000)
    assert not button.asked
    assert button.tail
    move(button, False, 5100)
    assert not button.asked
    assert button.tail


def test_tap_to_talk_does_not_last_for_ever():
    button = tapped()
    button.poll(False, 16_199)
    assert button.asked
    button.poll(False, 16_200)
    assert not button.asked
    assert button.tail


def test_a_press_during_the_tail_talks_again():
    button = move(move(Button(), True, 1000), False, 2000)
    assert button.tail
    move(button, True, 2300)
    assert button.asked
    assert not button.tail


def test_a_press_that_means_something_else_does_not_talk():
    button = Button()
    for now in (0, 30, 60):
        button.poll(True, now)
    assert button.down
    assert not button.asked
    move(button, False, 1000)
    assert not button.asked
    assert not button.tail


def test_an_answer_does_not_silence_who_holds_the_button():
    button = move(Button(), True, 1000)
    button.answered()
    assert button.asked


def test_open_listening_is_always_asked_for():
    button = Button(True)
    for act in (
        lambda: move(button, True, 1000),
        lambda: move(button, False, 1200),
        button.answered,
        lambda: button.poll(False, 60_000),
    ):
        act()
        assert button.asked
        assert not button.tail
