# The speaker: what the host sends, by items, to samples for the I2S; and how much of each item truly leaves.
#
# Wire bytes wait in a ring. Three buffers of 16 ms take turns: the I2S takes one while `poll` makes the others, and the
# callback hands over the next. When the ring runs dry the rest is silence, until the DMA holds nothing else: then the last
# sample has left, playback is done, and the I2S rests. A transfer cannot be called back, so what has been handed over
# counts as heard: it will be. Only the constructor, `begin`, `flush` and a re-opening allocate.
from array import array

from micropython import const

from vrt.audio import dsp
from vrt.audio.ring import Ring
from vrt.errors import ConfigError
from vrt.ticks import diff

_CHUNK_MS = const(16)  # flush cannot take back a transfer; and each costs a callback
_CHUNKS = const(3)
_MARGIN_MS = const(20)  # poll comes at least so often
_STALL_MS = const(500)  # no transfer takes so long: the I2S is stuck
_LATE_MS = const(100)  # poll was kept from coming, and perhaps the callback too: no time to judge the I2S
_ITEMS = const(8)  # items in the ring at once


def _filter(encoding, rate, dac_rate):
    # The kernel that converts the format's rate to the DAC's (None: they are the same) and how far it looks back.
    if encoding not in ("pcmu", "pcm16") or (encoding == "pcmu" and rate != 8000):
        raise ConfigError(f"a speaker plays pcmu at 8000 Hz or pcm16, not {encoding} at {rate}")
    if rate == dac_rate and encoding == "pcm16":
        return None, 0
    if rate * 2 == dac_rate:
        return dsp.double, dsp.DOUBLE_PAST
    if rate * 3 == dac_rate:
        return dsp.thrice, dsp.THRICE_PAST
    raise ConfigError(
        f"a DAC at {dac_rate} Hz cannot play {encoding} at {rate} Hz, only at its rate, half or a third"
    )


