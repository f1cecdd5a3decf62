"""Options of the agent `aitp`; docs/agents/aitp.md explains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from vrt_host.agents import options

PATH = "/owllayer"
"""Where OwlLayer's servers listen."""


class Options(options.Options):
    """`api_key` goes out in a header and in the first message, never in the address."""

    secrets: ClassVar[Mapping[str, tuple[str, ...]]] = {"api_key": ("AITP_API_KEY",)}

    url: str
    api_key: SecretStr | None = None
    insecure: bool = False
    voice: Literal["live", "message"] = "live"
    vad: Literal["loudness", "silero", "server"] = "loudness"
    silence_ms: int = Field(500, ge=100, le=3000)
    longest_s: float = Field(30.0, ge=1, le=60)
    pending_results: bool = True
    connect_timeout_s: float = Field(10.0, gt=0, le=20)
    reconnect_delay_ms: int = Field(2000, ge=0, le=60_000)
    reconnect_attempts: int = Field(10, ge=0, le=100)

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        try:
            options.checked_url(self.url, ("wss", "ws"), insecure=self.insecure)
        except ValueError as error:
            raise ValueError(f"url: {error}") from None
        if self.voice == "message" and self.vad == "server":
            raise ValueError(
                'vad: whole messages of speech are cut by this host: choose "loudness" or "silero"'
            )
        return self

    def address(self) -> tuple[str, dict[str, str]]:
        """Where to connect, and the header that carries the key."""
        url = self.url.rstrip("/")
        if not urlsplit(url).path:
            url += PATH
        key = options.shown(self.api_key)
        return url, {"Authorization": f"Bearer {key}"} if key else {}
