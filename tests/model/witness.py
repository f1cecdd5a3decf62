"""What must hold, watched from outside: what each side is handed, says and does.

The witness keeps its own account of epochs, streams and calls from the frames themselves; of the state of the code
under test it reads only queues that must be empty or silent.
"""

import json
import logging
from collections import Counter
from dataclasses import dataclass, field

from model_device import IRREVERSIBLE
from model_host import NEW_TYPE
from vrt_host.session import State

OBSERVED = ("turn.state", "audio.start", "tool.call")  # §6.1
LATE = "interrupted before it started"
ACK_MS = 400  # §4.2 recommends 250; steps take up to 100
HOLD_MS = 900  # of the second that a press must last; steps take their part
KEPT = 40  # the device's outbox of 32, and what an interruption adds to a full one


def shown(message):
    """The line of the device's log that a server message must cause, None where it need not."""
    kind = message["type"]
    if kind == "turn.state":
        return kind, message["state"], message["epoch"]
    if kind in ("text", "transcript"):
        return kind, message["text"]
    return None


@dataclass
class Stay:
    """A device in one session, from one boot to the next."""

    session_id: str
    agent: object
    start: int  # the seq after which the server's stream is heard
    observed: int
    log: list = field(default_factory=list)
    checked: int = 0  # of the server's stream
    matched: int = 0  # of the log
    closed: int = -1  # the highest epoch that is, as far as this boot can know
    hushed: bool = False  # the user speaks, and nothing is played before the next item


