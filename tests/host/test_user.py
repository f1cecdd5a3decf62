import numpy as np
import pytest
from vrt_host.errors import UsageError
from vrt_host.harness import user


@pytest.mark.parametrize(
    ("word", "value", "at"),
    [
        ("unlock the door", "unlock the door", None),
        ("unlock the door@3.5", "unlock the door", 3.5),
        ("mail me@home", "mail me@home", None),
        ("mail me@home@0", "mail me@home", 0.0),
        ("a@2.wav", "a@2.wav", None),
    ],
)
def test_user_reads_values_with_and_without_a_time(word, value, at):
    assert user.parse_timed(word) == (value, at)


@pytest.mark.parametrize("word", ["", "  ", "@3", " @3", "hello@-1", "hello@nan", "hello@inf"])
def test_user_refuses_what_says_nothing_or_has_no_time(word):
    with pytest.raises(UsageError, match=r"says nothing|0 seconds or more"):
        user.parse_timed(word)


def test_user_answers_requests_by_number_and_the_rest_by_rule():
    presses = user.parse_presses(["1@1.5", "3@0.2", "auto"])
    assert [presses.hold(number) for number in (1, 2, 3, 4)] == [1.5, user.HOLD_S, 0.2, user.HOLD_S]
    assert user.parse_presses(["2@2"]).hold(1) is None
    assert user.parse_presses(["auto", "never"]).hold(1) is None
    assert user.parse_presses([]).hold(1) is None


@pytest.mark.parametrize(
    "word", ["", "1", "1@", "@1", "x@1", "1@x", "0@1", "-1@1", "1@0", "1@-1", "1@nan", "1@61", "always"]
)
def test_user_refuses_other_presses(word):
    with pytest.raises(UsageError, match="--press"):
        user.parse_presses([word])


@pytest.mark.parametrize(("word", "heap"), [("128k", "128k"), ("128K", "128k"), ("2M", "2m"), ("32k", "32k")])
def test_user_reads_heap_sizes(word, heap):
    assert user.parse_heap(word) == heap


@pytest.mark.parametrize(
    "word", ["", "k", "128", "128kb", "1.5M", "-128k", "16k", "65M", "\u0661\u0662\u0668k", "1e6"]
)
def test_user_refuses_heaps_that_cannot_work(word):
    with pytest.raises(UsageError, match="heap"):
        user.parse_heap(word)


def test_user_reads_until_as_a_time_or_an_event():
    assert user.parse_until("12.5") == 12.5
    assert user.parse_until("tool.result") == "tool.result"


@pytest.mark.parametrize("word", ["", " ", "two words", "0", "-1", "nan", "inf"])
def test_user_refuses_an_until_that_never_ends(word):
    with pytest.raises(UsageError, match="--until"):
        user.parse_until(word)


def test_user_knows_where_speech_begins_and_ends():
    sound = np.zeros(1_000, np.int16)
    assert user.speech_edges(sound) == (0, 0)
    assert user.speech_edges(sound[:0]) == (0, 0)
    sound[::7] = 20  # a noise floor
    sound[300:600] = 9_000
    sound[450] = -32_768
    assert user.speech_edges(sound) == (300, 600)
