# A heap that is full at any moment: nothing runs twice, nothing is passed over in silence, and every call has its one result.
from fake_device import Device, opened
from house import world
from support import raises
from vrt import app
from vrt.errors import VrtError
from vrt.protocol import session as sessions
from vrt.tools import Tool
from vrt.tools import call as calls
from vrt.tools import registry as registries
from vrt.tools.report import unknown


class Full:
    # In place of a function: the heap is full at its calls from `first` to `last`, counted from 1.
    def __init__(self, function, first=1, last=1):
        self.function = function
        self.first, self.last = first, last
        self.count = 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        if self.first <= self.count <= self.last:
            raise MemoryError("memory allocation failed")
        return self.function(*args, **kwargs)


# --- the loop


def running(device, until):
    # The device's own loop, 10 ms at each wait, until the function says so. Returns what ended it.
    def wait(sock, ms):
        if until():
            raise KeyboardInterrupt
        device.now += 10

    kept, app.time = app.time, device
    device.ticks_ms = lambda: device.now
    device.board.wait = wait
    try:
        with device.disk:
            return raises((KeyboardInterrupt, MemoryError), device.app.run)
    finally:
        app.time = kept


def test_a_full_heap_is_told_and_survived():
    device = opened()
    tools = device.app.tools
    tools.step = Full(tools.step, 1, 20)
    device.call("light", 1, state="on")
    assert type(running(device, lambda: device.done)) is KeyboardInterrupt
    assert device.done == ["light on"]
    faults = [event["code"] for event in device.board.events if event["event"] == "error"]
    assert faults == ["MEMORY"] * 8, "the log is not flooded"


def test_a_heap_that_stays_full_ends_the_device():
    device = opened()
    device.app.tools.step = tools_step = Full(None, 1, 10000)
    assert type(running(device, lambda: False)) is MemoryError
    assert tools_step.count == 51


def test_a_heap_that_is_full_now_and_then_does_not():
    device = opened()
    device.app.tools.step = tools_step = Full(lambda *_: None, 1, 10000)
    start = device.now

    def rarely():
        device.now += 2000
        device.app.link.last_rx = device.now
        return device.now - start > 300000

    assert type(running(device, rarely)) is KeyboardInterrupt
    assert tools_step.count > 100


# --- what the server says


def decoding(device, first, last):
    # The messages of these numbers do not fit into the heap.
    sessions.decode = Full(sessions.decode, first, last)


def decoding_again():
    if isinstance(sessions.decode, Full):
        sessions.decode = sessions.decode.function


def test_a_message_without_room_comes_again():
    device = opened()
    device.turn("thinking", 1)
    device.run(20)
    try:
        decoding(device, 1, 1)
        device.call("light", 1, state="on")
        device.run(50)
    finally:
        decoding_again()
    assert device.done == []
    assert device.link.closes == [4000]
    assert device.last("error")["code"] == "MEMORY"
    device.run(1000)
    assert device.link.texts[-1]["resumeFrom"] == 1
    device.ready(resumedFrom=0)
    device.call("light", 1, state="on")
    device.receive("pong")
    device.run(50)
    assert device.done == ["light on"]


def test_nothing_starts_while_a_message_is_outstanding():
    device = opened()
    device.turn("thinking", 1)
    device.run(20)
    device.link.unread = lambda: False
    try:
        decoding(device, 2, 2)
        device.call("light", 1, state="on")
        device.say("interrupted", epoch=1)  # this one does not fit
        device.run(1000)
    finally:
        decoding_again()
    assert device.done == []
    device.ready(resumedFrom=0)
    device.say("interrupted", epoch=1)
    device.receive("pong")
    device.run(50)
    assert device.done == []
    assert device.sent("tool.result")[0]["code"] == "INTERRUPTED"


def test_a_message_that_never_fits_ends_the_session():
    device = opened()
    try:
        decoding(device, 1, 1)
        device.turn("thinking", 1)
        device.run(1000)
        device.ready(resumedFrom=0)
        device.run(20)
        decoding_again()
        decoding(device, 1, 1)
        device.seq = 0
        device.turn("thinking", 1)
        device.run(50)
    finally:
        decoding_again()
    assert device.link.closes == [4000, 4000]
    assert device.last("error")["code"] == "TOO_LARGE"
    device.run(1000)
    assert "sessionId" not in device.link.texts[-1], "a new session"


