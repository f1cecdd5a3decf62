# The two audio paths of the device: microphone to link, session to speaker, in the formats that the server chose.
# What runs for each frame allocates nothing; making or changing a format does.
import gc

from micropython import const

from vrt import diff

_HEADER = const(5)  # bytes before the payload (§8.1)
_GAP_MS = const(1500)  # a reply whose audio pauses for less is still under way
# So long after the last sample has left, a reply is still in the room: a furnished one (60 dB in 0.5 s) is 30 dB quieter then.
_TAIL_MS = const(250)
_AGAIN_MS = const(10_000)  # after the room was too loud to measure the echo in

_QUIET = const(0)
_TAIL = const(1)
_SOUND = const(2)

made = None  # the device's Sound, once there is one


def _format(entry):
    # (encoding, rate) of a member of `ready`.
    encoding = entry["encoding"]
    return encoding, int(entry.get("sampleRate", 8000 if encoding == "pcmu" else 24000))  # §8.2


class Sound:
    def __init__(self, board, config):
        # Makes microphone and speaker for the formats that we prefer. Raises ConfigError when the board cannot.
        global made  # noqa: PLW0603  (a tool has nobody else to ask)
        made = self
        self.board = board
        self.config = config
        # Full duplex is for a board whose echo has been proven to be weak enough. Until then it is half.
        self.half = True
        self.fresh = config["duplex"] == "full"  # the echo is to be measured
        self.echo = 0  # what may come back of the speaker's level, in 1/65536
        self.probe = None  # what measures it, while it does
        self.again = None  # ticks before which it is no use
        self.speaker = self.mic = None
        self.input = self.output = None  # (encoding, rate) in effect
        self.playing = False  # what the speaker did at the last step
        self._since = 0  # ticks of the last frame that was played
        self._room = _QUIET  # what our own sound does in it
        self._ended = 0  # ticks since when that is a tail
        self._voice = False  # somebody speaks
        self.sent = 0  # frames
        ours, theirs = _format({"encoding": config["input"]}), _format({"encoding": config["output"]})
        self.prefer = {
            "input": {"encoding": ours[0], "sampleRate": ours[1]},
            "output": {"encoding": theirs[0], "sampleRate": theirs[1]},
        }
        self.adopt(self.prefer)

    def adopt(self, ready):
        # The formats in effect (§5.2). Raises ConfigError for one that we cannot make; that direction alone is then silent.
        output, heard = _format(ready["output"]), _format(ready["input"])
        if output != self.output or heard != self.input:
            self.cancel()
            from vrt.audio.make import make  # noqa: PLC0415  (forgotten again)

            make(self, output, heard)

    def cancel(self):
        # The echo is not measured now: something else is to be heard.
        if self.probe:
            self.probe.close()
            self.probe = None
            self.fresh = True

    def _measure(self, now):
        self.fresh = False  # if there is no memory for it, that is that
        gc.collect()
        from vrt.audio.probe import run  # noqa: PLC0415  (forgotten again)

        self.probe = run(self, now)
        next(self.probe)

    # --- for each frame

    def begin(self, item):
        # The item that the frames to come belong to. False: there are too many.
        self.cancel()
        return not self.speaker or self.speaker.begin(item)

    def play(self, buf, n, now):
        # A frame of the session's current item.
        if self.speaker:
            self.speaker.write(buf, _HEADER, n - _HEADER)
            self._since = now

    def listen(self, live, turn, now):
        # Switches the microphone, `live` if it is wanted. In half duplex it is off while a reply is heard, its tail included,
        # or, in a turn that is speaking, about to go on.
        mic = self.mic
        if self.playing:
            self._room = _SOUND
        elif self._room == _SOUND:
            self._room = _TAIL
            self._ended = now
        elif self._room and diff(now, self._ended) >= _TAIL_MS:
            self._room = _QUIET
            if self.speaker:
                self.speaker.level = 0
        if self.fresh and not self._room and turn == "idle" and mic and self.speaker:
            busy = mic.voiced or self.config["mute"] or (live and self.config["listen"] == "button")
            if not busy and (self.again is None or diff(now, self.again) >= _AGAIN_MS):
                self._measure(now)
        if self.probe:
            return
        if self.half and (self._room or (turn == "speaking" and diff(now, self._since) < _GAP_MS)):
            live = False
        if mic and mic.live != live:
            if live:
                mic.start(now)
            else:
                mic.stop()

    def hear(self, now):
        # Takes in what the microphone has. True: somebody begins or ceases to speak.
        mic = self.mic
        if not mic:
            return False
        if self.echo:
            speaker = self.speaker
            mic.limit(speaker.level * self.echo >> 16 if speaker and (self.playing or self._room) else 0)
        mic.poll(now)
        if self.probe:
            try:
                self.probe.send(now)
            except StopIteration:
                self.probe = None
            return True
        before = self._voice
        self._voice = mic.voiced
        return self._voice != before

    def send(self, link, session, tail, now):
        # The frames that wait, as far as the link takes them; what waits too long gives way to newer ones. `tail`: they go
        # out as silence.
        mic = self.mic
        if mic is None:
            return
        frame = mic.frame
        while frame:
            if session.state == "open" and mic.live:
                if not link.writable:
                    return
                if tail:
                    frame[_HEADER:] = mic.silence
                session.number(frame)
                if not link.send_audio(frame, mic.n):
                    return
                session.said = now
                self.sent += 1
            frame = mic.sent()

    # --- not for each frame

    def flush(self):
        # Silence; the items that were cut, as (id, milliseconds heard).
        self.cancel()
        return self.speaker.flush() if self.speaker else ()

    def close(self):
        # The I2S is free, whatever one of them says to that.
        try:
            if self.speaker:
                self.speaker.close()
        finally:
            if self.mic:
                self.mic.close()
