"""Mutants of the wire: framing, numbers, acknowledgements, errors (vRT §2, §3, §4, §9)."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

from server_mutants import FACTOR, LIMITS, SHORT, mutant
from vrt_host import calls, runner, turns
from vrt_host.connection import Connection, Input, State
from vrt_host.protocol import audio, wire
from vrt_host.protocol.stream import Inbox
from vrt_host.session import Session

NOTHING = lambda *args, **members: None  # noqa: E731


def rewrite(patch, change):
    """Every text frame of the server goes through `change(frame) -> frame, or None to drop it`."""
    real = Connection.carry

    def carry(self, frame):
        changed = change(frame) if isinstance(frame, str) else frame
        if changed is not None:
            real(self, changed)

    patch.setattr(Connection, "carry", carry)


def transients(patch, type_, change):
    """Every transient message of a type goes through `change(members) -> members`."""
    real = wire.transient

    def transient(name, /, **members):
        return real(name, **(change(members) if name == type_ else members))

    patch.setattr(wire, "transient", transient)


def members(patch, type_, change):
    """Every sequenced message of a type goes through `change(members) -> members, or None to send nothing`."""
    real = Session.send

    def send(self, name, /, **said):
        if name == type_:
            said = change(said)
        return True if said is None else real(self, name, **said)

    patch.setattr(Session, "send", send)


def refusing(patch, wrong, code="INVALID_FIELD"):
    """Client messages of which `wrong(message)` holds are answered with an error."""
    real = wire.decode

    def decode(frame, sender):
        message = real(frame, sender)
        if sender == "client" and wrong(message):
            raise wire.WireError(code, "as the mutant wants it", message["seq"])
        return message

    patch.setattr(wire, "decode", decode)


def accepting(patch, change):
    """`change(text)` is decoded in place of a client's text frame."""
    real = wire.decode
    patch.setattr(
        wire, "decode", lambda frame, sender: real(change(frame) if sender == "client" else frame, sender)
    )


def entry(patch, state, input_, action, following=None):
    """Another row in the table of §5.1."""
    patch.setitem(Connection.TABLE, (state, input_), (action, following or state))


def ids_of_each(patch, module, class_, method):
    """Identifiers that each instance counts up for itself, in the method that makes them."""
    current = []
    real = getattr(class_, method)

    def make():
        self = current[-1]
        self.numbers = getattr(self, "numbers", None) or itertools.count(1)
        return f"id-{next(self.numbers)}"

    def numbered(self, *args):
        current.append(self)
        try:
            return real(self, *args)
        finally:
            current.pop()

    patch.setattr(module, "uuid", SimpleNamespace(uuid4=make))
    patch.setattr(class_, method, numbered)


# --- framing


@mutant("framing.schema")
def transcript_without_final(patch):
    members(patch, "transcript", lambda said: {name: said[name] for name in said if name != "final"})


@mutant("framing.no-double-members")
def interrupted_with_two_epochs(patch):
    rewrite(patch, lambda frame: frame.replace('"type":"interrupted",', '"type":"interrupted","epoch":0,'))


@mutant("framing.plain-integers")
def epochs_with_a_fraction(patch):
    rewrite(patch, lambda frame: frame.replace('"epoch":1,', '"epoch":1.0,'))


@mutant("framing.unknown-members-ignored")
def later_members_refused(patch):
    refusing(patch, lambda message: "later" in message)


@mutant("framing.fragments")
def fragments_ignored(patch):
    from vrt_host.links.websocket import WebSocketLink  # noqa: PLC0415

    real = WebSocketLink._fragment
    patch.setattr(
        WebSocketLink, "_fragment", lambda self, frame, receiver: frame.fin and real(self, frame, receiver)
    )


@mutant("framing.not-utf-8")
def text_of_any_bytes(patch):
    from websockets.protocol import Protocol  # noqa: PLC0415

    real = Protocol.recv_frame

    def recv_frame(self, frame):
        frame.data = bytes(frame.data).decode(errors="replace").encode() if frame.opcode == 1 else frame.data
        real(self, frame)

    from vrt_host.links.websocket import WebSocketLink  # noqa: PLC0415

    fragment = WebSocketLink._fragment

    def lenient(self, frame, receiver):
        frame.data = bytes(frame.data).decode(errors="replace").encode() if frame.opcode == 1 else frame.data
        fragment(self, frame, receiver)

    patch.setattr(WebSocketLink, "_fragment", lenient)


