# The registry: one call at a time, one result each, nothing of a closed epoch, nothing twice, nothing unconfirmed.
import sys

import micropython
from house import LOCK, world
from support import SkipTest, raises
from test_journal import PowerCut, makes_much_garbage
from vrt import tools
from vrt.errors import ConfigError, VrtError
from vrt.tools import Tool
from vrt.tools.journal import Journal
from vrt.tools.report import unknown

UNLOCK = {"door": "front", "state": "unlocked"}
SHUT = {"door": "front", "state": "locked"}


def test_call_runs_and_has_its_one_result():
    with world() as w:
        w.call("c1", "lock", SHUT, epoch=4)
        assert w.registry.queue
        w.run(100)
        assert w.done == [("front", "locked")]
        assert w.results() == [{"callId": "c1", "epoch": 4, "ok": True, "output": SHUT}]
        w.run(1000)
        assert w.results() == []
        assert not w.registry.queue
        assert not w.registry.uncertain


def test_tool_that_returns_nothing_has_output_null():
    with world() as w:
        w.call("c1", "light", {"state": "on"})
        w.run(100)
        assert w.results() == [{"callId": "c1", "epoch": 1, "ok": True, "output": None}]


def test_result_is_a_copy():
    kept = {"n": 1}
    with world() as w:
        w.registry.add([Tool(lambda: kept, "kept", "Return what it keeps.")])
        w.call("c1", "kept", {})
        w.run(100)
        kept["n"] = 2
        assert w.results()[0]["output"] == {"n": 1}


def test_calls_run_one_at_a_time_in_order():
    with world() as w:
        w.call("c1", "slow", {})
        w.call("c2", "light", {"state": "on"})
        w.call("c3", "light", {"state": "off"})
        w.run(500)
        assert w.done == ["begun"]
        w.run(2000)
        assert w.done == ["begun", "committed", "closed", ("light", "on"), ("light", "off")]
        assert [result["output"] for result in w.results()] == [42, None, None]
        assert ("progress", {"call": "c1", "name": "slow", "text": "half way"}) in w.events


def test_unknown_tool_is_failed():
    with world() as w:
        w.call("c1", "reboot", {})
        w.call("c2", "__init__", {})
        assert w.codes() == [("c1", "FAILED"), ("c2", "FAILED")]


def test_arguments_that_do_not_match_are_invalid_and_never_repaired():
    with world() as w:
        bad = (
            {},
            [],
            None,
            "",
            '{"door":"front","state":"locked"}',
            {"door": "front"},
            {"door": "frond", "state": "locked"},
            {"door": "front", "state": "unlock"},
            {"door": "front", "state": "Locked"},
            {"door": "front", "state": "locked", "extra": 1},
            {"door": ["front"], "state": "locked"},
        )
        for i, arguments in enumerate(bad):
            w.call(f"c{i}", "lock", arguments)
            (result,) = w.results()
            assert result["code"] == "INVALID", arguments
            assert result["message"].startswith("arguments"), result
        deep = []
        for _ in range(30):
            deep = [deep]
        w.call("deep", "lock", {"door": deep, "state": "locked"})
        w.call("null", "look", None)
        assert w.codes() == [("deep", "INVALID"), ("null", "INVALID")]
        w.run(100)
        assert w.done == []


def test_exception_is_failed_with_its_class_and_text():
    def fall():
        raise KeyError("x" * 1000)

    def stop():
        return next(iter([]))

    def refuse():
        raise VrtError("the door stands open")

    with world() as w:
        w.registry.add(
            [Tool(fall, "fall", "Fall."), Tool(stop, "stop", "Stop."), Tool(refuse, "refuse", "Refuse.")]
        )
        w.call("c1", "fall", {})
        w.call("c2", "stop", {})
        w.call("c3", "refuse", {})
        w.run(300)
        first, second, third = w.results()
        assert first["code"] == second["code"] == third["code"] == "FAILED"
        assert first["message"].startswith("KeyError: ")
        assert len(first["message"]) <= 200
        assert second["message"].startswith("StopIteration")
        assert third["message"] == "the door stands open"
        assert w.registry.uncertain, "what it did before it fell is not known"


