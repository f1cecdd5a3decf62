"""Files that Omnia's clients upload, in a folder of this machine (page, "Media upload"; its storage `local`).

What is known of them is in memory: with the host, they go. They are this user's alone to read. An upload's address is a secret of whoever asked for it; all other routes
want the token of the file's owner.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from aiohttp import web
from pydantic import ValidationError

from vrt_host.agents.base import Json
from vrt_host.errors import UsageError, VrtError
from vrt_host.facades import omnia_messages as wire

log = logging.getLogger(__name__)

UPLOAD_S = 15 * 60.0
"""An address for an upload is valid for so long, once; and the upload may take as long."""
BODY_S = 10.0
"""For the body of any other request."""
SWEEP_S = 60.0
"""How often what has expired is looked for."""
KEPT_S = 24 * 3600.0
"""A medium is kept for so long."""
MEDIUM_BYTES = 100 * 1024 * 1024
FOLDER_BYTES = 2 * 1024 * 1024 * 1024
"""All media together, announced ones included."""
UPLOADS = 1000
"""Media that are known, announced and expired ones included."""

_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}( *;[ -~]{0,200})?")
_ID = re.compile(r"med-[0-9a-f]{32}")


class MediaError(VrtError):
    """A request that is refused with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Medium:
    """A file, announced or there. Times are those of `time.time()`."""

    id: str
    upload: str
    session: str
    owner: str
    filename: str
    mime_type: str
    size: int
    expires: float
    """Of the upload's address; once the file is there, of the file."""
    created: float | None = None
    """None: it is not there yet."""
    coming: bool = False
    """Its upload is under way."""

    @property
    def ref(self) -> str:
        """`storage_ref`."""
        return f"omnia://sessions/{quote(self.session, safe='')}/media/{self.id}"


class Store:
    """The folder, and what is known of the files in it."""

    def __init__(self, folder: Path) -> None:
        """Raises `UsageError` when it cannot be written to. Files that an earlier run left there are removed."""
        self._folder = folder
        self._media: dict[str, Medium] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for left in folder.iterdir():
                if _ID.fullmatch(left.name):
                    left.unlink()
            probe = folder / f"med-{secrets.token_hex(16)}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UsageError(f"the media folder {folder} cannot be used: {error.strerror or error}") from None

    def prepare(self, request: wire.Upload, session: str, owner: str) -> Medium:
        """Announce a file. Raises `MediaError`."""
        self.sweep()
        if not _MIME.fullmatch(request.mime_type):
            raise MediaError(415, "mime_type is not one")
        if request.size_bytes > MEDIUM_BYTES:
            raise MediaError(413, f"a medium has at most {MEDIUM_BYTES} bytes")
        taken = sum(medium.size for medium in self._media.values())
        if taken + request.size_bytes > FOLDER_BYTES or len(self._media) >= UPLOADS:
            raise MediaError(500, "no room for more media")
        medium = Medium(
            id=f"med-{secrets.token_hex(16)}",
            upload=f"upl-{secrets.token_urlsafe(24)}",
            session=session,
            owner=owner,
            filename=request.filename[:255],
            mime_type=request.mime_type,
            size=request.size_bytes,
            expires=time.time() + UPLOAD_S,
        )
        self._media[medium.id] = medium
        return medium

    async def receive(self, upload: str, body: web.Request) -> None:
        """Upload file. Raises `MediaError`; the address can be used again then, within its time."""
        medium = next((one for one in self._media.values() if one.upload == upload), None)
        if medium is None or medium.created is not None or medium.coming:
            raise MediaError(404, "there is no such upload")
        if medium.expires <= time.time():
            raise MediaError(410, "the upload has expired")
        if body.content_type.lower() != medium.mime_type.partition(";")[0].strip().lower():
            raise MediaError(415, "Content-Type is not the one that was announced")
        path = self.path(medium)
        medium.coming = True
        try:
            with await asyncio.to_thread(open, path, "xb", opener=_private) as file:
                async with asyncio.timeout(UPLOAD_S):
                    await _copy(body, file, medium.size)
            medium.created = time.time()
            medium.expires = medium.created + KEPT_S
        except TimeoutError:
            raise MediaError(408, "the upload took too long") from None
        except (ConnectionError, web.RequestPayloadError):
            raise MediaError(400, "the upload broke off") from None
        except OSError as error:
            log.warning("an upload could not be stored: %s", error.strerror)
            raise MediaError(500, "the upload could not be stored") from None
        finally:
            medium.coming = False
            if medium.created is None:
                path.unlink(missing_ok=True)

    def find(self, session: str, media: str, owner: str) -> Medium:
        """A file that is there. Raises `MediaError`."""
        self.sweep()
        if not _ID.fullmatch(media):
            raise MediaError(400, "that is no media id")
        medium = self._media.get(media)
        if medium is None or medium.created is None or (medium.session, medium.owner) != (session, owner):
            raise MediaError(404, "there is no such media")
        if medium.expires <= time.time():
            raise MediaError(410, "the media has expired")
        return medium

    def path(self, medium: Medium) -> Path:
        """Where its bytes are."""
        return self._folder / medium.id

    def sweep(self) -> None:
        """Remove what has expired; that it was there is known for some time more."""
        now = time.time()
        for medium in list(self._media.values()):
            if medium.expires <= now and not medium.coming:
                self.path(medium).unlink(missing_ok=True)
                medium.size = 0
                if medium.expires + UPLOAD_S <= now:
                    del self._media[medium.id]

    async def kept(self, _: web.Application) -> AsyncIterator[None]:
        """What has expired goes while the server runs, and all of it when it stops."""
        sweeping = asyncio.create_task(self._sweep())
        yield
        sweeping.cancel()
        for medium in self._media.values():
            self.path(medium).unlink(missing_ok=True)
        self._media.clear()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