# --- versions, types, classification


@mutant(
    "sessions.other-version-refused",
    "sessions.no-session-for-other-version",
    may=("errors.unsupported-version", "errors.first-rule-counts"),
)
def version_2_accepted(patch):
    accepting(patch, lambda frame: frame.replace('{"v": 2,', '{"v": 1,'))


@mutant("errors.type-of-other-direction", may=("errors.unknown-type",))
def servers_types_ignored(patch):
    real = Connection.receive_text

    def receive_text(self, frame, now):
        if '"type": "turn.state"' not in frame:
            real(self, frame, now)

    patch.setattr(Connection, "receive_text", receive_text)


@mutant("errors.unknown-type")
def types_in_capitals_accepted(patch):
    accepting(patch, lambda frame: frame.replace('"TEXT"', '"text"'))


@mutant("errors.inherited-names", may=("errors.unknown-type",))
def inherited_names_are_types(patch):
    accepting(
        patch,
        lambda frame: frame.replace('"__proto__"', '"text"') if '"type": "__proto__"' in frame else frame,
    )


@mutant("errors.malformed")
def nan_accepted(patch):
    accepting(patch, lambda frame: frame.replace("NaN", "0"))


@mutant("errors.unsupported-version", may=("errors.first-rule-counts",))
def true_is_a_version(patch):
    accepting(patch, lambda frame: frame.replace('"v": true', '"v": 1'))


@mutant("errors.first-rule-counts")
def type_before_version(patch):
    refusing_ = wire.decode

    def decode(frame, sender):
        try:
            return refusing_(frame, sender)
        except wire.WireError as error:
            if error.code == "UNSUPPORTED_VERSION" and '"nothing"' in str(frame):
                raise wire.WireError("UNKNOWN_TYPE", "first of all") from None
            raise

    patch.setattr(wire, "decode", decode)


@mutant("errors.invalid-field", "errors.invalid-not-acted-on", may=("errors.invalid-survived",))
def reasons_not_checked(patch):
    accepting(
        patch,
        lambda frame: (
            json.dumps({**json.loads(frame), "reason": "user"})
            if frame.startswith('{"v": 1') and '"interrupt"' in frame and frame.endswith("}")
            else frame
        ),
    )


@mutant("errors.valid-accepted")
def epoch_0_refused(patch):
    refusing(patch, lambda message: message["type"] == "interrupt" and message["epoch"] == 0)


@mutant("errors.recoverable", "errors.flags")
def invalid_is_final(patch):
    real = Connection._fault

    def fault(self, code, text, recoverable=True):
        real(self, code, text, recoverable and code != "UNKNOWN_TYPE")

    patch.setattr(Connection, "_fault", fault)


@mutant("errors.flags", "sessions.duplicate-hello", "sessions.duplicate-hello-while-opening")
def duplicate_hello_is_final(patch):
    real = Connection._fault

    def fault(self, code, text, recoverable=True):
        real(self, code, text, recoverable and code != "DUPLICATE_HELLO")

    patch.setattr(Connection, "_fault", fault)


@mutant("errors.keeps-connection")
def closes_on_unknown_types(patch):
    real = Connection._answer

    def answer(self, error, now):
        real(self, error, now)
        if error.code == "UNKNOWN_TYPE" and "nothing" in str(error):
            self._close(SimpleNamespace(code=1002, reason="no"))

    for state in (State.AWAITING_HELLO, State.OPEN):
        entry(patch, state, Input.INVALID, answer)


@mutant("errors.invalid-survived", may=("errors.invalid-not-acted-on",))
def deaf_after_an_invalid_message(patch):
    handle, answer = Connection._handle, Connection._answer

    def note(self, error, now):
        answer(self, error, now)
        if error.code == "INVALID_FIELD":
            self.deaf = True

    def listen(self, control, now):
        if not hasattr(self, "deaf"):
            handle(self, control, now)

    entry(patch, State.OPEN, Input.INVALID, note)
    entry(patch, State.OPEN, Input.CONTROL, listen)


