"""Files on their way to a facade: found in what a device says, put where the facade wants them (page, "Upload request").

vRT has no message for a file. A client that has one hands it over as a `data:` URL, anywhere in a tool's output or in the
application's context: `{"photo": "data:image/jpeg;name=door.jpg;base64,..."}`.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import aiohttp

from vrt_host.agents.base import Json
from vrt_host.agents.omnia_messages import Message, UploadReady, media_part
from vrt_host.agents.options import checked_url
from vrt_host.agents.provider import ProviderError

INLINE_BYTES = 256 * 1024
"""As base64 in a message, where the facade stores no media ("< 256KB recommended")."""

_SAID_BYTES = 1024
"""What is read of a refusal."""
_URL = re.compile(r"data:([a-z]+/[A-Za-z0-9.+-]+)((?:;[a-z]+=[^;,]*)*);base64,([A-Za-z0-9+/=]+)")
_NAME = re.compile(r";name=([^;,]+)")


@dataclass(frozen=True, slots=True)
class File:
    """A file of the device's."""

    name: str
    mime_type: str
    data: bytes

    def stored(self, storage_ref: str) -> Message:
        """The part of a message that names the upload."""
        return media_part(self.mime_type, self.name, len(self.data), storage_ref=storage_ref)

    def inline(self) -> Message | None:
        """The part of a message that holds it, if it is small enough."""
        text = base64.b64encode(self.data).decode()
        if len(text) >= INLINE_BYTES:
            return None
        return media_part(self.mime_type, self.name, len(self.data), data=text)


def without_files(value: Json, name: str = "file") -> tuple[Json, list[File]]:
    """A JSON value with words in place of its files, and the files. One is named by its URL, or by the member that it is."""
    if isinstance(value, dict):
        parts = {key: without_files(part, key) for key, part in value.items()}
        return {key: part for key, (part, _) in parts.items()}, [
            one for _, found in parts.values() for one in found
        ]
    if isinstance(value, list):
        items = [without_files(part, name) for part in value]
        return [part for part, _ in items], [one for _, found in items for one in found]
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value, []
    mime_type, parameters, text = match.groups()
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return value, []
    if not data:
        return value, []
    said = _NAME.search(parameters)
    called = unquote(said[1]) if said else f"{name}.{mime_type.partition('/')[2].partition('+')[0]}"
    file = File(called.replace("/", "_")[:128], mime_type, data)
    return f"the file {file.name} ({mime_type}, {len(data)} bytes), which follows", [file]


async def put(
    file: File, ready: UploadReady, confirm: str, credential: str, *, insecure: bool, timeout_s: float
) -> str:
    """Upload a file; its `storage_ref`. Raises `ProviderError`.

    The credential goes to the facade itself and to nobody else: with a file that is put there, or to `confirm`, a route of its own,
    which is told of an upload that went elsewhere.
    """
    schemes = ("https", "http") if insecure or confirm.startswith("http:") else ("https",)
    try:
        checked_url(ready.url.partition("?")[0], schemes, insecure=insecure)
        ours = _origin(ready.url) == _origin(confirm)
    except ValueError as error:
        raise ProviderError("refused", f"the upload's address was not used: {error}") from None
    if ready.method.upper() not in ("PUT", "POST"):
        raise ProviderError("refused", f"the upload's method was not used: {ready.method[:20]}")
    if _past(ready.expires_at):
        raise ProviderError("refused", "the upload's address has expired already")
    proof = {"Authorization": f"Bearer {credential}"} if credential else {}
    headers = {"Content-Type": file.mime_type, **ready.headers}
    if ours:
        headers |= proof
    try:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await _request(session, ready.method.upper(), ready.url, headers, file.data)
            if not urlsplit(ready.url).path.endswith(f"/media/upload/{ready.upload_id}"):
                await _request(session, "POST", confirm, proof, None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        words = str(error) or "no answer in time"
        raise ProviderError("unreachable", f"the upload did not succeed: {words}") from None
    return ready.storage_ref


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


async def _request(
    session: aiohttp.ClientSession, method: str, url: str, headers: dict[str, str], data: bytes | None
) -> None:
    async with session.request(method, url, headers=headers, data=data, allow_redirects=False) as answer:
        if not 200 <= answer.status < 300:
            said = (await answer.content.read(_SAID_BYTES)).decode("utf-8", "replace")[:200].strip()
            raise ProviderError("refused", f"the upload was refused: {said} (HTTP status {answer.status})")


def _past(expires_at: str) -> bool:
    try:
        when = datetime.datetime.fromisoformat(expires_at)
    except ValueError:
        return False
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return when <= datetime.datetime.now(datetime.UTC)