def test_a_message_that_is_half_handled_is_handled_before_the_next_is_read():
    for owner, name in (("sound", "flush"), ("tools", "close_epoch"), ("session", "result")):
        device = opened()
        device.call("slow", 1)
        device.call("light", 1, call="c2", state="on")
        device.run(300)
        setattr(getattr(device.app, owner), name, Full(getattr(getattr(device.app, owner), name), 1, 5))
        device.say("interrupted", epoch=1)
        device.call("light", 1, call="c3", state="on")
        device.call("light", 2, call="c4", state="off")
        start = device.now
        running(device, lambda device=device, start=start: device.now - start > 1000)
        assert device.link.closes == [], name
        assert device.app.session.state == "open", name
        assert device.done == ["slow begins", "light off"], name
        results = [(result["callId"], result["ok"]) for result in device.sent("tool.result")]
        assert results == [("c1", False), ("c2", False), ("c3", False), ("c4", True)], name
        assert device.app.session.pending == 0


def test_a_message_that_can_never_be_handled_ends_the_session():
    device = opened()
    device.call("slow", 1)
    device.run(300)
    device.app.sound.flush = flush = Full(device.app.sound.flush, 1, 8)
    device.say("interrupted", epoch=1)
    device.turn("thinking", 2)
    start = device.now
    running(device, lambda: device.now - start > 3000)
    assert flush.count > 8
    assert device.done == ["slow begins"]
    assert not device.app.tools.queue, "what belonged to the session is gone"
    assert device.link.closes[0] == 4000
    assert "sessionId" not in device.link.texts[-1]


def test_a_ready_that_is_half_handled_is_handled():
    device = Device()
    begin = device.app.tools.begin = Full(device.app.tools.begin)
    device.run(20)
    device.ready()
    device.call("light", 1, state="on")
    start = device.now
    running(device, lambda: device.now - start > 300)
    assert begin.count == 2
    assert device.app.session.state == "open"
    assert device.link.closes == []
    assert device.done == ["light on"]


def test_a_late_call_that_cannot_be_refused_at_once_is_refused_once():
    device = opened()
    device.turn("thinking", 1)
    device.say("interrupted", epoch=1)
    device.run(50)
    streams = device.app.session.streams
    streams.add = Full(streams.add, 1, 2)
    device.call("light", 1, state="on")
    start = device.now
    running(device, lambda: device.now - start > 1000)
    assert device.done == []
    (result,) = device.app.session.streams.kept
    assert b"INTERRUPTED" in result
    assert device.app.session.pending == 0


def test_a_refusal_without_room_is_read_the_next_time():
    device = Device()
    device.run(20)
    try:
        decoding(device, 1, 1)
        for _ in range(2):
            device.receive("error", code="UNAUTHORIZED", recoverable=False)
            device.run(1000)
    finally:
        decoding_again()
    assert device.app.session.state == "failed"
    assert device.last("error")["code"] == "UNAUTHORIZED"
    assert device.board.lights[-1] == "denied"


def test_a_call_without_room_fails():
    device = opened()
    device.app.tools.call = Full(device.app.tools.call)
    device.call("light", 1, state="on")
    device.call("light", 1, call="c2", state="off")
    device.run(100)
    first, second = device.sent("tool.result")
    assert (first["callId"], first["code"]) == ("c1", "FAILED")
    assert "not run" in first["message"]
    assert (second["callId"], second["ok"]) == ("c2", True)
    assert device.done == ["light off"]
    assert device.app.session.pending == 0


def test_a_result_without_room_is_a_failure():
    device = opened()
    streams = device.app.session.streams
    streams.add = Full(streams.add)
    device.call("light", 1, state="on")
    device.run(100)
    (result,) = device.sent("tool.result")
    assert (result["callId"], result["code"]) == ("c1", "FAILED")


def test_a_result_without_any_room_waits_until_there_is_some():
    device = opened()
    streams = device.app.session.streams
    streams.add = Full(streams.add, 1, 4)
    device.call("light", 1, state="on")
    start = device.now
    running(device, lambda: device.now - start > 300)
    (result,) = device.sent("tool.result")
    assert (result["callId"], result["ok"]) == ("c1", True)
    assert device.app.session.pending == 0


