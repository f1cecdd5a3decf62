"""Writing MicroPython to a chip with esptool, which is GPL and therefore a process of its own, never imported."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from vrt_host.device import ports
from vrt_host.device.image_file import CHIPS, Image, mb
from vrt_host.device.profiles import Profile
from vrt_host.errors import UsageError, VrtError

BAUD = 460_800

_CHIP = re.compile(r"(?:Chip type|Chip is|Detecting chip type\.*):?\s+(ESP\d+(?:-[A-Z]\d+)?)")
_FLASH = re.compile(r"Detected flash size: (\d+)(MB|KB)")
_DONE = re.compile(r"\b(\d+)(?:\.\d+)? ?%")
_GONE = re.compile(
    r"disconnected|device reports readiness to read but|Device not configured|Input/output error|No such file|"
    r"could not open port|ClearCommError|multiple access on port|write failed|serial data stream stopped|"
    r"socket disconnected",
    re.IGNORECASE,
)
_SILENT = re.compile(
    r"Failed to connect|No serial data received|Wrong boot mode|download mode", re.IGNORECASE
)
_BUTTON = (
    "hold BOOT (or IO0), press RESET (or EN) once, let go of BOOT, and run the command again; "
    "if the port has another name then, give that one"
)


class Wrong(VrtError):
    """The board at the port is not the one that was named."""


def flash(
    port: str,
    profile: Profile,
    image: Image,
    *,
    erase: bool,
    say: Callable[[str], None],
    progress: Callable[[int], None],
) -> None:
    """Check the chip at `port` against the profile and write the image; nothing is written to another one.

    `progress` hears per cent. Raises UsageError for what concerns the port, VrtError when the board or the wire fails.
    """
    ports.check(port)
    chip, size = ask(port)
    right = CHIPS[profile.data["mcu"]]
    if chip != right:
        raise Wrong(f"the chip at {port} is {chip}, and {profile.id} has {right}: nothing was written")
    flash_bytes = int(profile.data["memory"]["flash_mb"]) << 20
    if profile.data.get("assembly") == "wired":  # what its owner has bought; it must hold the image
        flash_bytes = min(flash_bytes, image.end)
    if size < flash_bytes:
        raise Wrong(
            f"the chip at {port} has {mb(size)} of flash, and {profile.id} has {mb(flash_bytes)}: "
            "nothing was written; `vrt boards` lists the boards"
        )
    if image.exact and size != image.end:
        raise Wrong(
            f"the chip at {port} has {mb(size)} of flash, and the files in {image.path.name} are for {mb(image.end)}: nothing "
            f"was written; `vrt image {profile.id} --flash {size >> 20}` makes one for it"
        )
    say(f"{port}: {chip} with {mb(size)} of flash")
    options = ["--erase-all"] if erase else []
    say(
        f"writing {image.path.name}"
        + (
            ", after all of the flash was erased"
            if erase
            else ", which brings its own files: those on the board, settings too, are replaced"
            if image.with_files
            else "; the board's files stay"
        )
    )
    _run(
        port,
        ["--chip", right.lower().replace("-", ""), "--baud", str(BAUD)],
        ["write-flash", *options, hex(image.offset), str(image.path)],
        progress,
    )


def ask(port: str, *, after: str = "no-reset", attempts: int = 7) -> tuple[str, int]:
    """The chip at `port`, such as "ESP32-S3", and its bytes of flash. Afterwards it stays in its bootloader. Raises VrtError."""
    said = _run(port, ["--after", after, "--connect-attempts", str(attempts)], ["flash-id"], None)
    chip, flash_size = _CHIP.search(said), _FLASH.search(said)
    if chip is None:
        raise VrtError(f"esptool did not say which chip is at {port}")
    if flash_size is None:
        raise VrtError(
            f"the flash of the {chip[1]} at {port} does not answer: is its supply good for 500 mA?"
        )
    return chip[1], int(flash_size[1]) << (20 if flash_size[2] == "MB" else 10)


def command() -> list[str]:
    """How esptool is started. Raises UsageError when it is not installed."""
    if importlib.util.find_spec("esptool") is None:
        raise UsageError("esptool is not installed: pip install 'vrt-edge[device]'")
    return [sys.executable, "-m", "esptool"]


def _run(
    port: str, options: Sequence[str], verb: Sequence[str], progress: Callable[[int], None] | None
) -> str:
    """Run esptool; what it said. Raises VrtError, or UsageError for the port, in words."""
    words = [*command(), "--port", port, *options, *verb]
    lines = []
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if progress and line.startswith("Writing at") and (done := _DONE.search(line)):
                    progress(int(done[1]))
        except BaseException:
            process.terminate()
            raise
    said = "".join(lines)
    if process.returncode:
        raise _reason(port, said, begun="Writing at" in said or "Erasing" in said)
    return said


def _reason(port: str, said: str, *, begun: bool) -> VrtError:
    """Why esptool failed, in one line that says what to do."""
    again = "; what is half written does no harm, run the same command again" if begun else ""
    there = ports.examine(port)
    if there and there.kind in ("none", "other"):
        return ports.Gone(
            f"the board at {port} was unplugged: plug it in{again or ' and run the command again'}"
        )
    if there:
        return UsageError(there.text)
    last = [line for line in said.splitlines() if "rror" in line] or said.splitlines() or ["it said nothing"]
    reason = re.sub(r"^.*fatal error occurred: ", "", last[-1]).strip()
    if _SILENT.search(said) and not begun:
        return VrtError(f"the chip at {port} does not answer: {_BUTTON}")
    if _GONE.search(said):
        return ports.Gone(f"the connection to {port} broke ({reason}): check cable and supply{again}")
    return VrtError(f"esptool failed: {reason}{again}")
