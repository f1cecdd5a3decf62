"""What is generated from a board's description: its README, its wiring picture, the table of all boards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vrt_host.device import pins, wiring
from vrt_host.device.profiles import Profile, Unsupported

BEGIN = "<!-- from here on generated from board.json by tools/gen_boards.py -->"
END = "<!-- end of what is generated -->"
PICTURE = "wiring.svg"

BOARD_PY = """\
# What is special about this board is in board.json; espboard.py builds its hardware from it.
import espboard

espboard.start(__file__)

from espboard import *  # noqa: E402, F403
"""


def pages(profile: Profile) -> dict[Path, str]:
    """The files generated for a board, path -> content. What stands around the generated part of a README is kept."""
    readme = profile.folder / "README.md"
    text = readme.read_text("utf-8") if readme.is_file() else f"# {profile.name}\n"
    return {profile.folder / PICTURE: wiring.picture(profile), readme: spliced(text, board_text(profile))}


def spliced(text: str, generated: str) -> str:
    """`text` with the generated part between its marks replaced, or put at the end."""
    head, mark, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2].strip("\n") if mark else ""
    return f"{head.rstrip()}\n\n{BEGIN}\n\n{generated}\n{END}\n" + (f"\n{tail}\n" if tail else "")


def board_text(profile: Profile) -> str:
    """The generated part of a board's README."""
    data = profile.data
    status = (
        "**Untested**: made from public files and checked against them, but nobody has run it on the hardware yet."
        if data["status"] == "untested"
        else "Tested on the hardware."
    )
    return "\n".join(
        [
            status,
            "",
            f"![Wiring]({PICTURE})",
            "",
            *_table(("", ""), facts(profile)),
            "",
            "| GPIO | used for |",
            "|---|---|",
            *(f"| {use.pin} | {use.what} |" for use in sorted(pins.uses(data), key=lambda use: use.pin)),
            "",
            *_list("Good to know:", data.get("notes", [])),
            *_list("Pins to be careful with, should you connect something more:", profile.warnings),
            f"Checked against: {data['source']}.",
            "",
            f"Flash it: `vrt flash {profile.id}` (docs/flashing.md).",
            "",
        ]
    )


def facts(profile: Profile) -> list[tuple[str, str]]:
    """What one wants to know of a board: label and text."""
    data = profile.data
    microphone, speaker = data["microphone"], data["speaker"]
    return [
        ("chip", f"{pins.CHIPS[data['mcu']].name}, {memory(data)}"),
        ("MicroPython build", f"`{data['micropython']}`, 1.27 or newer"),
        ("duplex", duplex(data)),
        ("microphone", f"{_converter(microphone, 8)}, {microphone['slot']} slot"),
        ("speaker", _converter(speaker, 2)),
        ("link", data["link"] + (f", or serial by {data['serial']['kind']}" if "serial" in data else "")),
        *([("described at", data["url"])] if "url" in data else []),
    ]


def _converter(part: dict[str, Any], frame_bytes: int) -> str:
    return f"{part['part']}, {part['rate']} Hz, DMA {pins.dma_ms(part, frame_bytes)} ms" + (
        f", driver `{part['codec']}`" if "codec" in part else ""
    )


def memory(data: dict[str, Any]) -> str:
    """Flash and PSRAM in a few words."""
    psram = data["memory"]["psram"]
    return f"{data['memory']['flash_mb']} MB flash, " + ("no PSRAM" if psram == "none" else f"{psram} PSRAM")


def duplex(data: dict[str, Any]) -> str:
    """What the duplex means to a user."""
    if data["duplex"] == "full":
        return "full: it can listen while it speaks"
    return "half: it listens or speaks; interrupt it with the button"


def _list(title: str, lines: Sequence[str]) -> list[str]:
    return [title, "", *(f"- {line}" for line in lines), ""] if lines else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def boards_text(known: dict[str, Profile], refused: dict[str, Unsupported]) -> str:
    """The generated part of boards/README.md."""
    rows = []
    for name, profile in known.items():
        data = profile.data
        if data["mcu"] != "unix":
            parts = f"{data['microphone']['part']}, {data['speaker']['part']}"
            chip = f"{pins.CHIPS[data['mcu']].name}, {memory(data)}"
            led = data["led"]["kind"] if "led" in data else "-"
            link = f"[{profile.name}]({name}/README.md)"
            rows.append((link, f"`{name}`", chip, parts, data["duplex"], led, data["status"]))
    head = ("board", "id", "chip", "microphone, speaker", "duplex", "LED", "status")
    cannot = [(f"{one.name}", f"{one.reason}", f"`{one.instead}`") for one in refused.values()]
    return "\n".join(
        [
            *_table(head, rows),
            "",
            "These cannot work with MicroPython as it is published:",
            "",
            *_table(("board", "because", "nearest that can"), cannot),
            "",
        ]
    )
