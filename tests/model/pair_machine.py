"""What may happen to a pair, as the rules of a Hypothesis state machine: somebody speaks, and then an event strikes.

There are few rules and many events, so that each step of a run brings both.
"""

import sys

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from model_device import IRREVERSIBLE, TOOLS
from pair import Pair

STEPS = 30
MS = st.sampled_from([0, 20, 20, 40, 60, 200, 400, 1000, 3000])  # until the event
WAY = st.sampled_from(["up", "down"])
WAYS = st.sampled_from([("up",), ("down",), ("up", "down")])
KEPT = st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 1500))  # bytes that still arrive
NOTICE = st.sampled_from([0, 0, 40, 1000, 7000, None])  # ms until an end of a cut line learns of it
CUT = (KEPT, KEPT, NOTICE, NOTICE)
JUNK = [
    "{",
    "[]",
    "{}",
    '{"v":2,"seq":0,"type":"ping"}',
    '{"v":1,"seq":0,"type":"toString"}',
    '{"v":1,"seq":-1,"type":"text","text":""}',
    '{"v":1,"seq":0,"type":"ack"}',
    b"",
    b"\1\0",
    b"\7\0\0\0\0\0",
]
PARTS = st.lists(  # of what the agent says, see ModelAgent.perform
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(TOOLS)),
        st.tuples(st.just("call"), st.sampled_from(IRREVERSIBLE)),
        st.tuples(st.just("look"), st.sampled_from([4, 9])),
        st.tuples(st.just("speak"), st.sampled_from([1, 10, 60])),
        st.tuples(st.just("say"), st.sampled_from([1, 2, 30])),
    ),
    max_size=4,
)
EVENTS = {  # name, see events.py: how often, and its arguments
    "nothing": (4, ()),
    "press": (2, (st.sampled_from([60, 1400]),)),
    "press_late": (2, ()),
    "confirm": (2, ()),
    "voice": (2, ()),
    "type": (2, (st.sampled_from(["text", "context"]), st.sampled_from([1, 3, 20]))),
    "cut": (2, CUT),
    "die": (2, (WAYS, st.sampled_from([100, 400, 1500]), *CUT)),
    "stall": (2, (WAY, st.sampled_from([200, 1000, 3500, 8000]))),
    "lose_acks": (2, (WAY,)),
    "copy": (2, (WAY, st.integers(1, 8))),
    "crash": (2, (st.sampled_from(["dose", "slow"]), KEPT, NOTICE)),
    "fail_power": (2, (st.sampled_from([0, 40, 150, 250, 350]),)),
    "junk": (1, (WAY, st.sampled_from(JUNK))),
    "unknown": (1, (WAY,)),
    "unreachable": (1, (st.sampled_from([300, 3000, 15_000]),)),
    "jump": (1, (st.sampled_from(["device", "host"]), st.sampled_from([1500, 7000, 25_000, 1 << 28]))),
    "restart_device": (1, (KEPT, NOTICE)),
    "restart_host": (1, (st.booleans(),)),
    "refuse": (1, (st.sampled_from([1000, 15_000]),)),
    "fail_agent": (1, (st.sampled_from([True, True, False]),)),
}
# These end most sessions; in a calm run there are none, so that one session sees much.
ENDS = ("unreachable", "jump", "restart_device", "restart_host", "fail_agent")


def events(names):
    """A strategy for these events."""
    return st.one_of(
        *[
            st.tuples(st.just(name), *arguments)
            for name in names
            for often, arguments in [EVENTS[name]]
            for _ in range(often)
        ]
    )


def runs(examples, derandomize, phases=(Phase.generate, Phase.shrink)):
    """Settings for so many runs; without shrinking's `explain`, which traces every line."""
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=derandomize,
        phases=phases,
    )


class PairMachine(RuleBasedStateMachine):
    pair = None
    events = events(EVENTS)
    ends = ENDS
    event = st.runner().flatmap(lambda machine: machine.events)

    def teardown(self):
        if self.pair is not None:
            try:
                if sys.exc_info()[0] is None:
                    self.pair.settle()
                    self.pair.probe()
            finally:
                self.pair.close()

    def is_open(self):
        return self.pair.device.app.session.state == "open"

    def is_lost(self):
        return not self.is_open()

    def agent_exists(self):
        return self.pair.host.agent is not None

    def turn_is_open(self):
        return self.agent_exists() and not self.pair.host.agent.ended

    def strikes(self, ms, event):
        self.pair.run(ms)
        if not (self.calm and event[0] in self.ends):
            self.pair.happen(*event)

    @initialize(
        wraps_ms=st.sampled_from([450, 600, 800, 3000]),
        latency_ms=st.sampled_from([10, 60, 150]),
        slots=st.sampled_from([32, 20]),
        deaf=st.sampled_from([False, False, True]),
        calm=st.booleans(),
    )
    def connects(self, wraps_ms, latency_ms, slots, deaf, calm):
        self.pair = Pair(wraps_ms)
        self.calm = calm
        self.pair.wire.latency_ms = latency_ms
        self.pair.wire.deaf = deaf
        self.pair.device.limit_outbox(slots)
        self.pair.recover()

    @rule(ms=st.sampled_from([20, 200, 1000, 3000]), event=event)
    def waits(self, ms, event):
        self.strikes(ms, event)

    @precondition(is_lost)
    @rule(event=event)
    def recovers(self, event):
        self.pair.recover()
        self.strikes(0, event)

    @precondition(is_open)
    @rule(parts=PARTS, ended=st.booleans(), ms=MS, event=event)
    def user_asks(self, parts, ended, ms, event):
        self.pair.ask(parts, ended)
        self.strikes(ms, event)

    @precondition(agent_exists)
    @rule(
        state=st.sampled_from(["thinking", "listening"]), parts=PARTS, ended=st.booleans(), ms=MS, event=event
    )
    def agent_begins(self, state, parts, ended, ms, event):
        self.pair.host.agent.begin(state)
        self.pair.host.agent.perform(parts, ended)
        self.strikes(ms, event)

    @precondition(turn_is_open)
    @rule(parts=PARTS, ended=st.booleans(), ms=MS, event=event)
    def agent_goes_on(self, parts, ended, ms, event):
        self.pair.host.agent.perform(parts, ended)
        self.strikes(ms, event)
