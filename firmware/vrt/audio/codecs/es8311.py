# The ES8311, one ADC and one DAC that share their clocks. It takes its master clock from the bit clock, so that no board
# needs a clock pin for it: 256 ticks a sample are made of 64 (when the I2S receives) or 32 (when it sends).
#
# Register meanings and values: the public drivers espressif/esp-bsp components/es8311 and espressif/esp-adf
# components/esp_codec_dev/device/es8311 (es8311_reg.h names the registers). Not run on hardware yet.
import time

from micropython import const

from vrt.audio.codecs import Chip
from vrt.errors import ConfigError

_RESET = const(0x00)
_CLOCK2 = const(0x02)  # multiplier of the master clock: 0 to 3 for 1, 2, 4, 8, from bit 3 on
_DAC_OSR = const(0x04)  # how often the DAC oversamples
_DAC_POWER = const(0x12)
_ADC_VOLUME = const(0x17)  # 0xbf: 0 dB; 0: silent
_DAC_MUTE = const(0x31)
_DAC_VOLUME = const(0x32)  # half decibels from -95.5; 0xbf: 0 dB
_ID1 = const(0xFD)
_ID2 = const(0xFE)

# Registers and values, one after the other.
_SETUP = (
    b"\x44\x08\x44\x08"  # against noise on the I2C; twice, because the first write after power-up may be lost
    b"\x00\x80"  # the state machine runs, as a peripheral of the I2S
    b"\x01\xbf"  # every clock on; the master clock is the bit clock
    b"\x03\x10"  # the ADC oversamples 16 times, single speed
    b"\x05\x00\x06\x03\x07\x00\x08\xff"  # dividers: 1 for ADC and DAC; those of a controller are unused
    b"\x09\x0c\x0a\x0c"  # 16 bits, I2S, in and out, left channel
    b"\x0b\x00\x0c\x00\x10\x1f\x11\x7f"  # power-up times and references
    b"\x0d\x01"  # analog part on
    b"\x0e\x02"  # amplifier of the microphone and ADC on
    b"\x13\x10"  # output driver on
    b"\x14\x1a"  # analog microphone, 30 dB
    b"\x15\x40\x16\x24"  # ADC: ramp, gain 24 dB
    b"\x1b\x0a\x1c\x6a"  # no equaliser, no offset
    b"\x37\x08"  # no equaliser of the DAC
    b"\x45\x00"
)


class ES8311(Chip):
    # Raises ConfigError when the chip is not there, or is another one.
    def __init__(self, i2c, bus, address=0x18):
        Chip.__init__(self, i2c, address, "ES8311", bus)
        self.expect(_ID1, 0x83)
        self.expect(_ID2, 0x11)
        self.write(_RESET, 0x1F)
        time.sleep_ms(20)
        self.write(_RESET, 0x00)
        self.setup(_SETUP)
        self.volume(80)
        self.mute(True)

    def listen(self, rate):
        # From here on the ADC is heard. The I2S runs, 64 bits a sample.
        self.mute(True)
        self.write(_DAC_POWER, 0x02)
        self._clock(rate, 2)
        self.write(_ADC_VOLUME, 0xBF)

    def play(self, rate):
        # From here on the DAC plays. The I2S runs, 32 bits a sample.
        self.write(_ADC_VOLUME, 0x00)
        self._clock(rate, 3)
        self.write(_DAC_POWER, 0x00)
        self.mute(False)

    def volume(self, percent):
        # 0 is silent, 100 is 0 dB.
        self.write(_DAC_VOLUME, 0 if percent <= 0 else 0x5F + min(percent, 100) * 0x60 // 100)

    def mute(self, on):
        self.write(_DAC_MUTE, 0x60 if on else 0x00)

    def _clock(self, rate, multiplier):
        if rate not in (16000, 24000):
            raise ConfigError(f"board: the ES8311 runs at 16000 or 24000 Hz, not {rate}")
        self.write(_CLOCK2, multiplier << 3)
        self.write(_DAC_OSR, 0x20 if rate == 16000 else 0x10)
