"""`vrt boards`: which boards there are, what they can do, and how to describe another."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vrt_host.device import board_pages, pins
from vrt_host.device.profiles import Profile, checked, dumps, find, load, profiles, unsupported
from vrt_host.errors import UsageError
from vrt_host.resources import root

EXAMPLES = """\
examples:
  vrt boards                            the boards that are known, and those that cannot work
  vrt boards --json                     the same for programs
  vrt boards esp32-s3-box-3             all about one: abilities, pins, what to be careful with
  vrt boards ./my-board                 ... or about one of yours
  vrt boards new my-board               describe another: asks for chip, parts and pins, checks them, writes the folder
  vrt boards new my-board --mcu esp32s3 --psram octal --flash 16 --mic 5,4,6 --speaker 15,16,7 --button 0
                                        the same without questions (pins: SCK,WS,SD of the microphone, BCLK,LRC,DIN of
                                        the amplifier)
  vrt boards new shed --mcu esp32s3 --mic 5,4,6 --speaker 15,16,7 --button 0 --led ws2812:48 --output lamp=18 --folder .
                                        an LED, and a relay on GPIO 18; the folder ./shed
"""

_BUILDS = {
    ("esp32s3", "octal"): "ESP32_GENERIC_S3-SPIRAM_OCT",
    ("esp32s3", "quad"): "ESP32_GENERIC_S3",
    ("esp32s3", "none"): "ESP32_GENERIC_S3",
    ("esp32", "quad"): "ESP32_GENERIC-SPIRAM",
    ("esp32", "none"): "ESP32_GENERIC",
}
_ID = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill in `vrt boards`."""
    parser.epilog = EXAMPLES
    parser.usage = "vrt boards [-h] [--json] [NAME | new ID [OPTIONS]]"
    parser.add_argument("words", nargs="*", metavar="NAME", help="a board's id or folder; or `new` and an id")
    parser.add_argument("--json", action="store_true", help="print JSON")
    new = parser.add_argument_group(
        "options of `vrt boards new ID` (what is missing is asked for on a terminal)"
    )
    new.add_argument("--name", help="what people call it (default: the id)")
    new.add_argument("--vendor", help="who makes it (default: generic)")
    new.add_argument("--url", help="where it is described, https://...")
    new.add_argument("--mcu", choices=["esp32s3", "esp32"], help="the chip")
    new.add_argument("--flash", type=int, choices=[4, 8, 16, 32], help="megabytes of flash")
    new.add_argument("--psram", choices=["none", "quad", "octal"], help="kind of PSRAM")
    new.add_argument("--mic", metavar="SCK,WS,SD", help="the microphone's pins (GPIO)")
    new.add_argument("--mic-part", metavar="CHIP", help="its name (default: INMP441)")
    new.add_argument("--speaker", metavar="BCLK,LRC,DIN", help="the amplifier's pins (GPIO)")
    new.add_argument("--speaker-part", metavar="CHIP", help="its name (default: MAX98357A)")
    new.add_argument(
        "--amplifier", metavar="PIN[:LEVEL]", help="the pin that switches it on (default level: 1)"
    )
    new.add_argument(
        "--button", metavar="PIN[:LEVEL]", help="the button, and its level when pressed (default: 0)"
    )
    new.add_argument("--led", metavar="KIND:PIN[,PIN]", help="gpio:2, rgb:9,8,13, ws2812:48 or apa102:38,39")
    new.add_argument(
        "--led-active", type=int, choices=[0, 1], help="the level of a lit gpio or rgb LED (default: 1)"
    )
    new.add_argument("--output", action="append", metavar="NAME=PIN", help="a relay or the like, off at 0")
    new.add_argument(
        "--complete", action="store_true", help="the parts are on the board, nothing is to be wired"
    )
    new.add_argument(
        "--folder", type=Path, metavar="DIR", help="where the new folder goes (default: boards/)"
    )


def run(args: argparse.Namespace) -> int:
    """Do it; raises `UsageError` for what the operator can mend."""
    words: list[str] = args.words
    if words and words[0] == "new":
        if len(words) != 2:
            raise UsageError("new wants one id, such as my-board")
        return _new(words[1], args)
    if len(words) > 1:
        raise UsageError(f"one board at a time, not also {words[1]!r}")
    if words:
        return _one(find(words[0]), args.json)
    return _all(args.json)


