# The speaker: what the host sends, by items, to samples for the I2S; and how much of each item truly leaves.
#
# Wire bytes wait in a ring. Two buffers of 16 ms take turns: the I2S takes one while `poll` makes the other, and the
# callback hands that over. When the ring runs dry the rest is silence, until the DMA holds nothing else: then the last
# sample has left, playback is done, and the I2S rests. A transfer cannot be called back, so what has been handed over
# counts as heard: it will be. Only the constructor, `begin`, `flush` and a re-opening allocate.
from array import array

from micropython import RingIO, const

from vrt import diff
from vrt.audio import dsp

_CHUNK_MS = const(16)  # flush cannot take back a transfer; and each costs a callback
_MARGIN_MS = const(20)  # poll comes at least so often
_STALL_MS = const(500)  # no transfer takes so long: the I2S is stuck
_LATE_MS = const(100)  # poll was kept from coming, and perhaps the callback too: no time to judge the I2S
_ITEMS = const(8)  # items in the ring at once
_PAST = const(13)  # wire samples that a filter holds back, at most
_DRY = const(2)


class Speaker:
    def __init__(self, i2s, *, encoding, rate, dac_rate, ring_bytes, dma_ms, prefill_ms=40, reopen=None):
        # i2s: a TX object like machine.I2S, 16 bits, mono, at dac_rate, that holds dma_ms of audio. Playback begins when
        # prefill_ms of it are there, or have been waited for. reopen() makes a new I2S when it is stuck. Raises
        # ConfigError for a format it cannot play.
        from vrt.audio.formats import speaker  # noqa: PLC0415  (forgotten again)

        width, self._ratio, past = speaker(encoding, rate, dac_rate, ring_bytes)
        self._width = width  # bytes of a wire sample
        self.rate = rate
        self._count = rate * _CHUNK_MS // 1000  # wire samples of a chunk
        self._ring = RingIO(bytearray(ring_bytes // width * width + 1))  # one byte stays spare
        n = dac_rate * _CHUNK_MS // 1000 * 2
        self._buffers = (array("h", bytes(n)), array("h", bytes(n)))
        self._work = array("H", bytes(2 * (past + self._count))) if self._ratio != 2 else None
        self.prefill_ms = prefill_ms
        self.dma_ms = dma_ms
        self.volume = -1  # of the volume, 32768 is full; -1: full, and nobody asks for the level
        self.level = 0  # the level of the loudest chunk, until somebody sets it to 0 again

        # Places count wire samples since the speaker last rested.
        self._queue = []  # (id, place of its first sample), oldest first
        # _next is the chunk that is not the I2S's. Once made, it is handed over in the callback, or by poll while nothing is
        # outstanding.
        self._next = 0
        self._running = False  # a transfer is outstanding
        self._changed = False  # one has ended since the last poll
        self._seen = self._polled = 0  # when that was seen, and when poll last came
        self.playing = False  # from the first sample until the last one has left
        self._rest()
        self.frames = 0  # received
        self.dropped = 0  # of them, those that did not fit, or fit in part
        self.underruns = 0  # times an item went on after the ring had run dry
        self.stalls = 0  # times the I2S was stuck and opened again
        self.reopen = reopen
        self.i2s = i2s
        i2s.irq(self._advance)

    def begin(self, item):
        # The frames to come belong to this item, whose id is a text; None: nobody shall hear what became of it. False: too many
        # items wait, and its audio will be dropped.
        items = self._queue
        if not self.playing and not self._ring.any():
            items.clear()
            self.received = self.sent = 0
        while len(items) > 1 and self.sent >= items[1][1]:
            items.pop(0)
        self._open = len(items) < _ITEMS
        if self._open:
            items.append((item, self.received))
        if self.waiting:
            self.waiting = 1
        return self._open

    def write(self, buf, start, n):
        # One frame's payload, buf[start:start+n], of the item begun last. Returns how many bytes were taken; the rest, the
        # newest, is dropped and counted.
        self.frames += 1
        n -= n % self._width
        took = self._ring.write(buf, start, n) if self._open and n else 0  # type: ignore[call-arg]  (the stubs know one argument)
        if took < n:
            self.dropped += 1
        if took:
            self.received += took // self._width
            if self.waiting == _DRY:
                self.waiting = 1
                self.underruns += 1
        return took

    def poll(self, now):
        # Moves audio on. True once when playback is done: the last sample has left, or has been flushed and silence left.
        if self._changed or not self.playing or diff(now, self._polled) > _LATE_MS:
            self._changed = False
            self._seen = now
        self._polled = now
        while self._ready < 0 and self._due(now):
            self._make()
            if not self._running:
                self._seen = now
                self._advance(self.i2s)
        if self._running:
            if diff(now, self._seen) > _STALL_MS:
                self.stalls += 1
                self._seen = now
                if self.reopen:
                    self.i2s.deinit()
                    self.i2s = self.reopen()
                    self.i2s.irq(self._advance)
                    self._advance(self.i2s)
        elif self.waiting and self.playing and not self._ring.any():
            self.playing = False
            return True
        return False

    def flush(self):
        # Silence: nothing that waits is played. Returns [(item id, milliseconds of it that are heard)] of the items that
        # were not played to their end, as far as it was received.
        self._ready = -1  # from here on the callback hands nothing over
        cut = []
        end = self.received
        newest = self._open
        for item, start in reversed(self._queue):
            heard = max(0, min(self.sent, end) - start)
            if item and (start + heard < end or (newest and (self.playing or start == end))):
                cut.insert(0, (item, heard * 1000 // self.rate))
            newest = False
            end = start
        self._queue.clear()
        while self._ring.readinto(self._buffers[self._next], self._count):  # nobody uses that chunk now
            pass
        self._rest()
        return cut

    def close(self):
        self.i2s.deinit()

    def _rest(self):
        # As it is at first, but for what the I2S still has.
        self._open = False  # the newest item takes audio
        self.received = self.sent = 0
        self._ready = -1  # the place where the chunk ends that is made and not handed over
        self.waiting = 1  # the ring is to fill up before the next sample of sound; _DRY: it ran dry, and the item may go on
        self._since = None  # when it began to
        self._silence = 0  # wire samples of silence made since the last one of sound
        work = self._work
        if work:
            dsp.decode(work, 0, work, 0, len(work), 2)

    def _due(self, now):
        # Whether to make a chunk now. The sound begins when enough waits. Less than a whole chunk is cut off by silence only
        # when the DMA would run out soon.
        have = self._ring.any()
        if self.waiting:
            if not have:
                self._since = None
            else:
                if self._since is None:
                    self._since = now
                enough = self.prefill_ms * self.rate // 1000 * self._width
                if have >= enough or diff(now, self._since) >= self.prefill_ms:
                    self._since = None
                    self.waiting = 0
                    self.playing = True
            if self.waiting:
                return self.playing and self._silence < self.rate * self.dma_ms // 1000 + _PAST
        return have >= self._count * self._width or diff(now, self._seen) >= self.dma_ms - _MARGIN_MS

    def _make(self):
        # The next chunk: what the ring has, then silence.
        chunk = self._buffers[self._next]
        work = self._work or chunk
        count = self._count
        width = self._width
        n = 0
        if not self.waiting:
            n = self._ring.readinto(chunk, count * width) // width
            self._silence = -n
            if n < count:
                self.waiting = _DRY
        self._silence += count
        past = len(work) - count
        if self._ratio == 2:
            width = 0
        dsp.decode(chunk, n, work, past, past + count, width)
        if n and self.volume >= 0:
            level = dsp.volume(work, past, n, self.volume, 0x8000 if width else 0)
            self.level = max(self.level, level)
        if width:
            dsp.resample(work, count, chunk, self._ratio)
        self._ready = self.sent + n

    def _advance(self, i2s):
        # Hands over the next chunk, if it is ready. Also the I2S's callback, from the scheduler: between any two steps of the
        # other methods.
        if i2s is self.i2s:
            self._changed = True
            ready = self._ready
            self._running = ready >= 0
            if self._running:
                self.sent = ready
                self._ready = -1
                k = self._next
                self._next = 1 - k
                i2s.write(self._buffers[k])
