# A `machine` for real boards without a board: what a pin, an I2C bus, the I2S and the rest do as far as it is documented of the ESP32
# port, on a time that the test moves. Its I2S is fake_i2s's: one transfer runs, one waits, a third is lost; the DMA has blocks of 256
# frames, at least two, and 8 bytes of `ibuf` a frame when it receives; callbacks come from the scheduler. It finds two objects
# that drive one clock, and `log` keeps what happened in its order.
import json
import sys
from array import array

from fake_i2s import BLOCK, FakeMicrophone, FakeSpeaker

HERE = __file__.rsplit("/", 1)[0] if "/" in __file__ else "."
BOARDS = HERE + "/../../boards"
NAMES = ("espboard", "espsound", "espled", "espserial")
CODECS = "vrt.audio.codecs"


class Reset(Exception):
    pass


class Pin:
    IN, OUT, PULL_UP, PULL_DOWN = 1, 3, 2, 1

    def __init__(self, number, mode=None, pull=None, value=None):
        self.number = number
        if mode == Pin.OUT:
            machine.pins[number] = machine.pins.get(number, 0) if value is None else value
            machine.log.append(("pin", number, machine.pins[number]))
        elif mode == Pin.IN:
            machine.pins.setdefault(number, 1 if pull == Pin.PULL_UP else 0)
            machine.pulls[number] = pull

    def value(self, level=None):
        if level is None:
            return machine.pins[self.number]
        assert level in (0, 1)
        machine.pins[self.number] = int(level)
        machine.log.append(("pin", self.number, int(level)))
        return None


