# A machine.I2S in IRQ mode whose time the test moves: `run(frames)`. It keeps the rules of the ESP32 port (style of
# ports/esp32/machine_i2s.c): one transfer runs and one waits, a third is lost although the call returns its size; a
# transfer's buffer is used while it runs, not when it is asked for; the callback comes when it is done.
from array import array

BLOCK = 256


class FakeI2S:
    def __init__(self, blocks=4):
        self.blocks = blocks
        self.handler = None
        self.transfers = []  # [buffer, samples of it done]
        self.lost = 0
        self.clock = 0  # frames since the start
        self.stuck = False
        self.closed = False

    def irq(self, handler):
        self.handler = handler

    def deinit(self):
        self.closed = True

    def _ask(self, buf):
        if len(self.transfers) == 2:
            self.lost += 1
        else:
            self.transfers.append([buf, 0])
        return 2 * len(buf)

    def _finish(self):
        del self.transfers[0]
        self.handler(self)


class FakeSpeaker(FakeI2S):
    # `out` holds every sample that has left.
    def __init__(self, blocks=4):
        super().__init__(blocks)
        self.fifo = []
        self.out = array("h")

    def write(self, buf):
        return self._ask(buf)

    def settle(self):
        # Moves what fits into the DMA, and calls back for every transfer that is done.
        while self.transfers and not self.stuck:
            transfer = self.transfers[0]
            buf, done = transfer
            room = (self.blocks - 1) * BLOCK - len(self.fifo)
            step = min(room, len(buf) - done)
            for i in range(done, done + step):
                self.fifo.append(buf[i])
            transfer[1] += step
            if transfer[1] < len(buf):
                return
            self._finish()

    def run(self, frames):
        # Frames go by; `frames` is a multiple of a block. The DMA takes a block at a time, and silence when there is none.
        for _ in range(frames // BLOCK):
            self.settle()
            block = self.fifo[:BLOCK]
            self.fifo = self.fifo[BLOCK:]
            self.out.extend(array("h", block + [0] * (BLOCK - len(block))))
            self.clock += BLOCK
            self.settle()


class FakeMicrophone(FakeI2S):
    # `sound(i)` gives sample i of the left slot, `right(i)` that of the right, of which the first alone is received without it;
    # what nobody reads in time is lost, the oldest first.
    def __init__(self, sound, blocks=4, right=None):
        super().__init__(blocks)
        self.sound = sound
        self.right = right
        self.fifo = []
        self.overflow = 0

    def readinto(self, buf):
        return self._ask(buf)

    def settle(self):
        while self.transfers and not self.stuck:
            transfer = self.transfers[0]
            buf, done = transfer
            step = min(len(self.fifo), len(buf) - done)
            for i in range(step):
                buf[done + i] = self.fifo[i]
            self.fifo = self.fifo[step:]
            transfer[1] += step
            if transfer[1] < len(buf):
                return
            self._finish()

    def run(self, frames):
        for _ in range(frames // BLOCK):
            for i in range(self.clock, self.clock + BLOCK):
                self.fifo.append(self.sound(i))
                if self.right:
                    self.fifo.append(self.right(i))
            self.clock += BLOCK
            self.settle()
            over = len(self.fifo) - (self.blocks - 1) * BLOCK * (2 if self.right else 1)
            if over > 0:
                self.fifo = self.fifo[over:]
                self.overflow += over
