"""Bundles of firmware: signed, taken apart, and refused when anything about them is wrong."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from vrt_host.device.bundle import MAGIC, Bundle, make_key, number, opened, sign
from vrt_host.errors import UsageError

FILES = {"main.py": b"print('new')\n", "vrt/links/ws.mpy": bytes(range(256)) * 9, "board.json": b"{}"}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "home.pem"
    make_key(path)
    return path


def public(key: Path) -> Path:
    return key.with_name(key.name + ".pub")


def test_bundle_comes_back_as_it_was_signed(key: Path) -> None:
    bundle = Bundle("bread-compact-s3", "0.2.0", 2822, FILES)
    assert opened(sign(bundle, key), public(key), "it") == bundle


def test_private_key_is_for_its_owner_alone(key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(public(key).read_text().strip()) == 512


def test_key_is_never_replaced(key: Path) -> None:
    with pytest.raises(UsageError, match="exists; boards that know it"):
        make_key(key)


def test_key_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the key"):
        make_key(tmp_path / "none" / "key.pem")


def test_bundle_signed_by_another_key_is_refused(key: Path, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other.pem")
    with pytest.raises(UsageError, match="not signed by the key of"):
        opened(sign(Bundle("b", "1.0", 0, FILES), key), other, "it")


def test_bundle_changed_anywhere_is_refused(key: Path) -> None:
    data = sign(Bundle("b", "1.0", 0, FILES), key)
    for at in (0, 10, 262, 265, 300, len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(UsageError):
            opened(bytes(changed), public(key), "it")


def test_bundle_cut_or_continued_is_refused(key: Path) -> None:
    data = sign(Bundle("b", "1.0", 0, FILES), key)
    for n in range(0, len(data), 131):
        with pytest.raises(UsageError):
            opened(data[:n], public(key), "it")
    with pytest.raises(UsageError, match="1 bytes too many"):
        opened(data + b"x", public(key), "it")


def test_what_is_no_bundle_is_refused() -> None:
    with pytest.raises(UsageError, match="not a bundle made by `vrt update sign`"):
        opened(b"PK\x03\x04" * 100, None, "it.zip")


def test_manifest_without_its_members_is_refused() -> None:
    manifest = json.dumps({"board": "b"}).encode()
    with pytest.raises(UsageError, match="manifest cannot be read"):
        opened(MAGIC + bytes(256) + len(manifest).to_bytes(4, "big") + manifest, None, "it")


@pytest.mark.parametrize(
    "content", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not an RSA key of 2048 bits"):
        sign(Bundle("b", "1.0", 0, FILES), path)


def test_keys_that_are_not_there_are_said(tmp_path: Path, key: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the key"):
        sign(Bundle("b", "1.0", 0, FILES), tmp_path / "none.pem")
    with pytest.raises(UsageError, match="cannot read the public key"):
        opened(sign(Bundle("b", "1.0", 0, FILES), key), tmp_path / "none.pub", "it")
    (tmp_path / "bad.pub").write_text("zz")
    with pytest.raises(UsageError, match="not a public key made by"):
        opened(sign(Bundle("b", "1.0", 0, FILES), key), tmp_path / "bad.pub", "it")


@pytest.mark.parametrize(
    ("version", "files"),
    [
        ("next", FILES),
        ("1..2", FILES),
        ("1.0", {"../config.json": b""}),
        ("1.0", {"/boot.py": b""}),
        ("1.0", {".hidden": b""}),
        ("1.0", {"a b": b""}),
        ("1.0", {f"f{n}.py": b"" for n in range(129)}),
        ("1.0", {"large.bin": bytes((1 << 20) + 1)}),
    ],
)
def test_bundle_that_no_board_would_take_is_not_made(version: str, files: dict[str, bytes]) -> None:
    with pytest.raises(UsageError):
        Bundle("b", version, 0, files)


def test_versions_compare_by_their_numbers() -> None:
    assert number("0.10.0") > number("0.9.9") > number("0.9") > number("anything else") == ()