@mutant("errors.seq", "sessions.duplicate-hello")
def errors_without_a_number(patch):
    def fault(self, code, text, recoverable=True):
        self.carry(wire.transient("error", code=code, recoverable=recoverable, message=text[:100]))

    patch.setattr(Connection, "_fault", fault)


# --- numbers

ACKS = (
    "reliability.acknowledges",
    "reliability.acknowledges-in-250-ms",
    "reliability.acknowledges-after-32",
    "reliability.acknowledges-many",
)


@mutant("reliability.seq-contiguous")
def transcripts_are_lost(patch):
    rewrite(patch, lambda frame: None if '"type":"transcript"' in frame else frame)


@mutant("reliability.seq-classes", "framing.schema", may=(*ACKS, "reliability.duplicate-acknowledged"))
def acks_with_a_number(patch):
    def numbered(name, /, **said):
        return real(name, **said).replace('"seq":0,"type":"ack"', '"seq":1,"type":"ack"')

    real = wire.transient
    patch.setattr(wire, "transient", numbered)


@mutant("reliability.ack-not-ahead")
def acks_run_ahead(patch):
    transients(patch, "ack", lambda said: {"upTo": said["upTo"] + 1})


@mutant(
    *ACKS,
    "reliability.duplicate-acknowledged",
    may=("reliability.duplicate-not-handled",),
)
def no_acks(patch):
    patch.setattr(Connection, "_acknowledge_if_due", NOTHING)
    patch.setattr(Inbox, "due_at", None)


@mutant(
    "reliability.acknowledges-in-250-ms",
    may=("reliability.acknowledges-after-32",),
    limits=replace(LIMITS, ack_s=0.8 * FACTOR),
)
def late_acks(patch):
    pass


@mutant(
    "reliability.acknowledges-after-32",
    may=("reliability.acknowledges-in-250-ms",),
    limits=replace(LIMITS, ack_s=0.3 * FACTOR, ack_every=1000),
)
def acks_by_the_clock_alone(patch):
    pass


@mutant("reliability.acknowledges-many")
def acks_stop(patch):
    transients(patch, "ack", lambda said: {"upTo": min(said["upTo"], 40)})


@mutant("reliability.ack-before-work-is-done")
def acks_wait_for_idle(patch):
    send, due = Session.send, Inbox.due_at.fget

    def note(self, type_, /, **said):
        if type_ == "turn.state":
            self.inbox.busy = said["state"] != "idle"
        return send(self, type_, **said)

    patch.setattr(Session, "send", note)
    patch.setattr(Inbox, "due_at", property(lambda self: None if getattr(self, "busy", False) else due(self)))


@mutant("reliability.duplicate-not-handled", "resume.handled-once", may=("resume.in-order-across-cuts",))
def duplicates_are_handled(patch):
    real = Inbox.take

    def take(self, seq, now):
        real(self, seq, now)
        return True

    patch.setattr(Inbox, "take", take)


@mutant("reliability.duplicate-acknowledged")
def duplicates_are_not_acknowledged(patch):
    real = Inbox.take

    def take(self, seq, now):
        return seq > self.last and real(self, seq, now)

    patch.setattr(Inbox, "take", take)


@mutant("reliability.gap-survived")
def stalls_on_a_gap(patch):
    real = Connection._is_new

    def is_new(self, session, seq, now):
        if seq > session.inbox.last + 1:
            self._pong = NOTHING
            self.receive_text = NOTHING
        return real(self, session, seq, now)

    patch.setattr(Connection, "_is_new", is_new)


@mutant("reliability.ack-beyond-last", may=("errors.valid-accepted",))
def acks_beyond_the_last_are_refused(patch):
    refusing(patch, lambda message: message["type"] == "ack" and message["upTo"] > 1_000_000)


@mutant("reliability.pong-for-every-ping", "resume.transient-not-resent")
def two_pongs(patch):
    def pong(self, message, now):
        self.carry(wire.transient("pong"))
        self.carry(wire.transient("pong"))

    for state in (State.AWAITING_HELLO, State.OPENING, State.OPEN):
        entry(patch, state, Input.PING, pong)


