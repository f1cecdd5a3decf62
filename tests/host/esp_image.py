"""Images for ESP chips as MicroPython's build makes them, with the headers real and the code random."""

import functools
import hashlib
import operator
import random
import struct
from pathlib import Path

CHIP = {"esp32": 0, "esp32s3": 9, "esp32c3": 5}
OFFSET = {"esp32": 0x1000, "esp32s3": 0, "esp32c3": 0}


def program(chip: int, flash: int, data: bytes) -> bytes:
    """A bootloader or an application of one segment: esp_image_header_t (magic, segments, mode, size and frequency, entry, write
    protection, drive, chip, ..., hash), the segment, its checksum, the digest."""
    nibble = flash.bit_length() - 1 << 4
    made = struct.pack("<BBBBIB3sHB8s", 0xE9, 1, 2, nibble, 0x40380000, 0xEE, b"", chip, 0, b"") + b"\1"
    made += struct.pack("<II", 0x3C000020, len(data)) + data
    checksum = functools.reduce(operator.xor, data, 0xEF)
    made += bytes(15 - len(made) % 16) + bytes((checksum,))
    return made + hashlib.sha256(made).digest()


def table(flash: int, *, vfs: bool) -> bytes:
    """The partition table of micropython ports/esp32/partitions-4MiBplus.csv, with its MD5 row; with `vfs` that of versions before
    1.26, for 4 or 8 MB."""
    app = 0x300000 if vfs and flash == 8 else 0x1F0000
    rows = [
        (1, 2, 0x9000, 0x6000, b"nvs"),
        (1, 1, 0xF000, 0x1000, b"phy_init"),
        (0, 0, 0x10000, app, b"factory"),
    ]
    if vfs:
        rows.append((1, 0x81, 0x10000 + app, (flash << 20) - 0x10000 - app, b"vfs"))
    made = b"".join(struct.pack("<2sBBII16sI", b"\xaa\x50", *row, 0) for row in rows)
    return made + b"\xeb\xeb" + b"\xff" * 14 + hashlib.md5(made).digest()


def make(
    mcu: str = "esp32s3",
    *,
    flash: int = 4,
    vfs: bool = False,
    said: bytes = b"MicroPython v1.28.0 on 2026-04-01",
    octal: bytes = b"\0Generic ESP32S3 module with Octal-SPIRAM\0",
    size: int = 60_000,
) -> bytes:
    """An image, from the bootloader on."""
    code = random.Random(mcu).randbytes(size)
    parts = {
        OFFSET[mcu]: program(CHIP[mcu], flash, code[:9_000]),
        0x8000: table(flash, vfs=vfs),
        0x10000: program(CHIP[mcu], flash, said + octal + code),
    }
    made = b""
    for at, data in sorted(parts.items()):
        made += b"\xff" * (at - OFFSET[mcu] - len(made)) + data
    return made


def write(folder: Path, mcu: str = "esp32s3", **options: object) -> Path:
    """The same in a file."""
    path = folder / f"{mcu}.bin"
    path.write_bytes(make(mcu, **options))  # type: ignore[arg-type]
    return path