def test_a_session_ends_however_often_the_heap_is_full():
    device = opened()
    device.call("slow", 1)
    device.run(300)
    session = device.app.session
    device.app.sound.flush = Full(device.app.sound.flush, 1, 8)
    session.end = Full(session.end, 1, 2)
    device.app.tools.drop = Full(device.app.tools.drop)
    device.say("interrupted", epoch=1)
    device.turn("idle", 1)
    start = device.now
    running(device, lambda: device.now - start > 3000)
    assert device.done == ["slow begins"]
    assert not device.app.tools.queue
    assert "sessionId" not in device.link.texts[-1]


# --- the user and the link


def test_an_interruption_over_a_full_heap_comes_to_its_end():
    for owner, name in (("sound", "flush"), ("tools", "close_epoch"), ("session", "interrupt")):
        device = opened()
        device.call("slow", 1)
        device.call("light", 1, call="c2", state="on")
        device.run(300)
        setattr(getattr(device.app, owner), name, Full(getattr(getattr(device.app, owner), name)))
        device.board.down = True
        start = device.now
        running(device, lambda device=device, start=start: device.now - start > 3000)
        assert device.done == ["slow begins"], name
        assert [message["epoch"] for message in device.sent("interrupt")] == [1], name
        results = [(result["callId"], result["code"]) for result in device.sent("tool.result")]
        assert sorted(results) == [("c1", "INTERRUPTED"), ("c2", "INTERRUPTED")], name


def test_a_lost_link_is_noticed_over_a_full_heap():
    device = opened()
    device.app.session.lost = Full(device.app.session.lost)
    device.link.cut()
    start = device.now
    running(device, lambda: device.now - start > 2000)
    assert device.link.opened == 2
    assert device.sent("hello")[-1]["sessionId"] == "session-one-and-only"


def test_a_session_that_leaves_no_room_to_connect_ends():
    device = opened()
    device.call("slow", 1)
    device.run(100)
    device.link.up = False
    cut, device.link.cut = device.link.cut, lambda reason: cut("memory")
    device.link.cut("memory")
    while device.link.opened < 3:
        assert device.app.session.id, "it may pass"
        device.run(10)
    device.run(40_000)
    assert device.app.session.id is None
    assert not device.app.tools.queue
    device.link.up = True
    device.run(15_000)
    assert "sessionId" not in device.link.texts[-1], "a new session"
    device.ready(sessionId="another")
    device.run(50)
    assert device.app.session.state == "open"


def test_a_link_that_is_cut_for_another_reason_ends_no_session():
    device = opened()
    device.link.up = False
    device.link.cut()
    device.run(60_000)
    assert device.app.session.id == "session-one-and-only"


def test_an_open_link_is_noticed_over_a_full_heap():
    device = Device()
    device.app.session.opened = Full(device.app.session.opened)
    start = device.now
    running(device, lambda: device.now - start > 200)
    assert len(device.sent("hello")) == 1
    assert device.link.opened == 1


def test_a_link_that_cannot_be_opened_is_tried_again():
    device = Device()
    device.link.open = Full(device.link.open)
    start = device.now
    running(device, lambda: device.now - start > 200)
    assert len(device.sent("hello")) == 1


def test_a_server_that_could_not_start_is_asked_again_over_a_full_heap():
    device = Device()
    device.run(20)
    device.app.session.lost = Full(device.app.session.lost)
    device.receive("error", code="START_FAILED", recoverable=False)
    start = device.now
    running(device, lambda: device.now - start > 20_000)
    assert len(device.sent("hello")) == 2


# --- the tools


UNLOCK = {"door": "front", "state": "unlocked"}


def ask_unlock(w):
    w.call("c", "lock", UNLOCK)
    w.run(100)
    w.press(1200)
    w.run(100)


def ask_unlock_and_refuse(w):
    w.call("c", "lock", UNLOCK)
    w.run(100)
    w.press(300)
    w.run(100)


def ask_slow(w):
    w.call("c", "slow", {})
    w.run(1500)


def ask_slow_and_interrupt(w):
    w.call("c", "slow", {})
    w.run(200)
    w.registry.close_epoch(1)
    w.run(1500)


