"""Our firmware with one rule broken: framing, sessions, numbers, resumes, silence."""

from types import SimpleNamespace

from mutation import breaks, heard, rewrite, rewrite_text, wrap
from vrt.links.ws import WebSocketLink
from vrt.protocol import lifecycle, opening, session, stream, wire
from vrt.protocol.session import Session
from vrt.protocol.stream import Streams
from vrt.sound import Sound

# --- framing


@breaks("client.framing.plain-integers", rare=True)
def integers_with_a_fraction():
    def change(message):
        if "epoch" in message:
            message["epoch"] = float(message["epoch"])
        return message

    rewrite(change)


@breaks("client.framing.no-double-members", rare=True)
def a_member_twice():
    rewrite_text(lambda text: b'{"x":0,"x":1,' + text[1:])


@breaks("client.framing.schema", "client.tools.null-output", rare=True)
def nothing_for_null():
    def change(message):
        if message.get("output", "") is None:
            del message["output"]
        return message

    rewrite(change)


@breaks("client.framing.schema", "client.sessions.tool-names-unique", rare=True)
def a_tool_twice():
    def change(message):
        if message.get("tools"):
            message["tools"].append(message["tools"][0])
        return message

    rewrite(change)


@breaks("client.framing.unknown-members-ignored", "client.sessions.every-ready-opens")
def unknown_members_refused():

    decode = session.decode

    def strict(buf, n):
        message = decode(buf, n)
        for name in message:
            if name in ("x", "later", "toString", ""):
                raise wire.WireError("INVALID_FIELD", name, message["seq"])
        return message

    session.decode = strict


@breaks("client.framing.text-as-said", rare=True)
def texts_in_ascii():
    def change(message):
        if message["type"] == "text":
            message["text"] = message["text"].encode("ascii", "ignore").decode()
        return message

    rewrite(change)


# --- sessions


@breaks("client.sessions.hello-first")
def ping_before_hello():

    def around(data_to_send, self, now):
        if self.state == "waiting" and not self._greeted and not getattr(self, "pinged", False):
            self.pinged = True
            self._sending = "ping"
            return b'{"v":1,"seq":0,"type":"ping"}'
        return data_to_send(self, now)

    wrap(Session, "data_to_send", around)

    def opened(method, self, now):
        self.pinged = False
        return method(self, now)

    wrap(Session, "opened", opened)


@breaks(
    "client.sessions.quiet-until-ready",
    "client.resume.waits-for-ready",
    also=["client.resume."],  # what it has sent before ready cannot be held back after it
    rare=True,  # where its messages meet those of the suite differs from run to run
)
def results_before_ready():

    def around(data_to_send, self, now):
        streams = self.streams
        if self.state == "waiting" and self._greeted and streams.next < len(streams.kept):
            self._sending = None
            return streams.kept[streams.next]
        return data_to_send(self, now)

    wrap(Session, "data_to_send", around)

    def opened(method, self, now):
        self.streams.next = 0
        return method(self, now)

    wrap(Session, "opened", opened)


@breaks(
    "client.sessions.quiet-until-ready",
    "client.sessions.waits-for-ready",
    "client.audio.seq",  # the session's first frame is not frame 0
    settings=("listen=open",),
)
def audio_before_ready():

    def around(send, self, link, its, *rest):
        if its.state == "waiting" and its._greeted:
            its = SimpleNamespace(state="open", number=its.number)
        send(self, link, its, *rest)

    wrap(Sound, "send", around)


@breaks("client.sessions.credential-not-in-url", rare=True)
def token_in_url():

    wrap(
        WebSocketLink,
        "__init__",
        lambda init, self, url, *rest, **more: init(self, url + "?t=s3cret", *rest, **more),
    )


@breaks("client.sessions.registered-capabilities", rare=True)
def unregistered_capability():
    def change(message):
        if message["type"] == "hello":
            message["capabilities"] = ["faster-v1"]
        return message

    rewrite(change)


@breaks(
    "client.sessions.stays-away-when-unauthorized",
    "client.sessions.stops-when-refused",
    slow=True,
    rare=True,
)
def refusals_mean_nothing():

    def lost(method, self, now, code):
        if self.state == "failed":
            self.again("retry", now)
        else:
            method(self, now, code)

    wrap(Session, "lost", lost)