def test_tool_declared_with_other_parameters_is_failed_without_effect():
    with world() as w:
        w.registry.add([Tool(w.lock, "odd", "Has a parameter that its function lacks.", {"dor": {}})])
        w.call("c1", "odd", {"dor": 1})
        w.run(100)
        (result,) = w.results()
        assert result["message"].startswith("TypeError")
        assert w.done == []


def test_output_that_is_not_json_or_too_large_says_that_it_ran():
    outputs = [b"x", {1: 2}, float("nan"), set(), "x" * 1100, "ä" * 600, ["x"] * 400]
    with world() as w:
        w.registry.add([Tool(lambda: outputs[0], "give", "Give.")])
        while outputs:
            w.call(f"c{len(outputs)}", "give", {})
            w.run(100)
            (result,) = w.results()
            assert result["code"] == "FAILED"
            assert result["message"].startswith("it ran, but"), result
            outputs.pop(0)
        outputs.append("x" * 1022)
        w.call("c0", "give", {})
        w.run(100)
        assert w.results()[0]["ok"]


# --- confirmation


def test_confirmed_call_runs_once():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(300)
        assert w.registry.confirm.asking
        assert w.done == []
        w.press(1200)
        assert w.done == [("front", "unlocked")]
        assert not w.registry.confirm.asking
        assert w.codes() == [("c1", "ok")]
        w.press(1200)
        assert w.done == [("front", "unlocked")]


def test_only_the_risky_direction_asks():
    with world() as w:
        w.call("c1", "lock", SHUT)
        w.run(100)
        assert w.codes() == [("c1", "ok")]


def test_short_press_rejects():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(300)
        w.press(400)
        assert w.codes() == [("c1", "REJECTED")]
        w.press(2000)
        assert w.done == []


def test_unanswered_confirmation_rejects_after_15_s():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(15000)
        assert w.codes() == []
        w.run(100)
        assert w.codes() == [("c1", "REJECTED")]
        assert w.done == []


def test_button_held_before_the_request_does_not_confirm():
    with world() as w:
        w.down = True
        w.run(2000)
        w.call("c1", "lock", UNLOCK)
        w.run(14000)
        assert w.done == []
        w.run(2000)
        assert w.codes() == [("c1", "REJECTED")]


def test_confirmation_dies_with_its_epoch():
    with world() as w:
        w.call("c1", "lock", UNLOCK, epoch=3)
        w.run(200)
        w.down = True
        w.run(900)
        w.registry.close_epoch(3)
        assert not w.registry.confirm.asking
        assert w.codes() == [("c1", "INTERRUPTED")]
        w.run(3000)
        assert w.done == []
        assert not w.registry.uncertain, "nothing was begun"


def test_hold_for_one_call_does_not_confirm_the_next():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.call("c2", "lock", {"door": "back", "state": "unlocked"})
        w.run(200)
        w.down = True
        w.run(5000)
        assert w.done == [("front", "unlocked")]
        assert w.registry.confirm.asking
        w.down = False
        w.run(100)
        w.press(1200)
        assert w.done == [("front", "unlocked"), ("back", "unlocked")]
        assert w.codes() == [("c1", "ok"), ("c2", "ok")]


def test_each_call_asks_for_itself():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(100)
        w.press(1200)
        w.call("c2", "lock", UNLOCK)
        w.run(1000)
        assert w.codes() == [("c1", "ok")]
        assert w.registry.confirm.asking


def test_arguments_changed_after_the_confirmation_do_not_run():
    with world() as w:
        arguments = dict(UNLOCK)
        w.call("c1", "lock", arguments)
        w.run(100)
        w.down = True
        w.run(900)
        arguments["door"] = "back"
        w.run(500)
        assert w.codes() == [("c1", "REJECTED")]
        assert w.done == []


