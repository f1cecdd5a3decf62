"""`--facade fish`: a Fish Audio agent, whose clients reach this host's agents and the tools of its boards in LiveKit rooms.

Sections are those of Fish Audio's page "Wire Protocol"; `session.ts` and `sessionToken.ts` are of its public code. Clients ask here for
a session, and meet the agent in a room of the operator's LiveKit server: no media pass through this port.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import re
import time
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from aiohttp import web
from pydantic import Field, SecretStr, model_validator

from vrt_host.agents.base import Json
from vrt_host.agents.options import checked_url, shown
from vrt_host.facades import fish_messages as wire
from vrt_host.facades import fish_room, fish_tools
from vrt_host.facades.fish_session import Session
from vrt_host.facades.web import WebFacade, WebOptions, bearer
from vrt_host.runner import printable

log = logging.getLogger(__name__)

PATH = "/v1/agent/sessions"
BODY_BYTES = 65_536
BODY_S = 10.0
"""For a body to come."""
STOP_S = 10.0
"""For all sessions to leave their rooms when the host stops."""
TOKEN_MORE_S = 3600.0
"""The agent's token is valid for so long beyond its session: it is needed for joining again."""
KEYLESS = frozenset({"language", "voice_id"})
"""The overrides of a session that is created without a key (session.ts)."""
Override = Literal["first_message", "first_message_prompt", "system_prompt", "voice_id", "language"]

_SDK = re.compile(r"agent-client/(\d+)\.(\d+)\.")
_CORS = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "authorization, content-type, x-fish-sdk",
    "Access-Control-Max-Age": "600",
}


class Options(WebOptions):
    """The table `[fish_facade]`."""

    secrets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "api_key": ("LIVEKIT_API_KEY",),
        "api_secret": ("LIVEKIT_API_SECRET",),
        "public_token": ("VRT_FISH_FACADE_PUBLIC_TOKEN",),
    }

    port: int = Field(default=8090, ge=0, le=65535)
    livekit_url: str
    """Of the LiveKit server, where the agent joins."""
    client_url: str | None = None
    """The same as clients reach it, if that is another address."""
    insecure: bool = False
    api_key: SecretStr
    api_secret: SecretStr
    public_token: SecretStr | None = None
    """A token of this host's, with which sessions run that are asked for without a key; None: there are none."""
    agent_id: Annotated[str, Field(min_length=1)] | None = None
    """What `agent_id` has to name; None: anything."""
    overrides: Sequence[Override] = ()
    """Those that are taken."""
    tools: Path | None = None
    """Those of the clients (fish_tools)."""
    sessions: int = Field(default=20, ge=1)
    """At once; each costs about a tenth of a core from its creation on, as its track is there also in silence."""
    join_timeout: int = Field(default=60, ge=1, le=3600)
    """Seconds in which the client has to join."""
    max_duration: int = Field(default=1800, ge=1, le=86_400)
    """Seconds of a session."""

    @model_validator(mode="after")
    def _encrypted(self) -> Options:
        for name, url in (("livekit_url", self.livekit_url), ("client_url", self.client_url)):
            try:
                if url is not None:
                    checked_url(url, ("wss", "ws"), insecure=self.insecure)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self