def ask_slow_too_long(w):
    w.call("c", "slow", {})
    w.run(100)
    w.now += 6000
    w.run(100)


def ask_what_fails(w):
    w.call("c", "broken", {})
    w.run(200)


def allocating(w):
    # Where memory is taken while a call lives: (owner, names of functions).
    yield registries, ("_no", "answer", "canonical", "digest_of", "explain", "output")
    yield calls, ("canonical",)
    yield w.journal, ("_save",)
    yield w.registry, ("_event",)


def with_full_heap(scenario, number, length):
    # Plays it while the heap is full at `length` moments from that number on. Returns (world, results, moments).
    count = [0]
    kept = []

    def hampered(function):
        def call(*args, **kwargs):
            count[0] += 1
            if number <= count[0] < number + length:
                raise MemoryError("memory allocation failed")
            return function(*args, **kwargs)

        return call

    with world() as w:
        w.refused = False
        w.registry.add([breaking(w)])
        for owner, names in allocating(w):
            for name in names:
                kept.append((owner, name, getattr(owner, name)))
                setattr(owner, name, hampered(getattr(owner, name)))
        for name in ("step", "close_epoch", "call"):
            setattr(w.registry, name, surviving(getattr(w.registry, name), w, name))
        try:
            scenario(w)
        finally:
            for owner, name, function in kept:
                setattr(owner, name, function)
        w.run(200)
        return w, w.results(), count[0]


def breaking(w):
    def broken():
        w.done.append("broken")
        raise VrtError("cannot")

    return Tool(broken, "broken", "Break.", effect="irreversible")


def surviving(function, w, name):
    # As the App does: a MemoryError ends one step, and the next one comes.
    def call(*args):
        try:
            function(*args)
        except MemoryError:
            w.refused = w.refused or name == "call"  # which the App answers

    return call


def test_a_result_that_cannot_be_journalled_is_given():
    with world() as w:
        w.journal._save = Full(w.journal._save, 2, 2)  # the second is of `done`
        w.call("c", "lock", {"door": "front", "state": "locked"})
        w.run(100)
        assert w.journal._save.count == 2
        assert w.codes() == [("c", "ok")]


def test_calls_of_a_session_that_is_over_never_start():
    with world() as w:
        for number in range(3):
            w.call(f"c{number}", "light", {"state": "on"})
        answer = registries.answer
        registries.answer = Full(answer, 2, 2)
        try:
            raises(MemoryError, w.registry.drop)
            w.registry.begin("session-2")
        finally:
            registries.answer = answer
        w.run(500)
        assert w.done == []
        assert not w.registry.queue


def every_moment(scenario, begun, codes):
    # Wherever the heap is full: what the tool did it did at most once, and the call has one result.
    for length in (1, 2, 3):
        number = 0
        moments = 1
        while number <= moments:
            number += 1
            w, results, moments = with_full_heap(scenario, number, length)
            place = (length, number, w.done, results)
            assert w.done.count(begun) <= 1, place
            assert not w.registry.queue, place
            assert unknown(w.journal) == [], place
            if w.refused:
                assert w.done == [], place
                assert not results, place
                continue
            assert [result["callId"] for result in results] == ["c"], place
            assert results[0].get("code", "ok") in codes, place
            if results[0]["ok"]:
                assert w.done, place
            elif "not run" in results[0]["message"]:
                assert w.done == [], place


def test_a_confirmed_call_over_a_full_heap():
    every_moment(ask_unlock, ("front", "unlocked"), ("ok", "FAILED", "REJECTED"))


def test_a_refused_call_over_a_full_heap():
    every_moment(ask_unlock_and_refuse, None, ("FAILED", "REJECTED"))


def test_a_slow_call_over_a_full_heap():
    every_moment(ask_slow, "begun", ("ok", "FAILED"))


def test_an_interrupted_call_over_a_full_heap():
    every_moment(ask_slow_and_interrupt, "begun", ("INTERRUPTED", "FAILED"))


def test_a_call_over_its_time_over_a_full_heap():
    every_moment(ask_slow_too_long, "begun", ("TIMEOUT", "FAILED"))


def test_a_failing_call_over_a_full_heap():
    every_moment(ask_what_fails, "broken", ("FAILED",))
