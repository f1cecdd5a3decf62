"""The options that the agents for OpenAI's servers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from vrt_host.agents import options
from vrt_host.agents.options import checked_url
from vrt_host.config import is_loopback

INSTRUCTIONS = (
    "You are the voice of a small device. Answer in one or two short spoken sentences. Use its tools when they are asked "
    "for, never pretend to have used one, and say what a tool's result tells, also when it failed."
)


class CommonOptions(options.Options):
    """Where the server is, and who we are."""

    secrets: ClassVar[Mapping[str, tuple[str, ...]]] = {"api_key": ("OPENAI_API_KEY",)}

    insecure: bool = False
    base_url: str = "https://api.openai.com/v1"
    api_key: SecretStr | None = Field(default=None, validate_default=True)
    key_header: Literal["auto", "bearer", "api-key"] = "auto"
    instructions: str = INSTRUCTIONS
    voice: str | None = None
    timeout_s: float = Field(default=10.0, gt=0, le=60)
    session: dict[str, Any] = Field(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, value: str, info: ValidationInfo) -> str:
        schemes = ("https", "wss", "http", "ws")
        return checked_url(value, schemes, insecure=bool(info.data.get("insecure")))

    @field_validator("api_key")
    @classmethod
    def _check_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        url = info.data.get("base_url")
        if value is None and url is not None and not is_loopback(urlsplit(url).hostname or ""):
            raise ValueError(
                "it is missing; set OPENAI_API_KEY, or name a file that holds it by api_key_file"
            )
        return value


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables, with what both have from `above`."""
    both = dict(below)
    for name, value in above.items():
        old = below.get(name)
        both[name] = merged(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return both
