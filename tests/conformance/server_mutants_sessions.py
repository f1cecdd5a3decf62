"""Mutants of sessions: opening, credentials, resumes (vRT §3.3, §5)."""

import itertools
import time
from types import SimpleNamespace

from server_mutants import mutant
from server_mutants_wire import NOTHING, entry, transients
from vrt_host import runner, server
from vrt_host.agents.scripted import ScriptedAgent
from vrt_host.auth import ANONYMOUS, Authenticator
from vrt_host.connection import Connection, Input, State
from vrt_host.protocol import wire
from vrt_host.protocol.stream import Inbox, Outbox
from vrt_host.session import Close, Session
from vrt_host.tools import DeclaredTools
from vrt_host.turns import TurnManager

# --- the table of §5.1


@mutant("sessions.ping-before-hello", may=("sessions.valid-pings",))
def no_pong_before_hello(patch):
    entry(patch, State.AWAITING_HELLO, Input.PING, Connection._ignore)


@mutant("sessions.valid-pings")
def pings_of_a_later_revision_ignored(patch):
    real = Connection._pong
    pong = lambda self, message, now: None if "x" in message else real(self, message, now)  # noqa: E731
    entry(patch, State.AWAITING_HELLO, Input.PING, pong)


@mutant("sessions.ping-while-opening", may=("sessions.kept-while-opening",))
def no_pong_while_opening(patch):
    entry(patch, State.OPENING, Input.PING, Connection._ignore)


@mutant("sessions.no-session-before-hello")
def messages_before_hello_ignored(patch):
    real = Connection._no_session
    refuse = lambda self, control, now: control[0]["type"] == "playback" or real(self, control, now)  # noqa: E731
    entry(patch, State.AWAITING_HELLO, Input.CONTROL, refuse)


@mutant(
    "sessions.hello-after-no-session",
    may=(
        "errors.keeps-connection",
        "errors.valid-accepted",
        "sessions.no-session-before-hello",
        "sessions.audio-before-hello",
        "sessions.invalid-before-hello",
    ),
)
def no_session_closes(patch):
    def refuse(self, control, now):
        self._no_session(control, now)
        self._shut(Close(1008, "no hello"), now)

    entry(patch, State.AWAITING_HELLO, Input.CONTROL, refuse, State.CLOSED)


@mutant(
    "sessions.invalid-before-hello",
    may=(
        "sessions.hello-after-no-session",
        "sessions.audio-before-hello",
    ),  # the answer shows what was ignored
)
def arrays_before_hello_ignored(patch):
    real = Connection._answer
    answer = lambda self, error, now: error.code == "MALFORMED" or real(self, error, now)  # noqa: E731
    entry(patch, State.AWAITING_HELLO, Input.INVALID, answer)


@mutant("sessions.kept-while-opening")
def early_messages_are_lost(patch):
    entry(patch, State.OPENING, Input.CONTROL, Connection._ignore)


@mutant("sessions.kept-while-opening")
def early_messages_are_turned_round(patch):
    real = Connection._open

    def open_(self, session, now):
        self._early.reverse()
        real(self, session, now)

    entry(patch, State.OPENING, Input.OPENED, open_, State.OPEN)


@mutant(
    "sessions.duplicate-hello-while-opening",
    "sessions.duplicate-hello",
    may=("sessions.duplicate-hello-harmless",),
)
def second_hellos_ignored(patch):
    for state in (State.OPENING, State.OPEN):
        entry(patch, state, Input.HELLO, Connection._ignore)


@mutant("sessions.duplicate-hello-harmless")
def second_hello_closes(patch):
    def duplicate(self, message, now):
        self._duplicate(message, now)
        self._shut(Close(1008, "two hellos"), now)

    entry(patch, State.OPEN, Input.HELLO, duplicate, State.CLOSED)


@mutant("sessions.start-failed")
def start_failed_closes_with_1000(patch):
    patch.setattr("vrt_host.connection.REFUSALS", {"UNAUTHORIZED": 4401, "START_FAILED": 1000})


@mutant("sessions.ready-first")
def ack_before_ready(patch):
    real = Connection._ask

    def ask(self, message, now):
        self.carry(wire.transient("ack", upTo=0))
        real(self, message, now)

    entry(patch, State.AWAITING_HELLO, Input.HELLO, ask, State.OPENING)