@mutant("reliability.pong-for-every-ping")
def one_pong_for_many_pings(patch):
    real = Connection._pong

    def pong(self, message, now):
        if not self._waiting or "pong" not in str(self._waiting[-1]):
            real(self, message, now)

    entry(patch, State.OPEN, Input.PING, pong)


# --- times


@mutant("reliability.heartbeat-timeout", limits=SHORT)
def heartbeat_closes_with_1000(patch):
    real = Connection._shut

    def shut(self, close, now):
        real(self, replace(close, code=1000) if close.code == 4408 else close, now)

    entry(patch, State.OPEN, Input.SILENT, shut, State.CLOSED)


@mutant("reliability.heartbeat-timeout", limits=SHORT)
def no_heartbeat(patch):
    patch.setattr(Connection, "tick", lambda self, now: self._acknowledge_if_due(now))


@mutant("reliability.any-frame-counts", limits=SHORT)
def audio_is_no_sign_of_life(patch):
    real = Connection.receive_audio

    def receive_audio(self, frame, now):
        heard = self._heard_at
        real(self, frame, now)
        self._heard_at = heard

    patch.setattr(Connection, "receive_audio", receive_audio)


@mutant("resume.after-heartbeat-timeout", limits=SHORT)
def heartbeat_ends_the_session(patch):
    def shut(self, close, now):
        self._close(close)
        self._session.close()

    entry(patch, State.OPEN, Input.SILENT, shut, State.CLOSED)


@mutant("resume.window-ends", limits=SHORT)
def sessions_park_for_ever(patch):
    real = Session.park

    def park(self, now):
        real(self, now)
        self.deadline = None

    patch.setattr(Session, "park", park)


@mutant("resume.within-window", limits=SHORT)
def window_of_a_moment(patch):
    real = Session.park

    def park(self, now):
        real(self, now)
        self.deadline = now + 0.4 * self.limits.resume_window_s

    patch.setattr(Session, "park", park)


# --- audio frames


@mutant("audio.frame-layout")
def output_audio_of_kind_1(patch):
    patch.setattr(audio, "OUTPUT", 1)


@mutant("audio.seq")
def output_audio_counts_by_two(patch):
    real = audio.encode
    patch.setattr(audio, "encode", lambda kind, seq, payload: real(kind, 2 * seq, payload))


@mutant("audio.seq")
def output_audio_begins_at_1(patch):
    real = audio.encode
    patch.setattr(audio, "encode", lambda kind, seq, payload: real(kind, seq + 1, payload))


@mutant("audio.whole-samples")
def half_samples(patch):
    real = Session.send_audio
    patch.setattr(Session, "send_audio", lambda self, payload: real(self, payload[:-1]))


@mutant("audio.malformed-frame")
def kind_2_is_taken_as_input(patch):
    real = Connection.receive_audio

    def receive_audio(self, frame, now):
        real(self, b"\x01" + frame[1:] if frame[:1] == b"\x02" else frame, now)

    patch.setattr(Connection, "receive_audio", receive_audio)


@mutant("audio.empty-payload", may=("audio.malformed-frame",))
def empty_payloads_are_malformed(patch):
    real = audio.decode

    def decode(frame, kind):
        if len(frame) == 5:
            raise wire.WireError("MALFORMED", "no payload")
        return real(frame, kind)

    patch.setattr(audio, "decode", decode)


@mutant("audio.input-heard", "audio.input-seq-wraps")
def every_other_input_frame_is_lost(patch):
    real = Connection._pass
    numbers = itertools.count()

    def pass_on(self, arrived, now):
        if next(numbers) % 2:
            real(self, arrived, now)

    entry(patch, State.OPEN, Input.AUDIO, pass_on)


@mutant("audio.input-seq-wraps")
def input_audio_must_not_fall_back(patch):
    real = Connection._pass

    def pass_on(self, arrived, now):
        if arrived[0] >= getattr(self, "highest", 0):
            self.highest = arrived[0]
            real(self, arrived, now)

    entry(patch, State.OPEN, Input.AUDIO, pass_on)


