# What the LED shows of the device's state: a rhythm, which no two states have in common, and a colour where it has one. So whoever
# sees no colours, or has an LED of one, can tell them all apart.
from machine import Pin
from micropython import const

_SLOT_MS = const(125)  # a rhythm is 16 of these, the lowest bit first, over and over
_BRIGHT = const(40)  # of 255: a chain of LEDs blinds, and takes current

# state: (red, green, blue, rhythm)
_STATES = {
    "off": (0, 0, 0, 0x0000),
    "connecting": (0, 0, 1, 0x00FF),  # a second on, a second off
    "idle": (0, 0, 1, 0x0001),  # a flash now and then
    "listening": (0, 1, 0, 0xFFFF),  # steady
    "thinking": (1, 1, 0, 0x3333),  # twice a second
    "speaking": (0, 1, 1, 0x7777),  # on, with gaps
    "confirm": (1, 0, 1, 0x5555),  # four times a second
    "muted": (1, 0, 0, 0x0005),  # two flashes
    "error": (1, 0, 0, 0x0015),  # three flashes
    "wifi": (0, 0, 1, 0x0055),  # four flashes
    "denied": (1, 0, 0, 0x0155),  # five flashes
    "setup": (1, 1, 1, 0x0F0F),  # half a second on, half a second off
    "update": (1, 1, 1, 0x7FFF),  # on, with a short gap
    "forget": (1, 0, 0, 0x0777),  # three long flashes
}
_DARK = (0, 0, 0)


class Light:
    # `entry`: the member `led` of board.json. Dark at first.
    def __init__(self, entry):
        self.kind = kind = entry["kind"]
        self.count = entry.get("count", 1)
        self.off = 1 - entry.get("active", 1)  # the level that is dark
        numbers = entry["pins"] if "pins" in entry else [entry["pin"]]
        if kind == "ws2812":
            import neopixel  # noqa: PLC0415

            self.chain = neopixel.NeoPixel(Pin(numbers[0], Pin.OUT), self.count)
        else:
            level = self.off if kind in ("gpio", "rgb") else 0
            self.pins = [Pin(number, Pin.OUT, value=level) for number in numbers]
        self.state = "off"
        self.color = _DARK  # of the state, as the LED takes it
        self.since = 0  # when it began
        self.lit = True  # neither: the first step writes
        self._write(False)

    def show(self, state, now):
        if state != self.state:
            self.state = state
            self.since = now
            self.color = _STATES[state][:3]
            if self.kind == "ws2812":
                self.color = tuple([_BRIGHT * part for part in self.color])
            self._write(_STATES[state][3] & 1 == 1, True)

    def step(self, now):
        # To be called often; writes only what changes, and allocates nothing.
        slot = ((now - self.since) & 0x3FFFFFFF) // _SLOT_MS % 16
        self._write(_STATES[self.state][3] >> slot & 1 == 1)

    def _write(self, lit, anew=False):
        if lit == self.lit and not anew:
            return
        self.lit = lit
        color = self.color if lit else _DARK
        if self.kind == "gpio":
            self.pins[0].value(self.off ^ lit)
        elif self.kind == "rgb":
            for i in range(3):
                self.pins[i].value(self.off ^ color[i])
        elif self.kind == "ws2812":
            self.chain.fill(color)
            self.chain.write()
        else:
            self._apa102(color)

    def _apa102(self, color):
        # 32 zeros; for each LED 111, five bits of brightness, blue, green, red; then half a tick for each LED.
        self._shift(0, 32)
        for _ in range(self.count):
            self._shift(0xE4, 8)
            for i in (2, 1, 0):
                self._shift(255 * color[i], 8)
        self._shift(0xFFFFFFFF >> 4, 32 + self.count // 2)

    def _shift(self, value, bits):
        data, clock = self.pins
        for i in range(bits - 1, -1, -1):
            data.value(value >> i & 1 if i < 28 else 0)
            clock.value(1)
            clock.value(0)
