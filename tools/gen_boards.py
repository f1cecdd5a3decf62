"""Generates what follows from the boards' descriptions: wiring pictures, and the generated parts of their READMEs.

python tools/gen_boards.py            writes the files
python tools/gen_boards.py --check    exits 1 when one is stale
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vrt_host.device import board_pages
from vrt_host.device.profiles import profiles, unsupported
from vrt_host.resources import root


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate pictures and pages of the boards.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    check = parser.parse_args(arguments).check
    stale = [
        path for path, text in generate().items() if not path.is_file() or path.read_text("utf-8") != text
    ]
    for path in stale:
        if check:
            print(f"{path.relative_to(root())} is stale: run python tools/gen_boards.py", file=sys.stderr)
        else:
            path.write_text(generate()[path], "utf-8")
    return 1 if check and stale else 0


def generate() -> dict[Path, str]:
    """Every generated file, path -> content."""
    made: dict[Path, str] = {}
    known = profiles()
    for profile in known.values():
        if profile.data["mcu"] != "unix":
            made |= board_pages.pages(profile)
    page = root() / "boards" / "README.md"
    text = page.read_text("utf-8") if page.is_file() else "# Boards\n"
    return made | {page: board_pages.spliced(text, board_pages.boards_text(known, unsupported()))}


if __name__ == "__main__":
    sys.exit(main())