def test_confirmation_by_voice_is_the_hosts_and_must_be_allowed():
    spoken = Tool(lambda: 1, "spoken", "Ask by voice.", effect="reversible", confirm="voice")
    with world() as w:
        error = raises(ConfigError, w.registry.add, [spoken])
        assert "voice" in str(error)
        w.call("c1", "spoken", {})
        assert w.codes() == [("c1", "FAILED")]
    with world(voice=True) as w:
        w.registry.add([spoken])
        w.call("c1", "spoken", {})
        w.run(100)
        assert w.codes() == [("c1", "ok")]


# --- the epoch gate


def test_closed_epoch_never_starts_a_call():
    with world() as w:
        w.call("c1", "slow", {}, epoch=2)
        w.call("c2", "light", {"state": "on"}, epoch=2)
        w.call("c3", "light", {"state": "off"}, epoch=3)
        w.run(100)
        w.registry.close_epoch(2)
        w.call("c4", "light", {"state": "on"}, epoch=2)
        w.call("c5", "light", {"state": "on"}, epoch=1)
        w.run(200)
        assert w.done == ["begun", "closed", ("light", "off")]
        assert w.codes() == [
            ("c1", "INTERRUPTED"),
            ("c2", "INTERRUPTED"),
            ("c4", "INTERRUPTED"),
            ("c5", "INTERRUPTED"),
            ("c3", "ok"),
        ]


def test_epoch_is_looked_at_when_the_tool_starts():
    # However it came to be closed: after the hold, between two steps, without the queue having been told.
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(100)
        w.down = True
        w.run(950)
        w.registry._closed = 1
        w.run(200)
        assert w.codes() == [("c1", "INTERRUPTED")]
        assert w.done == []


def test_close_of_an_older_epoch_changes_nothing():
    with world() as w:
        w.registry.close_epoch(5)
        w.registry.close_epoch(3)
        w.call("c1", "look", {}, epoch=4)
        w.call("c2", "look", {}, epoch=6)
        w.run(100)
        assert w.codes() == [("c1", "INTERRUPTED"), ("c2", "ok")]


def test_generator_is_cut_at_its_yield_and_its_outcome_discarded():
    with world() as w:
        w.call("c1", "slow", {})
        w.run(500)
        assert w.done == ["begun"]
        w.registry.close_epoch(1)
        assert w.done == ["begun", "closed"], "its finally ran at once"
        assert w.codes() == [("c1", "INTERRUPTED")]
        assert w.registry.uncertain
        w.run(5000)
        assert "committed" not in w.done
        assert w.codes() == []


def test_generator_that_will_not_end_is_let_go():
    def stubborn():
        asked = 0
        while asked < 2:
            try:
                yield
            except BaseException:
                asked += 1

    with world() as w:
        w.registry.add([Tool(stubborn, "stubborn", "Go on.", effect="none")])
        w.call("c1", "stubborn", {})
        w.call("c2", "look", {}, epoch=2)
        w.run(200)
        w.registry.close_epoch(1)
        w.run(200)
        assert w.codes() == [("c1", "INTERRUPTED"), ("c2", "ok")]


def test_epoch_closed_by_the_tool_itself_discards_its_outcome():
    # A tool whose effect makes the loop interrupt (a sound, a press): the effect stands, the result does not.
    with world() as w:

        def barge():
            assert tools.current().call_id == "c1"
            assert not tools.current().cancelled
            w.done.append("effect")
            w.registry.close_epoch(1)
            w.registry.step(w.now)
            assert tools.current().cancelled
            w.done.append("looked")
            return 1

        def barge_slowly():
            try:
                barge()
                yield
                w.done.append("went on")
            finally:
                w.done.append("closed")

        for function in (barge, barge_slowly):
            w.start()
            w.registry.begin(function.__name__)
            w.registry.add([Tool(function, "barge", "Interrupt.")])
            w.call("c1", "barge", {})
            w.call("c2", "look", {}, epoch=2)
            w.run(200)
            assert w.codes() == [("c1", "INTERRUPTED"), ("c2", "ok")]
            assert w.registry.uncertain
        assert w.done == ["effect", "looked", "effect", "looked", "closed"]
        assert tools.current() is None


