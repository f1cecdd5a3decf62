# Which offers of an update are followed, how often, and what becomes of an answer that is none.
import json
import os

import slots
from signed import KEY, bundle
from support import raises
from test_update import FILES, done, flash
from vrt import VERSION
from vrt.setup import fetch


class Board:
    NAME = "sim"

    def __init__(self):
        self.events = []

    def event(self, kind, **fields):
        self.events.append((kind, fields))

    def wait(self, link, ms):
        pass


class Socket:
    # What the host answers.
    def __init__(self, data):
        self.data = data
        self.at = 0
        self.open = True

    def read(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def close(self):
        self.open = False


def attempt(answer, config=None):
    # Takes the noted update from a host that answers so (an error is raised). Returns (its result, events).
    board = Board()
    with open("update.pub", "w") as file:
        file.write(KEY + "\n")

    def ask(board, config, port):
        if isinstance(answer, BaseException):
            raise answer
        assert port == 8766
        return Socket(answer)

    before = fetch._ask
    fetch._ask = ask
    try:
        return fetch.attempt(board, config or {"update_key": "update.pub"}, slots), board.events
    finally:
        fetch._ask = before


OFFER = {"version": "9.0.0", "port": 8766}


def test_offer_of_a_newer_version_is_noted():
    flash()
    assert fetch.wanted(OFFER, slots)
    assert fetch.noted() == {"version": "9.0.0", "port": 8766, "tries": 0, "due": True}
    done()


def test_offer_that_is_none_is_passed_over():
    flash()
    for offer in (
        {"version": VERSION, "port": 1},
        {"version": "0.0.1", "port": 1},
        {"version": "soon", "port": 1},
        {"version": None, "port": 1},
        {"version": "9.0.0"},
        {"version": "9.0.0", "port": "x"},
        {"version": "9.0.0", "port": None},
        {},
        [],
        "9.0.0",
        True,
    ):
        assert not fetch.wanted(offer, slots), offer
    assert fetch.noted() is None
    done()


def test_version_that_failed_is_not_wanted_again():
    flash("a 9.0.0")
    assert not fetch.wanted(OFFER, slots)
    assert fetch.wanted({"version": "9.0.1", "port": 1}, slots)
    done()


def test_noted_update_is_installed():
    flash()
    fetch.wanted(OFFER, slots)
    took, events = attempt(bundle(FILES))
    assert took
    assert slots.read() == ("b", "?", "9.0.0")
    assert events == [
        ("update", {"state": "fetch", "version": "9.0.0"}),
        ("update", {"state": "installed", "version": "9.0.0"}),
    ]
    done()


def test_nothing_is_fetched_when_nothing_is_noted():
    flash()
    assert attempt(ValueError("asked")) == (False, [])
    with open("update.json", "w") as file:
        file.write('{"version": "9.')
    assert attempt(ValueError("asked")) == (False, [])
    done()


def test_version_that_failed_on_trial_is_not_fetched_again_by_itself():
    flash()
    fetch.wanted(OFFER, slots)
    assert attempt(bundle(FILES))[0]
    slots.choose()
    assert slots.choose() == "a"  # the trial was not confirmed
    assert attempt(ValueError("asked")) == (False, [])
    done()


def test_update_that_runs_already_is_not_fetched():
    flash()
    with open("update.json", "w") as file:
        json.dump({"version": VERSION, "port": 1, "tries": 0, "due": True}, file)
    assert attempt(ValueError("asked")) == (False, [])
    done()


def test_host_that_fails_is_asked_three_times_in_all():
    flash()
    for number in (1, 2, 3):
        assert fetch.wanted(OFFER, slots)
        took, events = attempt(OSError("no route"))
        assert not took
        assert f"try {number} of 3" in events[-1][1]["message"]
        assert attempt(ValueError("asked")) == (False, [])  # not before the next offer
    assert not fetch.wanted(OFFER, slots)
    assert fetch.wanted({"version": "9.0.1", "port": 8766}, slots)
    done()


def test_power_cut_during_the_update_counts_as_a_try():
    flash()
    fetch.wanted(OFFER, slots)
    raises(SystemExit, attempt, SystemExit())
    assert fetch.noted()["tries"] == 1
    done()


def test_bundle_that_is_refused_is_not_fetched_again():
    flash()
    fetch.wanted(OFFER, slots)
    took, events = attempt(b"<html>" * 100)
    assert not took
    assert "refused" in events[-1][1]["message"]
    assert not fetch.wanted(OFFER, slots)
    done()


def test_answer_that_ends_early_is_a_failure_and_tried_again():
    flash()
    fetch.wanted(OFFER, slots)
    took, events = attempt(bundle(FILES)[:-1])
    assert not took
    assert "closed the connection" in events[-1][1]["message"]
    assert fetch.wanted(OFFER, slots)
    assert slots.read() == ("a", "", "")
    done()


def test_key_that_is_not_there_is_said():
    flash()
    fetch.wanted(OFFER, slots)
    _, events = attempt(bundle(FILES), {"update_key": "none.pub"})
    assert events[-1][0] == "error"
    assert not [name for name in os.listdir() if name == "b"]
    done()


def test_update_from_a_host_without_tls_is_refused():
    flash()
    error = raises(ValueError, fetch._ask, Board(), {"ca": "", "url": "ws://localhost:1/", "token": "t"}, 1)
    assert "wss://" in str(error)
    done()