@breaks(
    "client.sessions.unknown-capability-ignored",
    also=["client.sessions.", "client.resume.session-id"],
    rare=True,
)
def unknown_capabilities_refused():
    def opened(self, message):
        if set(message.get("capabilities", ())) <= {"tool-stream-v1"}:
            return opening.opened(self, message)
        self.end("UNSUPPORTED", "capabilities")
        return False

    once = session.once
    session.once = lambda name: (
        SimpleNamespace(opened=opened) if name == "vrt.protocol.opening" else once(name)
    )


@breaks(
    "client.sessions.recoverable-error-waits",
    "client.sessions.opens",
    also=["client.sessions."],
    rare=True,
)
def any_error_ends_the_waiting():
    def change(message):
        if message["type"] == "error" and "LATER" in message["code"]:
            message["recoverable"] = False

    heard(change)


# --- numbers


@breaks("client.reliability.seq-contiguous")
def numbers_from_two():

    def reset(method, self, handled, last):
        method(self, handled, last or 1)

    wrap(Streams, "reset", reset)


@breaks("client.reliability.seq-contiguous", "client.resume.seq-continues", rare=True)
def numbers_jump_after_a_resume():

    def resume(method, self, up_to):
        good = method(self, up_to)
        if good and not self.kept:
            self.last = self.acked = self.sent = self.last + 10
        return good

    wrap(Streams, "resume", resume)


@breaks("client.reliability.ack-not-ahead")
def acks_ahead():
    def change(message):
        if message["type"] == "ack":
            message["upTo"] += 1
        return message

    rewrite(change)


@breaks("client.reliability.acknowledges-in-250-ms", "client.reliability.acknowledges-after-32")
def acks_late():

    stream._ACK_MS = 450
    stream._ACK_MESSAGES = 1000


@breaks(
    "client.reliability.acknowledges",
    also=["client.reliability.ack", "client.reliability.duplicate-acknowledged"],
    rare=True,
)
def acks_never():
    Streams.ack_due = lambda self, now: False


@breaks("client.reliability.duplicate-acknowledged", rare=True)
def duplicates_not_acknowledged():

    def take(method, self, seq, now):
        owed, since = self.owed, self.since
        fresh = method(self, seq, now)
        if not fresh:
            self.owed, self.since = owed, since
        return fresh

    wrap(Streams, "take", take)


@breaks("client.reliability.duplicate-not-handled", "client.resume.handled-once", "client.tools.one-result")
def duplicates_handled():

    def take(method, self, seq, now):
        method(self, seq, now)
        return True

    wrap(Streams, "take", take)


@breaks(
    "client.reliability.gap-survived",
    "client.errors.unsupported-version",  # what is invalid leaves a gap, or none, as one reads the text
    "client.errors.inherited-names",
    "client.errors.type-of-other-direction",
    "client.errors.invalid-interrupted",
    "client.errors.too-large-survived",
)
def gaps_kill():

    def take(method, self, seq, now):
        assert seq <= self.handled + 1
        return method(self, seq, now)

    wrap(Streams, "take", take)


@breaks("client.reliability.last-seq-survived", slow=True, rare=True)
def the_last_seq_kills():
    def take(method, self, seq, now):
        assert seq < 0xFFFFFFFF
        return method(self, seq, now)

    wrap(Streams, "take", take)


@breaks("client.reliability.ack-beyond-last", rare=True)
def acks_taken_at_their_word():

    def ack(self, up_to):
        count = up_to - self.acked
        if count > 0:
            del self.kept[:count]
            self.acked = up_to
            self.next = max(self.next - count, 0)

    Streams.ack = ack


@breaks("client.reliability.ack-before-work-is-done", rare=True)
def acks_wait_for_the_tool():

    def around(data_to_send, self, now):
        if self.pending:
            self.streams.since = now
        return data_to_send(self, now)

    wrap(Session, "data_to_send", around)


# --- resumes


@breaks("client.resume.resume-from-last", "client.resume.seq-continues")
def resumes_from_the_beginning():
    def change(message):
        message.pop("resumeFrom", None)
        return message

    rewrite(change)


@breaks("client.resume.no-context-in-hello", rare=True)
def context_in_every_hello():
    def change(message):
        if message["type"] == "hello":
            message["context"] = {}
        return message

    rewrite(change)


@breaks(
    "client.resume.unacknowledged-resent",
    "client.resume.resends-in-order",
    "client.resume.handled-once",  # not reached
    "client.resume.pending-call-carried-over",
    "client.reliability.ack-beyond-last",
    rare=True,
)
def nothing_resent():

    def resume(method, self, up_to):
        good = method(self, up_to)
        self.next = len(self.kept)
        return good

    wrap(Streams, "resume", resume)


