# The device in one cooperative loop. With build.py, which wires it, the only module that knows all the others.
import gc
import os
import time

from micropython import const

from vrt import diff, links, once
from vrt.conversation import Conversation
from vrt.protocol.session import Session

_CLOSE_REPLACED = const(4000)  # what a client says that closes a dead connection (§9.3)
_MESSAGE_BYTES = const(16384)  # the largest that we send; `hello` with many tools is long
_SLOW = const(5)  # so many failures, and there are only the longest waits
_EVENTS = const(8)  # from the link in one step, so that a flood of them cannot hold the loop
_WAIT_MS = const(20)  # between steps; the board wakes up earlier when there is something to do
_ROOMLESS = const(3)  # tries to connect without memory for it, after which the session is given up
_CREDENTIAL_MS = const(10_000)  # between looks for another one, when ours was refused
# So often in a while the heap may be full; more is a crash, after which the board starts anew.
_FULL_MOST = const(50)
_FULL_MS = const(10_000)
# What becomes of a message in hand: it is handled, at so many tries (1 ...); it is to come again; it ends the session.
_TRIES = const(8)
_AGAIN = const(-1)
_NEVER = const(-2)
# Between looks at what is not audio: while nothing happens, and while a tool runs.
_IDLE_MS = const(60)
_TOOL_MS = const(20)


def random(n):
    # 0 .. n-1 for the jitter of retries; n is small.
    return int.from_bytes(os.urandom(2), "little") % n


