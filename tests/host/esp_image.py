"""Images for ESP chips as MicroPython's build makes them, with the headers real and the code random."""

import hashlib
import random
import struct
from pathlib import Path

CHIP = {"esp32": 0, "esp32s3": 9, "esp32c3": 5}
OFFSET = {"esp32": 0x1000, "esp32s3": 0, "esp32c3": 0}


def header(chip: int, flash: int) -> bytes:
    """esp_image_header_t: magic, segments, mode, size and frequency, entry, write protection, drive, chip, ..., hash."""
    nibble = flash.bit_length() - 1 << 4
    return (
        struct.pack("<BBBBIB3sHB6s", 0xE9, 3, 2, nibble, 0x40380000, 0xEE, b"", chip, 0, b"")
        + b"\0" * 1
        + b"\1"
    )


def table(flash: int) -> bytes:
    """The partition table of micropython ports/esp32/partitions-4MiB.csv, or -8MiB.csv, with its MD5 row."""
    app = 0x1F0000 if flash == 4 else 0x300000
    rows = [
        (1, 2, 0x9000, 0x6000, b"nvs"),
        (1, 1, 0xF000, 0x1000, b"phy_init"),
        (0, 0, 0x10000, app, b"factory"),
        (1, 0x81, 0x10000 + app, (flash << 20) - 0x10000 - app, b"vfs"),
    ]
    made = b"".join(struct.pack("<2sBBII16sI", b"\xaa\x50", *row, 0) for row in rows)
    return made + b"\xeb\xeb" + b"\xff" * 14 + hashlib.md5(made).digest()


def make(
    mcu: str = "esp32s3",
    *,
    flash: int = 4,
    said: bytes = b"MicroPython v1.28.0 on 2026-04-01",
    size: int = 60_000,
) -> bytes:
    """An image, from the bootloader on."""
    code = random.Random(mcu).randbytes(size)
    parts = {
        OFFSET[mcu]: header(CHIP[mcu], flash) + code[:9_000],
        0x8000: table(flash),
        0x10000: header(CHIP[mcu], flash) + code + said + b"\0Generic ESP32S3 module with Octal-SPIRAM\0",
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
