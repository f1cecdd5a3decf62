# The ES7210, four ADCs for microphones, of which the first two are heard: left and right. It needs a master clock of 256
# ticks a sample on a pin of its own, exactly in step with the I2S.
#
# Register meanings and values: the public driver espressif/esp-adf components/esp_codec_dev/device/es7210 (es7210_reg.h names
# the registers). Not run on hardware yet.
from micropython import const

from vrt.audio.codecs import Chip
from vrt.errors import ConfigError

_MODE = const(0x08)
_ID1 = const(0x3D)
_ID0 = const(0x3E)
_MUTE34 = const(0x14)
_MUTE12 = const(0x15)

# Registers and values, one after the other.
_SETUP = (
    b"\x00\xff\x00\x41"  # reset
    b"\x01\x3f"  # clocks off meanwhile
    b"\x09\x30\x0a\x30"  # times to start and to power up
    b"\x23\x2a\x22\x0a\x20\x0a\x21\x2a"  # high-pass filters
    b"\x40\x43"  # analog part: 3.3 V
    b"\x41\x70\x42\x70"  # 2.87 V for the microphones
    b"\x07\x20\x02\xc1"  # 32 times oversampling, clock doubled and divided by 1
    b"\x11\x60\x12\x00"  # 16 bits, I2S, no time division
    b"\x43\x1a\x44\x1a\x45\x00\x46\x00"  # microphones 1 and 2 on, 30 dB; 3 and 4 off
    b"\x4b\x00\x4c\xff"  # power for 1 and 2
    b"\x47\x08\x48\x08\x49\xff\x4a\xff"
    b"\x01\x34\x06\x00"  # their clocks on; nothing is powered down
    b"\x00\x71\x00\x41"  # the state machine starts
)


class ES7210(Chip):
    # Raises ConfigError when the chip is not there, or is another one.
    def __init__(self, i2c, bus, address=0x40):
        Chip.__init__(self, i2c, address, "ES7210", bus)
        self.expect(_ID1, 0x72)
        self.expect(_ID0, 0x10)

    def listen(self, rate):
        # From here on the microphones are heard. The I2S and the master clock run.
        if rate not in (16000, 24000):
            raise ConfigError(f"board: the ES7210 runs at 16000 or 24000 Hz, not {rate}")
        self.write(_MODE, self.read(_MODE) & 0xFE)  # a peripheral of the I2S
        self.setup(_SETUP)
        self.mute(False)

    def mute(self, on):
        self.write(_MUTE12, 0x03 if on else 0x00)
        self.write(_MUTE34, 0x03 if on else 0x00)