@breaks("client.resume.resends-in-order", "client.reliability.seq-contiguous")
def resent_backwards():

    def resume(method, self, up_to):
        good = method(self, up_to)
        if len(self.kept) > 1:
            self.kept.reverse()
        return good

    wrap(Streams, "resume", resume)


@breaks("client.resume.resent-unchanged", rare=True)
def resent_with_a_mark():

    def resume(method, self, up_to):
        good = method(self, up_to)
        self.kept = [b'{"again":true,' + data[1:] for data in self.kept]
        return good

    wrap(Streams, "resume", resume)


@breaks("client.resume.nothing-known-resent", also=["client.resume.resends-in-order"], rare=True)
def everything_resent():
    def resume(method, self, up_to):
        kept, acked = list(self.kept), self.acked
        good = method(self, up_to)
        self.kept[:], self.acked = kept, acked
        return good

    wrap(Streams, "resume", resume)


@breaks("client.resume.session-id-opaque", rare=True)
def session_ids_trimmed():
    def change(message):
        if "sessionId" in message:
            message["sessionId"] = message["sessionId"].strip()
        return message

    rewrite(change)


@breaks(
    "client.resume.reconnects",
    "client.resume.error-decides",
    "client.resume.comes-back",
    also=["client.resume.", "client.gate.", "client.audio.", "client.reliability.ack-beyond-last"],
    rare=True,
)
def a_lost_connection_is_a_lost_session():
    def lost(method, self, now, code):
        if self.state == "open":
            self.end("LOST", "the connection is gone")
        method(self, now, code)

    wrap(Session, "lost", lost)


@breaks("client.resume.error-decides", rare=True)
def close_codes_end_the_session():

    def lost(method, self, now, code):
        if code == 4404 and self.state == "open":
            self.end("RESUME_FAILED", "closed with 4404")
        method(self, now, code)

    wrap(Session, "lost", lost)


@breaks("client.resume.beyond-last-sent", "client.resume.beyond-replays-nothing")
def any_resumed_from_is_fine():

    def resume(method, self, up_to):
        return method(self, min(up_to, self.sent))

    wrap(Streams, "resume", resume)


@breaks("client.resume.discarded-messages", rare=True)
def what_is_left_is_resent():
    wrap(Streams, "resume", lambda method, self, up_to: method(self, max(up_to, self.acked)))


@breaks("client.resume.failed-in-session", also=["client.resume.failed-replays-nothing"], rare=True)
def an_open_session_never_fails():
    def receive(method, self, buf, n, now):
        if self.state == "open":
            data = bytes(buf[:n]).replace(b"RESUME_FAILED", b"AGENT_ERROR")
            buf, n = bytearray(data), len(data)
        method(self, buf, n, now)

    wrap(Session, "receive_text", receive)


@breaks("client.resume.refused-is-over", "client.resume.failed-in-session", rare=True)
def asks_again_and_again():
    def change(message):
        if message.get("code") == "RESUME_FAILED":
            message.update(code="AGENT_ERROR", recoverable=True)

    heard(change)


@breaks(
    "client.resume.refused-replays-nothing",
    "client.resume.beyond-replays-nothing",
    "client.resume.failed-replays-nothing",
    "client.reliability.seq-contiguous",
    "client.tools.result-names-call",
)
def old_messages_into_a_new_session():

    def reset(method, self, handled, last):
        kept = getattr(self, "kept", None)
        if not kept:
            return method(self, handled, last)
        old, acked, top = list(kept), self.acked, self.last
        method(self, handled, last)
        self.kept.extend(old)
        self.acked, self.sent, self.last = acked, acked, top
        return None

    wrap(Streams, "reset", reset)


# --- silence


@breaks("client.resume.no-storm", also=["client.resume.backs-off"])
def storms():

    lifecycle._HALF_MS = lifecycle._CAP_MS = 2


@breaks("client.resume.backs-off", rare=True)
def pauses_do_not_grow():
    lifecycle._HALF_MS = lifecycle._CAP_MS = 150

    def again(method, self, inp, now):
        self.random = lambda n: n - 1
        method(self, inp, now)

    wrap(lifecycle.Lifecycle, "again", again)


@breaks("client.reliability.pings-when-quiet", "client.reliability.ping-interval", rare=True)
def never_pings():

    def around(data_to_send, self, now):
        if not self.ping:
            self.said = now
        return data_to_send(self, now)

    wrap(Session, "data_to_send", around)


@breaks("client.reliability.silent-connection-left", "client.resume.after-silence")
def never_gives_up():

    Session.tick = lambda self, now, last_rx: False
