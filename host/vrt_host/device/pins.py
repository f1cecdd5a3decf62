"""What the pins of a chip can do, and what is wrong with a board that uses them otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chip:
    """GPIO numbers: those that exist, those of the flash chip, those that some PSRAM takes, and those to be careful with."""

    name: str
    pins: frozenset[int]
    flash: frozenset[int]
    psram: dict[str, frozenset[int]]
    input_only: frozenset[int]
    cautions: dict[int, str]
    """Why a pin is better left alone."""


_DOWNLOAD = "low at reset it starts the download mode: nothing but a button to ground may pull it low"
_REPL = "it carries the serial console: the board's start-up text appears on it"

CHIPS = {
    "esp32s3": Chip(
        name="ESP32-S3",
        pins=frozenset(range(49)) - {22, 23, 24, 25},
        flash=frozenset(range(26, 33)),
        psram={"none": frozenset(), "quad": frozenset({26}), "octal": frozenset(range(33, 38))},
        input_only=frozenset(),
        cautions={
            0: f"a strapping pin: {_DOWNLOAD}",
            3: "a strapping pin: at reset it may choose where JTAG is",
            45: "a strapping pin: its level at reset chooses the flash chip's voltage, so nothing may pull it high",
            46: "a strapping pin: high at reset it keeps the download mode from starting",
            19: "it is USB D-: used for something else, the board's own USB port is lost",
            20: "it is USB D+: used for something else, the board's own USB port is lost",
            43: _REPL,
            44: _REPL,
        },
    ),
    "esp32": Chip(
        name="ESP32",
        pins=frozenset(range(40)) - {20, 24, 28, 29, 30, 31},
        flash=frozenset(range(6, 12)),
        psram={"none": frozenset(), "quad": frozenset({16, 17}), "octal": frozenset()},
        input_only=frozenset(range(34, 40)),
        cautions={
            0: f"a strapping pin: {_DOWNLOAD}",
            2: "a strapping pin: it must be low or open while the board is flashed",
            5: "a strapping pin: it is pulled up at reset and shows a short pulse",
            12: "a strapping pin: high at reset the board does not start, since it chooses the flash chip's voltage",
            15: "a strapping pin: low at reset it silences the start-up text",
            1: _REPL,
            3: _REPL,
            37: "most modules do not lead it out",
            38: "most modules do not lead it out",
        },
    ),
}


# Of the expanders that switch an amplifier: how many outputs, and which addresses they can have (datasheets).
_EXPANDERS = {"pi4ioe5v6408": (8, range(0x43, 0x45)), "tca9555": (16, range(0x20, 0x28))}


@dataclass(frozen=True, slots=True)
class Use:
    """A pin and what it is for; `drives`: the chip drives it. `shared`: one of the clocks of a codec, which two may name."""

    pin: int
    what: str
    drives: bool
    shared: bool = False


def uses(data: Data) -> Iterator[Use]:
    """Every pin of a board's description."""
    for part in ("microphone", "speaker"):
        pins = data[part].get("pins", {})
        for line in pins:
            yield Use(pins[line], f"{part} {line}", line != "sd" or part == "speaker", line in ("sck", "ws"))
    amplifier = data["speaker"].get("amplifier", {})
    if "pin" in amplifier:
        yield Use(amplifier["pin"], "amplifier", True)
    for line in ("sda", "scl"):
        if "i2c" in data:
            yield Use(data["i2c"][line], f"I2C {line}", True)
    if "button" in data:
        yield Use(data["button"]["pin"], "button", False)
    led = data.get("led", {})
    ends = {"rgb": (" red", " green", " blue"), "apa102": (" data", " clock")}.get(led.get("kind"), ("",))
    for pin, end in zip(led.get("pins", [led.get("pin")]), ends, strict=True):
        if pin is not None:
            yield Use(pin, f"LED{end}", True)
    for name, output in data["outputs"].items():
        if "pin" in output:
            yield Use(output["pin"], f"output {name}", True)
    for name, held in data.get("held", {}).items():
        yield Use(held["pin"], name, True)
    serial = data.get("serial", {})
    if serial.get("kind") == "uart":
        yield Use(serial["tx"], "serial tx", True)
        yield Use(serial["rx"], "serial rx", False)


