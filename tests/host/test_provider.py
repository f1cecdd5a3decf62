"""agents/provider.py: what a provider said, in one line without a secret; and how long is waited for it."""

import random
from typing import get_args

import pytest
from vrt_host.agents.provider import PASSING, RETRIED, Backoff, Kind, ProviderError

SECRET = "sk-0123456789"


@pytest.mark.parametrize("kind", get_args(Kind))
def test_line_names_the_agent_what_was_said_and_what_to_do(kind):
    line = ProviderError(kind, "No, thanks.").line("openai")
    assert line.startswith("openai: No, thanks; ")
    assert len(line) > len("openai: No, thanks; ") + 8


def test_line_is_one_and_short_and_moves_no_cursor():
    line = ProviderError("refused", "a\nb\x1b[2J\tc " + "x" * 1000).line("chat")
    assert line.startswith("chat: a b [2J c x")
    assert len(line) < 400
    assert line.isprintable()


@pytest.mark.parametrize("said", [f"the key {SECRET} is wrong", "x" * 290 + SECRET, f"{SECRET}{SECRET}"])
def test_secret_is_never_shown(said):
    error = ProviderError("key", said)
    for text in (error.line("chat", ["", SECRET]), error.event("chat", None, [SECRET]).message):
        assert SECRET[:8] not in text


def test_short_secret_is_not_taken_out_of_words():
    error = ProviderError("key", "Not known: the key k, or test_keys.")
    assert error.line("chat", ["k", "test"]).startswith("chat: Not known: the key ***, or test_keys;")


def test_error_without_words_says_its_kind():
    assert ProviderError("gone", "").line("chat") == "chat: gone; it is tried again"


def test_advice_may_be_given():
    assert ProviderError("refused", "No", advice="call them").line("chat") == "chat: No; call them"


def test_what_is_tried_again_may_pass():
    assert RETRIED <= PASSING
    assert not PASSING & {"key", "model", "format", "quota", "expired", "version"}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_event_is_recoverable_if_it_may_pass(kind):
    event = ProviderError(kind, "No").event("chat", "turn-1")
    assert event.recoverable is (kind in PASSING)
    assert event.turn == "turn-1"


def test_waits_double_up_to_half_a_minute_and_begin_again():
    backoff = Backoff(random.Random(1))
    waits = [backoff.next() for _ in range(40)]
    assert 0.25 <= waits[0] <= 0.5
    for number, wait in enumerate(waits):
        whole = min(30.0, 0.5 * 2.0**number)
        assert whole / 2 <= wait <= whole
    backoff.reset()
    assert backoff.next() <= 0.5


def test_what_the_provider_asked_for_is_kept_to_a_minute_at_most():
    backoff = Backoff(random.Random(1))
    assert backoff.next(ProviderError("rate", "No", retry_after_s=7)) == 7
    assert backoff.next(ProviderError("rate", "No", retry_after_s=1e9)) == 60
    for _ in range(20):
        backoff.next()
    assert backoff.next(ProviderError("rate", "No", retry_after_s=1)) >= 15
