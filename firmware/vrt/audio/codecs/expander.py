# Outputs of an I2C expander that switch an amplifier. Register numbers: datasheets of PI4IOE5V6408 and TCA9555; what the boards
# wire to them: m5stack/uiflow-micropython m5stack/libs/base/echo.py, 78/xiaozhi-esp32 waveshare/esp32-s3-audio-board.
# Not run on hardware yet.
from vrt.audio.codecs import Chip


class PI4IOE5V6408(Chip):
    # Eight pins. `bits`: those that `value` drives; `held`: those that stay high.
    def __init__(self, i2c, bus, address, bits, held=0):
        Chip.__init__(self, i2c, address, "PI4IOE5V6408", bus)
        self.bits = bits
        self.held = held
        self.value(0)  # before they are outputs
        self.write(0x07, 0x00)  # driven, not floating
        self.write(0x0D, 0xFF)  # what is an input is pulled up
        self.write(0x03, bits | held)

    def value(self, level):
        self.write(0x05, self.held | (self.bits if level else 0))


class TCA9555(Chip):
    # Sixteen pins in two registers; `bits` and `held` as above. What other pins do stays as it is.
    def __init__(self, i2c, bus, address, bits, held=0):
        Chip.__init__(self, i2c, address, "TCA9555", bus)
        self.bits = bits
        self.held = held
        self.value(0)  # before they are outputs
        for half in (0, 1):
            mask = (bits | held) >> 8 * half & 0xFF
            if mask:
                self.write(6 + half, self.read(6 + half) & ~mask & 0xFF)

    def value(self, level):
        high = self.held | (self.bits if level else 0)
        for half in (0, 1):
            mask = (self.bits | self.held) >> 8 * half & 0xFF
            if mask:
                others = self.read(2 + half) & ~mask & 0xFF
                self.write(2 + half, others | (high >> 8 * half & 0xFF))


KINDS = {"pi4ioe5v6408": PI4IOE5V6408, "tca9555": TCA9555}
