# Chips on the I2C bus that sound passes through. Each driver is a file of its own, imported by the board that has the chip.
from micropython import const

from vrt.errors import ConfigError

_TRIES = const(3)  # a chip that wakes up, or a disturbed wire, may cost one


class Chip:
    # Registers of one byte, on machine.I2C or what looks like it. `bus`: how to name it, such as "SDA 8, SCL 18".
    # Every method raises ConfigError when the chip has never answered: then it may not be there. Later it is an OSError, an
    # accident that a start anew may mend.
    def __init__(self, i2c, address, name, bus):
        self.i2c = i2c
        self.address = address
        self.name = name
        self.bus = bus
        self._byte = bytearray(1)
        self._known = False  # it has answered

    def read(self, register):
        self._transfer(self.i2c.readfrom_mem_into, register)
        return self._byte[0]

    def write(self, register, value):
        self._byte[0] = value
        self._transfer(self.i2c.writeto_mem, register)

    def _transfer(self, move, register):
        for _ in range(_TRIES):
            try:
                move(self.address, register, self._byte)
            except OSError:
                continue
            self._known = True
            return
        raise self.fault("does not answer")

    def setup(self, table):
        # `table`: registers and values, one after the other.
        for i in range(0, len(table), 2):
            self.write(table[i], table[i + 1])

    def expect(self, register, value):
        found = self.read(register)
        if found != value:
            self._known = False
            raise self.fault(
                f"is another chip (register 0x{register:02x} holds 0x{found:02x}, not 0x{value:02x})"
            )

    def fault(self, what):
        kind = OSError if self._known else ConfigError
        return kind(
            f"board: the {self.name} at address 0x{self.address:02x} on the I2C bus ({self.bus}) {what}; "
            "is this the profile of your board, and is everything plugged in?"
        )