@mutant("sessions.opens", may=("sessions.session-ids-unguessable", "sessions.session-id-length"), fatal=True)
def every_third_hello_is_refused(patch):
    numbers = itertools.count(1)
    real = server.Host.open

    def open_(self, seat, hello):
        if next(numbers) % 3:
            real(self, seat, hello)
        else:
            seat.connection.refuse("START_FAILED", "the third one")

    patch.setattr(server.Host, "open", open_)


@mutant("sessions.ready-without-resumed-from")
def every_session_is_resumed(patch):
    transients(patch, "ready", lambda said: {"resumedFrom": 0, **said})


@mutant("sessions.valid-hellos")
def hellos_with_opus_are_dropped(patch):
    real = Connection.receive_text
    patch.setattr(
        Connection, "receive_text", lambda self, frame, now: "opus" in frame or real(self, frame, now)
    )


@mutant("sessions.bad-tool-declined")
def odd_tools_spoil_the_hello(patch):
    real = DeclaredTools.__init__

    def init(self, declarations):
        real(self, declarations)
        if self.declined:
            raise ValueError(self.declined[0])

    patch.setattr(DeclaredTools, "__init__", init)
    start = server.Host._start

    async def start_or_not(self, seat, hello, principal):
        try:
            await start(self, seat, hello, principal)
        except ValueError:
            seat.connection.refuse("START_FAILED", "an odd tool")

    patch.setattr(server.Host, "_start", start_or_not)


# --- capabilities, context


@mutant(
    "sessions.capabilities-of-the-offer",
    may=("sessions.no-capability-without-offer", "resume.capabilities-repeated"),
)
def capabilities_twice(patch):
    patch.setattr(
        runner, "in_effect", lambda offered, supported: [one for one in offered if one in supported]
    )


@mutant("sessions.no-capability-without-offer", may=("resume.capabilities-repeated",))
def capabilities_without_an_offer(patch):
    patch.setattr(runner, "in_effect", lambda offered, supported: tuple(supported))


@mutant("sessions.unknown-capability-ignored", "sessions.registered-capabilities")
def every_capability_in_effect(patch):
    patch.setattr(runner, "in_effect", lambda offered, supported: tuple(dict.fromkeys(offered)))


@mutant("resume.capabilities-repeated")
def capabilities_are_negotiated_again(patch):
    real = Session.bind

    def bind(self, link, resume_from, now):
        if resume_from is not None:
            self.capabilities = runner.in_effect(
                link._hello.message.get("capabilities", ()), runner.CAPABILITIES
            )
        return real(self, link, resume_from, now)

    patch.setattr(Session, "bind", bind)


@mutant("sessions.context-of-hello")
def context_of_hello_is_lost(patch):
    real = ScriptedAgent.start

    async def start(self, session, port):
        await real(self, session, port)
        self.context(None)

    patch.setattr(ScriptedAgent, "start", start)


@mutant(
    "sessions.context-in-order",
    may=(
        "sessions.kept-while-opening",
        "reliability.duplicate-not-handled",
        "resume.in-order-across-cuts",
        "errors.invalid-not-acted-on",
    ),
)
def contexts_come_late(patch):
    real = ScriptedAgent.context

    def context(self, value):
        late, self.late = getattr(self, "late", value), value
        real(self, value if value is None else late)

    patch.setattr(ScriptedAgent, "context", context)


@mutant("sessions.context-cleared", may=("sessions.context-of-hello",))
def null_leaves_the_context(patch):
    real = ScriptedAgent.context
    patch.setattr(
        ScriptedAgent,
        "context",
        lambda self, value: (value is None and "context" in self._known) or real(self, value),
    )


# --- credentials


@mutant("sessions.unauthorized-without-token")
def no_token_is_a_token(patch):
    real = Authenticator.authenticate
    patch.setattr(
        Authenticator, "authenticate", lambda self, token: real(self, token) if token else ANONYMOUS
    )


@mutant("sessions.unauthorized", "resume.authenticates", "sessions.unauthorized-without-token")
def unauthorized_closes_with_1008(patch):
    patch.setattr("vrt_host.connection.REFUSALS", {"UNAUTHORIZED": 1008, "START_FAILED": 1011})