@mutant("audio.before-ready-ignored")
def audio_before_ready_is_kept(patch):
    def keep(self, arrived, now):
        self.kept = arrived

    real = Connection._open

    def open_(self, session, now):
        real(self, session, now)
        if hasattr(self, "kept"):
            self._pass(self.kept, now)

    entry(patch, State.AWAITING_HELLO, Input.AUDIO, keep)
    entry(patch, State.OPENING, Input.OPENED, open_, State.OPEN)


@mutant("sessions.audio-before-hello", may=("audio.malformed-frame", "audio.before-ready-ignored"))
def audio_before_hello_is_refused(patch):
    def refuse(self, arrived, now):
        self._fault("NO_SESSION", "audio came before hello", recoverable=False)

    entry(patch, State.AWAITING_HELLO, Input.AUDIO, refuse)


# --- too much


@mutant("errors.too-large-answered")
def large_messages_are_dropped(patch):
    real = Connection._too_large

    def too_large(self, what, *rest):
        if what != "a message":
            real(self, what, *rest)

    patch.setattr(Connection, "_too_large", too_large)


@mutant(
    "audio.too-large-answered",
    "errors.too-much-survived",
    may=("errors.too-deep-answered", "sessions.many-tools-answered"),
    fatal=True,
)
def large_audio_stops_everything(patch):
    deaf = []
    real, too_large = Connection.receive_text, Connection._too_large
    patch.setattr(
        Connection,
        "_too_large",
        lambda self, what, *rest: too_large(self, what, *rest) if what == "a message" else deaf.append(1),
    )
    patch.setattr(Connection, "receive_text", lambda self, *rest: None if deaf else real(self, *rest))


@mutant("errors.too-deep-answered")
def deep_messages_are_dropped(patch):
    real = Connection.receive_text
    patch.setattr(
        Connection,
        "receive_text",
        lambda self, frame, now: None if "[" * 99 in frame else real(self, frame, now),
    )


@mutant("sessions.many-tools-answered")
def hellos_with_many_tools_are_dropped(patch):
    real = Connection.receive_text
    patch.setattr(
        Connection,
        "receive_text",
        lambda self, frame, now: None if frame.count('"name"') > 256 else real(self, frame, now),
    )


# --- identifiers of sessions


@mutant("sessions.session-ids-unguessable", "sessions.session-id-length")
def session_ids_count(patch):
    numbers = itertools.count(1)
    patch.setattr(runner, "uuid", SimpleNamespace(uuid4=lambda: f"session-{next(numbers)}"))


@mutant("sessions.session-id-length")
def short_session_ids(patch):
    import secrets  # noqa: PLC0415

    patch.setattr(runner, "uuid", SimpleNamespace(uuid4=lambda: secrets.token_hex(10)))


@mutant("turns.turn-ids-global", "turns.turn-id-length", may=("tools.call-id-length",))
def turn_ids_count_in_a_session(patch):
    ids_of_each(patch, turns, turns.TurnManager, "_on_turn_begin")


@mutant("tools.call-ids-global", "tools.call-id-length")
def call_ids_count_in_a_session(patch):
    ids_of_each(patch, calls, calls.Calls, "_display")


@mutant(
    "tools.call-ids-unique",
    "tools.call-ids-global",
    "tools.call-id-length",
    "tools.earlier-result-ignored",
    may=(
        "streams.same-identifiers",
        "streams.start-first",
        "streams.nothing-after-the-end",
        "streams.arguments-once",
        "streams.one-terminal",
        "streams.complete-arguments",
        "streams.settled-tells-code",
        "streams.deltas-make-arguments",
        "streams.cancelled-by-interrupt",
        "streams.failed-when-not-issued",
        "streams.every-call",
        "tools.previews-make-arguments",
        "tools.wrong-epoch-ignored",
    ),
)
def call_ids_of_the_provider(patch):
    """They begin anew with every turn, as those of some models do."""
    ids_of_each(patch, calls, calls.Calls, "_display")
    real = calls.Calls.begin_turn

    def begin_turn(self, *args):
        self.numbers = itertools.count(1)
        real(self, *args)

    patch.setattr(calls.Calls, "begin_turn", begin_turn)
