"""Bundles: the firmware of a board, signed by the owner of a key, as boards take it over the air.

A bundle is `MAGIC`, the signature (256 bytes), the length of the manifest (4 bytes, big endian), the manifest, and the files'
contents one after another in the manifest's order. The signature is RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017 8.2) over `MAGIC`
and the manifest, with a key of 2,048 bits and the exponent 65537. The manifest is JSON:
`{"board": id, "version": "0.2.0", "mpy": what sys.implementation._mpy must be, or 0, "files": [[path, bytes, sha256 in hex], ...]}`.
The board's half is firmware/vrt/setup/update.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from vrt_host.errors import UsageError

MAGIC = b"VRTU1\n"
KEY_BITS = 2048
_EXPONENT = 65537
_SIGNATURE = KEY_BITS // 8
MANIFEST_BYTES = 16_384
FILES = 128
FILES_BYTES = 1 << 20
"""Bytes of all files together."""
_VERSION = re.compile(r"\d{1,5}(\.\d{1,5}){0,3}")
_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*){0,5}")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is signed: `files` by their path on the board; `mpy` 0 when no file is compiled."""

    board: str
    version: str
    mpy: int
    files: Mapping[str, bytes]

    def __post_init__(self) -> None:
        """Raises `UsageError` for what no board would take."""
        if not _VERSION.fullmatch(self.version):
            raise UsageError(f"{self.version!r} is not a version; write it as numbers, such as 0.2.0")
        if len(self.files) > FILES or sum(map(len, self.files.values())) > FILES_BYTES:
            raise UsageError(f"a board takes at most {FILES} files and {FILES_BYTES:,} bytes")
        for path in self.files:
            if not _PATH.fullmatch(path):
                raise UsageError(f"{path!r} is no path for a file on a board")

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers, to compare."""
        return number(self.version)


def number(version: str) -> tuple[int, ...]:
    """A version such as "0.10.0" as (0, 10, 0); () for anything else, which is below every version."""
    return tuple(map(int, version.split("."))) if _VERSION.fullmatch(version) else ()


def make_key(path: Path) -> Path:
    """Make a key: `path` gets the private half (PEM, 0600), `path`.pub the public one. Returns the latter's path.

    Raises `UsageError` when one of them exists or cannot be written.
    """
    public = path.with_name(path.name + ".pub")
    for one in (path, public):
        if one.exists():
            raise UsageError(
                f"{one} exists; boards that know it would refuse what another key signs, so it is not replaced"
            )
    key = rsa.generate_private_key(_EXPONENT, KEY_BITS)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
        public.write_text(f"{key.public_key().public_numbers().n:0{_SIGNATURE * 2}x}\n", "ascii")
    except OSError as error:
        raise UsageError(f"cannot write the key {path}: {error.strerror or error}") from None
    return public


def sign(bundle: Bundle, key: Path) -> bytes:
    """The bundle as it travels; raises `UsageError` when the key's file cannot be used."""
    private = _private(key)
    paths = sorted(bundle.files)
    listed = [
        (path, len(bundle.files[path]), hashlib.sha256(bundle.files[path]).hexdigest()) for path in paths
    ]
    manifest = json.dumps(
        {"board": bundle.board, "version": bundle.version, "mpy": bundle.mpy, "files": listed},
        separators=(",", ":"),
    ).encode()
    if len(manifest) > MANIFEST_BYTES:
        raise UsageError(f"the list of files is {len(manifest)} bytes; a board takes {MANIFEST_BYTES}")
    signature = private.sign(MAGIC + manifest, PKCS1v15(), hashes.SHA256())
    content = b"".join(bundle.files[path] for path in paths)
    return MAGIC + signature + len(manifest).to_bytes(4, "big") + manifest + content


def opened(data: bytes, public: Path | None, name: str) -> Bundle:
    """The bundle in `data`, whole and, if `public` is a key's file, signed by it.

    `name` is what messages call it. Raises `UsageError`.
    """
    start = len(MAGIC) + _SIGNATURE + 4
    if not data.startswith(MAGIC) or len(data) < start:
        raise UsageError(f"{name} is not a bundle made by `vrt update sign`")
    size = int.from_bytes(data[start - 4 : start], "big")
    manifest, content = data[start : start + size], data[start + size :]
    if public is not None:
        _verify(data[len(MAGIC) : start - 4], manifest, public, name)
    try:
        said = json.loads(manifest)
        files = {}
        for path, length, digest in said["files"]:
            files[path], content = content[:length], content[length:]
            if hashlib.sha256(files[path]).hexdigest() != digest:
                raise UsageError(f"{name} is damaged: {path} is not what was signed")
        bundle = Bundle(str(said["board"]), str(said["version"]), int(said["mpy"]), files)
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"{name} is damaged: its manifest cannot be read") from None
    if content:
        raise UsageError(f"{name} is damaged: there are {len(content)} bytes too many")
    return bundle


def _private(path: Path) -> rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror or error}") from None
    except (ValueError, TypeError):  # TypeError: it has a passphrase
        key = None
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        if numbers.e == _EXPONENT and key.key_size == KEY_BITS:
            return key
    raise UsageError(
        f"{path} is not an RSA key of {KEY_BITS} bits as PEM without a passphrase; make one with `vrt update key FILE`"
    )


def _verify(signature: bytes, manifest: bytes, public: Path, name: str) -> None:
    try:
        modulus = int(public.read_text("ascii"), 16)
        key = rsa.RSAPublicNumbers(_EXPONENT, modulus).public_key()
    except OSError as error:
        raise UsageError(f"cannot read the public key {public}: {error.strerror or error}") from None
    except ValueError:
        raise UsageError(f"{public} is not a public key made by `vrt update key`") from None
    try:
        key.verify(signature, MAGIC + manifest, PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise UsageError(f"{name} is not signed by the key of {public}") from None
