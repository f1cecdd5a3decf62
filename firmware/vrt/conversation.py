# What goes on between the user and the agent: turns, interruptions, calls, the button. The App runs it; links and
# formats are none of its business. Every event of the device's log but those of the link is written here.
from micropython import const

from vrt.errors import ConfigError, ProtocolError
from vrt.protocol.epoch import NONE
from vrt.protocol.lifecycle import FAILED, OPEN
from vrt.protocol.tables import CLOSE_NORMAL, CLOSE_REPLACED
from vrt.ticks import diff
from vrt.ui import PRESSED, Button, Talk

_STUCK_MS = const(60_000)  # a turn without a sign of life for so long is over for us
_ID_SHOWN = const(
    8
)  # characters of the session id in the log: whoever has all of it could resume the session


class Conversation:
    def __init__(self, board, config, *, session, sound, tools, journal, log):
        self.board = board
        self.config = config
        self.session = session
        self.sound = sound
        self.tools = tools
        self.journal = journal
        self.log = log
        self.button = Button()
        self.talk = Talk(config["listen"] == "open")
        self.turn = "idle"  # its state, as the server tells it
        self.closing = 0  # the App is to close the link with this code
        self.quiet = True  # something has ended: time to collect garbage, once nothing is played
        self.refused = ""  # the code of the error that stopped us
        self._turn_at = 0  # ticks of the turn's last sign of life
        self._voice = False  # somebody spoke at the last step
        self._rebooted = journal.session_id is not None
        self._held = False  # no tool runs until what the server sent before a reboot has been read
        if self._rebooted:
            session.restore(journal.session_id, journal.rx, journal.tx)

    def step(self, now):
        # The user and the tools. Allocates only when something happens.
        self._touch(now)
        self._hear(now)
        session, tools = self.session, self.tools
        self.journal.mark(session.outbox.last, session.inbox.last, session.epoch.observed)
        if not self._held:
            tools.step(now, self.button.down)
        self._answer()
        if tools.uncertain and session.state == OPEN and session.room:
            tools.uncertain = False
            self._tell(tools.context())
        if tools.busy or self.sound.playing:
            self._turn_at = now
        if self.turn != "idle" and diff(now, self._turn_at) >= _STUCK_MS:
            self.turn = "idle"
            self.log.event("error", code="STUCK", message="the turn shows no sign of life")

    # --- the user

    def _touch(self, now):
        # While a call awaits the button, a press answers it and means nothing else.
        if self.button.poll(self.board.button(), now) == PRESSED and not self.tools.asking:
            self._press(now)
        if not self.button.down:
            self.talk.release(now)
        self.talk.poll(now)

    def _press(self, now):
        # The one gesture that always works: be silent, and listen.
        if self.session.state == FAILED:
            self._try_again(now)
        elif self.in_flight:
            self.interrupt("user", now)
        self.talk.press(now)

    def _hear(self, now):
        # Switches the microphone; somebody who begins to speak over the agent interrupts it.
        sound, talk = self.sound, self.talk
        wanted = talk.asked or talk.tail
        if self.config["mute"] or (sound.half and sound.replying(self.turn, now)):
            wanted = False
        sound.listen(wanted, now)
        voice = wanted and not sound.half and talk.is_open and sound.mic is not None and sound.mic.voiced(now)
        # While a confirmation waits in silence the user may speak: the hand answers, not the voice.
        over = sound.playing or (self.tools.busy and not self.tools.asking)
        if voice and over and not self._voice:
            self.interrupt("speech", now)
        self._voice = voice

    @property
    def in_flight(self):
        return self.sound.playing or self.tools.busy or self.turn in ("thinking", "speaking", "acting")

    def interrupt(self, reason, now):
        # vRT §6.2: all effects here first, then the messages, in the order of decisions 14.
        session = self.session
        epoch = session.epoch.close_observed()
        cut = self._flush()
        if epoch != NONE:
            self.tools.close_epoch(epoch)
        self._report_playback(cut)
        if epoch != NONE:
            self.log.event("interrupt", epoch=epoch, reason=reason)
            session.interrupt(epoch, reason)
        self._end_turn()
        self._answer()

    def _flush(self):
        speaker = self.sound.speaker
        return speaker.flush() if speaker else ()

    def _report_playback(self, cut):
        for item, played_ms in cut:
            self.log.event("playback", item=item, played_ms=played_ms)
            self.session.playback(item, played_ms)

    def _end_turn(self):
        self.turn = "idle"
        self.quiet = True

    def _try_again(self, now):
        # The user wants to be let in after a refusal: with another token, or when it was not about the token (§5.3).
        from vrt.config import checked  # noqa: PLC0415  (it is rarely needed, and kept out of the heap)

        try:
            token = checked(self.board.config())["token"]
        except ConfigError as error:
            self.log.event("error", code="CONFIG", message=str(error))
            return
        if self.refused != "UNAUTHORIZED" or token != self.config["token"]:
            self.config["token"] = token
            self.session.again("retry", now)

    # --- the tools

    def _answer(self):
        result = self.tools.next_result()
        while result:
            self.session.result(result)
            result = self.tools.next_result()

    def _tell(self, context):
        # The true state (design: after an interruption or an unknown outcome).
        try:
            self.session.context(context)
        except ProtocolError as error:
            self.log.event("error", code="CONTEXT", message=str(error))

    # --- the server

    def handle(self, now):
        event = self.session.next_event()
        while event:
            handler = getattr(self, "_on_" + event["type"].replace(".", "_"), None)
            if handler:
                handler(event, now)
            event = self.session.next_event()

    def _on_ready(self, event, now):
        session, tools = self.session, self.tools
        resumed = "resumedFrom" in event
        self.log.event("ready", session=session.id[:_ID_SHOWN], resumed=resumed)
        if not resumed:
            tools.begin(session.id)
        elif self._rebooted:
            tools.resumed()
            self._held = True
        self._rebooted = False
        if self._held:
            session.ping = True
        try:
            self.sound.adopt(event)
        except (ConfigError, MemoryError, OSError) as error:
            self.log.event("error", code="FORMAT", message=str(error) or "out of memory")
        self.quiet = True

    def _on_pong(self, event, now):
        self._held = False

    def _on_turn_state(self, event, now):
        epoch, state = event["epoch"], event["state"]
        self.log.event("turn", state=state, epoch=epoch)
        if epoch <= self.session.epoch.closed:
            return
        self.turn = state
        self._turn_at = now
        if state == "listening":
            self._report_playback(self._flush())  # §8.4
        elif state == "idle":
            self._end_turn()
        else:
            self.talk.answered()

    def _on_audio_start(self, event, now):
        self._turn_at = now
        self.log.event("audio_start", item=event["itemId"], epoch=event["epoch"])
        if self.sound.speaker and not self.sound.speaker.begin(event["itemId"], event["epoch"]):
            self.log.event("error", code="ITEMS", message="too many audio items wait; this one is not played")

    def _on_transcript(self, event, now):
        self._turn_at = now
        self.log.event("transcript", role=event["role"], text=event["text"], final=event["final"])

    def _on_text(self, event, now):
        self._turn_at = now
        self.log.event("text", text=event["text"])

    def _on_tool_call(self, event, now):
        self._turn_at = now
        self.log.event(
            "call",
            call=event["callId"],
            name=event["name"],
            epoch=event["epoch"],
            arguments=event["arguments"],
        )
        session = self.session
        self.journal.mark(session.outbox.last, session.inbox.last, session.epoch.observed)
        self.tools.call(event, now)

    def _on_interrupted(self, event, now):
        self.log.event("interrupted", epoch=event["epoch"])
        cut = self._flush()
        self.tools.close_epoch(self.session.epoch.closed)
        self._report_playback(cut)
        self._end_turn()
        self._answer()

    def _on_error(self, event, now):
        self.log.fault(event)
        if not event["recoverable"]:
            self.closing = CLOSE_NORMAL  # a resume shows whether the session has survived

    def _on_refused(self, event, now):
        self.log.fault(event)
        self.refused = event["code"]
        self.closing = CLOSE_NORMAL

    def _on_ended(self, event, now):
        # The session is gone with all that belonged to it; the next hello.context names what became uncertain.
        self.log.fault(event)
        self._flush()
        self.tools.drop()
        self._rebooted = self._held = False
        self._end_turn()
        self.closing = CLOSE_NORMAL

    def _on_stalled(self, event, now):
        self.log.event("error", code="OUTBOX_FULL", message="the server acknowledges nothing")
        self.closing = CLOSE_REPLACED

    def _on_invalid(self, event, now):
        self.log.fault(event)

    def _on_unexpected(self, event, now):
        self.log.event("error", code="UNEXPECTED", message=event["got"])