def check(data: Data) -> tuple[list[str], list[str]]:
    """Errors and warnings, in words, of a description that fits the schema. Nothing for the simulated board."""
    chip = CHIPS.get(data["mcu"])
    if chip is None:
        return [], []
    errors: list[str] = []
    warnings: list[str] = []
    taken: dict[int, Use] = {}
    psram = data["memory"]["psram"]
    for use in uses(data):
        where = f"GPIO {use.pin} ({use.what})"
        if use.pin not in chip.pins:
            errors.append(f"{where}: the {chip.name} has no such pin")
        elif use.pin in chip.flash:
            errors.append(f"{where}: it belongs to the flash chip")
        elif use.pin in chip.psram[psram]:
            errors.append(f"{where}: it belongs to the {psram} PSRAM")
        elif use.drives and use.pin in chip.input_only:
            errors.append(f"{where}: the pin can only be read, not driven")
        before = taken.setdefault(use.pin, use)
        if before is not use and not (before.shared and use.shared and _codec_shares(data, use)):
            errors.append(f"{where}: the pin is used for {before.what} already")
        if before is use and use.pin in chip.cautions:
            warnings.append(f"{where}: {chip.cautions[use.pin]}")
    button = data.get("button")
    if button and button["pin"] in chip.input_only and button["pull"]:
        errors.append(f"GPIO {button['pin']} (button): the pin has no pull resistor; set its pull to null")
    if psram == "octal" and data["mcu"] == "esp32":
        errors.append("memory: the ESP32 has no octal PSRAM")
    errors += _sound(data)
    warnings += _latency(data)
    return errors, warnings


def _codec_shares(data: Data, use: Use) -> bool:
    """Whether both directions may name this clock: at half duplex, for the same line."""
    line = use.what.split()[-1]
    microphone, speaker = data["microphone"]["pins"], data["speaker"]["pins"]
    return bool(data["duplex"] == "half" and microphone[line] == speaker[line])


def _sound(data: Data) -> Iterator[str]:
    microphone, speaker = data["microphone"], data["speaker"]
    if data["duplex"] == "full" and microphone["unit"] == speaker["unit"]:
        yield "duplex: full needs an I2S unit each for microphone and speaker, and both name the same"
    if microphone["rate"] != 16000:
        yield "microphone: the firmware makes its formats of 16000 Hz"
    if speaker["rate"] not in (16000, 24000):
        yield "speaker: the firmware makes 16000 or 24000 Hz of its formats"
    for name, part in (("microphone", microphone), ("speaker", speaker)):
        if part["bits"] != 16:
            yield f"{name}: the firmware reads and writes samples of 16 bits"
    on_bus = [part["codec"] for part in (microphone, speaker) if "codec" in part]
    on_bus += [speaker["amplifier"]["expander"]] if "expander" in speaker.get("amplifier", {}) else []
    yield from _expander(speaker.get("amplifier", {}))
    if microphone.get("codec") == speaker.get("codec") == "es8311" and any(
        microphone["pins"][line] != speaker["pins"][line] for line in ("sck", "ws")
    ):
        yield "speaker: one es8311 has one sck and one ws, and the microphone names others"
    if on_bus and "i2c" not in data:
        yield f"i2c: is missing, and the {on_bus[0]} is reached by it"
    if microphone.get("codec") == "es7210":
        if "mck" not in microphone["pins"]:
            yield "microphone: the es7210 needs its master clock on a pin, mck"
        elif data["duplex"] == "full":
            yield "duplex: the master clock of the es7210 takes the second I2S unit, so only half is possible"
    elif "mck" in microphone["pins"] or "mck" in speaker["pins"]:
        yield "mck: only the microphone codec es7210 needs it; the es8311 takes the bit clock"
    if "mck" in speaker["pins"]:
        yield "speaker: the firmware makes no master clock for it"


def _expander(amplifier: Data) -> Iterator[str]:
    if "expander" not in amplifier:
        return
    name, bits, held = amplifier["expander"], amplifier["bits"], amplifier.get("held", 0)
    count, addresses = _EXPANDERS[name]
    if (bits | held) >> count:
        yield f"amplifier: the {name} has {count} outputs, and bits or held names one beyond"
    if bits & held:
        yield "amplifier: bits and held name the same output"
    if amplifier["address"] not in addresses:
        yield f"amplifier: the {name} has an address from {addresses[0]} to {addresses[-1]}, not {amplifier['address']}"


def _latency(data: Data) -> Iterator[str]:
    for name, frame in (("microphone", 8), ("speaker", 2)):
        part = data[name]
        ms = dma_ms(part, frame)
        if ms > 64:
            yield f"{name}: its DMA holds {ms} ms of sound; more than 64 makes every answer and interruption slower"


def dma_ms(part: Data, frame_bytes: int) -> int:
    """Milliseconds in the DMA, rounded up: blocks of 256 frames, at least 2 (micropython ports/esp32/machine_i2s.c)."""
    blocks = max(2, part["ibuf"] // (256 * frame_bytes))
    return int(-(-blocks * 256 * 1000 // part["rate"]))