class FishFacade(WebFacade):
    """The server of sessions; is the `Server` of each."""

    name: ClassVar[str] = "fish"
    path: ClassVar[str] = PATH

    def __init__(self, options: Options) -> None:
        """Raises `UsageError` for a tools file that cannot be used."""
        super().__init__(options)
        self.options = options
        self.tools = {} if options.tools is None else fish_tools.load(options.tools)
        self.stopping = False
        self._sessions: set[Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where its clients ask for a session."""
        return "http" + super().url.removeprefix("ws")

    def routes(self, app: web.Application) -> None:
        """One, and what browsers ask before it."""
        app.router.add_post(PATH, self._create)
        app.router.add_options(PATH, self._preflight)
        app.on_shutdown.append(self._leave)

    async def drain(self) -> None:
        """Nobody new is taken; sessions have no end of their own to be waited for."""
        self.stopping = True

    def over(self, session: Session, *, farewell: bool) -> None:
        """That session has ended; its agent leaves the room."""
        if session in self._sessions:
            self._sessions.discard(session)
            self._spawn(session.place.close(farewell=farewell))

    # --- Connect to a session

    async def _preflight(self, request: web.Request) -> web.Response:
        return web.Response(status=204, headers={**_origin(request), **_CORS})

    async def _create(self, request: web.Request) -> web.Response:
        """A refusal can be read by pages of all origins: the client tells its user why."""
        try:
            made = await self._session(request)
        except _Refusal as refusal:
            body = {"message": refusal.message, "code": refusal.code}
            return web.json_response(body, status=refusal.status, headers=_origin(request))
        return web.json_response(made, status=201, headers=_origin(request))

    async def _session(self, request: web.Request) -> dict[str, Json]:
        if not self.admits(request):
            raise _Refusal(403, "origin_forbidden", "this origin is not allowed")
        token = self._token(request)
        asked = await _asked(request)
        self._check(request, asked)
        if self.stopping:
            raise _Refusal(503, "stopping", "the server is stopping")
        if len(self._sessions) >= self.options.sessions:
            raise _Refusal(429, "too_many_sessions", "there are too many sessions now; try again later")
        options = self.options
        session = Session(self, str(uuid.uuid4()), asked, token, most_s=options.max_duration)
        self._sessions.add(session)
        joining = self._spawn(self._join(session))
        try:
            await asyncio.shield(joining)
        except fish_room.RoomError as error:
            why = printable(str(error), 300)
            # One line for the operator: a traceback would tell no more.
            log.error("LiveKit server %s: %s; check livekit_url and the key", options.livekit_url, why)  # noqa: TRY400
        if session.waits(options.join_timeout):
            return self._created(session)
        session.end(None)
        raise _Refusal(503, "transport_unavailable", "the room cannot be opened now")

    def _created(self, session: Session) -> dict[str, Json]:
        options = self.options
        expires = time.time() + options.join_timeout
        return {
            "session_id": session.id,
            "expires_at": datetime.datetime.fromtimestamp(expires, datetime.UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
            "max_duration_seconds": options.max_duration,
            "transport": "livekit",
            "livekit_url": options.client_url or options.livekit_url,
            "token": self._livekit(session.user, session.id, options.join_timeout, agent=False),
        }

    def _token(self, request: web.Request) -> str | None:
        """What the session's guest shows the host."""
        auth, key = self.host.auth, bearer(request)
        if "Authorization" in request.headers:
            if auth.authenticate(key) is None:
                raise _Refusal(401, "unauthorized", "the API key is not valid")
            return key
        if auth.required and auth.authenticate(shown(self.options.public_token)) is None:
            raise _Refusal(403, "agent_not_public", "the agent is not public: an API key is needed")
        return shown(self.options.public_token) if auth.required else None

    def _check(self, request: web.Request, asked: wire.SessionRequest) -> None:
        """What is asked for has to be what there is, and what the client may have."""
        sdk = _SDK.match(request.headers.get("X-Fish-SDK", ""))
        if sdk is not None and (int(sdk[1]), int(sdk[2])) < (0, 1):
            raise _Refusal(409, "unsupported_transport", "this SDK is too old: version 0.1.0 is needed")
        if self.options.agent_id not in (None, asked.agent_id):
            raise _Refusal(404, "agent_not_found", "there is no such agent")
        given = asked.overrides.given.keys()
        if self.host.auth.required and "Authorization" not in request.headers:
            if asked.name is not None:
                raise _Refusal(400, "invalid_request", "name: an API key is needed for it")
            if refused := given - KEYLESS:
                raise _Refusal(
                    400, "invalid_request", f"overrides.{min(refused)}: an API key is needed for it"
                )
        if refused := given - set(self.options.overrides):
            raise _Refusal(400, "invalid_request", f"overrides.{min(refused)}: the agent does not take it")

    def _livekit(self, identity: str, room: str, seconds: float, *, agent: bool) -> str:
        key, secret = shown(self.options.api_key), shown(self.options.api_secret)
        return fish_room.token(key, secret, identity, room, seconds, agent=agent)

    async def _join(self, session: Session) -> None:
        seconds = self.options.join_timeout + self.options.max_duration + TOKEN_MORE_S
        token = self._livekit(f"agent-{session.id[:8]}", session.id, seconds, agent=True)
        await session.place.connect(self.options.livekit_url, token)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _leave(self, _: web.Application) -> None:
        self.stopping = True
        for session in list(self._sessions):
            session.end("agent_hangup")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)


class _Refusal(Exception):
    """An answer that is no session."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def _origin(request: web.Request) -> dict[str, str]:
    """Lets the page that asked read the answer."""
    origin = request.headers.get("Origin")
    return {"Vary": "Origin"} | ({} if origin is None else {"Access-Control-Allow-Origin": origin})


async def _asked(request: web.Request) -> wire.SessionRequest:
    """The body; no more of it is read than it may have."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.content.iter_chunked(16_384):
                body += part
                if len(body) > BODY_BYTES:
                    raise _Refusal(413, "invalid_request", f"the body has more than {BODY_BYTES} bytes")
    except TimeoutError:
        raise _Refusal(408, "invalid_request", "the body did not come") from None
    try:
        return wire.request(bytes(body))
    except wire.InvalidError as error:
        raise _Refusal(400, "invalid_request", str(error)) from None
