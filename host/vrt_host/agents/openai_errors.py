"""What OpenAI's servers, and those of its dialects, say when something is wrong, as a `ProviderError` of the right kind."""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Mapping
from typing import Any

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidStatus,
)
from websockets.frames import CloseCode

from vrt_host.agents.provider import Kind, ProviderError

_KINDS: dict[str, Kind] = {
    "invalid_api_key": "key",
    "missing_api_key": "key",
    "authentication_error": "key",
    "invalid_authentication": "key",
    "unauthorized": "key",
    "permission_denied": "key",
    "permission_error": "key",
    "model_not_found": "model",
    "invalid_model": "model",
    "unsupported_model": "model",
    "deploymentnotfound": "model",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "rate_limit_exceeded": "rate",
    "rate_limit_error": "rate",
    "too_many_requests": "rate",
    "concurrency_limit_exceeded": "rate",
    "token_expired": "expired",
    "expired_token": "expired",
    "client_secret_expired": "expired",
    "ephemeral_key_expired": "expired",
    "session_expired": "gone",
    "server_error": "gone",
    "internal_error": "gone",
    "internal_server_error": "gone",
    "service_unavailable": "gone",
    "overloaded": "gone",
    "beta_api_shape_disabled": "version",
    "unsupported_api_version": "version",
    "unknown_parameter": "version",
    "missing_required_parameter": "version",
    "unknown_event": "version",
    "unsupported_format": "format",
    "invalid_voice": "format",
}
"""`code` or `type` of an error -> kind."""

BUSY = "conversation_already_has_active_response"
NOT_ACTIVE = "response_cancel_not_active"
_WORDS = {
    "already has an active response": BUSY,
    "no active response": NOT_ACTIVE,
    "incorrect api key": "invalid_api_key",
    "invalid api key": "invalid_api_key",
}
"""In the message of an error -> its code, for servers that leave that out."""

_AUDIO = ("audio", "voice", "format", "speed", "turn_detection")
"""A parameter with one of these in it is a matter of format."""

_STATUS: dict[int, Kind] = {401: "key", 403: "key", 404: "version", 408: "rate", 429: "rate"}
_STATUS |= dict.fromkeys((500, 502, 503, 504), "unreachable")
_NOT_FOUND = "check base_url and model"
_SCHEME = "check base_url (http or https?) and the network"
AGAIN = "say it again"


def code_of(error: Mapping[str, Any]) -> str:
    """The code of an error, "" if it has none."""
    if code := str(error.get("code") or ""):
        return code
    said = str(error.get("message") or "").lower()
    return next((code for words, code in _WORDS.items() if words in said), "")


def kind_of(error: Mapping[str, Any]) -> Kind:
    """The kind of an `error` object with `type`, `code`, `param` and `message`, all of them optional."""
    param = str(error.get("param") or "")
    code, type_ = code_of(error).lower(), str(error.get("type") or "").lower()
    if "session" in param and any(word in param for word in _AUDIO):
        return "format"
    if param in ("model", "session.model"):
        return "model"
    number = int(code) if code.isdigit() and len(code) == 3 else 0
    return _KINDS.get(code) or _KINDS.get(type_) or _STATUS.get(number) or "refused"


def from_error(error: object, *, of_answer: bool = False) -> ProviderError:
    """The `error` of an `error` event, of a failed response (`of_answer`, which nobody tries again), or of a refused request."""
    if not isinstance(error, Mapping):
        return ProviderError("refused", str(error)[:1000])
    said = str(error.get("message") or error.get("code") or error.get("type") or "an error without words")
    kind = kind_of(error)
    return ProviderError(kind, said, advice=AGAIN if of_answer and kind == "gone" else None)


def from_close(error: ConnectionClosed) -> ProviderError:
    """A connection that has ended; its reason may hold a code, as in `invalid_request_error.invalid_api_key`."""
    if error.rcvd is None and error.sent is not None and error.sent.code == CloseCode.MESSAGE_TOO_BIG:
        return ProviderError("gone", "the server sent a message that is too large")
    said = error.rcvd.reason if error.rcvd is not None else ""
    number = f" with {error.rcvd.code}" if error.rcvd is not None else ""
    kind: Kind = next((kind for code, kind in _KINDS.items() if code in said.lower()), "gone")
    return ProviderError(kind, f"the server closed the connection{number}" + (f": {said}" if said else ""))


def from_connect(error: Exception, timeout_s: float) -> ProviderError:
    """A connection that did not come about."""
    if isinstance(error, InvalidStatus):
        return _from_status(error)
    if isinstance(error, ConnectionClosed):
        return from_close(error)
    kind: Kind = "unreachable"
    advice = None
    hung_up = isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)
    if hung_up or isinstance(error, ConnectionResetError):
        said, advice = "the server hung up before it answered", _SCHEME
    elif isinstance(error, InvalidProxy | InvalidHandshake):
        kind, said = "version", f"the server does not speak WebSocket there: {error}"
    elif isinstance(error, ssl.SSLCertVerificationError):
        said = f"the server's certificate is not trusted: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        said, advice = f"the server does not speak TLS there: {error}", _SCHEME
    elif isinstance(error, TimeoutError):
        said = f"the server did not answer within {timeout_s:g} s"
    else:
        said = f"the server cannot be reached: {str(error) or type(error).__name__}"
    return ProviderError(kind, said, advice=advice)


def _from_status(error: InvalidStatus) -> ProviderError:
    response = error.response
    status = response.status_code
    found: object = None
    try:
        body = json.loads(response.body or b"null")
        found = body.get("error", body) if isinstance(body, dict) else None
    except (ValueError, RecursionError):
        pass
    if isinstance(found, str):  # xAI's: the code beside it is a sentence, too
        found = {"message": found}
    said = f"HTTP {status}"
    kind: Kind = "refused"
    if isinstance(found, dict):
        kind = kind_of(found)
        message = found.get("message") or found.get("detail")
        if isinstance(message, str) and message:
            said = f"{message} (HTTP {status})"
    if kind == "refused":
        kind = "unreachable" if status >= 500 else _STATUS.get(status, "refused")
        kind = "version" if status < 400 else kind
    return ProviderError(
        kind,
        said,
        advice=_NOT_FOUND if status == 404 or status < 400 else None,
        retry_after_s=_seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(text: str) -> float | None:
    """A `Retry-After`, None if it is a date or none at all."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