def test_tool_may_look_at_its_call():
    seen = []

    def look():
        call = tools.current()
        seen.append((call.call_id, call.turn_id, call.epoch, call.cancelled))

    with world() as w:
        w.registry.add([Tool(look, "peek", "Peek.")])
        w.call("c1", "peek", {}, epoch=9)
        w.run(100)
        assert seen == [("c1", "turn-1", 9, False)]
        assert tools.current() is None


# --- deadlines (decisions 8)


def test_running_tool_times_out():
    def forever():
        while True:
            yield

    with world() as w:
        w.registry.add([Tool(forever, "forever", "Wait.", timeout_ms=2000)])
        w.call("c1", "forever", {})
        w.call("c2", "look", {})
        w.run(2000)
        assert w.codes() == []
        w.run(150)
        assert w.codes() == [("c1", "TIMEOUT"), ("c2", "ok")]
        assert w.registry.uncertain


def test_tool_that_takes_12_s_has_its_time():
    def long():
        yield 12_000
        return "done"

    with world() as w:
        w.registry.add([Tool(long, "long", "Take 12 s.")])
        w.call("c1", "long", {})
        w.run(11_900)
        assert w.codes() == []
        w.run(200)
        assert w.codes() == [("c1", "ok")]


def test_deadline_counts_from_the_head_of_the_queue():
    with world() as w:
        w.registry.add([Tool(w.look, "quick", "Be quick.", effect="none", timeout_ms=100)])
        w.call("c1", "slow", {})
        w.call("c2", "quick", {})
        w.run(3000)
        assert w.codes() == [("c1", "ok"), ("c2", "ok")]


def test_confirmation_never_outlasts_the_deadline_of_its_call():
    with world() as w:
        w.registry.add([Tool(w.light, "late", "Be late.", LOCK, confirm="button", timeout_ms=4000)])
        w.call("c1", "late", UNLOCK)
        w.run(3950)
        assert w.codes() == []
        w.run(100)
        assert w.codes() == [("c1", "REJECTED")]


def test_waiting_generator_is_not_resumed_early():
    ticks = []

    def wait():
        for ms in (0, 700, -5, None, 300):
            ticks.append(w.now)
            yield ms
        ticks.append(w.now)

    with world() as w:
        w.registry.add([Tool(wait, "wait", "Wait.", effect="none")])
        w.call("c1", "wait", {})
        w.run(3000)
        assert [b - a for a, b in zip(ticks, ticks[1:])] == [50, 700, 50, 50, 300]


def test_generator_that_yields_something_else_is_failed():
    for value in (0.5, [], {"ms": 1}, True):

        def wrong(value=value):
            try:
                yield value
            finally:
                w.done.append("closed")

        with world() as w:
            w.registry.add([Tool(wrong, "wrong", "Be wrong.")])
            w.call("c1", "wrong", {})
            w.run(100)
            (result,) = w.results()
            assert "a tool yields" in result["message"]
            assert w.registry.uncertain
            assert w.done == ["closed"]


# --- duplicates, retransmissions, restarts


def test_duplicate_call_is_answered_and_does_not_run_again():
    with world() as w:
        for name, arguments in (("lock", SHUT), ("light", {"state": "on"}), ("look", {})):
            w.call(name, name, arguments)
            w.call(name, name, arguments)  # while it waits: its one result is still to come
            w.run(100)
            (first,) = w.results()
            before = list(w.done)
            w.call(name, name, arguments)
            w.run(100)
            assert w.results() == [first]
            assert w.done == before


def test_duplicate_of_a_running_call_is_left_alone():
    with world() as w:
        w.call("c1", "slow", {})
        w.run(200)
        w.call("c1", "slow", {})
        w.run(3000)
        assert w.codes() == [("c1", "ok")]
        assert w.done.count("committed") == 1