@mutant(
    "resume.authenticates",
    may=(
        "resume.unauthorized-harmless",
        "resume.foreign-session",
        "resume.foreign-like-unknown",
        "resume.foreign-harmless",
        "resume.foreign-takes-as-long",
    ),
)
def resumes_are_not_authenticated(patch):
    real = server.Host.open

    def open_(self, seat, hello):
        runner_ = self._runners.get(hello.session_id or "")
        if runner_ is None:
            real(self, seat, hello)
        elif seat.connection.resume(runner_.session, runner_.session.principal, seat.now()):
            seat.bind(runner_)

    patch.setattr(server.Host, "open", open_)


@mutant("resume.unauthorized-harmless")
def unauthorized_resumes_end_the_session(patch):
    real = server.Host.open

    def open_(self, seat, hello):
        runner_ = self._runners.get(hello.session_id or "")
        if runner_ is not None and self.auth.authenticate(hello.token) is None:
            runner_.session.close()
        real(self, seat, hello)

    patch.setattr(server.Host, "open", open_)


@mutant("sessions.auth-ignored-when-not-required", tokens=False)
def auth_is_never_ignored(patch):
    patch.setattr(Authenticator, "authenticate", lambda self, token: None if token else ANONYMOUS)


@mutant("resume.foreign-session", "resume.foreign-like-unknown")
def foreign_resumes_are_told_apart(patch):
    real = Connection.resume

    def resume(self, session, principal, now):
        if session is not None and principal != session.principal:
            self._step(Input.NOT_RESUMED, ("NOT_YOURS", "this is another's session", 4404), now)
            return False
        return real(self, session, principal, now)

    patch.setattr(Connection, "resume", resume)


@mutant("resume.foreign-like-unknown")
def foreign_resumes_have_words_of_their_own(patch):
    real = Connection.resume

    def resume(self, session, principal, now):
        if session is not None and principal != session.principal:
            self._step(Input.NOT_RESUMED, ("RESUME_FAILED", "this is another's session", 4404), now)
            return False
        return real(self, session, principal, now)

    patch.setattr(Connection, "resume", resume)


@mutant(
    "resume.foreign-session",
    "resume.foreign-like-unknown",
    "resume.foreign-harmless",
    may=("resume.foreign-takes-as-long",),
)
def anyone_may_resume(patch):
    patch.setattr(Session, "resumable", lambda self, principal, now: True)


@mutant("resume.foreign-harmless")
def foreign_resumes_disturb_the_owner(patch):
    real = Session.resumable

    def resumable(self, principal, now):
        if principal != self.principal and self._link is not None:
            link = self._link
            self.park(now)
            link.end(Close(4000, "someone came"))
        return real(self, principal, now)

    patch.setattr(Session, "resumable", resumable)


@mutant("resume.foreign-takes-as-long")
def foreign_resumes_take_longer(patch):
    real = Session.resumable

    def resumable(self, principal, now):
        if principal != self.principal:
            time.sleep(0.15)
        return real(self, principal, now)

    patch.setattr(Session, "resumable", resumable)


# --- resumes


@mutant(
    "resume.resent-unchanged", may=("resume.call-resent", "resume.identifiers-kept", "turns.turn-ids-global")
)
def resent_messages_are_made_anew(patch):
    real = Outbox.after

    def after(self, seq):
        frames = real(self, seq)
        return frames and [frame.replace('"turnId":"', '"turnId":"x') for frame in frames]

    patch.setattr(Outbox, "after", after)


@mutant(
    "resume.unacknowledged-resent",
    "reliability.seq-contiguous",
    may=(
        "resume.resends-in-order",
        "resume.discarded-messages",
        "resume.call-resent",
        "resume.identifiers-kept",
        "resume.in-order-across-cuts",
    ),
)
def only_the_last_three_are_resent(patch):
    real = Outbox.after

    def after(self, seq):
        frames = real(self, seq)
        return frames and frames[-3:]

    patch.setattr(Outbox, "after", after)


@mutant("resume.resends-in-order", "resume.unacknowledged-resent", "reliability.seq-contiguous")
def resent_messages_are_turned_round(patch):
    real = Outbox.after

    def after(self, seq):
        frames = real(self, seq)
        return frames and frames[::-1]

    patch.setattr(Outbox, "after", after)


@mutant(
    "resume.nothing-missed",
    "resume.resends-in-order",
    "reliability.seq-contiguous",
    may=("resume.call-resent",),
)
def everything_is_resent(patch):
    real = Outbox.after

    def after(self, seq):
        return None if real(self, seq) is None else [frame for frame, _ in self._kept]

    patch.setattr(Outbox, "after", after)
    patch.setattr(Outbox, "acknowledge", NOTHING)