async def _copy(body: web.Request, file: BinaryIO, size: int) -> None:
    came = 0
    async for part in body.content.iter_chunked(65_536):
        came += len(part)
        if came > size:
            raise MediaError(413, "the upload is longer than announced")
        await asyncio.to_thread(file.write, part)
    if came < size:
        raise MediaError(400, "the upload is shorter than announced")


class Routes:
    """The media routes, outside /ws."""

    def __init__(self, store: Store, principal: Callable[[web.Request], str], url: str | None) -> None:
        """`principal` is who asks, or raises an HTTP error; `url` is how clients reach this server, if not as they name it."""
        self._store = store
        self._principal = principal
        self._url = url

    def add(self, app: web.Application) -> None:
        """Serve them."""
        app.router.add_post("/media/request-upload", self._request)
        app.router.add_put("/media/upload/{upload}", self._upload)
        app.router.add_get("/media/info/{session}/{media}", self._info, allow_head=False)
        app.router.add_get("/media/download/{session}/{media}", self._download)

    def ready(self, medium: Medium, request: web.Request) -> dict[str, Json]:
        """Upload ready."""
        base = self._url or f"{request.scheme}://{request.host}"
        return {
            "upload_id": medium.upload,
            "upload_url": f"{base}/media/upload/{medium.upload}",
            "storage_ref": medium.ref,
            "expires_at": _time(medium.expires),
            "method": "PUT",
            "headers": {"Content-Type": medium.mime_type},
        }

    async def _request(self, request: web.Request) -> web.Response:
        owner = self._principal(request)
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.read()
            asked = wire.RequestUpload.model_validate(json.loads(body))
        except ValidationError as error:
            return _error(400, wire.first(error))
        except TimeoutError:
            return _error(408, "the body took too long")
        except (ConnectionError, web.RequestPayloadError):
            return _error(400, "the body broke off")
        except (ValueError, RecursionError):
            return _error(400, "the body is not JSON")
        try:
            return web.json_response(self.ready(self._store.prepare(asked, asked.session_id, owner), request))
        except MediaError as error:
            return _error(error.status, str(error))

    async def _upload(self, request: web.Request) -> web.Response:
        try:
            await self._store.receive(request.match_info["upload"], request)
        except MediaError as error:
            return _error(error.status, str(error))
        return web.Response(status=204)

    async def _info(self, request: web.Request) -> web.Response:
        try:
            medium = self._find(request)
        except MediaError as error:
            return _error(error.status, str(error))
        told = {"storage_ref": medium.ref, "filename": medium.filename, "mime_type": medium.mime_type}
        times = {"created_at": _time(medium.created or 0.0), "expires_at": _time(medium.expires)}
        return web.json_response({**told, "size_bytes": medium.size, **times})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        try:
            medium = self._find(request)
        except MediaError as error:
            return _error(error.status, str(error))
        plain = re.sub(r'[^ -~]|["\\]', "_", medium.filename)
        encoded = quote(medium.filename.encode("utf-8", "replace"), safe="")
        headers = {
            "Content-Type": medium.mime_type,
            "Content-Disposition": f"inline; filename=\"{plain}\"; filename*=UTF-8''{encoded}",
            # A file can be a page with a program in it; here it has no rights.
            "Content-Security-Policy": "sandbox",
            "X-Content-Type-Options": "nosniff",
        }
        return web.FileResponse(self._store.path(medium), headers=headers)

    def _find(self, request: web.Request) -> Medium:
        owner = self._principal(request)
        return self._store.find(request.match_info["session"], request.match_info["media"], owner)


def _time(seconds: float) -> str:
    return wire.timestamp(datetime.fromtimestamp(seconds, UTC))


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