def test_duplicate_of_a_refused_call_is_refused_again():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(200)
        w.press(200)
        w.call("c2", "lock", {"door": 1})
        w.registry.close_epoch(1)
        w.call("c3", "look", {})
        assert w.codes() == [("c1", "REJECTED"), ("c2", "INVALID"), ("c3", "INTERRUPTED")]
        w.call("c1", "lock", UNLOCK)
        w.call("c2", "lock", {"door": 1})
        w.call("c3", "look", {})
        assert not w.registry.confirm.asking
        assert w.codes() == [("c1", "REJECTED"), ("c2", "INVALID"), ("c3", "INTERRUPTED")]


def test_call_id_with_other_arguments_is_not_taken_for_a_duplicate():
    with world() as w:
        w.call("c1", "lock", SHUT)
        w.run(100)
        w.results()
        w.call("c1", "lock", {"door": "back", "state": "locked"})
        w.call("c1", "look", {})
        w.run(100)
        assert w.codes() == [("c1", "INVALID"), ("c1", "INVALID")]
        assert w.done == [("front", "locked")]


def test_restart_after_the_result_answers_it_again():
    with world() as w:
        w.journal.mark(7, 9, 1)
        w.call("c1", "lock", SHUT)
        w.run(100)
        (first,) = w.results()
        w.start()
        assert (w.journal.session_id, w.journal.tx, w.journal.rx) == ("session-1", 7, 9)
        w.registry.resumed()
        assert w.results() == [first]
        w.call("c1", "lock", SHUT)
        w.run(100)
        assert w.results() == [first]
        assert w.done == [("front", "locked")]


def test_restart_while_it_ran_answers_outcome_unknown():
    with world() as w:
        w.journal.mark(7, 9, 1)
        w.call("c1", "slow", {})
        w.run(200)
        w.start()
        assert w.registry.context()["unknownCalls"] == [{"callId": "c1", "name": "slow", "arguments": "{}"}]
        w.registry.resumed()
        assert w.registry.uncertain
        (first,) = w.results()
        assert (first["callId"], first["epoch"], first["code"]) == ("c1", 1, "FAILED")
        assert "outcome unknown" in first["message"]
        w.call("c1", "slow", {})
        w.run(3000)
        assert w.results() == [first]
        assert w.done.count("begun") == 1
        assert "committed" not in w.done
        assert "unknownCalls" not in w.registry.context()


def test_restart_interrupts_what_had_not_started():
    # The interruption that came just before the power failed may never have reached the server.
    with world() as w:
        w.journal.mark(7, 9, 1)
        w.call("c1", "slow", {})
        w.run(200)
        w.start()
        w.registry.resumed()
        w.results()
        w.call("c2", "lock", SHUT, epoch=1)
        w.call("c3", "lock", SHUT, epoch=2)
        w.run(100)
        assert w.codes() == [("c2", "INTERRUPTED"), ("c3", "ok")]


def test_power_cut_at_every_step_of_a_call_never_runs_it_twice():
    makes_much_garbage()
    for steps in range(600):
        with world() as w:
            w.disk.steps = w.disk.taken + steps
            cut = False
            try:
                w.call("c1", "lock", SHUT)
                w.run(100)
            except PowerCut:
                cut = True
            ran = len(w.done)
            w.disk.steps = None
            w.start()
            if w.journal.session_id:
                w.registry.resumed()
                w.results()
                w.registry._closed = -1  # the strictest case: the server sends it again in an open epoch
            else:
                w.registry.begin("session-1")
            w.call("c1", "lock", SHUT)
            w.run(100)
            (result,) = w.results()
            assert len(w.done) <= 1, steps
            assert result["ok"] or ran or "outcome unknown" in result["message"], (steps, result)
            assert (
                result["ok"] == (len(w.done) == 1 and not (ran and cut)) or "unknown" in result["message"]
            ), (steps, result)
        if not cut:
            assert steps > 100
            return
    raise AssertionError("the call never got through")


def test_journal_that_cannot_be_written_stops_the_tool():
    with world() as w:
        w.disk.full = True
        w.call("c1", "lock", SHUT)
        w.run(100)
        (result,) = w.results()
        assert result["code"] == "FAILED"
        assert "not run" in result["message"]
        assert w.done == []
        w.call("c2", "light", {"state": "on"})
        w.run(100)
        assert w.codes() == [("c2", "ok")]