class Witness(logging.Handler):
    def __init__(self):
        super().__init__(logging.ERROR)
        self.agents = {}  # session id -> ModelAgent, of every host there was
        self.device = None
        self.stay = None
        self.audio = {}  # the first bytes of a payload -> (session id, epoch)
        self.last_audio = b""
        self.offered = {}  # text -> session id
        self.starts = Counter()  # call id -> times its tool began, ever
        self.outcomes = {}  # call id -> what its tool returned
        self.unsure = {}  # call id -> session id: irreversible, begun before a restart, and no result told
        self.errors = []

    def must(self, holds, text):
        """The code under test may catch what is raised here: `check` raises it again."""
        if not holds:
            self.errors.append(text)
            raise AssertionError(text)

    # --- the log of the host

    def emit(self, record):
        self.errors.append(record.getMessage() + (str(record.exc_info[1]) if record.exc_info else ""))

    # --- the host

    def opened(self, agent):
        """An agent got its session: from now on its streams are noted."""
        session, manager = agent.session, agent.runner.manager
        self.agents[session.id] = agent
        agent.queued = {}  # seq -> what the device gave it
        agent.boots = self.device.boots  # of the device, so far
        agent.process = self.host.host
        agent.closed = -1
        agent.handling = {}  # the client message that the turn manager is at
        agent.why = None  # why the session was closed
        agent.epochs = {}  # callId -> the epoch that the call was made in
        keep, receive, close = session.outbox.keep, manager.receive, session.close
        send = session.send
        start_audio, send_audio = session.start_audio, session.send_audio
        item_epoch = -1

        def kept(frame):
            self._sent(agent, json.loads(frame))
            keep(frame)

        def said(type_, /, **members):
            before = len(agent.sent)
            taken = send(type_, **members)
            self.must(len(agent.sent) - before == taken, f"the server takes {type_}, and does not number it")
            return taken

        def received(message, now):
            self._handled(agent, message)
            agent.handling = message
            receive(message, now)
            agent.handling = {}

        def started(item_id, epoch, turn_id):
            nonlocal item_epoch
            item_epoch = epoch
            self.must(epoch > agent.closed, "the server begins an item in a closed epoch")
            return start_audio(item_id, epoch, turn_id)

        def sent(payload):
            self.must(item_epoch > agent.closed, "the server sends audio of a closed epoch")
            self.audio[payload[:4]] = session.id, item_epoch
            return send_audio(payload)

        def closed(code=1000, reason=""):
            agent.why = agent.why or f"{code} {reason}"
            close(code, reason)

        session.outbox.keep, manager.receive, session.close = kept, received, closed
        session.start_audio, session.send_audio, session.send = started, sent, said

    def _sent(self, agent, message):
        agent.sent.append(message)
        kind, epoch = message["type"], message.get("epoch")
        self.must(message["seq"] == len(agent.sent), "the server skips a number")
        if kind == "interrupted":
            self.must(epoch > agent.closed, "the server closes an epoch twice")
            if agent.handling.get("type") == "interrupt" and message["reason"] == "user":
                self.must(epoch <= agent.handling["epoch"], "a late interruption kills a newer response")
            agent.closed = epoch
        elif epoch is not None and kind not in ("tool.stream", "tool.call.delta"):
            self.must(epoch > agent.closed, f"the server sends {kind} in a closed epoch")
        if kind == "tool.call":
            self.must(message["callId"] not in agent.call_ids, "a callId is used again")
            agent.call_ids[message["callId"]] = message["arguments"]["key"]
            agent.epochs[message["callId"]] = epoch

    def _handled(self, agent, message):
        agent.handled.append(message)
        seq = message["seq"]
        last = agent.handled[-2]["seq"] if len(agent.handled) > 1 else 0
        skipped = [agent.queued[n]["type"] for n in range(last + 1, seq) if n in agent.queued]
        self.must(seq > last, f"the host handles {message['type']} again")
        self.must(set(skipped) <= {NEW_TYPE}, f"the host never handles {skipped}")
        self.must(message == agent.queued.get(seq), "the host handles another message than was sent")
        if message["type"] == "text":
            self.must(self.offered[message["text"]] == agent.session.id, "a text enters another session")
        if message["type"] == "tool.result":
            self.must(message["callId"] in agent.call_ids, "a result enters another session")

    def result(self, agent, result):
        self.must(result.call not in agent.results, "the agent gets two results of a call")
        agent.results[result.call] = result
        if result.ok:
            ids = [one for one, key in agent.call_ids.items() if key == result.call]
            self.must(self.outcomes[ids[0]] == result.output, "the result is not what the tool returned")

    # --- the device

    def booted(self, device):
        """A new boot; what its predecessor had begun and not answered is unsure."""
        app, before = device.app, self.stay
        if before is not None:
            for call, name in self.begun.items():
                if name in IRREVERSIBLE:
                    self.unsure[call] = before.session_id
        self.device = device
        self.calls = {}  # call id -> its epoch, in the order of their arrival
        self.begun = {}  # call id -> tool, until it has ended
        self.answered = Counter()  # call id -> results
        self.settled = set(self.starts)  # calls of earlier boots: they may be answered twice
        self.owed_at = None  # since when it owes an acknowledgement
        self.asked = {}  # call id -> when it asked to be confirmed
        self.stay = None
        self.rebooted = True  # until its first `ready`
        self.must(not app.conversation.journal.damaged, "a power cut damaged the journal")
        session = app.session
        if session.id is not None:
            self.stay = Stay(session.id, self.agents[session.id], session.streams.handled, session.observed)
        add, hello, receive = session.streams.add, session.hello, session.receive_text

        def received(buf, n, now):
            frame, before = bytes(buf[:n]), session.streams.handled
            receive(buf, n, now)
            self._received(frame, before, session.streams.handled)

        def added(message):
            add(message)
            self._queued(session, json.loads(session.streams.kept[-1]))

        def introduced(resumed):
            made = hello(resumed)
            if not resumed:
                self._introduced(made, app.conversation.journal)
            return made

        session.streams.add, session.hello, session.receive_text = added, introduced, received

    def _received(self, frame, before, handled):
        """The device got a text frame, valid or not, which moved its place in the stream from `before` to `handled`."""
        try:
            message = json.loads(frame)
            kind, seq, epoch = message["type"], message["seq"], message.get("epoch", -1)
        except (ValueError, TypeError, KeyError):
            return
        stay = self.stay
        if seq and not before < seq <= handled:
            return  # it came before, or will come again
        if kind == "ready":
            rebooted, self.rebooted = self.rebooted, False
            if stay is None or stay.session_id != message["sessionId"]:
                self.stay = Stay(message["sessionId"], self.agents[message["sessionId"]], 0, -1)
                self.calls.clear()
                self.unsure.clear()
            elif rebooted:  # what had not got through to the host went with the RAM
                for seq in [seq for seq in stay.agent.queued if seq > message["resumedFrom"]]:
                    del stay.agent.queued[seq]
        elif kind in OBSERVED:
            stay.observed = max(stay.observed, epoch)
            if kind != "tool.call":
                stay.hushed = message.get("state") == "listening"
        elif kind == "interrupted":
            stay.closed = max(stay.closed, epoch)

    def event(self, what, fields):
        """A line of the device's log."""
        stay = self.stay
        if stay is None:
            return
        if what == "error" and fields["code"] == "RESUME_FAILED":
            self._not_resumed(stay)
        elif what == "turn":
            stay.log.append(("turn.state", fields["state"], fields["epoch"]))
        elif what in ("text", "transcript"):
            stay.log.append((what, fields["text"]))
        elif what == "call":
            self.calls[fields["call"]] = fields["epoch"]
        elif what == "confirm_asked":
            self.asked[fields["call"]] = self.device.wire.now
        elif what == "result":
            self.begun.pop(fields["call"], None)
            self.calls.pop(fields["call"], None)

    def _not_resumed(self, stay):
        """The device gives a session up: there must be a reason, if neither side has lost its memory."""
        agent = stay.agent
        if self.device.boots == agent.boots and agent.process is self.host.host:
            kept = agent.why is None or agent.why.startswith("4404")
            self.must(not kept or agent.session.outbox.discarded, "a session is given up without need")

    def _queued(self, session, message):
        """The device gave a message its number."""
        agent = self.agents[session.id]
        agent.queued[message["seq"]] = message
        kind = message["type"]
        if kind == "text":
            self.offered[message["text"]] = session.id
        elif kind == "interrupt":
            self.must(message["epoch"] == self.stay.observed, "the user interrupts another epoch")
            self.stay.closed = max(self.stay.closed, message["epoch"])
        elif kind == "tool.result":
            call = message["callId"]
            self.must(call in agent.call_ids, "a result of a call that was never made")
            self.must(message["epoch"] == agent.epochs[call], "a result names another epoch than its call")
            self.answered[call] += 1
            self.must(self.answered[call] <= 1 + (call in self.settled), "the device answers a call twice")
            self.calls.pop(call, None)
            self.unsure.pop(call, None)
            if message.get("code") == "INTERRUPTED" and agent.boots == self.device.boots:
                self.must(message["epoch"] <= self.stay.closed, "a call is interrupted in an open epoch")
            if message.get("message") == LATE and call not in self.settled:
                self.must(not self.starts[call], "what ran is called interrupted before it started")

    def _introduced(self, made, journal):
        told = {one["callId"] for one in made["context"].get("unknownCalls", ())}
        self.must(told <= set(self.starts), "a call that never began is called unknown")
        for call in self.unsure:
            found = journal.find(call)
            known = found and "unknown" not in found[2]
            self.must(call in told or known, "nobody hears of a call that was cut")

    # --- its world

    def started(self, call):
        """A tool begins."""
        line = self.device.link.line
        late = (
            [] if line is None else [*interrupted(line.down.arrived()), *(line.resent if line.ready else ())]
        )
        closed = max([self.stay.closed, *late])
        self.must(call.epoch > closed, "a call starts in a closed epoch")
        name = call.call_id
        first = next(one for one in self.calls if one not in self.settled or one == name)
        self.must(name == first, "a call starts before an earlier one has its result")
        self.must(not self.begun, "two calls run")
        self.must(not self.answered[name], "a call starts that has its result")
        again = self.starts[name] and (call.name in IRREVERSIBLE or name not in self.settled)
        self.must(not again, "a call runs again")
        if call.name == "unlock":
            held = self.device.down_since
            self.must(
                held is not None and held >= self.asked.get(name, held + 1), "a call starts unconfirmed"
            )
            self.must(self.device.wire.now - held >= HOLD_MS, "a call starts after too short a press")
        self.starts[name] += 1
        self.begun[name] = call.name

    def committed(self, call, value):
        """A tool has had all its effect."""
        self.outcomes[call.call_id] = value

    def played(self, payload):
        """The speaker takes a frame."""
        session_id, epoch = self.audio[payload[:4]]
        self.must(session_id == self.stay.session_id, "audio of another session is played")
        self.must(not self.stay.hushed, "audio is played while the user speaks")
        self.must(epoch > self.stay.closed, "audio of a closed epoch is played")
        self.must(payload[:4] > self.last_audio, "audio is played again")
        self.last_audio = payload[:4]

    # --- after each step

    def check(self):
        assert not self.errors, self.errors
        device, stay = self.device, self.stay
        streams = device.app.session.streams
        assert len(streams.kept) <= KEPT, "the outbox grows"
        if stay is None:
            return
        assert not streams.gaps, "the device skips a message"
        assert not stay.agent.session.inbox.missing, "the server skips a message"
        owes = streams.owed and device.app.session.state == "open" and device.link.writable
        self.owed_at = (self.owed_at or device.wire.now) if owes else None
        late_ms = device.wire.now - max(self.owed_at, device.link.acked_at) if owes else 0
        assert late_ms <= ACK_MS, "the device acknowledges late"
        for epoch in self.calls.values():
            assert epoch > stay.closed, "a call of a closed epoch waits or runs on"
        for _, payload, _ in device.sound.speaker.queue:
            assert self.audio[payload[:4]][1] > stay.closed, "audio of a closed epoch waits to be played"
            assert not stay.hushed, "audio waits to be played while the user speaks"
        sent = stay.agent.sent
        while stay.matched < len(stay.log):
            assert stay.start + stay.checked < len(sent), (
                f"the device hears more than was said: {stay.log[-1]}"
            )
            expected = shown(sent[stay.start + stay.checked])
            stay.checked += 1
            if expected is not None:
                assert stay.log[stay.matched] == expected, (
                    "the device does not hear what the server said next"
                )
                stay.matched += 1

    # --- at the end, once all is quiet

    def agree(self, host):
        """Both sides are of one mind, and nothing is open, lost or left over."""
        app, stay = self.device.app, self.stay
        session, streams, agent = app.session, app.session.streams, stay.agent
        server, heard = agent.session, agent.sent[stay.start :]
        assert session.id == server.id, "the sides speak of two sessions"
        assert [agent.runner] == list(host.host._runners.values()), "sessions are left over"
        assert server.state is State.CONNECTED, "the server has parked a session that the device is in"
        assert streams.handled == server.outbox.last == len(agent.sent), "the device misses messages"
        assert server.inbox.last == streams.last, "the server misses messages"
        assert not streams.kept, "the device keeps messages"
        assert not self.unsure, "the server never hears of a call that was cut"
        assert not server.outbox._kept, "the server keeps messages"
        assert not session.pending, "the device owes a result"
        assert session.observed <= agent.runner.manager.epoch, "the device is ahead of the server's epoch"
        assert max(stay.observed, stay.closed) == max(session.observed, session.closed), "epochs differ"
        told = [message["epoch"] for message in heard if message["type"] == "interrupted"]
        assert session.closed >= max(told, default=-1), "an epoch is open on the device alone"
        said = [line for line in map(shown, heard) if line is not None]
        assert stay.log == said, "the device has not heard all"
        asked = {message["callId"] for message in heard if message["type"] == "tool.call"}
        queued = agent.queued.values()
        assert asked <= {message.get("callId") for message in queued}, "the device never answers a call"
        texts = [message["text"] for message in agent.handled if message["type"] == "text"]
        assert agent.texts == texts == [message["text"] for message in queued if message["type"] == "text"], (
            "the agent has not heard all"
        )
        for one in host.agents:
            # A session that ends drops what was not taken.
            made = one.calls if one is agent else one.call_ids.values()
            assert set(made) <= set(one.results), "a call has no result"
            assert all(count == 1 for count in one.cut.values()), "a turn is interrupted twice"

    def quiet(self):
        """Whether nothing is under way on either side."""
        app, agent = self.device.app, self.stay and self.stay.agent
        session, line = app.session, self.device.link.line
        return (
            agent is not None
            and line is not None
            and line.well
            and session.state == "open"
            and session.id == agent.session.id
            and not (app.conversation.waiting or app.tools.queue or app.tools.uncertain or app.sound.playing)
            and not (session.streams.kept or session.streams.owed or agent.session.inbox.due_at)
            and not agent.session.outbox._kept
            and agent.runner.manager.idle
            and not (line.up.packets or line.down.packets)
        )


def interrupted(frames):
    """The epochs that these frames close."""
    for frame in frames:
        if isinstance(frame, str) and '"interrupted"' in frame:
            yield json.loads(frame)["epoch"]
