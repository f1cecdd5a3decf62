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

_SETUP = (
    *(0x00, 0xFF, 0x00, 0x41),  # reset
    *(0x01, 0x3F),  # clocks off meanwhile
    *(0x09, 0x30, 0x0A, 0x30),  # times to start and to power up
    *(0x23, 0x2A, 0x22, 0x0A, 0x20, 0x0A, 0x21, 0x2A),  # high-pass filters
    *(0x40, 0x43),  # analog part: 3.3 V
    *(0x41, 0x70, 0x42, 0x70),  # 2.87 V for the microphones
    *(0x07, 0x20, 0x02, 0xC1),  # 32 times oversampling, clock doubled and divided by 1
    *(0x11, 0x60, 0x12, 0x00),  # 16 bits, I2S, no time division
    *(0x43, 0x1A, 0x44, 0x1A, 0x45, 0x00, 0x46, 0x00),  # microphones 1 and 2 on, 30 dB; 3 and 4 off
    *(0x4B, 0x00, 0x4C, 0xFF),  # power for 1 and 2
    *(0x47, 0x08, 0x48, 0x08, 0x49, 0xFF, 0x4A, 0xFF),
    *(0x01, 0x34, 0x06, 0x00),  # their clocks on; nothing is powered down
    *(0x00, 0x71, 0x00, 0x41),  # the state machine starts
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