class I2S:
    RX, TX, MONO, STEREO = 9, 10, 0, 1

    def __init__(self, unit, *, sck, ws, sd, mode, bits, format, rate, ibuf):
        assert unit in (0, 1)
        assert bits in (16, 32)
        if unit in machine.busy:  # a soft reset has left it open
            machine.busy.remove(unit)
            raise OSError(261)
        for other in machine.open.values():
            assert other.unit != unit, "the unit is open"
            assert other.clocks[0] != sck.number, "two objects drive one bit clock"
            assert other.clocks[1] != ws.number, "two objects drive one word select"
        self.unit = unit
        self.mode = mode
        self.rate = rate
        self.bits = bits
        self.clocks = (sck.number, ws.number)
        self.data = sd.number
        frame = 8 if mode == I2S.RX else bits // 8 * (2 if format == I2S.STEREO else 1)
        blocks = max(2, ibuf // (BLOCK * frame))
        right = machine.right if format == I2S.STEREO else None
        self.engine = FakeMicrophone(machine.sound, blocks, right) if mode == I2S.RX else FakeSpeaker(blocks)
        self.engine.handler = self._finished
        self.handler = None
        self.part = 0  # of a frame, in microseconds times the rate
        machine.open[unit] = self
        machine.log.append(("i2s", unit, "rx" if mode == I2S.RX else "tx"))

    def irq(self, handler):
        self.handler = handler

    def write(self, buf):
        assert self.mode == I2S.TX
        return self._ask(buf)

    def readinto(self, buf):
        assert self.mode == I2S.RX
        return self._ask(buf)

    def _ask(self, buf):
        assert self.handler, "blocking mode"
        n = self.engine._ask(buf)
        machine.most = max(machine.most, len(self.engine.transfers))
        machine.lost += self.engine.lost
        return n

    def deinit(self):
        if machine.open.get(self.unit) is self:
            del machine.open[self.unit]
            machine.log.append(("closed", self.unit, "rx" if self.mode == I2S.RX else "tx"))
            if self.mode == I2S.TX:
                machine.played.extend(self.engine.out)

    def _finished(self, engine):
        machine.scheduled.append(self)

    def advance(self, us):
        self.part += us * self.rate
        while self.part >= BLOCK * 1000000:
            self.part -= BLOCK * 1000000
            self.engine.run(BLOCK)


class Chip:
    # Registers on the I2C; those that say which chip it is are given.
    def __init__(self, registers=None):
        self.registers = dict(registers or {})

    def read(self, register):
        return self.registers.get(register, 0)


class I2C:
    def __init__(self, unit, *, sda, scl, freq):
        self.bus = (sda.number, scl.number)

    def _asked(self, address):
        machine.deaf -= 1
        if address not in machine.chips or machine.deaf >= 0:
            raise OSError(19)

    def readfrom_mem_into(self, address, register, buf):
        self._asked(address)
        buf[0] = machine.chips[address].read(register)

    def writeto_mem(self, address, register, buf):
        self._asked(address)
        assert len(buf) == 1
        machine.chips[address].registers[register] = buf[0]
        machine.log.append(("i2c", address, register, buf[0]))


class WDT:
    def __init__(self, timeout):
        self.timeout = timeout
        machine.dog = self
        self.fed = 0

    def feed(self):
        self.fed += 1


class RTC:
    # Its memory keeps what it holds over every reset but that of the power.
    def memory(self, data=None):
        if data is None:
            return machine.kept
        machine.kept = data
        return None


class UART:
    def __init__(self, unit, baudrate, *, tx, rx, rxbuf, txbuf, timeout):
        assert timeout == 0, "reading would wait"
        self.unit, self.baudrate = unit, baudrate
        self.pins = (tx.number, rx.number)
        self.waiting = bytearray()
        self.sent = bytearray()
        self.closed = False
        machine.uart = self

    def any(self):
        return len(self.waiting)

    def readinto(self, buf, n):
        n = min(n, len(self.waiting))
        for i in range(n):
            buf[i] = self.waiting[i]
        self.waiting = self.waiting[n:]
        return n or None

    def write(self, buf, start, n):
        self.sent.extend(buf[start : start + n])
        return n

    def deinit(self):
        self.closed = True


class NeoPixel:
    def __init__(self, pin, count):
        self.pin, self.count = pin, count
        machine.chain = self
        self.colors = None
        self._next = None

    def fill(self, color):
        self._next = color

    def write(self):
        self.colors = self._next


class Machine:
    # What `import machine` gives, and what a test looks at. `sound(i)` is what the left slot's microphone hears,
    # `right(i)` the right one's.
    def __init__(self):
        self.Pin, self.I2S, self.I2C, self.WDT, self.UART, self.RTC = Pin, I2S, I2C, WDT, UART, RTC
        self.kept = b""
        self.now_us = 0
        self.pins = {}  # levels by number
        self.pulls = {}
        self.open = {}  # I2S by unit
        self.busy = set()
        self.scheduled = []  # I2S whose callback is due
        self.chips = {}  # by address
        self.deaf = 0  # requests to come that none of them answers
        self.log = []
        self.played = array("h")  # samples of speakers that were closed
        self.sound = self.right = lambda i: 0
        self.most = self.lost = 0  # transfers outstanding at once; lost ones
        self.dog = self.uart = self.chain = None

    PWRON_RESET, HARD_RESET, WDT_RESET, DEEPSLEEP_RESET, SOFT_RESET = 1, 2, 3, 4, 5
    cause = PWRON_RESET

    def reset_cause(self):
        return self.cause

    def reset(self):
        raise Reset

    def run(self, us):
        # Time goes by; callbacks run as they become due.
        self.now_us += us
        for i2s in list(self.open.values()):
            i2s.advance(us)
            self.callbacks()

    def callbacks(self):
        while self.scheduled:
            i2s = self.scheduled.pop(0)
            i2s.handler(i2s)
            if self.open.get(i2s.unit) is i2s:
                i2s.engine.settle()

    # time

    def ticks_ms(self):
        return self.now_us // 1000

    def ticks_diff(self, a, b):
        return a - b

    def sleep_ms(self, ms):
        for _ in range(ms):
            self.run(1000)

    # select: what is in `readable` is readable

    readable = ()

    def poll(self):
        return Poll()


class Poll:
    def register(self, thing, flags):
        self.thing = thing

    def ipoll(self, ms):
        if self.thing not in machine.readable:
            machine.sleep_ms(ms)
            return []
        return [(self.thing, 1)]


machine = Machine()


def described(name):
    with open(f"{BOARDS}/{name}/board.json") as file:
        return json.load(file)


def fresh(chips=()):
    # A new machine that is switched on, with these chips on its bus; nothing of the board runs yet.
    global machine  # noqa: PLW0603  (the chip is there once)
    machine = Machine()
    machine.chips = dict(chips)
    for name in list(sys.modules):
        if name in NAMES or name.startswith(CODECS):
            del sys.modules[name]
    if BOARDS not in sys.path:
        sys.path.append(BOARDS)
    sys.modules["machine"] = machine  # type: ignore[assignment]
    sys.modules["neopixel"] = Neo  # type: ignore[assignment]
    return machine


class Neo:
    NeoPixel = NeoPixel


def booted(name, chips=()):
    # The board module with that board's description, on a new machine.
    made = fresh(chips)
    import espboard  # noqa: PLC0415

    espboard.time = espboard.select = made
    if 0x18 in made.chips:
        from vrt.audio.codecs import es8311  # noqa: PLC0415

        es8311.time = made
    espboard.start(f"{BOARDS}/{name}/board.py")
    return espboard, made


def codec_chips():
    # Every chip that a board of ours may have, as it identifies itself.
    return {
        0x18: Chip({0xFD: 0x83, 0xFE: 0x11}),
        0x40: Chip({0x3D: 0x72, 0x3E: 0x10}),
        0x43: Chip({0x05: 0xFF}),
        0x20: Chip({0x02: 0xFF, 0x03: 0xFF, 0x06: 0xFF, 0x07: 0xFF}),
    }