class App:
    def __init__(self, board, config, *, link, sound, tools, journal, log, random=random):
        self.board = board
        self.config = config
        self.link = link
        self.sound = sound
        self.tools = tools
        self.log = log
        self.session = Session(_MESSAGE_BYTES, self.hello, random, tools.queue_limit, config["ping_ms"])
        self.conversation = Conversation(
            board, config, session=self.session, sound=sound, tools=tools, journal=journal, log=log
        )
        self._open = False  # the link is open, or on its way there or back
        self.busy = True  # the link took no more when we looked, and messages go before audio
        self.wait_ms = 0  # until we look again
        self.live = None  # updates, see setup/live.py
        self.wifi = None  # links/wifi.py, where there is one
        self.crash = None  # after a crash, see setup/crash.py
        self._shown = ""
        self._polled = self._since = 0  # ticks of the last look, and of the last figures
        self.asked = 0  # ticks of the last look for a credential
        self._unread_at = -1  # the message that the heap had no room for comes behind this seq
        self.dropped = 0  # messages that were too large, and told
        self.failed = 0  # tries to connect, in a row, for which there was no memory
        self._full = 0  # a message is in hand, and how far it has come

    def run(self):
        # For ever. Survives a full heap: what it was at is left undone, and the device goes on.
        full = since = 0
        while True:
            try:
                while True:
                    unread = self.board.wait(self.link.sock, _WAIT_MS) is not False
                    self.step(time.ticks_ms(), unread)
            except MemoryError:
                gc.collect()
                self.log.fault("MEMORY", "the heap was full; something was left undone")
                if not 0 <= diff(self._polled, since) < _FULL_MS:
                    since = self._polled
                    full = 0
                full += 1
                if full > _FULL_MOST:
                    raise

    def step(self, now, unread=True):
        # Everything that is due. When that is audio alone, nothing is allocated. `unread`: the link may have something.
        # Most steps are for one frame, up or down, and that is all they touch: a processor that has slept pays for every
        # line it must fetch again.
        sound = self.sound
        mic, speaker = sound.mic, sound.speaker
        look = self.busy or diff(now, self._polled) >= self.wait_ms
        look = look or self.board.button() != self.conversation.button.down
        if mic and (mic.filled or look):
            look = sound.hear(now) or look
        if unread or look:
            look = self._receive(now) or look
        if speaker:
            if speaker.poll(now) and not sound.probe:
                self.log.event("played")
            if speaker.playing != sound.playing:
                sound.playing = speaker.playing
                look = True
        if look:
            self._polled = now
            self._rest(now)
        if mic and mic.frame:
            sound.send(self.link, self.session, self.conversation.button.tail, now)

    def _rest(self, now):  # noqa: C901, PLR0912  (a branch for each thing that may be due)
        # Everything but audio.
        session, conversation, wifi = self.session, self.conversation, self.wifi
        if wifi:
            wifi.step(self, now)
        conversation.step(now)
        self._send(now)
        self.wait_ms = 0 if conversation.unread else _TOOL_MS if self.tools.queue else _IDLE_MS
        if self._open:
            if conversation.closing:
                self.link.close(conversation.closing)
            elif session.tick(now, self.link.last_rx):
                self.link.close(_CLOSE_REPLACED)
        else:
            if session.state == "closed":
                session.again("renew", now)
            elif session.state == "failed":
                if conversation.refused == "START_FAILED":
                    session.failures = _SLOW  # the cause lies with the server and may pass
                    session.again("retry", now)
                elif conversation.refused == "UNAUTHORIZED" and diff(now, self.asked) >= _CREDENTIAL_MS:
                    self.asked = now
                    conversation.retry(now)
            elif session.state != "connecting":
                self._lost(now)  # the heap was full when we heard of it
            if not self.sound.probe and session.wants_link(now) and (not wifi or wifi.ask(self, now)):
                gc.collect()  # TLS wants large pieces
                self.log.event("connecting", failures=session.failures)
                self.link.open(now)
                self._open = True
        conversation.closing = 0
        if self.link.dropped != self.dropped:
            self.dropped = self.link.dropped
            self.log.fault("TOO_LARGE", "more than message_bytes, or broken on a serial line: dropped")
        self.log.step(now)
        if self.live:
            self.live.step(self, now)
        if self.crash:
            self.crash.step(self, now)
        self._report()
        if conversation.quiet and not self.sound.playing:
            conversation.quiet = False
            gc.collect()
            self._count(now)
        elif self.config["stats_ms"] and diff(now, self._since) >= self.config["stats_ms"]:
            self._count(now)

    def _receive(self, now):
        # Whether more than audio came. While a call waits, or may have come, everything is read before we go on.
        if self._full:
            self._go_on(now)
        link, session = self.link, self.session
        news = False
        for _ in range(_EVENTS):
            event = link.poll(now)
            if event == links.AUDIO:
                if session.receive_audio(link.rx, link.n):
                    self.sound.play(link.rx, link.n, now)
                if not (news or link.unread() or self.tools.queue):
                    self.conversation.unread = False
                    break
                continue
            if event == links.NONE:
                self.conversation.unread = link.unread()
                break
            news = True
            if event == links.TEXT:
                self._read(now)
            elif event == links.CLOSED:
                self._lost(now)
        else:
            self.conversation.unread = news = True
        return news

    def _read(self, now):
        # A message. One that the heap has no room for may be one that closes an epoch, so it is not passed over: a resume
        # brings it again, and when it does not fit then either, the session ends. One that was taken does not come again: its
        # event is handled before anything else is read.
        session = self.session
        try:
            session.receive_text(self.link.rx, self.link.n, now)
        except MemoryError:
            self.conversation.waiting = True  # no call starts: it may have closed an epoch
            handled = session.streams.handled
            self._full = _NEVER if handled == self._unread_at else _AGAIN
            self._unread_at = handled
            gc.collect()
        else:
            self._full = 1
        self._go_on(now)

    def _go_on(self, now):
        # The message in hand. Whatever raises MemoryError is done once more, after a collection (see run).
        if 0 < self._full <= _TRIES:
            self._full += 1
            self.conversation.handle(now)
            self._full = 0
            return
        self.log.fault("MEMORY", "the heap has no room for a message")
        if self._full != _AGAIN:
            self.conversation.event = None
            self.session.end("TOO_LARGE", "the device has no memory for what the server says")
        self.link.close(_CLOSE_REPLACED)
        self._full = 0

    def _send(self, now):
        # Messages, which go before audio.
        link, session = self.link, self.session
        if self._open and link.writable and session.state == "connecting":
            gc.collect()  # what it took to connect goes before our hello comes, which may be long
            session.opened(now)
        while link.writable:
            data = session.data_to_send(now)
            if not data or not link.send_text(data, len(data)):
                break
            session.sent(now)
        self.busy = not link.writable
        self.conversation.handle(now)

    def _lost(self, now):
        session, conversation = self.session, self.conversation
        self._open = False
        session.lost(now, self.link.close_code)
        self.failed = self.failed + 1 if self.link.close_reason == "memory" else 0
        if self.failed >= _ROOMLESS and session.id:
            # Not even a connection has room beside what the session keeps: without it the device is of use again.
            session.end("TOO_LARGE", "the device has no memory to resume")
        self.log.event("lost", reason=self.link.close_reason, code=self.link.close_code)
        conversation.handle(now)
        conversation.quiet = True

    def hello(self, resumed):
        return once("vrt.hello").hello(self, resumed)

    def _report(self):
        # The LED: what matters most.
        sound = self.sound
        state = "idle"
        if self.tools.confirm.asking:  # that is what a press means now, with a link or without
            state = "confirm"
        elif self.wifi and self.wifi.led:
            state = self.wifi.led
        elif self.session.state == "failed":
            state = "denied" if self.conversation.refused == "UNAUTHORIZED" else "error"
        elif self.session.state != "open":
            state = "connecting"
        elif sound.playing:
            state = "speaking"
        elif self.conversation.active:
            state = "thinking"
        elif sound.mic and sound.mic.live:
            state = "listening"
        elif self.config["mute"]:
            state = "muted"
        if state != self._shown:
            self._shown = state
            self.board.led(state)

    def _count(self, now):
        self._since = now
        once("vrt.figures").tell(self)
