"""A session of a Fish Audio agent: asked for by HTTP; where to meet it, and why there is none, in words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp

from vrt_host.agents.base import Json
from vrt_host.agents.fish_options import Options
from vrt_host.agents.options import checked_url, shown
from vrt_host.agents.provider import Kind, ProviderError

_ANSWER_BYTES = 65_536
_KINDS: dict[int, tuple[Kind, str | None]] = {
    400: ("format", "check the options"),
    401: ("key", None),
    402: ("quota", None),
    403: ("key", "check the key, or make the agent public"),
    404: ("model", "check the option agent_id"),
    409: ("model", "publish the agent"),
    422: ("format", "check the options"),
    429: ("rate", None),
}
"""HTTP status -> what is wrong."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Where to join, with what."""

    session: str
    url: str
    token: str = field(repr=False)


async def create(options: Options, context: Json) -> Ticket:
    """A new session; raises `ProviderError`."""
    url = f"{options.base_url}/v1/agent/sessions"
    headers = {"Authorization": f"Bearer {shown(options.api_key)}"} if options.api_key else {}
    timeout = aiohttp.ClientTimeout(total=options.connect_timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as client,
            client.post(url, json=options.request(context), headers=headers, allow_redirects=False) as answer,
        ):
            body = await answer.content.read(_ANSWER_BYTES)
            while len(body) < _ANSWER_BYTES and (more := await answer.content.read(_ANSWER_BYTES)):
                body += more
            wait = answer.headers.get("Retry-After", "")
            status = answer.status
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
        raise ProviderError("unreachable", f"its certificate is not trusted: {why}") from None
    except TimeoutError:
        raise ProviderError("unreachable", f"no answer within {options.connect_timeout_s:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise ProviderError("unreachable", str(error) or type(error).__name__) from None
    told = _object(body)
    if status != 201:
        raise _refusal(status, told, float(wait) if wait.isdecimal() else None)
    return _ticket(told, insecure=options.insecure)


def _object(body: bytes) -> dict[str, Json]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _refusal(status: int, told: dict[str, Json], wait: float | None) -> ProviderError:
    said = told.get("message") or told.get("error") or ""
    words = f"{said} (HTTP status {status})" if isinstance(said, str) and said else f"HTTP status {status}"
    if told.get("code") == "unsupported_transport":
        return ProviderError("version", words)
    if 300 <= status < 400:
        return ProviderError("version", f"it sends elsewhere ({words})")
    default: tuple[Kind, str | None] = ("unreachable", None) if status >= 500 else ("refused", None)
    kind, advice = _KINDS.get(status, default)
    if status == 403 and isinstance(said, str) and "origin" in said.lower():
        advice = "allow requests without an origin for this agent, or use a key"
    return ProviderError(kind, words, advice=advice, retry_after_s=wait)


def _ticket(told: dict[str, Json], *, insecure: bool) -> Ticket:
    """Page, "Connect to a session"."""
    transport = told.get("transport")
    if transport is not None and transport != "livekit":
        named = json.dumps(transport, ensure_ascii=False)[:40]
        raise ProviderError("version", f"unsupported transport {named}", advice="update this host")
    texts = [told.get(name) for name in ("session_id", "livekit_url", "token", "expires_at")]
    if transport is None or not all(isinstance(one, str) and one for one in texts):
        raise ProviderError("malformed", "its session lacks what the protocol wants of one")
    session, url, token, expires = map(str, texts)
    try:
        url = checked_url(url, ("wss", "ws"), insecure=insecure)
        deadline = datetime.fromisoformat(expires)
    except ValueError as error:
        raise ProviderError("malformed", f"its session cannot be joined: {error}") from None
    deadline = deadline if deadline.tzinfo else deadline.replace(tzinfo=UTC)
    if deadline <= datetime.now(UTC):
        raise ProviderError(
            "expired", "the session could be joined only until " + expires, advice="set this machine's clock"
        )
    return Ticket(session, url, token)
