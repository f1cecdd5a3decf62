"""The simulated DAC and ADC with their DMA, and the room between them: samples against time, no I/O and no clock.

Times are seconds on the caller's clock. Both converters run from the moment they are opened, as I2S does, in blocks of
256 frames; `advance` must be told the time at or after `due`, and answers for every block that has ended since.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from vrt_host.sim.wav import MIC_RATE, Samples

BLOCK = 256
"""Frames of a DMA block, as in MicroPython's ESP32 port."""

_TAPS = 16
"""Samples on either side of an output sample that the low pass of an echo looks at."""

QUIET_S = 0.1
"""Zeros for so long are silence."""


def dma_blocks(ibuf: int, frame_bytes: int) -> int:
    """How many DMA blocks the ESP32 port makes of an `ibuf` of bytes: TX frames are as wide as the format, RX frames 8 bytes."""
    return max(2, ibuf // (BLOCK * frame_bytes))


class Track:
    """Samples on a time line: a recording that keeps its place through gaps, which are silence.

    Holds the latest `seconds`; `start` is the time of the first sample held.
    """

    def __init__(self, rate: int, seconds: float) -> None:
        self.rate = rate
        self.start = 0.0
        self._data = bytearray()
        self._limit = int(rate * seconds) * 2

    def append(self, at: float, samples: bytes) -> None:
        """Add int16 samples whose first one sounds at time `at`, which is at or after the end of what is here."""
        if not self._data:
            self.start = at
        missing = round((at - self.start) * self.rate) - len(self._data) // 2
        self._data += bytes(2 * max(0, missing)) + samples
        surplus = len(self._data) - self._limit
        if surplus > self._limit // 8:  # trimmed in large steps, since it moves the rest
            del self._data[:surplus]
            self.start += surplus / 2 / self.rate

    def window(self, at: float, count: int) -> Samples:
        """`count` samples from time `at`; zeros where nothing is held."""
        first = round((at - self.start) * self.rate)
        held = self._data[max(0, 2 * first) : max(0, 2 * (first + count))]
        before = bytes(2 * min(count, max(0, -first)))
        return np.frombuffer((before + held).ljust(2 * count, b"\0"), np.int16)

    @property
    def samples(self) -> Samples:
        """All samples held."""
        return np.frombuffer(bytes(self._data), np.int16)

    def between(self, start: float, end: float) -> Samples:
        """The samples held from time `start` to `end`."""
        first, last = (max(0, round((t - self.start) * self.rate)) for t in (start, end))
        return np.frombuffer(bytes(self._data[2 * first : 2 * last]), np.int16)


class Dac:
    """A speaker's I2S: takes transfers in order, plays a block at a time, and silence when there is nothing."""

    def __init__(self, rate: int, blocks: int, now: float, track: Track) -> None:
        self.rate = rate
        self.depth_s = blocks * BLOCK / rate
        self.starved = 0
        """How often sound was cut off because nothing had been written."""
        self.changes: list[tuple[float, bool]] = []
        """(time, whether it sounds from then on) since the caller last took them."""
        self._opened = now
        self._track = track
        self._capacity = (blocks - 1) * BLOCK * 2  # the block that is being sent is not to be filled
        self._fifo = bytearray()
        self._transfers: deque[memoryview] = deque()
        self._sent = 0  # blocks
        self._last = 0  # the last sample written
        self._sounding = False
        self._sound_end = 0.0  # of the last sample that was not zero

    @property
    def due(self) -> float | None:
        """When the next block ends that somebody waits for; None when nothing is to happen."""
        if not self._transfers and not self._fifo and not self._sounding:
            return None
        return self._opened + self._sent * BLOCK / self.rate

    def write(self, now: float, samples: bytes) -> int:
        """Queue a transfer; returns how many transfers are done by now."""
        done = self.advance(now)
        self._transfers.append(memoryview(samples))
        return done + self._fill()

    def advance(self, now: float) -> int:
        """Send every block whose time has come; returns how many transfers ended."""
        done = 0
        while (begins := self._opened + self._sent * BLOCK / self.rate) <= now:
            block = bytes(self._fifo[: 2 * BLOCK])
            del self._fifo[: 2 * BLOCK]
            self._watch(begins, np.frombuffer(block, np.int16))
            self._track.append(begins, block.ljust(2 * BLOCK, b"\0"))
            self._sent += 1
            done += self._fill()
        return done

    def _watch(self, begins: float, block: Samples) -> None:
        self._last = int(block[-1]) if block.size else self._last
        if len(block) < BLOCK:
            self.starved += self._last != 0
            self._last = 0
        loud = np.flatnonzero(block)
        if loud.size:
            if not self._sounding:
                self._sounding = True
                self.changes.append((begins + int(loud[0]) / self.rate, True))
            self._sound_end = begins + (int(loud[-1]) + 1) / self.rate
        elif self._sounding and begins + BLOCK / self.rate - self._sound_end >= QUIET_S:
            self._sounding = False
            self.changes.append((self._sound_end, False))

    def _fill(self) -> int:
        done = 0
        while self._transfers:
            head = self._transfers[0]
            room = self._capacity - len(self._fifo)
            self._fifo += head[:room]
            if len(head) > room:
                self._transfers[0] = head[room:]
                break
            self._transfers.popleft()
            done += 1
        return done


@dataclass(frozen=True, slots=True)
class Echo:
    """The way from a speaker to the microphone.

    White sound comes `loss_db` weaker than it was played, the first of it after `delay_ms`. With `room_ms` half of its energy comes
    as the sound of a room, which dies away by 60 dB in that time.
    """

    loss_db: float
    delay_ms: float = 2.0
    room_ms: float = 0.0


class EchoPath:
    """What of a speaker's recording reaches the microphone through an `Echo`."""

    def __init__(self, echo: Echo, speaker: Track, seed: int = 0) -> None:
        self._speaker = speaker
        self._step = speaker.rate // math.gcd(speaker.rate, MIC_RATE)  # samples in, for so many out:
        self._phases = MIC_RATE // math.gcd(speaker.rate, MIC_RATE)
        answer = np.ones(1)
        if echo.room_ms:
            t = np.arange(1, int(echo.room_ms / 1000 * speaker.rate) + 1) / speaker.rate
            room = np.random.default_rng(seed).standard_normal(len(t)) * 10 ** (-3 * t * 1000 / echo.room_ms)
            answer = np.concatenate([answer, room / np.linalg.norm(room)]) / math.sqrt(2)
        answer *= 10 ** (-echo.loss_db / 20)
        # A low pass below the microphone's band, centred on each output sample's place between the input's.
        near = np.arange(-_TAPS, _TAPS + 1)
        cutoff = 0.9 * MIC_RATE / speaker.rate
        self._filters = []
        for phase in range(self._phases):
            x = near + phase * self._step / self._phases % 1
            low = np.sinc(cutoff * x) * cutoff * np.kaiser(len(x), 8.0)
            self._filters.append(np.convolve(low, answer))
        self._lead = len(self._filters[0]) - 1 - _TAPS  # samples before an output's place that it depends on
        self._delay_s = echo.delay_ms / 1000

    def listen(self, first: int, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Samples `first` to `first + count` of the microphone's time line. The speaker must have played up to then."""
        places = -(-count // self._phases) * self._step + self._step
        span = self._lead + places + _TAPS
        at = first / MIC_RATE - self._delay_s - self._lead / self._speaker.rate
        played = self._speaker.window(at, span)
        if not played.any():
            return np.zeros(count)
        out = np.empty((-(-count // self._phases), self._phases))
        for phase, taps in enumerate(self._filters):
            start = phase * self._step // self._phases
            out[:, phase] = np.convolve(played, taps, "valid")[start :: self._step][: len(out)]
        return out.ravel()[:count]


class Room:
    """What a microphone could hear: sounds said one after the other, over an optional pink noise, and perhaps an echo."""

    def __init__(self, noise_rms: float = 0.0, seed: int = 0, echo: EchoPath | None = None) -> None:
        self._echo = echo
        self._noise = pink_noise(MIC_RATE * 32, noise_rms, seed) if noise_rms else None
        self._sounds: deque[tuple[int, Samples]] = deque()

    def say(self, at: float, samples: Samples) -> tuple[float, float]:
        """Let `samples` (int16 at 16 kHz) sound from time `at`, or from the end of what sounds then; returns (start, end)."""
        start = round(at * MIC_RATE)
        if self._sounds:
            last, sound = self._sounds[-1]
            start = max(start, last + len(sound))
        self._sounds.append((start, np.asarray(samples, np.int16)))
        return start / MIC_RATE, (start + len(samples)) / MIC_RATE

    def hush(self, at: float) -> None:
        """Cut off everything that sounds at time `at` or was to sound later."""
        end = round(at * MIC_RATE)
        self._sounds = deque((start, sound[: end - start]) for start, sound in self._sounds if start < end)

    def listen(self, first: int, count: int) -> Samples:
        """Samples `first` to `first + count` of the time line; each call must ask for later ones than the call before."""
        heard = np.zeros(count, np.int32)
        if self._noise is not None:
            heard += self._noise[np.arange(first, first + count) % len(self._noise)]
        while self._sounds and self._sounds[0][0] + len(self._sounds[0][1]) <= first:
            self._sounds.popleft()
        for start, sound in self._sounds:
            begin, end = max(first, start), min(first + count, start + len(sound))
            if begin < end:
                heard[begin - first : end - first] += sound[begin - start : end - start]
        if self._echo is not None:
            heard += np.rint(self._echo.listen(first, count)).astype(np.int32)
        return np.clip(heard, -32768, 32767).astype(np.int16)


class Adc:
    """A microphone's I2S: hears the room block by block and serves reads; what nobody reads in time is lost, oldest first."""

    def __init__(self, blocks: int, now: float, room: Room, track: Track) -> None:
        self.depth_s = blocks * BLOCK / MIC_RATE
        self.read_samples = 0
        """How many samples the device has been given."""
        self.lost_samples = 0
        """How many were overwritten because the device did not read, or was late."""
        self._first = round(now * MIC_RATE)  # sample of the room's time line
        self._room = room
        self._track = track
        self._capacity = (blocks - 1) * BLOCK * 2
        self._fifo = bytearray()
        self._wanted: deque[int] = deque()
        self._heard = 0  # blocks

    @property
    def due(self) -> float | None:
        """When the next block ends that somebody waits for; None when nobody reads."""
        return self._end() if self._wanted else None

    def read(self, now: float, size: int) -> list[bytes]:
        """Ask for `size` bytes; returns the reads that are served by now."""
        served = self.advance(now)
        self._wanted.append(size)
        return served + self._serve()

    def advance(self, now: float) -> list[bytes]:
        """Hear every block whose time has come; returns the reads served, oldest first."""
        served: list[bytes] = []
        while self._end() <= now:
            first = self._first + self._heard * BLOCK
            block = self._room.listen(first, BLOCK).tobytes()
            self._track.append(first / MIC_RATE, block)
            self._fifo += block
            self._heard += 1
            served += self._serve()
            if (surplus := len(self._fifo) - self._capacity) > 0:
                del self._fifo[:surplus]
                self.lost_samples += surplus // 2
        return served

    def _end(self) -> float:
        return (self._first + (self._heard + 1) * BLOCK) / MIC_RATE

    def _serve(self) -> list[bytes]:
        served = []
        while self._wanted and len(self._fifo) >= self._wanted[0]:
            size = self._wanted.popleft()
            served.append(bytes(self._fifo[:size]))
            del self._fifo[:size]
            self.read_samples += size // 2
        return served


def pink_noise(count: int, rms: float, seed: int) -> Samples:
    """`count` int16 samples of noise whose power falls by 3 dB an octave above 20 Hz, with this root mean square; seamless in a loop."""
    white = np.random.default_rng(seed).standard_normal(count)
    spectrum = np.fft.rfft(white)
    frequency = np.fft.rfftfreq(count, 1 / MIC_RATE)
    spectrum *= 1 / np.sqrt(np.maximum(frequency, 20.0))
    spectrum[0] = 0
    noise = np.fft.irfft(spectrum, count)
    noise *= rms / noise.std()
    return np.asarray(np.clip(noise, -32768, 32767), np.int16)
