# The microphone: I2S samples to frames of the negotiated format, and whether somebody speaks.
#
# Two buffers of one frame alternate: the I2S fills one while the other is worked on. The callback hands over the next one;
# when `poll` is late it does not, and the I2S's own DMA holds what comes. `poll` writes each frame into one of a few
# slots, where it waits for the link; when all are taken, the oldest frame is dropped and counted. Only the constructor
# and a re-opening allocate.
from array import array

from micropython import const

from vrt.audio import dsp
from vrt.errors import ConfigError
from vrt.ticks import diff

_HEADER = const(5)  # vRT §8.1; who sends the frame fills it in
_STALL_MS = const(500)  # no transfer takes so long: the I2S is stuck

# The voice detector, which works on the mean amplitude of each frame. The floor follows quiet frames fast and others slowly.
# Pink noise that stays as loud never starts it (tools/bench_audio.py counts); one that grows to twice as loud does, once.
_LEARN = const(10)  # frames that only set the floor, at each start
_TIMES = const(2)  # a loud frame is above so many times the floor
_LEAST = const(40)  # and above this, of 32768
_ON = const(5)  # loud frames, less twice the others since, that make a voice
_OFF = const(20)  # frames without a loud one that end it


def _filter(encoding, rate, mic_rate):
    # The kernel that converts the microphone's rate to the format's (None: they are the same) and how far it looks back.
    if encoding not in ("pcmu", "pcm16") or (encoding == "pcmu" and rate != 8000):
        raise ConfigError(f"a microphone sends pcmu at 8000 Hz or pcm16, not {encoding} at {rate}")
    if rate == mic_rate:
        return None, 0
    if rate * 2 == mic_rate:
        return dsp.halve, dsp.HALVE_PAST
    if rate * 2 == mic_rate * 3:
        return dsp.three_halves, dsp.THRICE_PAST
    raise ConfigError(
        f"a microphone of {mic_rate} Hz cannot send {rate} Hz, only its own rate, half or 3/2 of it"
    )