@mutant(
    "resume.seq-continues",
    "reliability.seq-contiguous",
    may=(
        "resume.unacknowledged-resent",
        "resume.resends-in-order",
        "resume.nothing-missed",
        "resume.resent-unchanged",
        "resume.call-resent",
        "resume.pending-call-carried-over",
        "resume.in-order-across-cuts",
    ),
)
def numbers_begin_anew(patch):
    real = Session.bind

    def bind(self, link, resume_from, now):
        bound = real(self, link, resume_from, now)
        if resume_from:
            self.outbox.last += 10
        return bound

    patch.setattr(Session, "bind", bind)


@mutant("resume.resumed-from-last", may=("resume.in-order-across-cuts",))
def resumed_from_one_less(patch):
    transients(
        patch,
        "ready",
        lambda said: (
            {**said, "resumedFrom": max(0, said["resumedFrom"] - 1)} if "resumedFrom" in said else said
        ),
    )


@mutant(
    "resume.in-order-across-cuts",
    may=(
        "resume.resumed-from-last",
        "resume.pending-call-carried-over",
        "resume.handled-once",
        "reliability.ack-not-ahead",
    ),
)
def parked_sessions_skip_a_message(patch):
    real = Session.park

    def park(self, now):
        real(self, now)
        self.inbox.last += self.inbox.last >= 8

    patch.setattr(Session, "park", park)


@mutant("resume.unknown-session", "resume.unknown-opens-nothing")
def unknown_sessions_are_opened(patch):
    real = server.Host.open

    def open_(self, seat, hello):
        if hello.session_id == "x":
            hello.message.pop("sessionId")
        real(self, seat, hello)

    patch.setattr(server.Host, "open", open_)


@mutant("resume.unknown-session")
def unknown_sessions_close_with_1008(patch):
    real = Connection._step

    def step(self, input_, value, now=0.0):
        if input_ is Input.NOT_RESUMED and self._hello.session_id in ("x",):
            value = (*value[:2], 1008)
        real(self, input_, value, now)

    patch.setattr(Connection, "_step", step)


@mutant(
    "resume.beyond-last-sent",
    "resume.beyond-last-ends-session",
    "resume.beyond-last-ends-older-connection",
    may=("resume.window-ends",),
)
def any_resume_from_will_do(patch):
    real = Outbox.after
    patch.setattr(Outbox, "after", lambda self, seq: [] if seq > self.last else real(self, seq))


@mutant("resume.beyond-last-ends-session", "resume.beyond-last-ends-older-connection")
def beyond_the_last_is_no_reason_to_end(patch):
    real = Session.bind
    patch.setattr(
        Session,
        "bind",
        lambda self, link, seen, now: (seen or 0) <= self.outbox.last and real(self, link, seen, now),
    )


@mutant("resume.discarded-messages", may=("resume.discarded-ends-session", "reliability.seq-contiguous"))
def what_is_gone_is_left_out(patch):
    real = Outbox.after
    patch.setattr(
        Outbox,
        "after",
        lambda self, seq: [frame for frame, _ in self._kept] if seq == 0 and self.last else real(self, seq),
    )


@mutant("resume.discarded-ends-session")
def what_is_gone_is_no_reason_to_end(patch):
    real = Session.bind

    def bind(self, link, seen, now):
        if (seen or 0) <= self.outbox.last and self.outbox.after(seen or 0) is None:
            return False
        return real(self, link, seen, now)

    patch.setattr(Session, "bind", bind)


@mutant("resume.replaces-older-connection")
def older_connections_stay(patch):
    real = Connection._shut
    shut = lambda self, close, now: close.code == 4000 or real(self, close, now)  # noqa: E731
    entry(patch, State.OPEN, Input.ENDED, shut, State.CLOSED)


@mutant("resume.late-close-harmless", may=("resume.replaces-older-connection",))
def older_connections_park_the_session(patch):
    def lost(self, close, now):
        self._shut(close, now)
        if self._session is not None:
            self._session.park(now)

    entry(patch, State.CLOSED, Input.LOST, lost)
    entry(patch, State.OPEN, Input.LOST, lost, State.CLOSED)


