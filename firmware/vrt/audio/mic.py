# The microphone: I2S samples to frames of the negotiated format, and whether somebody speaks.
#
# Two buffers of one frame alternate: the I2S fills one while the other is worked on. The callback hands over the next one;
# when `poll` is late it does not, and the I2S's own DMA holds what comes. `poll` writes each frame into one of a few
# slots, where it waits for the link; when all are taken, the oldest frame is dropped and counted. Only the constructor
# and a re-opening allocate.
from array import array

from micropython import const

from vrt import diff
from vrt.audio import dsp

_HEADER = const(5)  # vRT §8.1; who sends the frame fills it in
_FRAME_MS = const(20)
_STALL_MS = const(500)  # no transfer takes so long: the I2S is stuck


class Mic:
    def __init__(self, i2s, *, encoding, rate, mic_rate=16000, slots=3, dma_ms=64, reopen=None):
        # i2s: an RX object like machine.I2S, 16 bits, mono, at mic_rate. dma_ms: how much audio it holds while nobody
        # reads. reopen() makes a new one when it is stuck. Raises ConfigError for a format it cannot make.
        from vrt.audio.formats import mic  # noqa: PLC0415  (forgotten again)

        self._width, self._ratio, past = mic(encoding, rate, mic_rate)
        n = mic_rate * _FRAME_MS // 1000  # samples of a frame, as heard
        count = n * self._ratio // 2  # and as sent
        self.n = _HEADER + count * self._width  # bytes of a frame
        self._queue = [bytearray(self.n) for _ in range(slots)]
        self.first = self.waiting = 0  # the slots that hold a frame: the first, how many
        self._buffers = (array("h", bytes(2 * n)), array("h", bytes(2 * n)))
        self._work = array("H", b"\x00\x80" * (past + n))
        self._samples = (
            array("h", bytes(2 * count)) if count > n else None
        )  # fewer fit into the buffer they come from
        self._state = array("i", (0x8000 * 32, 0, 0, 0, 0, 0, 0, 0))  # dsp.hear's
        self.silence = (b"\xff" if self._width == 1 else b"\0") * (count * self._width)  # a frame's payload
        self.take = self._make  # what becomes of a buffer that was heard
        # Which buffer is whose: the callback alone writes _filling and sets _full, poll alone writes _next and clears _full.
        self._full = bytearray(2)
        self._filling = self._next = 0
        self._running = False  # a transfer is outstanding
        self._changed = False  # one has ended since the last poll
        self.live = False  # for others to read: start and stop switch it
        self._stale = 0  # frames to throw away, because they are from before the start
        self.dma_ms = dma_ms
        self._polled = self._seen = 0
        self.reopen = reopen
        self.i2s = i2s
        i2s.irq(self._advance)

        self.filled = False  # poll has something to do; but it wants to be called now and then all the same
        self.frame = None  # the frame waiting longest, as poll returned it
        # Somebody speaks: from 100 ms after the onset until 400 ms after the last loud frame.
        self.voiced = False
        self.frames = 0  # made
        self.dropped = 0  # lost in the slots, because the link took none
        self.overruns = 0  # times that poll came so late that sound was lost in the DMA
        self.stalls = 0  # times the I2S was stuck and opened again

    def start(self, now):
        # The microphone goes live. What the I2S still holds from before is not heard.
        if self.live:
            return
        self.live = True
        self._stale = -(-self.dma_ms // _FRAME_MS)
        for i in range(2, 6):
            self._state[i] = 0
        self._polled = self._seen = now
        if not self._running:
            self._read()

    def stop(self):
        # Nothing is captured any more, and the transfer that is under way will be thrown away. Frames that wait stay.
        self.live = self.voiced = False

    def limit(self, level):
        # The device's own sound may be so loud here: a frame that is not louder is no voice, and becomes silence. 0: none is heard.
        self._state[6] = level

    def poll(self, now):
        # Works on at most one buffer. Returns the frame that waits longest, `n` bytes with the header still to be filled
        # in, or None. It is returned again until `sent`.
        late = diff(now, self._polled) > _FRAME_MS + self.dma_ms
        if self._changed or late:  # kept from coming, as perhaps the callback was: no time to judge the I2S
            self._changed = False
            self._seen = now
        self._polled = now
        self.filled = False
        k = self._next
        if self._full[k]:
            if self._stale:
                self._stale -= 1
            elif self.live:
                self.take(self._buffers[k])
            self._full[k] = 0
            self._next = 1 - k
            if self._full[1 - k]:
                self.filled = True
            if not self._running and self.live:
                self.overruns += late
                self._read()
        elif self._running and diff(now, self._seen) > _STALL_MS:
            self.stalls += 1
            self._seen = now
            if self.reopen:
                self.i2s.deinit()
                self.i2s = self.reopen()
                self.i2s.irq(self._advance)
                self._read()
        self.frame = self._queue[self.first] if self.waiting else None
        return self.frame

    def sent(self):
        # The link has taken the frame. Returns the next one that waits, or None.
        self.first = (self.first + 1) % len(self._queue)
        self.waiting -= 1
        self.frame = self._queue[self.first] if self.waiting else None
        return self.frame

    def close(self):
        self.live = False
        self.i2s.deinit()

    def _read(self):
        self._running = True
        self.i2s.readinto(self._buffers[self._filling])

    def _advance(self, i2s):
        # The I2S's callback, from the scheduler: between any two steps of the other methods.
        if i2s is not self.i2s:
            return
        self._changed = True
        self._running = False
        if self.live:
            self._full[self._filling] = 1
            self.filled = True
            self._filling = 1 - self._filling
            if not self._full[self._filling]:
                self._read()

    def _make(self, buf):
        # One frame: voice, then the samples in the format's rate and encoding into the next slot.
        slots = len(self._queue)
        if self.waiting == slots:
            self.first = (self.first + 1) % slots
            self.waiting -= 1
            self.dropped += 1
        n = len(buf)
        state = self._state
        dsp.hear(buf, n, self._work, len(self._work) - n, state)
        self.voiced = state[5] > 0
        if self._ratio != 2:
            buf = self._samples or buf
            dsp.resample(self._work, n, buf, self._ratio)
        slot = self._queue[(self.first + self.waiting) % slots]
        if state[6] and state[7] <= state[6]:
            slot[_HEADER:] = self.silence
        else:
            dsp.encode(buf, n * self._ratio // 2, slot, _HEADER, self._width)
        self.waiting += 1
        self.frames += 1