def test_irreversible_call_is_on_flash_before_it_runs():
    with world() as w:
        seen = []
        w.registry.add(
            [Tool(lambda: seen.append(unknown(Journal("/calls"))), "probe", "Probe.", effect="irreversible")]
        )
        w.call("c1", "probe", {})
        w.run(100)
        assert [call["callId"] for call in seen[0]] == ["c1"]
        assert unknown(Journal("/calls")) == []


def test_damaged_journal_is_told_and_not_resumed():
    with world() as w:
        w.call("c1", "slow", {})
        w.run(200)
        data = w.disk.files["/calls"]
        w.disk.files["/calls"] = data[:10] + b"?" + data[11:]
        w.start()
        assert w.journal.session_id is None
        assert "damaged" in w.registry.context()["journal"]
        w.registry.begin("session-2")
        assert w.registry.context() == {}


# --- sessions, queue, context


def test_lost_session_ends_its_calls_without_results():
    with world() as w:
        w.call("c1", "slow", {}, epoch=8)
        w.call("c2", "light", {"state": "on"}, epoch=8)
        w.run(200)
        w.registry.drop()
        assert w.done == ["begun", "closed"]
        assert w.results() == []
        ended = [
            (fields["call"], fields["result"]["code"]) for event, fields in w.events if event == "result"
        ]
        assert ended == [("c1", "INTERRUPTED"), ("c2", "INTERRUPTED")], "the log hears of each"
        assert not w.registry.queue
        w.registry.begin("session-2")
        w.call("c1", "look", {}, epoch=0)
        w.run(200)
        assert w.codes() == [("c1", "ok")], "another session's c1, in an epoch that is open again"


def test_lost_session_ends_its_confirmation():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(200)
        w.registry.begin("session-2")
        assert not w.registry.confirm.asking
        w.press(2000)
        assert w.done == []


def test_queue_is_bounded():
    with world() as w:
        for i in range(12):
            w.call(f"c{i}", "look", {})
        assert w.codes() == [(f"c{i}", "FAILED") for i in range(8, 12)]
        w.run(1000)
        w.call("c12", "look", {})
        taken = [(f"c{i}", "ok") for i in range(8)]
        taken.append(("c12", "FAILED"))
        assert w.codes() == taken, "a result that nobody has taken holds its place"
        w.call("c13", "look", {})
        w.run(100)
        assert w.codes() == [("c13", "ok")]


def test_queued_arguments_are_bounded():
    with world() as w:
        w.registry.add([Tool(lambda text: None, "write", "Write.", {"text": {"type": "string"}})])
        for i in range(3):
            w.call(f"c{i}", "write", {"text": "x" * 3000})
        w.run(500)
        assert w.codes() == [("c1", "FAILED"), ("c2", "FAILED"), ("c0", "ok")]
        w.call("large", "write", {"text": "x" * 5000})
        w.run(100)
        assert w.codes() == [("large", "ok")], "one alone is bounded by the size of messages"


def test_running_call_does_not_count_as_queued():
    def write(text):
        yield 1000

    with world() as w:
        w.registry.add([Tool(write, "write", "Write.", {"text": {"type": "string"}})])
        w.call("c1", "write", {"text": "x" * 3000})
        w.run(100)
        w.call("c2", "write", {"text": "x" * 3000})
        w.run(3000)
        assert w.codes() == [("c1", "ok"), ("c2", "ok")]


def test_loop_with_nothing_to_do_allocates_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("no heap_lock")
    with world() as w:
        registry, journal, now = w.registry, w.journal, w.now
        w.call("c1", "slow", {})
        w.run(100)
        for _ in range(2):  # first while a tool waits, then idle
            micropython.heap_lock()
            try:
                for _ in range(10):
                    journal.mark(1, 2, 3)
                    registry.step(now, False)
                    assert not registry.results
                    assert not registry.confirm.asking
                    busy = registry.queue
            finally:
                micropython.heap_unlock()
            w.run(3000)
            now = w.now
            w.results()
        assert not busy