def _all(as_json: bool) -> int:
    known = profiles()
    refused = unsupported()
    if as_json:
        listed = [profile.abilities() for profile in known.values()]
        cannot = [
            {"id": one.id, "name": one.name, "reason": one.reason, "instead": one.instead}
            for one in refused.values()
        ]
        print(json.dumps({"boards": listed, "unsupported": cannot}, indent=2))
        return 0
    from rich.console import Console  # noqa: PLC0415  (slow to import)
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for head in ("board", "chip", "memory", "duplex", "microphone", "amplifier", "button", "LED", "status"):
        table.add_column(head, overflow="fold")
    for profile in known.values():
        able = profile.abilities()
        if profile.data["mcu"] == "unix":
            continue
        table.add_row(
            profile.id,
            pins.CHIPS[able["mcu"]].name,
            board_pages.memory(profile.data),
            able["duplex"],
            able["microphone"],
            able["amplifier"],
            "-" if able["button"] is None else f"GPIO {able['button']}",
            able["led"] or "-",
            able["status"],
        )
    width = None if sys.stdout.isatty() else 150
    console = Console(width=width, highlight=False, markup=False)
    console.print(table)
    print("\nsim: the simulated board (`vrt sim`)")
    print("\nThese cannot work with MicroPython as it is published:")
    for one in refused.values():
        print(f"  {one.name}: {one.reason}. Nearest that can: {one.instead}")
    print("\n`vrt boards NAME` says all about one; `vrt boards new ID` describes another.")
    return 0


def _one(profile: Profile, as_json: bool) -> int:
    if as_json:
        print(json.dumps({**profile.abilities(), "board": profile.data}, indent=2))
        return 0
    data = profile.data
    print(f"{profile.name} ({profile.id}), {data['status']}")
    if data["mcu"] == "unix":
        print("  the firmware on this computer, its hardware played by another process: `vrt sim`")
        return 0
    for label, text in board_pages.facts(profile):
        print(f"  {label:18} {text.replace('`', '')}")
    if "heap" in data:
        code, running = (f"{data['heap'][name] / 1024:.0f} KiB" for name in ("code_bytes", "running_bytes"))
        print(f"  {'heap':18} {running} of MicroPython's, {code} of them code and objects (estimate)")
    print("  pins (GPIO)")
    for use in sorted(pins.uses(data), key=lambda use: use.pin):
        print(f"    {use.pin:3} {use.what}")
    for note in data.get("notes", []):
        print(f"  note: {note}")
    for warning in profile.warnings:
        print(f"  warning: {warning}")
    print(f"  checked against: {data['source']}")
    print(f"  wiring: {profile.folder / board_pages.PICTURE}")
    return 0


# --- a new one


def _new(name: str, args: argparse.Namespace) -> int:
    if not _ID.fullmatch(name) or name == "new":
        raise UsageError(f"an id is small letters, digits and single hyphens, such as my-board, not {name!r}")
    parent: Path = args.folder or _default_folder()
    folder = parent.expanduser() / name
    if folder.exists():
        raise UsageError(f"{folder} is there already, and nothing is ever overwritten; choose another id")
    if name in unsupported() or (root() / "boards" / name).exists():
        raise UsageError(f"{name!r} is the id of a board that is known; choose another id")
    for option, text in (("--name", args.name), ("--vendor", args.vendor)):
        if text and not text.isprintable():
            raise UsageError(f"{option} is one line of text, not {text!r}")
    data = _described(name, args)
    if args.mcu is None or args.mic is None or args.speaker is None:
        _confirm(data)
    profile = checked(data, folder)  # before anything is written
    try:
        parent.expanduser().mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        (folder / "board.json").write_text(dumps(data), "utf-8")
        (folder / "board.py").write_text(board_pages.BOARD_PY, "utf-8")
        for path, text in board_pages.pages(load(folder)).items():
            path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from None
    for warning in profile.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(folder)
    print(
        f"{folder / board_pages.PICTURE} shows the wiring. Edit board.json for what was not asked, such as notes.",
        file=sys.stderr,
    )
    return 0


def _default_folder() -> Path:
    """`boards/` of a checkout, else of the current folder."""
    return root() / "boards" if (root() / "pyproject.toml").is_file() else Path("boards")


