# What goes on between the user and the agent: turns, interruptions, calls, the button. The App runs it; links and
# formats are none of its business. Every event of the device's log but those of the link is written here.
from micropython import const

from vrt import diff, once, use
from vrt.errors import ProtocolError
from vrt.ui import Button

_CLOSE_NORMAL = const(1000)
_CLOSE_REPLACED = const(4000)
_STUCK_MS = const(60_000)  # a turn without a sign of life for so long is over for us


class Conversation:
    def __init__(self, board, config, *, session, sound, tools, journal, log):
        self.board = board
        self.config = config
        self.session = session
        self.sound = sound
        self.tools = tools
        self.journal = journal
        self.log = log
        self.button = Button(config["listen"] == "open")
        self.turn = "idle"  # its state, as the server tells it
        self.active = False  # in it the agent thinks, speaks or acts
        self.closing = 0  # the App is to close the link with this code
        self.quiet = True  # something has ended: time to collect garbage, once nothing is played
        self.refused = ""  # the code of the error that stopped us
        self.reason = None  # of an interruption that the server has not been told of
        self.event = None  # the session's that is being handled
        self.offer = None  # of an update, as the server makes it
        self._since = 0  # ticks of the turn's last sign of life
        self._voice = False  # somebody spoke at the last step
        # No call starts until all that the server sent before has been read: it may have closed the call's epoch (§6.2).
        self.waiting = False  # since a resume, or a message that was not taken
        self.unread = False  # more came at once than the App takes in a step
        self.stream = None  # shows what becomes of calls, where there is something to show it on
        if config["tool_stream"]:
            self.stream = use("vrt.tools.stream").make(log.event)
        self.restored = journal.session_id is not None
        if self.restored:
            session.restore(journal.session_id, journal.rx, journal.tx, journal.epoch)
            self.turn = ""  # nobody knows

    def step(self, now):
        # The user and the tools. Allocates only when something happens.
        session, tools = self.session, self.tools
        if self.reason:  # the heap was full
            self.silence()
        # While a call awaits the button, a press answers it and means nothing else.
        if self.button.poll(self.board.button(), now) and not tools.confirm.asking:
            self.press(now)
        self.hear(now)
        self._answer()
        self.mark()
        if tools.queue:  # the same
            tools.close_epoch(session.closed)
        # A press that may have begun is the user's stop to what would start now; it never confirms what was asked after it.
        tools.step(now, self.button.down, self.waiting or self.unread or self.button.fresh)
        self._answer()
        if tools.uncertain and session.state == "open" and session.room():
            self.report()
            tools.uncertain = False
        if tools.queue or self.sound.playing:
            self._since = now
        elif (self.active or self.turn == "listening") and diff(now, self._since) >= _STUCK_MS:
            self._end()
            self.log.fault("STUCK", "the turn shows no sign of life")

    # --- the user

    def press(self, now):
        # The one gesture that always works: be silent, and listen.
        self.button.press(now)
        if self.session.state == "failed":
            self.retry(now)
        elif self.sound.playing or self.tools.queue or self.active or not (self.turn or self.restored):
            self.silence("user")

    def hear(self, now):
        # Switches the microphone; somebody who begins to speak over the agent interrupts it.
        sound, button = self.sound, self.button
        wanted = (button.asked or button.tail) and not self.config["mute"]
        sound.listen(wanted, self.turn or "idle", now)
        voice = wanted and not sound.half and button.is_open and sound.mic is not None and sound.mic.voiced
        # While a confirmation waits in silence the user may speak: the hand answers, not the voice.
        over = sound.playing or (self.tools.queue and not self.tools.confirm.asking)
        if voice and over and not self._voice:
            self.silence("speech")
        self._voice = voice

    def silence(self, reason=None):
        # An interruption: the server's, or the user's when there is a `reason`. vRT §6.2: all effects here first, then
        # the messages, in the order of decisions 14.
        session = self.session
        if reason and session.close(session.observed):
            self.reason = reason
        epoch = session.closed
        cut = self.sound.flush()
        self.tools.close_epoch(epoch)
        for item, played_ms in cut:
            self.log.event("playback", item=item, played_ms=played_ms)
            session.playback(item, played_ms)
        if self.reason:
            self.log.event("interrupt", epoch=epoch, reason=self.reason)
            session.interrupt(epoch, self.reason)
            self.reason = None
        self._end()
        self._answer()

    def _end(self):
        if self.stream:
            self.stream.close(self.session)
        self.turn = "idle"
        self.active = False
        self.quiet = True

    def retry(self, now):
        once("vrt.ready").retry(self, now)

    # --- the tools

    def mark(self):
        session = self.session
        self.journal.mark(session.streams.last, session.streams.handled, session.observed)

    def _answer(self):
        results = self.tools.results
        while results:
            self.session.result(results[0])
            results.pop(0)

    def report(self):
        # The true state (design: after an interruption or an unknown outcome).
        try:
            self.session.offer("context", self.tools.context())
        except ProtocolError as error:
            self.log.fault("CONTEXT", str(error))

    # --- the server

    def handle(self, now):
        # One that the heap had no room for is handled again.
        self.event = self.event or self.session.next_event()
        while self.event:
            self._handle(self.event["type"], self.event, now)
            self.event = None
            self.event = self.session.next_event()

    def _handle(self, kind, event, now):
        code, message = event.get("code"), event.get("message", "")
        if kind == "pong":
            self.waiting = False
        elif kind == "ready":
            self._ready(event)
        elif kind == "interrupted":
            self.log.event(kind, epoch=event["epoch"])
            self.silence()
        elif kind == "error":
            self.log.fault(code, message)
            if not event["recoverable"]:
                self.closing = _CLOSE_NORMAL  # a resume shows whether the session has survived
        elif kind == "refused":
            self.log.event("error", code=code, message=message)
            self.refused = code
            self.closing = _CLOSE_NORMAL
        elif kind == "ended":
            # The session is gone with all that belonged to it; the next hello.context names what became uncertain.
            self.log.event("error", code=code, message=message)
            self.tools.drop()
            self.sound.flush()
            self.restored = self.waiting = False
            self.reason = None
            self._end()
            self.closing = _CLOSE_NORMAL
        elif kind == "stalled":
            self.log.fault("OUTBOX_FULL", "the server acknowledges nothing")
            self.closing = _CLOSE_REPLACED
            self.waiting = True  # what is not taken may close an epoch
        elif kind == "invalid":
            self.log.fault(code, message)
        elif kind == "unexpected":
            self.log.fault("UNEXPECTED", event["got"])
        else:
            self._apply(kind, event, now)

    def _apply(self, kind, event, now):  # noqa: PLR0912  (a branch for each message)
        # What belongs to a turn, and is its sign of life.
        log = self.log
        self._since = now
        if kind == "turn.state":
            epoch, state = event["epoch"], event["state"]
            log.event("turn", state=state, epoch=epoch)
            if epoch <= self.session.closed:
                return
            if state == "listening":
                self.silence()  # §8.4
            self.turn = state
            self.active = state != "idle" and state != "listening"  # noqa: PLR1714  (a tuple of words is 200 bytes)
            if self.active:
                self.button.answered()
            else:
                self.quiet = True
        elif kind == "audio.start":
            item = event["itemId"]
            log.event("audio_start", item=item, epoch=event["epoch"])
            if not self.sound.begin(item):
                log.fault("ITEMS", "too many audio items wait; this one is not played")
        elif kind == "transcript":
            log.event(kind, role=event["role"], text=event["text"], final=event["final"])
        elif kind == "text":
            log.event(kind, text=event["text"])
        elif kind == "tool.stream" and self.stream:
            self.stream.take(event)
        elif kind == "tool.call":
            self.mark()
            try:
                if self.tools.call(event, now):
                    self.session.pending -= 1
            except MemoryError:
                self.session.refuse(event, "FAILED", "not run: the device has no memory for it")

    def _ready(self, event):
        once("vrt.ready").ready(self, event)