def test_declaration_is_what_hello_carries():
    with world() as w:
        lock, light, look, slow = [tool.declaration for tool in w.registry.tools]
        assert lock == {
            "name": "lock",
            "description": "Lock or unlock a door.",
            "parameters": {
                "type": "object",
                "properties": LOCK,
                "required": ["door", "state"],
                "additionalProperties": False,
            },
            "timeoutMs": 30000,
            "confirm": "button",
            "confirmWhen": {"state": ["unlocked"]},
            "effect": "irreversible",
        }
        assert "confirm" not in light
        assert look["effect"] == "none"
        assert look["parameters"]["properties"] == {}
        assert slow["timeoutMs"] == 5000


def test_events_tell_the_life_of_a_call():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(200)
        w.press(1200)
        assert w.events[:4] == [
            ("call", {"call": "c1", "name": "lock", "epoch": 1, "arguments": UNLOCK}),
            ("confirm_asked", {"call": "c1", "name": "lock", "arguments": UNLOCK}),
            ("confirm", {"call": "c1", "outcome": "confirmed"}),
            ("call_start", {"call": "c1", "name": "lock"}),
        ]
        name, fields = w.events[4]
        assert name == "result"
        assert fields["result"] == w.results()[0]
        assert (fields["call"], fields["name"], fields["ok"], fields["code"]) == ("c1", "lock", True, None)


def test_events_tell_of_a_confirmation_that_does_not_come():
    with world() as w:
        w.call("c1", "lock", UNLOCK)
        w.run(100)
        w.press(300)
        w.call("c2", "lock", UNLOCK)
        w.run(100)
        w.registry.close_epoch(1)
        told = [(fields["call"], fields["outcome"]) for event, fields in w.events if event == "confirm"]
        assert told == [("c1", "REJECTED"), ("c2", "INTERRUPTED")]
        assert [event for event, _ in w.events if event == "call_start"] == []


def test_module_of_the_user_is_loaded_and_its_readers_cannot_act():
    class Pin:
        level = 0

        def value(self, *level):
            if level:
                self.level = level[0]
            return self.level

    class Board:
        NAME = "test"

        def __init__(self):
            self.pin = Pin()

        def output(self, name):
            assert name == "relay"
            return self.pin

    class Module:
        pass

    user = Module()
    seen = []
    user.setup = seen.append
    user.state = lambda: {"relay": seen[0].output("relay").value()}
    kept, sys.modules["tools"] = sys.modules.get("tools"), user
    declared = list(tools.declared)
    del tools.declared[:]
    try:

        @tools.tool("Read.", effect="none")
        def read():
            seen[0].output("relay").value(1)

        @tools.tool("Read slowly.", effect="none")
        def read_slowly():
            try:
                yield 5000
            finally:
                seen[0].output("relay").value(1)

        @tools.tool("Act.")
        def act():
            seen[0].output("relay").value(1)

        with world() as w:
            w.registry.load(Board())
            assert seen[0].NAME == "test"
            w.call("c1", "read", {})
            w.run(100)
            (result,) = w.results()
            assert "only reads" in result["message"]
            assert w.registry.context() == {"state": {"relay": 0}}
            w.call("c1b", "read_slowly", {}, epoch=0)
            w.run(100)
            w.registry.close_epoch(0)
            assert w.codes() == [("c1b", "INTERRUPTED")]
            assert w.registry.context() == {"state": {"relay": 0}}
            w.call("c2", "act", {})
            w.run(100)
            assert w.codes() == [("c2", "ok")]
            assert w.registry.context() == {"state": {"relay": 1}}
            user.state = lambda: {}["missing"]
            del tools.declared[:]
            w.registry.load(Board())
            assert w.registry.context()["state"]["error"].startswith("KeyError")
    finally:
        tools.declared[:] = declared
        del sys.modules["tools"]
        if kept:
            sys.modules["tools"] = kept
