"""The wiring of a board as a picture: the chip in the middle, its parts on both sides, a straight wire from pin to pin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from vrt_host.device.profiles import Profile

ROW = 26
"""Height of a pin's row; nothing else decides where a label is, so no two can meet."""
CHAR = 8.5
"""Width of a character of `FONT`, generously."""
FONT = 14
_PAD = 14
_WIRE = 150
_HEAD = 34
_GAP = 22
_TOP = 84

_COLORS = {
    "3V3": "#d32f2f",
    "5V": "#e8710a",
    "GND": "#222222",
    "clock": "#1967d2",
    "select": "#188038",
    "data": "#9334e6",
    "bus": "#00838f",
    "switch": "#a8700b",
    "light": "#c2185b",
}
_LEGEND = {
    "3V3": "3.3 V",
    "5V": "5 V",
    "GND": "ground",
    "clock": "clock",
    "select": "word select",
    "data": "sound",
    "bus": "I2C",
    "switch": "switch",
    "light": "light",
}


@dataclass(frozen=True, slots=True)
class Pin:
    """A wire: what the part calls its end, what the chip calls the other, and its kind. Without a kind it does not go to the
    chip, and `chip` says where it does go."""

    part: str
    chip: str
    kind: str


@dataclass(frozen=True, slots=True)
class Part:
    """A box: its name, what it is, its pins, and whether they are connected already."""

    name: str
    what: str
    pins: list[Pin]
    there: bool = False

    @property
    def height(self) -> int:
        return _HEAD + ROW * len(self.pins) + 8


_MICROPHONES = {"INMP441": {"sck": "SCK", "ws": "WS", "sd": "SD"}}
_SPEAKERS = {"MAX98357A": {"sck": "BCLK", "ws": "LRC", "sd": "DIN"}}


def parts(profile: Profile) -> tuple[list[Part], list[Part]]:
    """What is left and what is right of the chip."""
    data = profile.data
    wired = data["assembly"] == "wired"
    left = [_microphone(profile, wired)]
    right = [_speaker(profile, wired)]
    for name, entry in (("Button", data.get("button")), ("LED", data.get("led"))):
        if entry:
            part = _button(entry, wired) if name == "Button" else _led(entry, wired)
            (left if name == "Button" else right).append(part)
    for name, output in data["outputs"].items():
        rails = [Pin("VCC", "5V", "5V"), Pin("GND", "GND", "GND")] if wired else []
        what = ("only if you want it: " if wired else "") + " / ".join(output["levels"])
        pins = [*rails, Pin("IN", _gpio(output["pin"]), "switch")]
        left.append(Part(f"Relay: {name}", what, pins, there=not wired))
    held = [
        Pin(f"{name}, kept {'high' if entry['level'] else 'low'}", _gpio(entry["pin"]), "switch")
        for name, entry in data.get("held", {}).items()
    ]
    if held:
        left.append(Part("Others", "set at the start", held, there=True))
    serial = data.get("serial", {})
    if serial.get("kind") == "uart":
        ends = [Pin("RX", _gpio(serial["tx"]), "bus"), Pin("TX", _gpio(serial["rx"]), "bus")]
        right.append(Part("USB-to-serial adapter", "the link to the host", [Pin("GND", "GND", "GND"), *ends]))
    return left, right


def _gpio(number: int) -> str:
    return f"GPIO {number}"


def _lines(pins: dict[str, int], names: dict[str, str]) -> Iterator[Pin]:
    kinds = {"sck": "clock", "ws": "select", "sd": "data", "mck": "clock"}
    for line in ("mck", "sck", "ws", "sd"):
        if line in pins:
            yield Pin(names[line], _gpio(pins[line]), kinds[line])


def _bus(profile: Profile, part: str) -> list[Pin]:
    bus = profile.data.get("i2c")
    if bus is None or "codec" not in profile.data[part]:
        return []
    return [Pin("SDA", _gpio(bus["sda"]), "bus"), Pin("SCL", _gpio(bus["scl"]), "bus")]


