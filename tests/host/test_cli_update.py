"""`vrt update`: a key, a signed bundle of a real board's firmware, and publishing it."""

from __future__ import annotations

from pathlib import Path

import pytest
from vrt_host.cli import main
from vrt_host.device.bundle import opened
from vrt_host.device.compiler import taken_by


@pytest.fixture
def key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "update.pem"
    assert main(["update", "key", str(path)]) == 0
    assert "secret" in capsys.readouterr().out
    return path


def sign(key: Path, version: str, *options: str) -> Path:
    out = key.parent / f"{version}.bundle"
    words = ["update", "sign", "bread-compact-s3", "--key", str(key), "--version", version, "--out", str(out)]
    assert main([*words, *options]) == 0
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that the operator is told."""
    capsys.readouterr()
    assert main(["update", *words]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1
    return said.err


def test_bundle_holds_the_boards_firmware_under_its_version(key: Path, tmp_path: Path) -> None:
    tools = tmp_path / "my_tools.py"
    tools.write_text("TOOLS = []\n")
    data = sign(key, "0.7.1", "--tools", str(tools)).read_bytes()
    bundle = opened(data, key.with_name("update.pem.pub"), "it")
    assert (bundle.board, bundle.version, bundle.mpy) == (
        "bread-compact-s3",
        "0.7.1",
        taken_by("6.3", "xtensawin"),
    )
    assert {
        "main.mpy",
        "board.mpy",
        "board.json",
        "vrt/__init__.mpy",
        "vrt/ws.mpy",
        "tools.mpy",
    } <= bundle.files.keys()
    assert b"0.7.1" in bundle.files["vrt/__init__.mpy"]


def test_published_bundle_lies_where_the_host_looks(key: Path, tmp_path: Path) -> None:
    bundle, folder = sign(key, "0.7.1"), tmp_path / "updates"
    words = ["update", "publish", str(bundle), "--key", f"{key}.pub", "--to", str(folder)]
    assert main(words) == 0
    assert (folder / "bread-compact-s3.bundle").read_bytes() == bundle.read_bytes()
    assert [path.name for path in folder.iterdir()] == ["bread-compact-s3.bundle"]


def test_older_bundle_does_not_replace_a_newer_one(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "updates")
    for version in ("0.7.1", "0.10.0"):
        assert (
            main(["update", "publish", str(sign(key, version)), "--key", f"{key}.pub", "--to", folder]) == 0
        )
    said = refused(capsys, "publish", str(tmp_path / "0.7.1.bundle"), "--key", f"{key}.pub", "--to", folder)
    assert "has 0.10.0 for bread-compact-s3 already" in said
    assert "higher --version" in said


def test_bundle_of_another_key_is_not_published(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.pem"
    assert main(["update", "key", str(other)]) == 0
    bundle = sign(key, "0.7.1")
    said = refused(capsys, "publish", str(bundle), "--key", f"{other}.pub", "--to", str(tmp_path / "updates"))
    assert "not signed by the key" in said
    assert not (tmp_path / "updates").exists()


def test_what_cannot_be_signed_is_said(key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (["sign", "bread-compact-s3", "--key", "none.pem"], "cannot read the key none.pem"),
        (["sign", "bread-compact-s3", "--key", str(key), "--version", "soon"], "not a version"),
        (["sign", "bread-compact-s2", "--key", str(key)], "bread-compact-s3"),
        (["sign", "bread-compact-s3", "--key", str(key), "--tools", "none.py"], "none.py"),
        (
            ["sign", "bread-compact-s3", "--key", str(key), "--out", str(tmp_path / "no" / "x")],
            "cannot write",
        ),
        (["publish", "none.bundle", "--key", f"{key}.pub", "--to", str(tmp_path)], "cannot read none.bundle"),
        (["key", str(key)], "exists"),
    ):
        assert why in refused(capsys, *words), words


def test_place_that_cannot_be_written_is_said_and_left_clean(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = sign(key, "0.7.1")
    words = ["publish", str(bundle), "--key", f"{key}.pub", "--to"]
    assert "is no folder" in refused(capsys, *words, str(bundle))

    def full(_: str, __: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vrt_host.commands.update.os.replace", full)
    assert "No space left" in refused(capsys, *words, str(tmp_path / "updates"))
    assert not list((tmp_path / "updates").iterdir())


def test_command_line_without_a_verb_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["update"])
    assert "VERB" in capsys.readouterr().err
