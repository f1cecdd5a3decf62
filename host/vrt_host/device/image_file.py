"""MicroPython images for ESP chips, as micropython.org offers them: what is in one, and whether it is one.

An image begins with the bootloader, which the ROM expects at an address that depends on the chip, and holds the partition
table and the program where they are in flash: micropython `ports/esp32/makeimg.py`. Its table has no partition for files since 1.26:
MicroPython makes one at each start, from the end of the last partition to the end of whatever flash is there (`ports/esp32/main.c`). A
littlefs of another size is not mounted, so an image that brings files fits chips with one size of flash alone. Headers: ESP-IDF
`components/bootloader_support/include/esp_app_format.h` (image) and `esp_flash_partitions.h` beside it (partition table, whose address is 0x8000 by
`components/partition_table/Kconfig.projbuild`).
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vrt_host.device.profiles import Profile
from vrt_host.errors import UsageError
from vrt_host.sim.firmware import MICROPYTHON_MINIMUM

CHIPS = {"esp32": "ESP32", "esp32s3": "ESP32-S3"}
"""What people, and esptool, call a board's `mcu`."""
_CHIP_ID = {0x0000: "esp32", 0x0009: "esp32s3"}  # esp_chip_id_t
_OTHER_CHIPS = {
    0x0002: "ESP32-S2",
    0x0005: "ESP32-C3",
    0x000C: "ESP32-C2",
    0x000D: "ESP32-C6",
    0x0010: "ESP32-H2",
    0x0012: "ESP32-P4",
}
_BOOTLOADER = {"esp32": 0x1000, "esp32s3": 0x0}
_MAGIC = 0xE9
_TABLE = 0x8000
_TABLE_BYTES = 0xC00
_ENTRY = struct.Struct("<2sBBII16sI")
_ENTRY_MAGIC = b"\xaa\x50"
_MD5_MAGIC = b"\xeb\xeb"
_APP, _DATA = 0, 1
_LEAST_FILES = 1 << 20
"""Bytes of flash for files below which a chip is refused: two sets of the firmware, settings and journal."""
_CHECKSUM = 0xEF
_VERSION = re.compile(rb"MicroPython v(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Partition:
    """One of the flash: addresses and sizes in bytes."""

    name: str
    type: int
    subtype: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Image:
    """A MicroPython for a chip; `offset` is where in flash its first byte goes."""

    path: Path
    content: bytes
    mcu: str
    version: tuple[int, ...]
    offset: int
    partitions: tuple[Partition, ...]

    @property
    def named(self) -> Partition | None:
        """The partition for files, where the table has one: "vfs" (micropython `ports/esp32/modules/flashbdev.py`)."""
        return next((one for one in self.partitions if one.type == _DATA and one.name == "vfs"), None)

    @property
    def files_at(self) -> int:
        """Where in flash the files begin."""
        return self.named.offset if self.named else max(one.offset + one.size for one in self.partitions)

    def vfs(self, flash: int) -> Partition:
        """Where MicroPython keeps its files on a chip with so many bytes of flash. Raises UsageError when it is too small."""
        if flash < self.end:
            raise UsageError(f"{self.path} needs {mb(self.end)} of flash, and there are {mb(flash)}")
        return self.named or Partition("vfs", _DATA, 0x81, self.files_at, flash - self.files_at)

    @property
    def with_files(self) -> bool:
        """Whether it brings a file system along."""
        return len(self.content) > self.files_at - self.offset

    @property
    def exact(self) -> bool:
        """Whether the flash must have `end` bytes, no more either."""
        return self.with_files and not self.named

    @property
    def end(self) -> int:
        """Bytes of flash that it needs, files included."""
        if self.named:
            return max(one.offset + one.size for one in self.partitions)
        if not self.with_files:
            return self.files_at + _LEAST_FILES
        # littlefs's superblock: behind its name and a tag version, size of a block, number of blocks (SPEC.md of littlefs).
        block, count = struct.unpack_from("<II", self.content, self.files_at - self.offset + 24)
        return int(self.files_at + block * count)


def mb(size: int) -> str:
    """Bytes of flash for people."""
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def wanted(data: Mapping[str, Any]) -> str:
    """Which file a board needs and where it is, for people."""
    name = str(data["micropython"])
    base, _, variant = name.partition("-")
    of_kind = f', in its list "{variant}"' if variant else ""
    least = ".".join(map(str, MICROPYTHON_MINIMUM))
    return (
        f"{name}-DATE-vVERSION.bin, version {least} or newer (the .bin, not the .app-bin), "
        f"from the page {base} under micropython.org/download{of_kind}"
    )


def read(path: Path | None, profile: Profile) -> Image:
    """The image in that file, checked for this board. Raises UsageError with what is wrong and which file is right."""
    if profile.data["mcu"] not in CHIPS:
        raise UsageError(f"{profile.id} has no chip to flash: `vrt sim` runs it")
    right = wanted(profile.data)
    if path is None:
        raise UsageError(f"give --micropython FILE: {profile.id} needs {right}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror or error}; {profile.id} needs {right}"
        ) from None
    if len(content) < 24 or content[0] != _MAGIC:
        raise UsageError(f"{path} is not a MicroPython image for ESP chips: {profile.id} needs {right}")
    mcu = _mcu(path, content, profile, right)
    found = _VERSION.search(content)
    if found is None:
        raise UsageError(f"{path} is for this chip, but is no MicroPython: {profile.id} needs {right}")
    version = tuple(int(number or 0) for number in found.groups())
    if version < MICROPYTHON_MINIMUM:
        said = ".".join(map(str, version))
        raise UsageError(f"{path} is MicroPython {said}, which is too old: {profile.id} needs {right}")
    offset = _BOOTLOADER[mcu]
    image = Image(path, content, mcu, version, offset, _partitions(path, content[_TABLE - offset :], right))
    flash = int(profile.data["memory"]["flash_mb"])
    if image.end > flash << 20 and not (image.exact and profile.data.get("assembly") == "wired"):
        raise UsageError(
            f"{path} is for {image.end >> 20} MB of flash, and {profile.id} has {flash}: it needs {right}"
        )
    app = next((one.offset for one in image.partitions if one.type == _APP), 0)
    if not (_whole(content, 0) and _whole(content, app - offset)):
        raise UsageError(f"{path} is damaged or was not loaded down to its end: load it down again")
    return image


def _whole(content: bytes, at: int) -> bool:
    """Whether the bootloader or program that begins there is all there: ESP-IDF `esp_image_format.c`, `process_image`.

    Behind its segments is their checksum, in the last byte of 16, and SHA-256 of all of it where the header says so.
    """
    try:
        segments, hashed = content[at + 1], content[at + 23]
        end, parity = at + 24, np.uint8(_CHECKSUM)
        for _ in range(segments):
            (size,) = struct.unpack_from("<I", content, end + 4)
            data = np.frombuffer(content, np.uint8, size, end + 8)
            parity ^= np.bitwise_xor.reduce(data)
            end += 8 + size
        end += 16 - (end - at) % 16
        digest = content[end : end + 32]
        return content[end - 1] == parity and (
            not hashed or hashlib.sha256(content[at:end]).digest() == digest
        )
    except (IndexError, ValueError, struct.error):
        return False


def _mcu(path: Path, content: bytes, profile: Profile, right: str) -> str:
    (chip,) = struct.unpack_from("<H", content, 12)
    mcu = _CHIP_ID.get(chip)
    if mcu is None or mcu != profile.data["mcu"]:
        name = CHIPS[mcu] if mcu else _OTHER_CHIPS.get(chip, f"another chip (id {chip})")
        board = CHIPS[profile.data["mcu"]]
        raise UsageError(f"{path} is for {name}, and {profile.id} has {board}: it needs {right}")
    return mcu


def _partitions(path: Path, table: bytes, right: str) -> tuple[Partition, ...]:
    """Raises UsageError when there is no table, as in an image for updates, which is the program alone."""
    made = []
    for at in range(0, min(len(table), _TABLE_BYTES) - _ENTRY.size + 1, _ENTRY.size):
        magic, kind, subtype, offset, size, name, _ = _ENTRY.unpack_from(table, at)
        if (
            magic == _MD5_MAGIC
            and table[at + 16 : at + 32] != hashlib.md5(table[:at], usedforsecurity=False).digest()
        ):
            raise UsageError(f"{path} is damaged (its partition table): load it down again")
        if magic != _ENTRY_MAGIC:
            break
        made.append(Partition(name.rstrip(b"\0").decode("utf-8", "replace"), kind, subtype, offset, size))
    if not made:
        raise UsageError(f"{path} has no partition table (an image for updates?): take {right}")
    return tuple(made)


def doubts(image: Image, profile: Profile) -> list[str]:
    """What may be wrong with an image although it can be written: lines for the operator."""
    octal = str(profile.data["micropython"]).endswith("SPIRAM_OCT")
    if octal and b"Octal-SPIRAM" not in image.content:
        return [
            f"{image.path.name} does not say that it is for octal PSRAM, which {profile.id} has; "
            f"with another one the board starts without it. It needs {wanted(profile.data)}"
        ]
    return []