def _microphone(profile: Profile, wired: bool) -> Part:
    entry = profile.data["microphone"]
    names = {"sck": "SCK", "ws": "WS", "sd": "SD", "mck": "MCLK", **_MICROPHONES.get(entry["part"], {})}
    pins = list(_lines(entry["pins"], names))
    if wired:
        rails = [Pin("VDD", "3V3", "3V3"), Pin("GND", "GND", "GND")]
        level = "GND" if entry["slot"] == "left" else "3V3"
        pins = [*rails, Pin("L/R", level, level), *pins]
    return Part(entry["part"], "microphone", pins + _bus(profile, "microphone"), there=not wired)


def _speaker(profile: Profile, wired: bool) -> Part:
    entry = profile.data["speaker"]
    names = {"sck": "BCLK", "ws": "LRCK", "sd": "DIN", "mck": "MCLK", **_SPEAKERS.get(entry["part"], {})}
    pins = list(_lines(entry["pins"], names))
    if wired:
        pins = [Pin("VIN", "5V", "5V"), Pin("GND", "GND", "GND"), *pins]
    pins += _bus(profile, "speaker")
    amplifier = entry.get("amplifier", {})
    if "pin" in amplifier:
        pins.append(Pin("SD (on)" if wired else "amplifier on", _gpio(amplifier["pin"]), "switch"))
    if "expander" in amplifier:
        pins.append(Pin("amplifier on", f"{amplifier['expander'].upper()} on the I2C", "switch"))
    if wired:
        if "pin" not in amplifier:
            pins.append(Pin("SD", "stays open", ""))
        pins += [Pin("GAIN", "stays open", ""), Pin("+ and -", "to the speaker", "")]
    what = "amplifier for a speaker of 4 to 8 ohms" if wired else "speaker"
    return Part(entry["part"], what, pins, there=not wired)


def _button(entry: dict[str, object], wired: bool) -> Part:
    pin = Pin("one side", _gpio(int(str(entry["pin"]))), "switch")
    if not wired or entry.get("on_module"):
        where = "on the module, often named BOOT" if wired else "on the board"
        return Part("Button", where, [Pin("pressed", pin.chip, "switch")], there=True)
    other = ("GND", "GND") if entry["active"] == 0 else ("3V3", "3V3")
    return Part("Button", "any that closes when pressed", [pin, Pin("other side", *other)])


def _led(entry: dict[str, object], wired: bool) -> Part:
    kind = str(entry["kind"])
    raw = entry.get("pins") or [entry["pin"]]
    numbers = [int(str(number)) for number in raw] if isinstance(raw, list) else []
    names = {
        "gpio": ["LED"],
        "rgb": ["red", "green", "blue"],
        "ws2812": ["DIN"],
        "apa102": ["data", "clock"],
    }[kind]
    pins = [Pin(name, _gpio(number), "light") for name, number in zip(names, numbers, strict=True)]
    if not wired or entry.get("on_module"):
        return Part(f"LED ({kind})", "on the module" if wired else "on the board", pins, there=True)
    if kind in ("gpio", "rgb"):
        common = Pin("common", *(("GND", "GND") if entry["active"] else ("3V3", "3V3")))
        return Part(f"LED ({kind})", "220 ohms in each colour's wire", [*pins, common])
    rails = [Pin("VCC", "5V", "5V"), Pin("GND", "GND", "GND")]
    return Part(f"LED ({kind})", f"{entry.get('count')} in a chain", [*rails, *pins])


# --- drawing


@dataclass(slots=True)
class _Sheet:
    """The elements of the picture, in the order in which they are drawn."""

    elements: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self.elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" stroke="#555"/>'
        )

    def text(self, x: float, y: float, text: str, anchor: str = "start", **style: str) -> None:
        extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        self.elements.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{extra}>{escape(text, quote=False)}</text>'
        )

    def wire(self, x1: float, x2: float, y: float, kind: str, there: bool) -> None:
        color = _COLORS[kind]
        dashes = ' stroke-dasharray="2 5"' if there else ""
        self.elements.append(
            f'<path d="M{x1:g} {y:g}H{x2:g}" stroke="{color}" stroke-width="3"{dashes}/>'
            f'<circle cx="{x1:g}" cy="{y:g}" r="4.5" fill="{color}"/>'
            f'<circle cx="{x2:g}" cy="{y:g}" r="4.5" fill="{color}"/>'
        )


