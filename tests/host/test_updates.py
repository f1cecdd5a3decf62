"""Which board is offered what, and the port that hands bundles out: over TLS, to tokens, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from certificates import AUTHORITY, KEY, SERVER
from vrt_host.auth import Authenticator, TokenFile
from vrt_host.config import ServerConfig
from vrt_host.device.bundle import Bundle, make_key, sign
from vrt_host.errors import UsageError
from vrt_host.updates import Updates

DEADLINE_S = 20


def publish(folder: Path, board: str = "sim", version: str = "9.0.0", file: str = "") -> bytes:
    key = folder.parent / "key.pem"
    if not key.exists():
        make_key(key)
    data = sign(Bundle(board, version, 0, {"main.py": b"print()\n" * 5000}), key)
    (folder / (file or f"{board}.bundle")).write_bytes(data)
    return data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "updates"
    made.mkdir()
    return made


def hello(board: object = "sim", firmware: object = "0.1.0") -> dict[str, object]:
    return {"device": {"id": "d", "board": board, "firmware": firmware}}


def test_older_firmware_is_offered_what_is_published(folder: Path) -> None:
    publish(folder)
    assert Updates(folder, 1234).offer(hello()) == {"update": {"version": "9.0.0", "port": 1234}}


def test_same_and_newer_firmware_is_offered_nothing(folder: Path) -> None:
    publish(folder, version="0.10.0")
    updates = Updates(folder, 1)
    assert updates.offer(hello(firmware="0.9.9"))
    assert not updates.offer(hello(firmware="0.10.0"))
    assert not updates.offer(hello(firmware="1.0"))


@pytest.mark.parametrize(
    "device", [None, 1, {}, {"board": 1, "firmware": "0.1.0"}, {"board": "other", "firmware": "0.1.0"}]
)
def test_hello_that_names_no_known_board_is_offered_nothing(folder: Path, device: object) -> None:
    publish(folder)
    assert Updates(folder, 1).offer({"device": device}) == {}
    assert Updates(folder, 1).offer({}) == {}


def test_board_cannot_name_a_file_elsewhere(folder: Path) -> None:
    publish(folder, file="../sim.bundle")
    for board in ("../sim", "/sim", "..", ".", "a/../sim", "sim\0"):
        assert Updates(folder, 1).offer(hello(board=board)) == {}


def test_bundle_published_later_is_noticed(folder: Path) -> None:
    updates = Updates(folder, 1)
    assert updates.offer(hello()) == {}
    publish(folder)
    assert updates.offer(hello())["update"]["version"] == "9.0.0"
    publish(folder, version="10.0.0")
    assert updates.offer(hello())["update"]["version"] == "10.0.0"
    (folder / "sim.bundle").unlink()
    assert updates.offer(hello()) == {}


@pytest.mark.parametrize("content", [b"", b"junk"])
def test_file_that_is_no_bundle_is_logged_once_and_not_offered(
    folder: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "sim.bundle").write_bytes(content)
    updates = Updates(folder, 1)
    with caplog.at_level(logging.WARNING):
        assert updates.offer(hello()) == updates.offer(hello()) == {}
    assert len(caplog.messages) == 1


def test_bundle_under_another_boards_name_is_not_offered(folder: Path) -> None:
    publish(folder, board="other", file="sim.bundle")
    assert Updates(folder, 1).offer(hello()) == {}


def test_folder_that_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        Updates(folder / "none", 1)


async def test_updates_need_tls_and_tokens(folder: Path) -> None:
    with pytest.raises(UsageError, match="give --tls-cert, --tls-key and --tokens"):
        async with Updates(folder, 0).listen(ServerConfig(), Authenticator(None)):
            pass


# --- the port


def served(folder: Path) -> ServerConfig:
    """A host with TLS for localhost, and the tokens in that folder."""
    cert, key = folder / "tls-cert.pem", folder / "tls-key.pem"
    cert.write_text(SERVER)
    key.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{KEY}\n-----END EC PRIVATE KEY-----\n")
    return ServerConfig(tls_cert=cert, tls_key=key, tokens=folder / "tokens.json")


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[Updates, str, ssl.SSLContext]]:
    """The port with one token; yields the token and what a client trusts."""
    token = TokenFile(folder.parent / "tokens.json").add("porch")
    config = served(folder.parent)
    updates = Updates(folder, 0)
    async with updates.listen(config, Authenticator(config.tokens)):
        yield updates, token, ssl.create_default_context(cadata=AUTHORITY)


async def ask(updates: Updates, trust: ssl.SSLContext | None, path: str, *lines: str) -> tuple[int, bytes]:
    """Status and body of one request."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", updates.port, ssl=trust, server_hostname="localhost" if trust else None
        )
        head = "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines])
        writer.write(f"{head}\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    head_bytes, _, body = answer.partition(b"\r\n\r\n")
    return int(head_bytes.split()[1]), body


async def test_board_with_its_token_gets_the_bundle(folder: Path) -> None:
    data = publish(folder)
    async with listening(folder) as (updates, token, trust):
        assert await ask(updates, trust, "/update/sim", f"Authorization: Bearer {token}") == (200, data)


async def test_stranger_gets_nothing(folder: Path) -> None:
    publish(folder)
    async with listening(folder) as (updates, _, trust):
        for line in (
            "X: y",
            "Authorization: Bearer vrt_wrong",
            "Authorization: Basic eA==",
            "Authorization: Bearer",
        ):
            assert (await ask(updates, trust, "/update/sim", line))[0] == 401


async def test_other_paths_are_not_there(folder: Path) -> None:
    publish(folder)
    async with listening(folder) as (updates, token, trust):
        for path in (
            "/",
            "/update/",
            "/update/other",
            "/update/../tokens.json",
            "/update/%2e%2e/key",
            "/sim.bundle",
        ):
            assert (await ask(updates, trust, path, f"Authorization: Bearer {token}"))[0] == 404


async def test_port_that_is_taken_is_said(folder: Path) -> None:
    async with listening(folder) as (updates, _, _):
        again = Updates(folder, updates.port)
        made = served(folder.parent)
        with pytest.raises(UsageError, match="choose another with --updates-port"):
            async with again.listen(made, Authenticator(made.tokens)):
                pass
