# Measures how much of what the speaker plays comes back to the microphone: the echo return loss. Imported for that alone, and
# forgotten afterwards.
#
# The signal is noise: a maximum length sequence of 31 steps at 4 kHz, over and over, 0.6 s of it. It is as quiet as
# the room allows: for one without a sound -34 dB of full scale, and never above -12 dB. What the microphone hears is added up
# by its place in the sequence, so that the echo grows with every period, and what else is to be heard does not: that is 15 dB
# in the noise's favour and the reason why the signal can be quiet. An echo that begins later than 100 ms is not measured in full.
import math
from array import array

from micropython import const

import vrt
from vrt import diff
from vrt.audio import dsp

_SEQUENCE = b"1010111011000111110011010010000"
_STEPS = const(4000)  # a second
_NOISE_FRAMES = const(5)  # of 20 ms, before the signal
_FRAMES = const(15)  # with it
_SETTLE_FRAMES = const(
    10
)  # from the speaker's begin to a room full of it: both DMAs, the way, the reverberation
_AHEAD = const(4)  # parts of a second that wait in the ring
_LEAST = const(640)
_MOST = const(8192)
_ABOVE = const(128)  # times what is left of the noise
_GIVE_UP_MS = const(4000)  # microphone or speaker do not run

# The path is proven when the echo is 64 times (36 dB) weaker. The loudest reply has a level of 8000, so its echo has 125 then; a
# voice counts from four times that on, since an echo may be so much louder at some pitch: at 500, where somebody is who
# talks at one metre of a common microphone.
_PROVEN = const(64)
_MARGIN = const(4)


class _Fold:
    # Adds up what the microphone hears by its place in the sequence.
    def __init__(self, n):
        self._bins = array("i", bytes(4 * n))
        self.rest = 0  # frames to come

    def begin(self, frames):
        for i in range(len(self._bins)):
            self._bins[i] = 0
        self._place = self.count = 0
        self.rest = frames

    def hear(self, buf):
        # The microphone's buffer of one frame. Allocates nothing.
        if self.rest:
            bins = self._bins
            place = self._place
            for value in buf:
                bins[place] += value
                place += 1
                if place == len(bins):
                    place = 0
            self._place = place
            self.count += len(buf)
            self.rest -= 1

    def level(self):
        # The mean amplitude of what repeats, times 16.
        bins = self._bins
        middle = sum(bins) // len(bins)
        return sum([abs(value - middle) for value in bins]) * 16 // self.count


def run(sound, now):  # noqa: PLR0912  (one measurement, step by step)
    # A generator that wants the time whenever the microphone has been polled. At its end `sound` has its duplex.
    vrt.forget("vrt.audio.probe")
    mic, speaker = sound.mic, sound.speaker
    frames, dropped, factor = speaker.frames, speaker.dropped, speaker.volume
    fold = _Fold(len(_SEQUENCE) * sound.board.DESCRIPTION["mic_rate"] // _STEPS)
    begun = now
    mic.take = fold.hear
    speaker.volume = -1
    try:
        mic.start(now)
        fold.begin(_NOISE_FRAMES)
        while fold.rest:
            now = yield
            if diff(now, begun) > _GIVE_UP_MS:
                _tell(sound)
                return
        loud = max(_LEAST, fold.level() * _ABOVE // 16)
        if loud > _MOST:  # perhaps it is quiet another time; until then nothing is played
            if sound.again is None:
                _tell(sound)
            sound.again = now
            sound.fresh = True
            return
        wave = _wave(loud, speaker.rate, sound.output[0])
        speaker.begin(None)
        heard = None  # since when the speaker sounds
        while heard is None or fold.rest:
            while speaker.received - speaker.sent < speaker.rate // _AHEAD:
                if speaker.write(wave, 0, len(wave)) < len(wave):
                    break
            if heard is None and speaker.playing:
                heard = now
                fold.begin(_FRAMES + _SETTLE_FRAMES)
            if fold.rest == _FRAMES:
                fold.begin(_FRAMES)
            now = yield
            if diff(now, begun) > _GIVE_UP_MS:
                _tell(sound)
                return
        level = fold.level()
        speaker.flush()
        while speaker.playing and diff(now, begun) <= _GIVE_UP_MS:
            now = yield
        if not _decide(sound, loud, level) and factor == 32768:
            factor = -1  # nobody asks for the level of what is played
    finally:
        speaker.flush()
        speaker.frames, speaker.dropped, speaker.volume = frames, dropped, factor
        mic.take = mic._make
        mic.stop()


def _decide(sound, most, level):
    # Full or half duplex. Whether an echo is to be expected in it.
    sound.half = level * _PROVEN > 16 * most
    sound.echo = 65536 // 16 * _MARGIN * level // most
    _tell(sound, round(20 * math.log10(16 * most / max(1, level))))
    return sound.echo and not sound.half


def _tell(sound, loss_db=None):
    # None: it could not be measured.
    sound.board.event("echo", loss_db=loss_db, duplex="half" if sound.half else "full")


def _wave(level, rate, encoding):
    # One period of the signal for the speaker's ring.
    step = rate // _STEPS
    samples = array("h", [level if bit & 1 else -level for bit in _SEQUENCE for _ in range(step)])
    width = 1 if encoding == "pcmu" else 2
    wave = bytearray(len(samples) * width)
    dsp.encode(samples, len(samples), wave, 0, width)
    return wave