def picture(profile: Profile) -> str:
    """The SVG. Every label has a row of its own, so that none overlaps another."""
    data = profile.data
    sides = parts(profile)
    chip = {"esp32": "ESP32", "esp32s3": "ESP32-S3"}[data["mcu"]]
    wired = data["assembly"] == "wired"
    hint = (
        "Connect each pin to the pin of that name, as it is printed on the module. Dotted wires are there already."
        if wired
        else "Everything is connected inside: this is only to look up."
    )
    widths = [_width(side) for side in sides]
    middle = max(2 * _PAD + CHAR * (_longest(sides[0]) + _longest(sides[1]) + 3), 260.0)
    width = 2 * _PAD + sum(widths) + middle + 2 * _WIRE
    spare = CHAR * max(len(hint), 1.4 * len(profile.name)) + 2 * _PAD - width
    if spare > 0:
        middle += spare
        width += spare
    x_chip = _PAD + widths[0] + _WIRE
    sheet = _Sheet()
    sheet.text(width / 2, 28, profile.name, "middle", font_size="19", font_weight="bold")
    sheet.text(width / 2, 54, hint, "middle", fill="#444")
    height = max(sum(part.height + _GAP for part in side) for side in sides)
    sheet.box(x_chip, _TOP, middle, height + 8, "#e8eef7")
    title = chip + (" module" if wired else "")
    sheet.text(x_chip + middle / 2, _TOP + 24, title, "middle", font_weight="bold")
    _side(sheet, sides[0], _Side(_PAD, widths[0], _PAD + widths[0], x_chip, -1))
    end = x_chip + middle
    _side(sheet, sides[1], _Side(end + _WIRE, widths[1], end + _WIRE, end, 1))
    kinds = {pin.kind for side in sides for part in side for pin in part.pins}
    _legend(sheet, [kind for kind in _COLORS if kind in kinds], width, _TOP + height + 42)
    total = _TOP + height + 60
    body = "\n".join(sheet.elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {total:g}" width="{width:g}" '
        f'height="{total:g}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT}" '
        f'fill="#111">\n<title>{escape(profile.name)}: wiring</title>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """Where a side's boxes are, where their pins are, where the chip's edge is, and which way the labels of pins go from there."""

    x: float
    width: float
    pins: float
    chip: float
    way: int


def _side(sheet: _Sheet, side: list[Part], at: _Side) -> None:
    """The parts of a side and their wires, from the top down."""
    y = float(_TOP + 8)
    near, far = ("start", "end") if at.way > 0 else ("end", "start")
    for part in side:
        sheet.box(at.x, y, at.width, part.height, "#f1f1f1" if part.there else "#fff7e0")
        sheet.text(at.x + _PAD, y + 22, part.name, font_weight="bold")
        what = at.x + _PAD + CHAR * (len(part.name) + 1)
        sheet.text(what, y + 22, part.what, fill="#555", font_size="12")
        for i, pin in enumerate(part.pins):
            row = y + _HEAD + ROW * i + ROW / 2
            sheet.text(at.pins + at.way * _PAD, row + 5, pin.part, near)
            if pin.kind:
                sheet.wire(at.pins, at.chip, row, pin.kind, part.there)
                sheet.text(at.chip - at.way * _PAD, row + 5, pin.chip, far)
            else:
                sheet.text(at.pins - at.way * _PAD, row + 5, pin.chip, far, fill="#777")
        y += part.height + _GAP


def _legend(sheet: _Sheet, kinds: list[str], width: float, y: float) -> None:
    widths = [CHAR * (len(_LEGEND[kind]) + 2) + 28 for kind in kinds]
    x = (width - sum(widths)) / 2
    for kind, step in zip(kinds, widths, strict=True):
        sheet.elements.append(f'<path d="M{x:g} {y - 5:g}h22" stroke="{_COLORS[kind]}" stroke-width="4"/>')
        sheet.text(x + 28, y, _LEGEND[kind])
        x += step


def _width(side: list[Part]) -> float:
    heads = (CHAR * (len(part.name) + 1) + CHAR * 0.86 * len(part.what) for part in side)
    pins = (CHAR * len(pin.part) for part in side for pin in part.pins)
    return max(*heads, *pins, 150.0) + 2 * _PAD


def _longest(side: list[Part]) -> int:
    return max(len(pin.chip) for part in side for pin in part.pins if pin.kind)
