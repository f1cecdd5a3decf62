"""Options of the agent `gemini`; docs/agents/gemini.md explains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from vrt_host.agents import options

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SCHEMES = {"https": "wss", "wss": "wss", "http": "ws", "ws": "ws"}


class Options(options.Options):
    """`api_key` is a key, or a token of the provider's for a limited time (`auth_tokens/...`)."""

    secrets: ClassVar[Mapping[str, tuple[str, ...]]] = {"api_key": ("GEMINI_API_KEY", "GOOGLE_API_KEY")}

    api_key: SecretStr
    model: str = Field("gemini-3.8-live", min_length=1)
    instructions: str = (
        "You are the voice of a small device in somebody's home. Answer in one or two short sentences. Use the tools to act "
        "and to look. Never say that something was done unless its tool said so."
    )
    voice: str | None = None
    language: str | None = None
    base_url: str = "https://generativelanguage.googleapis.com"
    api_version: str = Field("v1beta", pattern=r"^v\w+$")
    insecure: bool = False
    dialect: Literal["auto", "2", "3.1", "3.8"] = "auto"
    tool_calls: Literal["auto", "blocking", "non_blocking", "default"] = "auto"
    start_sensitivity: Literal["high", "low"] | None = None
    end_sensitivity: Literal["high", "low"] | None = None
    prefix_padding_ms: int | None = Field(None, ge=0, le=10_000)
    silence_ms: int | None = Field(None, ge=0, le=10_000)
    transcripts: bool = True
    compression: bool = True
    connect_timeout_s: float = Field(10.0, gt=0, le=60)
    setup: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _base_url(self) -> Options:
        parts = urlsplit(self.base_url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ValueError("base_url has to be an address such as https://host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("base_url may hold no name, password, query or fragment")
        if _SCHEMES[parts.scheme] == "ws" and parts.hostname not in _LOOPBACK and not self.insecure:
            raise ValueError(
                "base_url has to begin with https://, or set insecure = true to send the key in the clear"
            )
        return self

    def address(self) -> tuple[str, dict[str, str]]:
        """Where to connect, and the headers that carry the secret."""
        parts = urlsplit(self.base_url)
        base = f"{_SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}"
        key = options.shown(self.api_key)
        method, headers = "BidiGenerateContent", {"x-goog-api-key": key}
        if key.startswith("auth_tokens/"):
            method, headers = "BidiGenerateContentConstrained", {"Authorization": f"Token {key}"}
        if parts.path.rpartition(".")[2].startswith("BidiGenerateContent"):
            return base, headers
        service = f"google.ai.generativelanguage.{self.api_version}.GenerativeService"
        return f"{base}/ws/{service}.{method}", headers