class Mic:
    def __init__(self, i2s, *, encoding, rate, mic_rate=16000, frame_ms=20, slots=4, dma_ms=64, reopen=None):
        # i2s: an RX object like machine.I2S, 16 bits, mono, at mic_rate. dma_ms: how much audio it holds while nobody
        # reads. reopen() makes a new one when it is stuck. Raises ConfigError for a format it cannot make.
        self._n = n = mic_rate * frame_ms // 1000  # samples of a frame, as heard
        self._count = count = n * rate // mic_rate  # and as sent
        self._convert, past = _filter(encoding, rate, mic_rate)
        self._past = past
        self._encode = dsp.encode_ulaw if encoding == "pcmu" else dsp.pack
        self.n = _HEADER + count * (1 if encoding == "pcmu" else 2)  # bytes of a frame
        self._slots = [bytearray(self.n) for _ in range(slots)]
        self._oldest = self._waiting = 0  # the slots that hold a frame: the first, how many
        self._buffers = (array("h", bytes(2 * n)), array("h", bytes(2 * n)))
        self._work = array("H", b"\x00\x80" * (past + n))
        self._samples = array("h", bytes(2 * count)) if self._convert else None
        self._average = array("i", (0x8000 * 32,))
        # Which buffer is whose: the callback alone writes _filling and sets _full, poll alone writes _next and clears _full.
        self._full = bytearray(2)
        self._filling = self._next = 0
        self._running = False  # a transfer is outstanding
        self._moved = False  # one has ended since the last poll
        self._live = False
        self._stale = 0  # frames to throw away, because they are from before the start
        self._backlog = -(-dma_ms // frame_ms)
        self._slack_ms = frame_ms + dma_ms
        self._polled = self._progress = 0
        self._reopen = reopen
        self._callback = self._on_filled
        self._attach(i2s)

        self.filled = False  # poll has something to do; but it wants to be called now and then all the same
        self.frame = None  # the frame waiting longest, as poll returned it
        self.level = 0  # mean amplitude of the newest frame, 0 to 32768
        self._floor = 0  # that of the noise, times 64
        self._learn = self._loud = self._quiet = 0
        self.voiced = (
            False  # somebody speaks: from 100 ms after the onset until 400 ms after the last loud frame
        )
        self.frames = 0  # made
        self.dropped = 0  # lost in the slots, because the link took none
        self.overruns = 0  # times that poll came so late that sound was lost in the DMA
        self.stalls = 0  # times the I2S was stuck and opened again

    def start(self, now):
        # The microphone goes live. What the I2S still holds from before is not heard.
        if self._live:
            return
        self._live = True
        self._stale = self._backlog
        self._learn, self._loud, self._quiet, self.voiced = _LEARN, 0, 0, False
        self._polled = self._progress = now
        if not self._running:
            self._read()

    def stop(self):
        # Nothing is captured any more, and the transfer that is under way will be thrown away. Frames that wait stay.
        self._live = False
        self.voiced = False
        self.level = 0

    @property
    def live(self):
        return self._live

    def poll(self, now):
        # Works on at most one buffer. Returns the frame that waits longest, `n` bytes with the header still to be filled
        # in, or None. It is returned again until `sent`.
        late = diff(now, self._polled) > self._slack_ms
        if self._moved or late:  # kept from coming, as perhaps the callback was: no time to judge the I2S
            self._moved = False
            self._progress = now
        self.filled = False
        k = self._next
        if self._full[k]:
            if self._stale:
                self._stale -= 1
            elif self._live:
                self._make(self._buffers[k])
            self._full[k] = 0
            self._next = 1 - k
            if self._full[1 - k]:
                self.filled = True
            if not self._running and self._live:
                self.overruns += late
                self._read()
        elif self._running and diff(now, self._progress) > _STALL_MS:
            self._restart(now)
        self._polled = now
        self.frame = self._slots[self._oldest] if self._waiting else None
        return self.frame

    def sent(self):
        # The link has taken the frame. Returns the next one that waits, or None.
        self._oldest = (self._oldest + 1) % len(self._slots)
        self._waiting -= 1
        self.frame = self._slots[self._oldest] if self._waiting else None
        return self.frame

    def close(self):
        self._live = False
        self._i2s.deinit()

    def _attach(self, i2s):
        self._i2s = i2s
        i2s.irq(self._callback)

    def _read(self):
        self._running = True
        self._i2s.readinto(self._buffers[self._filling])

    def _on_filled(self, i2s):
        # The I2S's callback, from the scheduler: between any two steps of the other methods.
        if i2s is not self._i2s:
            return
        self._moved = True
        if self._live:
            self._full[self._filling] = 1
            self.filled = True
            self._filling = 1 - self._filling
            if not self._full[self._filling]:
                self._read()
                return
        self._running = False

    def _restart(self, now):
        self.stalls += 1
        self._progress = now
        if self._reopen:
            self._i2s.deinit()
            self._attach(self._reopen())
            self._read()

    def _make(self, samples):
        # One frame: level and voice, then the samples in the format's rate and encoding into the next slot.
        n = self._n
        self.level = dsp.measure(samples, n, self._work, self._past, self._average)
        self._hear(self.level)
        if self._convert:
            self._convert(self._work, n, self._samples)
            samples = self._samples
        self._encode(samples, self._count, self._free_slot(), _HEADER)
        self._waiting += 1
        self.frames += 1

    def _free_slot(self):
        slots = len(self._slots)
        if self._waiting == slots:
            self._oldest = (self._oldest + 1) % slots
            self._waiting -= 1
            self.dropped += 1
        return self._slots[(self._oldest + self._waiting) % slots]

    def _hear(self, level):
        step = level * 64 - self._floor
        if self._learn:
            self._learn -= 1
            self._floor = max(self._floor, level * 64) if self._learn < _LEARN - 1 else level * 64
            return
        loud = level > _LEAST and level * 64 > self._floor * _TIMES
        if step < 0:
            self._floor += step // 8
        else:
            self._floor += step // (512 if loud else 64)
        if loud:
            self._loud += 1
            self._quiet = 0
            if self._loud >= _ON:
                self._loud = _ON
                self.voiced = True
        else:
            self._loud = max(0, self._loud - 2)
            self._quiet += 1
            if self._quiet >= _OFF:
                self.voiced = False