@mutant("resume.handled-once", "reliability.duplicate-not-handled", may=("resume.in-order-across-cuts",))
def the_stream_is_forgotten(patch):
    real = Inbox.take

    def take(self, seq, now):
        return real(self, seq, now) or seq == 1

    patch.setattr(Inbox, "take", take)


@mutant("resume.call-resent", "resume.identifiers-kept", may=("reliability.seq-contiguous",))
def calls_are_not_resent(patch):
    real = Outbox.after

    def after(self, seq):
        frames = real(self, seq)
        return frames and [frame for frame in frames if '"tool.call"' not in frame]

    patch.setattr(Outbox, "after", after)


@mutant("resume.pending-call-carried-over")
def parking_settles_the_calls(patch):
    real = TurnManager.parked

    def parked(self, now):
        real(self, now)
        self._calls._queue._calls.clear()

    patch.setattr(TurnManager, "parked", parked)


@mutant("resume.formats-carried-over")
def formats_are_negotiated_again(patch):
    real = Session.bind

    def bind(self, link, resume_from, now):
        self._output = dict(link._hello.message.get("output", self._output))
        return real(self, link, resume_from, now)

    patch.setattr(Session, "bind", bind)


@mutant("resume.tools-carried-over")
def tools_are_declared_again(patch):
    real = Session.bind

    def bind(self, link, resume_from, now):
        bound = real(self, link, resume_from, now)
        if resume_from is not None and "tools" in link._hello.message:
            self.tools_left = False
        return bound

    real_call = TurnManager._on_call

    def on_call(self, event):
        if not getattr(self._session, "tools_left", True):
            self._calls._tools = SimpleNamespace(get=lambda name: None, tools=[])
        real_call(self, event)

    patch.setattr(Session, "bind", bind)
    patch.setattr(TurnManager, "_on_call", on_call)


@mutant(
    "resume.epoch-carried-over",
    "turns.epoch-rises",
    "turns.epoch-never-falls",
    may=("turns.silent-after-interrupt",),
)
def epochs_begin_anew(patch):
    real = TurnManager.parked

    def parked(self, now):
        real(self, now)
        self.epoch = 0

    patch.setattr(TurnManager, "parked", parked)


@mutant("audio.start-before-frames", "resume.audio-starts-anew")
def items_go_on_after_a_resume(patch):
    def unbind(self):
        link, self._link = self._link, None
        return link

    patch.setattr(Session, "_unbind", unbind)


@mutant("resume.audio-not-resent", "audio.seq")
def audio_is_resent(patch):
    real = Session.park

    def park(self, now):
        real(self, now)
        self._audio_sent = max(1, self._audio_sent - 20)

    patch.setattr(Session, "park", park)


@mutant("resume.audio-goes-on")
def audio_ends_with_the_connection(patch):
    real = TurnManager.parked

    def parked(self, now):
        real(self, now)
        self.playout._items.clear()

    patch.setattr(TurnManager, "parked", parked)


@mutant("resume.parked-when-closed")
def a_normal_close_ends_the_session(patch):
    real = server.Seat.lost

    def lost(self, *, too_large):
        received = self.link.protocol.close_rcvd
        if self.runner is not None and received is not None and received.code == 1000:
            self.runner.session.close()
        real(self, too_large=too_large)

    patch.setattr(server.Seat, "lost", lost)


@mutant("resume.ended-session", may=("errors.unrecoverable-ends",))
def ended_sessions_are_parked(patch):
    def fail(self, message, code="AGENT_ERROR"):
        self._report(message, code, recoverable=False)
        link = self._session._link
        self._session.park(self._now)
        link.end(Close(1011, "the agent failed"))

    patch.setattr(TurnManager, "_fail", fail)


@mutant("errors.unrecoverable-ends", may=("resume.ended-session",))
def final_errors_are_not(patch):
    def fail(self, message, code="AGENT_ERROR"):
        self._report(message, code, recoverable=False)

    patch.setattr(TurnManager, "_fail", fail)


@mutant("errors.recoverable-goes-on")
def recoverable_errors_end_the_connection(patch):
    real = TurnManager._report

    def report(self, message, code, *, recoverable):
        real(self, message, code, recoverable=recoverable)
        self.spoilt = True

    tell = TurnManager.receive

    def receive(self, message, now):
        if not hasattr(self, "spoilt"):
            tell(self, message, now)

    patch.setattr(TurnManager, "_report", report)
    patch.setattr(TurnManager, "receive", receive)
