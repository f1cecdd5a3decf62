"""Errors of an Omnia facade, ends of its connections and refusals, as the kinds that all adapters know."""

from __future__ import annotations

from collections.abc import Mapping

from vrt_host.agents.base import Json
from vrt_host.agents.provider import Kind, ProviderError

ERRORS: dict[str, tuple[Kind, str]] = {
    "INVALID_MESSAGE": ("refused", "say it in other words"),
    "SESSION_EXPIRED": ("refused", "say it again: a new session begins"),
    "INTERNAL_ERROR": ("refused", "ask again; the facade's log says why"),
    "UPLOAD_FAILED": ("refused", "the file was not handed over; try it again"),
    "MEDIA_NOT_ENABLED": ("refused", "write to this agent, or enable its media in Omnia"),
    "RATE_LIMITED": ("rate", "wait a little and ask again"),
    "TURN_IN_PROGRESS": ("rate", "wait until the answer before is there, and ask again"),
    "UNSATISFIABLE_FORMAT": ("refused", "write to this agent: it takes no audio of ours"),
    "pack_compile_failed": ("model", "mend the agent's source in Omnia"),
    "SESSION_DECLARATION_REFUSED": ("format", "mend the option declare"),
    "MAX_ROUNDS_EXCEEDED": ("refused", "ask again to let it go on"),
    "PROVIDER_RATE_LIMITED": ("rate", "wait a little and ask again"),
    "PROVIDER_UNAVAILABLE": ("unreachable", "ask again shortly"),
    "PROVIDER_STALLED": ("gone", "ask again to let it go on"),
    "PROVIDER_TIMEOUT": ("unreachable", "ask again shortly"),
    "PROVIDER_AUTH_FAILED": ("key", "mend the agent's Provider or its workload identity in Omnia"),
    "CREDENTIAL_EXPIRED": ("expired", "get a new credential"),
    "DUPLEX_ERROR": ("gone", "speak again: the audio session is begun anew"),
}
"""Code -> what kind of fault it is, which says whether there is hope, and what can be done."""

UNTAKEN = ("SESSION_EXPIRED", "TURN_IN_PROGRESS", "RATE_LIMITED", "SESSION_DECLARATION_REFUSED")
"""The message was not processed, and could be as it is another time."""
_HOPE = ("SandboxUnavailable", "MaxInstances", "SessionInitFailed")
"""Reasons of a refused declaration that may be over in a while."""


def judged(code: str, said: str, details: Mapping[str, Json]) -> ProviderError:
    """An `error` (page, "Error codes"); of a code that is unknown, its own words alone."""
    kind, advice = ERRORS.get(code, ("refused", "ask again"))
    more = [str(details[name]) for name in ("error", "reason", "message") if details.get(name)]
    said = ": ".join(dict.fromkeys([said, *more]))
    if code == "SESSION_DECLARATION_REFUSED" and str(details.get("reason")) in _HOPE:
        kind, advice = "refused", "ask again in a while"
    return ProviderError(kind, f"{said} ({code})" if said else code, advice=advice)


_OF_UPLOAD = frozenset(
    (
        "INVALID_MESSAGE",
        "SESSION_EXPIRED",
        "INTERNAL_ERROR",
        "UPLOAD_FAILED",
        "MEDIA_NOT_ENABLED",
        "RATE_LIMITED",
        "TURN_IN_PROGRESS",
        "TOO_LARGE",
    )
)


def of_upload(code: str, said: str) -> bool:
    """Whether an `error` that comes while an upload was asked for may be about that: not about audio, or a call."""
    return code in _OF_UPLOAD and not of_audio(said) and "tool call" not in said


def of_audio(said: str) -> bool:
    """Whether the words of an error are about the user's audio (peer facts, 4.2, 4.5 and 4.6)."""
    return any(word in said for word in ("audio", "media rate", "binary"))


def closed(code: int, reason: str) -> ProviderError:
    """The end of a connection."""
    if code == 4401:
        return ProviderError("expired", f"the credential has expired ({code} {reason})")
    if code == 1009:
        return ProviderError("malformed", f"a message was too large for it ({code} {reason})")
    return ProviderError("gone", f"it closed the connection ({code} {reason})".replace(" )", ")"))


def refused(status: int, said: str, retry_after_s: float | None) -> ProviderError:
    """The answer to an upgrade that was none."""
    said = f"{said} (HTTP status {status})" if said else f"HTTP status {status}"
    kinds: dict[int, tuple[Kind, str | None]] = {
        400: ("format", "check the options agent, namespace and memory_facet"),
        401: ("key", None),
        403: ("format", "check memory_facet, and what this credential may reach"),
        404: ("model", "check the address and the name of the agent"),
        429: ("rate", None),
        503: ("rate", "it has no room, or is going down: try again in a while"),
    }
    kind, advice = kinds.get(status, ("unreachable" if status >= 500 else "refused", None))
    return ProviderError(kind, said, advice=advice, retry_after_s=retry_after_s)
