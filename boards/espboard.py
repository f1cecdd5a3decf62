# The hardware of real boards: what board.json describes, built on `machine`. A board's board.py starts it and offers its names,
# which boards/sim/README.md lists. (It is not called esp32.py: MicroPython's own module of that name would be found first.)
# ruff: noqa: PLC0415, PLW0603  (what a board does not have is not imported; this module is the board)
import json
import select
import time

import espsound
import machine
from machine import Pin
from micropython import const

storage = "/"  # where the firmware keeps its files

_SLICE_MS = const(5)  # so soon what the hardware has to say is noticed
_PROMPT_MS = const(3_600_000)  # what the firmware sets the watchdog to when it ends
_RUNS = b"vrt"  # in the memory that a reset leaves as it is: the firmware runs
_SECRET = ("token", "password", "key", "auth")  # fields that never reach the log

NAME = ""
DESCRIPTION = {}
_made = {}  # what board.json says
_pin = {}  # Output by name
_button = None  # Pin
_light = None  # espled.Light
_link = 0  # what `wait` was told to look at, or None; at first neither
_events = None  # poll() of that
_dog = None  # WDT
_cause = None  # of the start, in a word


# --- what the firmware may call


def microphone():
    return espsound.Port(0)


def speaker():
    return espsound.Port(1)


def button():
    return _button is not None and _button.value() == _made["button"]["active"]


def led(state):
    if _light:
        _light.show(state, time.ticks_ms())


def output(name):
    return _pin[name]


def safe():
    # Every output takes its safe level, and nothing makes a sound any more: the firmware ends, and a reset may come. The I2S is
    # closed, so that it is free after a soft reset.
    for one in _pin.values():
        one.value(one.safe)
    machine.RTC().memory(b"")
    for port in espsound.ports:
        if port:
            try:
                port.deinit()
            except Exception as error:  # a chip that is gone keeps nobody from ending
                print("vrt:", error)


def wait(link, wait_ms):
    # Sleeps until the link or the hardware has something, at most so long; the I2S's callbacks run meanwhile. Returns whether
    # the link has something.
    global _link, _events
    if _dog:
        _dog.feed()
    if link is not _link:
        _link = link
        _events = None
        if link is not None:
            _events = select.poll()
            _events.register(link, 1)  # POLLIN
    if espsound.ports[0]:
        espsound.ports[0].again()
    start = now = time.ticks_ms()
    left = wait_ms
    readable = False
    while True:
        if _light:
            _light.step(now)
        pause = _SLICE_MS if left > _SLICE_MS else left
        if _events:
            for _ in _events.ipoll(pause):
                readable = True
        else:
            time.sleep_ms(pause)
        now = time.ticks_ms()
        left = wait_ms - time.ticks_diff(now, start)
        if readable or espsound.woken or left <= 0:
            break
    espsound.woken = False
    return readable


def event(kind, **fields):
    fields["event"] = kind
    for name in _SECRET:
        if name in fields:
            fields[name] = "(hidden)"
    print(json.dumps(fields))


def config():
    with open(storage + "config.json") as file:
        return json.load(file)


def restart():
    machine.RTC().memory(b"")
    machine.reset()


def reset_cause():
    # Why the chip started, in a word. `watchdog`: while the firmware ran, and not by its doing; that, or the system under it
    # failed, which the port does not tell from machine.reset().
    global _cause
    if _cause is None:
        words = {
            machine.PWRON_RESET: "power",
            machine.HARD_RESET: "reset",
            machine.WDT_RESET: "watchdog",
            machine.DEEPSLEEP_RESET: "sleep",
            machine.SOFT_RESET: "soft",
        }
        _cause = words.get(machine.reset_cause(), "unknown")
        memory = machine.RTC().memory
        if _cause in ("reset", "watchdog"):
            _cause = "watchdog" if memory() == _RUNS else "reset"
        memory(_RUNS)  # the start counts: until `safe`, no reset is wanted
    return _cause


def watchdog(ms):
    # The board restarts when `wait` is not called for so long. It cannot be switched off again.
    global _dog
    _dog = machine.WDT(timeout=ms)
    machine.RTC().memory(_RUNS if ms < _PROMPT_MS else b"")


def _serial():
    # The port of the serial link.
    import espserial

    return espserial.stream(_made["serial"])


def wlan():
    import network

    return network.WLAN(network.STA_IF)


# --- the rest


class Output:
    # A relay, a lock, a light: a pin with an effect in the world. It takes its safe level when it is made.
    def __init__(self, name, entry):
        self.name = name
        self.safe = self.level = entry["safe"]
        self.pin = Pin(entry["pin"], Pin.OUT, value=self.safe)

    def value(self, level=None):
        if level is None:
            return self.level
        level = 1 if level else 0
        self.pin.value(level)
        if level != self.level:
            self.level = level
            event("output", name=self.name, value=level)
        return None


def start(file):
    # `file`: the board's board.py, which board.json is beside. First of all the pins take the levels that they must have.
    global NAME, DESCRIPTION, _made, _button, _light, serial, volume
    with open(file[: file.rfind("/") + 1] + "board.json") as text:
        made = _made = json.load(text)
    for name, entry in made["outputs"].items():
        _pin[name] = Output(name, entry)
    for entry in made.get("held", {}).values():
        Pin(entry["pin"], Pin.OUT, value=entry["level"])
    espsound.made = made
    try:
        espsound.amplify(0)
    except Exception as error:  # no expander: told again, and better, when sound is wanted
        print("vrt:", error)
    if "button" in made:
        pulls = {"up": Pin.PULL_UP, "down": Pin.PULL_DOWN, None: None}
        _button = Pin(made["button"]["pin"], Pin.IN, pulls[made["button"]["pull"]])  # type: ignore[arg-type]
    if "led" in made:
        from espled import Light

        _light = Light(made["led"])
    if "serial" in made:
        serial = _serial
    if "codec" in made["speaker"]:
        volume = espsound.volume
    NAME = made["id"]
    DESCRIPTION = {
        "id": NAME,
        "mic_rate": made["microphone"]["rate"],
        "mic_dma_ms": _dma_ms(made["microphone"], 8),
        "dac_rate": made["speaker"]["rate"],
        "dma_ms": _dma_ms(made["speaker"], 2),
        "duplex": made["duplex"],
    }


def _dma_ms(entry, size):
    # How much sound the DMA holds in frames of so many bytes, rounded up: blocks of 256 frames, at least 2 (ports/esp32/machine_i2s.c).
    blocks = max(2, entry["ibuf"] // (256 * size))
    return -(-blocks * 256 * 1000 // entry["rate"])
