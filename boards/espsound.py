# Microphone and speaker of real boards on machine.I2S, with what they need beside it: codec, master clock, amplifier.
# ruff: noqa: PLC0415, PLW0603  (what a board does not have is not imported; the board is there once)
import gc

import machine
from machine import I2S, Pin

made = {}  # what board.json says
woken = False  # the microphone has something for the firmware
ports = [None, None]  # the Port of the microphone and that of the speaker
_parts = {}  # codecs and expander, made when they are wanted
_amplifier = None  # has .value(level), like a Pin


class Port:
    # One direction of sound, as machine.I2S offers it in IRQ mode. Where a codec shares its clocks, only one direction has the
    # hardware: the speaker takes it to play, the microphone while nothing is handed over to play.
    def __init__(self, k):
        # k: 0 receives, 1 sends. Raises ConfigError when a chip is missing.
        self.k = k
        self.entry = made["speaker" if k else "microphone"]
        self.handler = None
        self.i2s = None  # machine.I2S while this direction has the hardware
        self.clock = None  # a second one that makes the master clock
        self.buf = None  # of the transfer that is outstanding
        self.pairs = (
            None  # MONO receives the left slot; where the right one is wanted, both of a frame of 20 ms
        )
        if not k and self.entry["slot"] == "right":
            from array import array

            self.pairs = array("h", bytes(4 * (self.entry["rate"] // 50)))
        self.done = self._done
        ports[k] = self  # type: ignore[call-overload]
        if "codec" in self.entry:
            _codec(self.entry["codec"])
        if k or _amplifier is None:  # its expander may hold what the microphone needs
            amplify(0)
        if made["duplex"] == "full":
            self.take()

    def irq(self, handler):
        self.handler = handler

    def write(self, buf):
        self.buf = buf  # from here on the microphone does not take the hardware
        if self.i2s is None:
            self.take()
        return self.i2s.write(buf)

    def readinto(self, buf):
        self.buf = buf
        if self.i2s is None:
            if playing():
                return 2 * len(buf)  # `again` sees to it
            self.take()
        return self.i2s.readinto(self.pairs or buf)

    def again(self):
        # To be called now and then: a read that the speaker has kept from the hardware, or taken it from. It ends with what the
        # buffer held, since in half duplex nobody listens meanwhile.
        if self.i2s is None and self.buf is not None:
            if playing():
                self._done(None)
            else:
                self.readinto(self.buf)

    def take(self):
        # Takes the hardware. The I2S runs before the codec is told and the amplifier is on.
        entry = self.entry
        other = ports[1 - self.k]
        if other and made["duplex"] == "half":
            other.give()
        unit, rate = entry["unit"], entry["rate"]
        pins = entry["pins"]
        lines = (pins["sck"], pins["ws"], pins["sd"])
        mode = I2S.TX if self.k else I2S.RX
        slots = I2S.STEREO if self.pairs else I2S.MONO
        i2s = _open(unit, lines, mode=mode, bits=16, format=slots, rate=rate, ibuf=entry["ibuf"])
        i2s.irq(self.done)
        if "mck" in pins:
            # 256 ticks a sample: the bit clock of the other unit at four times the rate, 64 bits a sample. PWM can be 0.2 % off,
            # since it divides 80 MHz in steps, and a codec out of step loses samples. Word select and data of that unit
            # have no use: they go to the speaker's data pin, whose amplifier is off.
            idle = made["speaker"]["pins"]["sd"]
            lines = (pins["mck"], idle, idle)
            self.clock = _open(
                1 - unit, lines, mode=I2S.TX, bits=32, format=I2S.STEREO, rate=4 * rate, ibuf=4096
            )
        self.i2s = i2s
        if "codec" in entry:
            codec = _codec(entry["codec"])
            if self.k:
                codec.play(rate)
            else:
                codec.listen(rate)
        if self.k:
            amplify(1)

    def give(self):
        # The other direction takes the hardware. `again` sees to a read that is under way.
        if self.i2s is None:
            return
        try:
            if self.k:
                amplify(0)
        finally:
            if self.clock:
                self.clock.deinit()
            self.i2s.deinit()
            self.i2s = self.clock = None

    def deinit(self):
        self.buf = None
        self.give()

    def _done(self, i2s):
        global woken
        buf = self.buf
        if i2s is self.i2s and buf is not None:
            self.buf = None
            pairs = self.pairs
            if pairs and i2s:
                for i in range(len(buf)):
                    buf[i] = pairs[2 * i + 1]
            if not self.k:
                woken = True
            self.handler(self)  # type: ignore[misc]


def playing():
    # Whether the speaker has something to play.
    return ports[1] is not None and ports[1].buf is not None


def amplify(on):
    # Raises ConfigError when the expander that switches the amplifier is not there.
    global _amplifier
    entry = made["speaker"].get("amplifier")
    if entry is None:
        return
    if _amplifier is None:
        if "pin" in entry:
            _amplifier = Pin(entry["pin"], Pin.OUT, value=1 - entry["on"])
        else:
            from vrt.audio.codecs.expander import KINDS

            chip = KINDS[entry["expander"]]
            _amplifier = chip(*_bus(), entry["address"], entry["bits"], entry.get("held", 0))
    _amplifier.value(entry["on"] if on else 1 - entry["on"])


def volume(percent):
    # Of the codec: 0 is silent, 100 is its full level.
    _codec(made["speaker"]["codec"]).volume(percent)


def _open(unit, lines, **how):
    # `lines`: bit clock, word select, data.
    sck, ws, sd = [Pin(number) for number in lines]
    try:
        return I2S(unit, sck=sck, ws=ws, sd=sd, **how)
    except OSError:  # what a soft reset has left open goes with the garbage
        gc.collect()
        return I2S(unit, sck=sck, ws=ws, sd=sd, **how)


def _bus():
    bus = made["i2c"]
    if "i2c" not in _parts:
        _parts["i2c"] = machine.I2C(bus["unit"], sda=Pin(bus["sda"]), scl=Pin(bus["scl"]), freq=bus["freq"])
    return _parts["i2c"], f"SDA {bus['sda']}, SCL {bus['scl']}"


def _codec(name):
    # The driver of a codec. Raises ConfigError when the chip is not there.
    if name not in _parts:
        if name == "es8311":
            from vrt.audio.codecs.es8311 import ES8311 as Driver
        else:
            from vrt.audio.codecs.es7210 import ES7210 as Driver
        _parts[name] = Driver(*_bus())
    return _parts[name]