def _described(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The description, from the options and from answers."""
    mcu = args.mcu or _ask("mcu", "Which chip?", "esp32s3", _one_of("esp32s3", "esp32"))
    psram = args.psram or _ask(
        "psram", "Which PSRAM (none, quad, octal)?", "none", _one_of("none", "quad", "octal"), optional=True
    )
    flash = args.flash or int(
        _ask("flash", "How many MB of flash?", "4", _one_of("4", "8", "16", "32"), optional=True)
    )
    microphone = args.mic or _ask("mic", "The microphone's SCK,WS,SD (GPIO numbers)?", None, _three)
    speaker = args.speaker or _ask("speaker", "The amplifier's BCLK,LRC,DIN?", None, _three)
    button = args.button or _ask("button", "The button's GPIO? (empty: none)", "", str, optional=True)
    led = args.led or _ask(
        "led", "The LED, such as gpio:2 or ws2812:48? (empty: none)", "", str, optional=True
    )
    build = _BUILDS.get((mcu, psram))
    if build is None:
        raise UsageError(f"--psram: the {pins.CHIPS[mcu].name} has no {psram} PSRAM")
    made: dict[str, Any] = {
        "id": name,
        "name": args.name or name,
        "vendor": args.vendor or "generic",
        **({"url": args.url} if args.url else {}),
        "assembly": "complete" if args.complete else "wired",
        "status": "untested",
        "mcu": mcu,
        "memory": {"flash_mb": flash, "psram": psram},
        "micropython": build,
        "duplex": "full",
        "microphone": _converter(
            args.mic_part or "INMP441", 16000, 8192, 0, _numbers("--mic", microphone, 3)
        ),
        "speaker": _converter(
            args.speaker_part or "MAX98357A", 24000, 2048, 1, _numbers("--speaker", speaker, 3)
        ),
        "outputs": {},
    }
    if args.amplifier:
        pin, level = _levelled("--amplifier", args.amplifier, 1)
        made["speaker"]["amplifier"] = {"pin": pin, "on": level}
    for output in args.output or []:
        label, equals, number = output.partition("=")
        if not equals:
            raise UsageError(f"--output wants NAME=PIN, such as lamp=18, not {output!r}")
        if label in made["outputs"]:
            raise UsageError(f"--output {label} stands there twice: each output has one pin")
        made["outputs"][label] = {
            "safe": 0,
            "levels": ["off", "on"],
            "pin": _numbers("--output", number, 1)[0],
        }
    if button:
        pin, level = _levelled("--button", button, 0)
        made["button"] = {"pin": pin, "active": level, "pull": "down" if level else "up"}
        if pin in pins.CHIPS[mcu].input_only:
            made["button"]["pull"] = None
        if pin == 0 and not args.complete:
            made["button"]["on_module"] = True  # BOOT, which every module has
    if led:
        made["led"] = _led(led, 1 if args.led_active is None else args.led_active)
    made["link"] = "wifi"
    if mcu == "esp32s3":
        made["serial"] = {"kind": "usb"}
    made["source"] = "what its owner said"
    return made


def _converter(part: str, rate: int, ibuf: int, unit: int, lines: list[int]) -> dict[str, Any]:
    names = dict(zip(("sck", "ws", "sd"), lines, strict=True))
    return {"part": part, "rate": rate, "bits": 16, "ibuf": ibuf, "unit": unit, "pins": names, "slot": "left"}


def _led(text: str, active: int) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    count = {"gpio": 1, "rgb": 3, "ws2812": 1, "apa102": 2}.get(kind)
    if count is None:
        raise UsageError(
            f"--led wants KIND:PINS with gpio, rgb, ws2812 or apa102, such as ws2812:48, not {text!r}"
        )
    numbers = _numbers("--led", rest, count)
    made: dict[str, Any] = {"kind": kind, **({"pin": numbers[0]} if count == 1 else {"pins": numbers})}
    return {**made, **({"active": active} if kind in ("gpio", "rgb") else {"count": 1})}


def _numbers(option: str, text: str, count: int) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if len(words) != count or not all(re.fullmatch(r"[0-9]{1,2}", word) for word in words):
        what = "a GPIO number" if count == 1 else f"{count} GPIO numbers with commas between"
        raise UsageError(f"{option} wants {what}, not {text!r}")
    return [int(word) for word in words]


def _levelled(option: str, text: str, level: int) -> tuple[int, int]:
    number, colon, said = text.partition(":")
    if colon and said not in ("0", "1"):
        raise UsageError(f"{option} wants PIN or PIN:0 or PIN:1, not {text!r}")
    return _numbers(option, number, 1)[0], int(said) if colon else level


# --- questions


def _ask(
    option: str, question: str, default: str | None, check: Callable[[str], object], *, optional: bool = False
) -> str:
    """An answer that `check` takes. Without a terminal: the default where the option may be left out, else UsageError."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        if optional and default is not None:
            return default
        raise UsageError(f"new wants --{option} (see `vrt boards --help`), since nobody is here to ask")
    while True:
        try:
            said = input(f"{question}{f' [{default}]' if default else ''} ").strip() or default or ""
            check(said)
        except EOFError:
            raise UsageError(f"no answer about --{option}, so nothing was written") from None
        except UsageError as error:
            print(f"  {error}")
        else:
            return said


def _one_of(*words: str) -> Callable[[str], object]:
    def check(text: str) -> None:
        if text not in words:
            raise UsageError(f"one of {', '.join(words)}, please")

    return check


def _three(text: str) -> None:
    _numbers("this", text, 3)


def _confirm(data: dict[str, Any]) -> None:
    print(dumps(data))
    if _ask("yes", "Write this?", "yes", str).lower() not in ("y", "yes"):
        raise UsageError("nothing was written")
