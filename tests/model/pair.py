"""A device and a host on a faulty wire, and the time of all three."""

import json
import logging
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from unittest import mock

from events import Events
from faulty_wire import Wire
from model_device import ModelDevice
from model_host import ModelHost
from test_journal import Disk
from vrt import app
from vrt_host import server
from vrt_host.tools import DeclaredTools
from witness import Witness

STEP_MS = 20
REST_MS = 100  # a step while nothing moves
QUIET_MS = 90_000  # the healed pair must be at rest by then: timeouts, a heartbeat and the longest backoff
WINDOW_MS = 18_000  # a session that nobody resumes is gone by then


def declared(declarations):
    return _declared(json.dumps(declarations))


@cache
def _declared(text):
    return DeclaredTools(json.loads(text))


class Pair(Events):
    def __init__(self, wraps_ms=3000):
        self.count = 0
        self.wire = Wire()
        self.witness = Witness()
        self._stack = ExitStack()
        # What only costs time here: the collector of a large process, and checking the same schemas again.
        self._stack.enter_context(mock.patch.object(app, "gc", SimpleNamespace(collect=lambda: None)))
        self._stack.enter_context(mock.patch.object(server, "DeclaredTools", declared))
        logging.getLogger("vrt_host").addHandler(self.witness)
        self._stack.callback(logging.getLogger("vrt_host").removeHandler, self.witness)
        disk = self._stack.enter_context(Disk(two_steps=True))
        self.answers = {}  # text of the user -> what the agent says to it
        self.host = ModelHost(self.wire, self.witness, self.number, self.answers)
        self.witness.host = self.host
        self.device = ModelDevice(self.wire, self.witness, disk, wraps_ms)

    def close(self):
        self._stack.close()

    def number(self):
        """A number that was not there before."""
        self.count += 1
        return self.count

    def run(self, ms):
        end = self.wire.now + ms
        while self.wire.now < end:
            self.step(min(STEP_MS if self._moving() else REST_MS, end - self.wire.now))

    def step(self, ms):
        self.wire.now += ms
        self.host.step()
        self.device.step()
        self.witness.check()

    def ask(self, parts, ended):
        """The user says something; the agent's answer is known."""
        text = f"text {self.number()}"
        if self.device.app.session.offer("text", text):
            self.answers[text] = parts, ended

    def recover(self):
        """Until the device is in a session again, or some time has passed."""
        for _ in range(100):
            if self.device.app.session.state == "open":
                break
            self.run(REST_MS)

    def settle(self):
        """The network is well again: both sides must come to rest, agree, and stay so."""
        self.wire.heal()
        self.host.starts_at = 0
        self.device.down_since, self.device.voice = None, False
        self.device.disk.steps = None
        self.run(500)  # for what has happened already and is not noticed yet
        self._rest()
        line = self.device.link.line
        self.run(WINDOW_MS)
        assert line is self.device.link.line, "the device leaves a connection that is well"
        self._rest()
        self.witness.agree(self.host)

    def probe(self):
        """The pair still works."""
        text = f"probe {self.number()}"
        assert self.device.app.session.offer("text", text), "the device takes no text"
        self.run(200)
        agent = self.host.agent
        assert agent.texts[-1:] == [text], "the agent does not hear the user"
        agent.begin()
        sound, key = agent.speak(3), agent.call("lock")
        agent.end()
        self._rest()
        assert agent.results[key].ok, "a call fails on a pair that is well"
        assert self.witness.last_audio == sound, "audio is lost on a pair that is well"
        self.witness.agree(self.host)

    def _rest(self):
        end = self.wire.now + QUIET_MS
        while True:
            agent = self.host.agent
            if agent is not None:
                agent.end()
            if self.witness.quiet():
                return
            assert self.wire.now < end, "the pair does not come to rest"
            self.run(REST_MS)

    def _moving(self):
        line, app = self.wire.line, self.device.app
        return bool(
            line.up.packets or line.down.packets or app.tools.queue or self.device.sound.speaker.queue
        )
