# An update over the air: from a bundle to a second copy of the firmware on flash, which slots.py tries at the next start. It
# runs at the start of the device, before anything that takes memory, and may block.
#
# A bundle is MAGIC, signature (256 bytes), length of the manifest (4 bytes, big endian), manifest, and the files' contents one
# after another in the manifest's order. The signature is RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017 8.2) over MAGIC and manifest,
# with a key of 2,048 bits and the exponent 65537. The manifest is JSON:
#   {"board": id, "version": "0.2.0", "mpy": sys.implementation._mpy or 0, "files": [[path, bytes, sha256 in hex], ...]}
import json
import os
import sys
from binascii import unhexlify
from errno import EEXIST
from hashlib import sha256

from micropython import const

MAGIC = b"VRTU1\n"
_SIGNATURE = const(256)
_EXPONENT = const(65537)
_MANIFEST = const(16384)  # bytes, at most
_FILES = const(128)
_BYTES = const(1 << 20)  # of all files, at most
_SPARE = const(16384)  # bytes of flash that stay free
_CHUNK = const(1024)
# RFC 8017 9.2, note 1: what stands before a digest of SHA-256.
_DIGEST_INFO = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"


def newer(version, than):
    # Whether a version such as "0.2.0" is above another. Raises ValueError when one is none.
    return [int(part) for part in version.split(".")] > [int(part) for part in than.split(".")]


def signed(manifest, signature, modulus):
    # Whether the owner of the key signed the manifest (RFC 8017 8.2.2). modulus: an integer.
    number = int.from_bytes(signature, "big")
    encoded = _DIGEST_INFO + sha256(MAGIC + manifest).digest()
    encoded = b"\x00\x01" + b"\xff" * (_SIGNATURE - 3 - len(encoded)) + b"\x00" + encoded
    return number < modulus and pow(number, _EXPONENT, modulus) == int.from_bytes(encoded, "big")


def install(read, key, board, version, slots):
    # Writes what `read(n)` gives, n bytes each time, into the slot that does not run, and marks that to be tried. key: the
    # public key's modulus in hex. board, version: what runs here. Returns the new version. Raises ValueError when the bundle
    # is not for us or not whole, OSError when the flash refuses; then nothing has changed for the device.
    slot, mark, _ = slots.read()
    if mark:
        raise ValueError("another update is being tried")
    manifest = opened(read, key, board, version)
    target = slots.other(slot)
    remove(target)
    if hasattr(os, "statvfs"):
        room = os.statvfs(".")
        need = _SPARE
        for _, size, _ in manifest["files"]:
            need += -(-size // room[0]) * room[0]  # a file takes whole blocks
        if room[0] * room[3] < need:
            raise ValueError(f"the flash has {room[0] * room[3]} bytes free, and {need} are needed")
    for path, size, digest in manifest["files"]:
        store(read, f"{target}/{path}", size, unhexlify(digest))
    slots.write(target, "?", manifest["version"])
    return manifest["version"]


def opened(read, key, board, version):
    # The manifest, when everything about it is right.
    if read(len(MAGIC)) != MAGIC:
        raise ValueError("this is no update")
    signature = read(_SIGNATURE)
    size = int.from_bytes(read(4), "big")
    if size > _MANIFEST:
        raise ValueError(f"the manifest is larger than {_MANIFEST} bytes")
    text = read(size)
    if not signed(text, signature, int(key, 16)):
        raise ValueError("the signature is not from the owner of this device's update_key")
    manifest = json.loads(text)
    if manifest["board"] != board:
        raise ValueError(f"it is for the board {manifest['board']}, and this is {board}")
    if not newer(manifest["version"], version):
        raise ValueError(f"{manifest['version']} is not newer than {version}")
    mpy = getattr(sys.implementation, "_mpy", 0)
    if manifest["mpy"] not in (0, mpy):
        raise ValueError(f"it is compiled for another MicroPython: {manifest['mpy']}, not {mpy}")
    files = manifest["files"]
    if len(files) > _FILES or sum([size for _, size, _ in files]) > _BYTES:
        raise ValueError(f"more than {_FILES} files or {_BYTES} bytes")
    for path, _, _ in files:
        for part in path.split("/"):
            if not part or part[0] == ".":
                raise ValueError(f"{path} is no name for a file here")
    return manifest


def store(read, path, size, digest):
    # One file; read again from the flash before it counts.
    folder = ""
    for part in path.split("/")[:-1]:
        folder += part
        try:
            os.mkdir(folder)
        except OSError as error:
            if error.errno != EEXIST:
                raise
        folder += "/"
    with open(path, "wb") as file:
        while size > 0:
            data = read(min(size, _CHUNK))
            file.write(data)
            size -= len(data)
    found = sha256()
    with open(path, "rb") as file:
        data = file.read(_CHUNK)
        while data:
            found.update(data)
            data = file.read(_CHUNK)
    if found.digest() != digest:
        raise ValueError(f"{path} is not what was signed")


def remove(path):
    # A file or a folder with all that is in it, if it is there.
    try:
        folder = os.stat(path)[0] & 0x4000
    except OSError:
        return
    if not folder:
        os.remove(path)
        return
    for name in os.listdir(path):
        remove(f"{path}/{name}")
    os.rmdir(path)
