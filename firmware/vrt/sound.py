# The two audio paths of the device: microphone to link, session to speaker, in the formats that the server chose.
# What runs for each frame allocates nothing; making or changing a format does.
import gc

from micropython import const

from vrt.audio.mic import Mic
from vrt.audio.speaker import Speaker
from vrt.protocol.audio import Sender
from vrt.protocol.lifecycle import OPEN
from vrt.protocol.tables import HEADER_BYTES
from vrt.ticks import diff

_HEADER = const(5)  # HEADER_BYTES, where each frame needs it
_SPARE_MS = const(200)  # the ring holds so much more than what we announce (decisions 11)
_GAP_MS = const(1500)  # a reply whose audio pauses for less is still under way
_RATES = {"pcmu": 8000, "pcm16": 24000}  # Hz, when a format names none (§8.2)


class Sound:
    def __init__(self, board, config):
        # Makes microphone and speaker for the formats that we prefer. Raises ConfigError when the board cannot.
        self._board = board
        self._prefill_ms = config["prefill_ms"]
        self._ring_ms = config["buffer_ms"] + _SPARE_MS
        self.half = config["duplex"] == "half"
        self.speaker = self.mic = None
        self.input = self.output = None  # (encoding, rate) in effect
        self._silence = b""
        self._heard = 0  # ticks of the last frame that was played
        self._voice = False  # somebody speaks
        self._numbers = Sender()
        self.sent = 0  # frames
        self._set_output(config["output"], _RATES[config["output"]])
        self._set_input(config["input"], _RATES[config["input"]])
        self.prefer = {"input": _format(self.input), "output": _format(self.output)}

    def adopt(self, ready):
        # The formats in effect (§5.2). Raises ConfigError for one that we cannot make; that direction is then silent.
        for name, set_format in (("output", self._set_output), ("input", self._set_input)):
            encoding = ready[name]["encoding"]
            rate = int(ready[name].get("sampleRate", _RATES.get(encoding, 0)))
            if (encoding, rate) != getattr(self, name):
                set_format(encoding, rate)

    def _set_output(self, encoding, rate):
        board = self._board
        if self.speaker:
            self.speaker.close()
        self.speaker = self.output = None
        gc.collect()
        self.speaker = Speaker(
            board.speaker(),
            encoding=encoding,
            rate=rate,
            dac_rate=board.DESCRIPTION["dac_rate"],
            ring_bytes=self._ring_ms * rate // 1000 * (1 if encoding == "pcmu" else 2),
            dma_ms=board.DESCRIPTION["dma_ms"],
            prefill_ms=self._prefill_ms,
            reopen=board.speaker,
        )
        self.output = (encoding, rate)

    def _set_input(self, encoding, rate):
        board = self._board
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
        self._silence = (b"\xff" if encoding == "pcmu" else b"\0") * (self.mic.n - HEADER_BYTES)
        self.input = (encoding, rate)

    @property
    def playing(self):
        return self.speaker is not None and self.speaker.playing

    @property
    def live(self):
        return self.mic is not None and self.mic.live

    def replying(self, turn, now):
        # Whether a reply is heard or about to go on: then a half duplex device does not listen.
        return self.playing or (turn == "speaking" and diff(now, self._heard) < _GAP_MS)

    # --- for each frame

    def play(self, buf, n, now):
        # A frame of the session's current item.
        if self.speaker:
            self.speaker.write(buf, _HEADER, n - _HEADER)
            self._heard = now

    def listen(self, wanted, now):
        mic = self.mic
        if mic and mic.live != wanted:
            if wanted:
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
        self._voice = mic.voiced(now)
        return self._voice != before

    def send(self, link, session, tail, now):
        # The frames that wait, as far as the link takes them; what waits too long gives way to newer ones. `tail`: they go
        # out as silence.
        mic = self.mic
        if mic is None:
            return
        frame = mic.frame
        while frame:
            if session.state == OPEN and mic.live:
                if not link.writable:
                    return
                if tail:
                    frame[_HEADER:] = self._silence
                self._numbers.put(frame)
                if not link.send_audio(frame, mic.n):
                    return
                session.said = now
                self.sent += 1
            frame = mic.sent()

    # --- not for each frame

    def figures(self):
        mic, speaker = self.mic, self.speaker
        made = {"sent": self.sent}
        if mic:
            made["mic_dropped"] = mic.dropped
            made["mic_overruns"] = mic.overruns
            made["mic_stalls"] = mic.stalls
        if speaker:
            made["received"] = speaker.frames
            made["speaker_dropped"] = speaker.dropped
            made["underruns"] = speaker.underruns
            made["speaker_stalls"] = speaker.stalls
        return made

    def close(self):
        for end in (self.speaker, self.mic):
            if end:
                end.close()


def _format(pair):
    return {"encoding": pair[0], "sampleRate": pair[1]}