class Speaker:
    def __init__(self, i2s, *, encoding, rate, dac_rate, ring_bytes, dma_ms, prefill_ms=40, reopen=None):
        # i2s: a TX object like machine.I2S, 16 bits, mono, at dac_rate, that holds dma_ms of audio. Playback begins when
        # prefill_ms of it are there, or have been waited for. reopen() makes a new I2S when it is stuck. Raises
        # ConfigError for a format it cannot play.
        self._convert, self._past = _filter(encoding, rate, dac_rate)
        self._decode = dsp.decode_ulaw if encoding == "pcmu" else dsp.centre
        self._width = 1 if encoding == "pcmu" else 2  # bytes of a wire sample
        self._rate = rate
        self._count = rate * _CHUNK_MS // 1000  # wire samples of a chunk
        self._bytes = self._count * self._width
        frames = dac_rate * _CHUNK_MS // 1000
        self._ring = Ring(ring_bytes)
        self._chunks = [array("h", bytes(2 * frames)) for _ in range(_CHUNKS)]
        self._wire = bytearray(self._count) if encoding == "pcmu" else array("h", bytes(2 * self._count))
        self._work = array("H", b"\x00\x80" * (self._past + self._count))
        self._prefill = rate * prefill_ms // 1000 * self._width
        self._prefill_ms = prefill_ms
        self._depth = rate * dma_ms // 1000 + self._past  # wire samples until what was made last has left
        self._patience_ms = dma_ms - _MARGIN_MS

        # Places count wire samples since the speaker last rested.
        self._items = []  # (id, place of its first sample), oldest first
        self._open = False  # the newest item takes audio
        self._received = self._taken = self._handed = 0
        self._ends = array("i", bytes(4 * _CHUNKS))  # by chunk: the place where it ends
        # Chunks from _next up to _made, round, are ready. Only poll and flush write _made, only _go_on writes _next: in the
        # callback, or while nothing is outstanding.
        self._next = self._made = 0
        self._held = False  # the callback may not hand over
        self._running = False  # a transfer is outstanding
        self._moved = False  # one has ended since the last poll
        self._progress = self._polled = 0  # when that was seen, and when poll last came

        self.playing = False  # from the first sample until the last one has left
        self._hungry = True  # the ring is to fill up before the next sample of sound
        self._since = None  # when it began to
        self._starved = False  # the ring ran dry, and the item may go on
        self._still = 0  # wire samples of silence made since the last one of sound
        self.frames = 0  # received
        self.dropped = 0  # of them, those that did not fit, or fit in part
        self.underruns = 0  # times an item went on after the ring had run dry
        self.stalls = 0  # times the I2S was stuck and opened again
        self._reopen = reopen
        self._callback = self._on_taken
        self._attach(i2s)

    def begin(self, item_id):
        # The frames to come belong to this item. False: too many items wait, and its audio will be dropped.
        if not self.playing and not self._ring.readable():
            self._items.clear()
            self._received = self._taken = self._handed = 0
        while len(self._items) > 1 and self._handed >= self._items[1][1]:
            self._items.pop(0)
        self._open = len(self._items) < _ITEMS
        if self._open:
            self._items.append((item_id, self._received))
        self._starved = False
        return self._open

    def write(self, buf, off, n):
        # One frame's payload, buf[off:off+n], of the item begun last. Returns how many bytes were taken; the rest, the
        # newest, is dropped and counted.
        self.frames += 1
        n -= n % self._width
        room = self._ring.writable() if self._open else 0
        if n > room:
            n = room - room % self._width
            self.dropped += 1
        if not n:
            return 0
        if self._starved:
            self._starved = False
            self.underruns += 1
        self._ring.write(buf, off, n)
        self._received += n // self._width
        return n

    def poll(self, now):
        # Moves audio on. True once when playback is done: the last sample has left, or has been flushed and silence left.
        if self._moved or diff(now, self._polled) > _LATE_MS:
            self._moved = False
            self._progress = now
        self._polled = now
        if self._hungry and self._filled(now):
            self._hungry = False
            self.playing = True
        while (self._made - self._next) % _CHUNKS < _CHUNKS - 1 and self._due(now):
            self._make()
            self._made = (self._made + 1) % _CHUNKS
            if not self._running:
                self._progress = now
                self._go_on()
        if self._hungry and self.playing and not self._running and not self._ring.readable():
            self.playing = False
            return True
        if self._running and diff(now, self._progress) > _STALL_MS:
            self._restart(now)
        return False

    def flush(self):
        # Silence: nothing that waits is played. Returns [(item id, milliseconds of it that are heard)] of the items that
        # were not played to their end, as far as it was received.
        self._held = True
        self._made = self._next
        self._held = False
        cut = []
        end = self._received
        for k in range(len(self._items) - 1, -1, -1):
            item_id, start = self._items[k]
            heard = max(0, min(self._handed, end) - start)
            newest = self._open and k == len(self._items) - 1
            if start + heard < end or (newest and (self.playing or start == end)):
                cut.insert(0, (item_id, heard * 1000 // self._rate))
            end = start
        self._items.clear()
        self._open = False
        self._received = self._taken = self._handed = 0
        self._ring.clear()
        self._hungry, self._since, self._starved, self._still = True, None, False, 0
        dsp.fill(self._work, 0, self._past, 0x8000)
        return cut

    def close(self):
        self._i2s.deinit()

    def _attach(self, i2s):
        self._i2s = i2s
        i2s.irq(self._callback)

    def _filled(self, now):
        # Whether enough waits for the sound to begin.
        have = self._ring.readable()
        if not have:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if have < self._prefill and diff(now, self._since) < self._prefill_ms:
            return False
        self._since = None
        return True

    def _due(self, now):
        # Whether to make a chunk now. Less than a whole one is cut off by silence only when the DMA would run out soon.
        if self._hungry:
            return self.playing and self._still < self._depth
        return self._ring.readable() >= self._bytes or diff(now, self._progress) >= self._patience_ms

    def _make(self):
        # The next chunk: what the ring has, then silence.
        k = self._made
        target = self._wire if self._convert else self._chunks[k]
        count = self._count
        n = 0
        if not self._hungry:
            n = self._ring.readinto(target, self._bytes) // self._width
        if n == count:
            self._still = 0
        else:
            self._still = count - n if n else self._still + count
            if not self._hungry:
                self._hungry = self._starved = True
        if self._convert:
            self._decode(target, n, self._work, self._past)
            if n < count:
                dsp.fill(self._work, self._past + n, self._past + count, 0x8000)
            self._convert(self._work, count, self._chunks[k])
        else:
            dsp.fill(target, n, count, 0)
        self._taken += n
        self._ends[k] = self._taken

    def _go_on(self):
        # Hands over the next chunk, if one is ready.
        k = self._next
        self._running = k != self._made and not self._held
        if self._running:
            self._handed = self._ends[k]
            self._next = (k + 1) % _CHUNKS
            self._i2s.write(self._chunks[k])

    def _on_taken(self, i2s):
        # The I2S's callback, from the scheduler: between any two steps of the other methods.
        if i2s is self._i2s:
            self._moved = True
            self._go_on()

    def _restart(self, now):
        self.stalls += 1
        self._progress = now
        if self._reopen:
            self._i2s.deinit()
            self._attach(self._reopen())
            self._go_on()
