"""Faults, one rule broken in each, that the model must find. A mutant makes a broken method from the right one."""

from functools import partial
from unittest import mock

from vrt.conversation import Conversation
from vrt.protocol import stream
from vrt.protocol.lifecycle import Lifecycle
from vrt.protocol.session import Session
from vrt.protocol.stream import Streams
from vrt.tools import Tool
from vrt.tools.confirm import Confirm
from vrt.tools.journal import Journal
from vrt.tools.registry import Registry
from vrt_host import session as host_session
from vrt_host.calls import CallQueue, Calls
from vrt_host.connection import Connection, Input, State
from vrt_host.playout import Playout
from vrt_host.protocol import wire
from vrt_host.protocol.stream import Inbox, Outbox
from vrt_host.turns import TurnManager

MUTANTS = {}  # name: (patch, events that bring it to light)


def mutant(owner, name, *events):
    def add(broken):
        patch = partial(mock.patch.object, owner, name, broken(getattr(owner, name)))
        MUTANTS[broken.__name__] = patch, events
        return broken

    return add


# --- the device


@mutant(Streams, "take", "copy")
def device_handles_duplicates(take):
    return lambda self, seq, now: take(self, seq, now) or True


@mutant(Streams, "ack")
def device_forgets_a_message_too_early(ack):
    return lambda self, up_to: ack(self, up_to + 1)


@mutant(Streams, "resume")
def device_resends_nothing(resume):
    def broken(self, up_to):
        fits = resume(self, up_to)
        self.next = len(self.kept)
        return fits

    return broken


@mutant(Streams, "ack_due")
def device_never_acknowledges(ack_due):
    return lambda self, now: False


@mutant(stream, "diff", "nothing")
def ticks_do_not_wrap_for_acknowledgements(diff):
    return lambda now, since: now - since


@mutant(Session, "_forget", "restart_host")
def device_replays_into_a_new_session(forget):
    def broken(self):
        kept = list(self.streams.kept)
        forget(self)
        self.streams.kept.extend(kept)

    return broken


@mutant(Session, "result")
def result_names_another_epoch_than_its_call(result):
    return lambda self, one: result(self, dict(one, epoch=one["epoch"] - 1))


@mutant(Session, "_stall", "lose_acks", "type")
def device_reads_on_when_its_outbox_is_full(stall):
    return lambda self: None


@mutant(Session, "_stall", "lose_acks")
def device_acknowledges_what_it_refuses(stall):
    def broken(self):
        stall(self)
        self.streams.handled += 1

    return broken


@mutant(Session, "close")
def gate_is_off_by_one(close):
    return lambda self, epoch: close(self, epoch - 1)


@mutant(Session, "receive_audio", "press", "voice")
def device_plays_what_comes(receive_audio):
    return lambda self, buf, n: receive_audio(self, buf, n) or n > 9


@mutant(Registry, "close_epoch")
def calls_of_a_closed_epoch_stay(close_epoch):
    return lambda self, closed: close_epoch(self, closed - 1)


@mutant(Registry, "step")
def calls_start_before_all_is_read(step):
    return lambda self, now, down=False, waiting=False: step(self, now, down)


@mutant(Registry, "call")
def calls_run_newest_first(call):
    def broken(self, message, now):
        call(self, message, now)
        if len(self.queue) > 1:
            self.queue.insert(1, self.queue.pop())

    return broken


@mutant(Conversation, "silence")
def device_speaks_on(silence):
    def broken(self, reason=None):
        with mock.patch.object(self.sound, "flush", return_value=()):
            silence(self, reason)

    return broken


@mutant(Conversation, "_ready")
def results_come_again_with_each_resume(ready):
    def broken(self, event):
        self.restored = "resumedFrom" in event
        ready(self, event)

    return broken


@mutant(Confirm, "poll", "confirm")
def any_press_confirms(poll):
    def broken(self, down, now):
        if down and self.asking:
            self.asking = False
            return "confirmed"
        return poll(self, down, now)

    return broken


@mutant(Tool, "asks", "nothing")
def nothing_needs_confirmation(asks):
    return lambda self, arguments: False


@mutant(Journal, "_save", "crash")
def journal_is_not_written(save):
    return lambda self, entry: None


@mutant(Registry, "context", "crash")
def journal_is_not_told(context):
    def broken(self):
        made = context(self)
        made.pop("unknownCalls", None)
        return made

    return broken


@mutant(Registry, "resumed", "crash")
def journal_is_not_read(resumed):
    def broken(self):
        resumed(self)
        self.results.clear()

    return broken


@mutant(Lifecycle, "tick", "cut", "nothing")
def device_trusts_a_dead_line(tick):
    return lambda self, now, last_rx: False


@mutant(Lifecycle, "wants_link", "cut", "unreachable")
def device_gives_up(wants_link):
    return lambda self, now: self.failures < 2 and wants_link(self, now)


# --- the host


def late_close_parks_the_new_link():
    def park(self, close, now):
        if self._session is not None:
            self._session.park(now)

    entry = {(State.CLOSED, Input.LOST): (park, State.CLOSED)}
    return mock.patch.dict(Connection.TABLE, entry)


MUTANTS["late_close_parks_the_new_link"] = late_close_parks_the_new_link, ("cut",)


@mutant(Connection, "data_to_send", "die")
def host_acknowledges_what_it_has_not_got(data_to_send):
    def broken(self):
        frames = data_to_send(self)
        if frames and self._state is State.OPEN:
            frames.append(wire.transient("ack", upTo=wire.U32_MAX))
        return frames

    return broken


@mutant(Inbox, "take", "copy")
def host_handles_duplicates(take):
    return lambda self, seq, now: take(self, seq, now) or True


@mutant(Outbox, "acknowledge", "die", "cut")
def host_forgets_a_message_too_early(acknowledge):
    return lambda self, up_to: acknowledge(self, up_to + 1)


@mutant(Outbox, "after")
def host_resends_one_too_few(after):
    return lambda self, seq: (after(self, seq) or [])[1:]


@mutant(host_session.Session, "resumable")
def host_resumes_nothing(resumable):
    return lambda self, principal, now: False


@mutant(host_session.Session, "send", "cut")
def what_is_said_while_parked_is_lost(send):
    def broken(self, type_, /, **members):
        return self.state is host_session.State.PARKED or send(self, type_, **members)

    return broken


@mutant(host_session.Session, "tick", "restart_device")
def parked_session_lives_for_ever(tick):
    return lambda self, now: None


@mutant(CallQueue, "settle")
def result_settles_nothing(settle):
    return lambda self, call_id, now: self._calls.get(call_id)


@mutant(Calls, "interrupt")
def interruption_leaves_calls_open(interrupt):
    return lambda self: []


@mutant(TurnManager, "receive", "press_late")
def late_interruption_kills_a_newer_response(receive):
    def broken(self, message, now):
        if message["type"] == "interrupt":
            message = message | {"epoch": 1 << 31}
        receive(self, message, now)

    return broken


@mutant(Playout, "clear")
def host_sends_audio_on(clear):
    return lambda self, now: None
