# The two audio paths of the device: microphone to link, session to speaker, in the formats that the server chose.
# What runs for each frame allocates nothing; making or changing a format does.
import gc

from micropython import const

from vrt import diff
from vrt.audio.mic import Mic
from vrt.audio.speaker import Speaker

_HEADER = const(5)  # bytes before the payload (§8.1)
_SPARE_MS = const(200)  # the ring holds so much more than what we announce (decisions 11)
_GAP_MS = const(1500)  # a reply whose audio pauses for less is still under way
# So long after the last sample has left, a reply is still in the room: a furnished one (60 dB in 0.5 s) is 30 dB quieter then.
_TAIL_MS = const(250)

_QUIET = const(0)
_TAIL = const(1)
_SOUND = const(2)


def _format(entry):
    # (encoding, rate) of a member of `ready`.
    encoding = entry["encoding"]
    return encoding, int(entry.get("sampleRate", 8000 if encoding == "pcmu" else 24000))  # §8.2


class Sound:
    def __init__(self, board, config):
        # Makes microphone and speaker for the formats that we prefer. Raises ConfigError when the board cannot.
        self.board = board
        self.config = config
        self.half = config["duplex"] == "half"
        self.speaker = self.mic = None
        self.input = self.output = None  # (encoding, rate) in effect
        self.playing = False  # what the speaker did at the last step
        self._silence = b""
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
        try:
            self._make_speaker(_format(ready["output"]))
        finally:
            self._make_mic(_format(ready["input"]))

    def _make_speaker(self, made):
        board, config = self.board, self.config
        encoding, rate = made
        if made != self.output:
            if self.speaker:
                self.speaker.close()
            self.speaker = self.output = None
            self.playing = False
            gc.collect()
            self.speaker = Speaker(
                board.speaker(),
                encoding=encoding,
                rate=rate,
                dac_rate=board.DESCRIPTION["dac_rate"],
                ring_bytes=(config["buffer_ms"] + _SPARE_MS)
                * rate
                // 1000
                * (1 if encoding == "pcmu" else 2),
                dma_ms=board.DESCRIPTION["dma_ms"],
                prefill_ms=config["prefill_ms"],
                reopen=board.speaker,
            )
            self.output = made

    def _make_mic(self, made):
        board = self.board
        encoding, rate = made
        if made != self.input:
            if self.mic:
                self.mic.close()
            self.mic = self.input = None
            gc.collect()
            self.mic = Mic(
                board.microphone(),
                encoding=encoding,
                rate=rate,
                mic_rate=board.DESCRIPTION["mic_rate"],
                dma_ms=board.DESCRIPTION["mic_dma_ms"],
                reopen=board.microphone,
            )
            self._silence = (b"\xff" if encoding == "pcmu" else b"\0") * (self.mic.n - _HEADER)
            self.input = made

    # --- for each frame

    def play(self, buf, n, now):
        # A frame of the session's current item.
        if self.speaker:
            self.speaker.write(buf, _HEADER, n - _HEADER)
            self._since = now

    def listen(self, live, speaking, now):
        # Switches the microphone, `live` if it is wanted. In half duplex it is off while a reply is heard, its tail included,
        # or, in a turn that is `speaking`, about to go on.
        mic = self.mic
        if self.playing:
            self._room = _SOUND
        elif self._room == _SOUND:
            self._room = _TAIL
            self._ended = now
        elif self._room and diff(now, self._ended) >= _TAIL_MS:
            self._room = _QUIET
        if self.half and (self._room or (speaking and diff(now, self._since) < _GAP_MS)):
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
        mic.poll(now)
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
                    frame[_HEADER:] = self._silence
                session.number(frame)
                if not link.send_audio(frame, mic.n):
                    return
                session.said = now
                self.sent += 1
            frame = mic.sent()

    # --- not for each frame

    def flush(self):
        # Silence; the items that were cut, as (id, milliseconds heard).
        return self.speaker.flush() if self.speaker else ()

    def figures(self):
        mic, speaker = self.mic, self.speaker
        made = {"sent": self.sent}
        if mic:
            made.update(mic_dropped=mic.dropped, mic_overruns=mic.overruns, mic_stalls=mic.stalls)
        if speaker:
            made.update(received=speaker.frames, speaker_dropped=speaker.dropped)
            made.update(underruns=speaker.underruns, speaker_stalls=speaker.stalls)
        return made

    def close(self):
        if self.speaker:
            self.speaker.close()
        if self.mic:
            self.mic.close()
