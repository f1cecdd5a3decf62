"""Options of the agent `omnia`; docs/agents/omnia.md explains them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlencode, urlsplit, urlunsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from vrt_host.agents import options
from vrt_host.agents.omnia_messages import metadata_fault

_FACET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
_SCHEMES = {"https": "wss", "wss": "wss", "http": "ws", "ws": "ws"}
DECLARE_BYTES = 16 * 1024


class Options(options.Options):
    """`api_key` is the bearer token: a client's key, or a JWT of an identity provider."""

    secrets: ClassVar[Mapping[str, tuple[str, ...]]] = {"api_key": ("OMNIA_API_KEY",)}

    base_url: str
    agent: str | None = Field(None, min_length=1, max_length=253)
    namespace: str | None = Field(None, min_length=1, max_length=253)
    memory_facet: str | None = None
    api_key: SecretStr | None = None
    credential_file: Path | None = None
    binary: bool = True
    insecure: bool = False
    context: Literal["message", "metadata", "off"] = "message"
    metadata: dict[str, str] = Field(default_factory=dict)
    declare: dict[str, Any] = Field(default_factory=dict)
    disclosure: str = "You are speaking with an AI."
    output_rate: int | None = Field(None, ge=8_000, le=48_000)
    tool_timeout_s: float = Field(60.0, gt=0, le=3600)
    connect_timeout_s: float = Field(10.0, gt=0, le=60)

    @field_validator("base_url")
    @classmethod
    def _address(cls, url: str) -> str:
        # Whether it may be unencrypted is asked when `insecure` is known.
        return options.checked_url(url, tuple(_SCHEMES), insecure=True)

    @field_validator("memory_facet")
    @classmethod
    def _facet(cls, facet: str | None) -> str | None:
        if facet is not None and not _FACET.fullmatch(facet):
            raise ValueError(
                "it has to be 1 to 128 letters, digits and _ . : / -, the first a letter or digit"
            )
        return facet

    @field_validator("metadata")
    @classmethod
    def _limits(cls, metadata: dict[str, str]) -> dict[str, str]:
        if fault := metadata_fault(metadata):
            raise ValueError(fault)
        return metadata

    @field_validator("declare")
    @classmethod
    def _declared(cls, declare: dict[str, Any]) -> dict[str, Any]:
        if len(json.dumps(declare, ensure_ascii=False, allow_nan=False).encode()) > DECLARE_BYTES:
            raise ValueError(f"it may have {DECLARE_BYTES:,} bytes as JSON")
        return declare

    @model_validator(mode="after")
    def _together(self) -> Options:
        try:
            options.checked_url(self.base_url, tuple(_SCHEMES), insecure=self.insecure)
        except ValueError as error:
            raise ValueError(f"base_url: {error}") from None
        if self.api_key is not None and self.credential_file is not None:
            raise ValueError("a key and a credential_file: give one of them")
        return self

    def address(self, resume: str | None = None) -> str:
        """Where to connect; `resume` is the session to take up again. No secret is in it."""
        parts = urlsplit(self.base_url)
        path = parts.path if parts.path.endswith("/ws") else f"{parts.path}/ws"
        query = {
            "agent": self.agent,
            "namespace": self.namespace,
            "binary": "true" if self.binary else None,
            "resume": resume,
            "memory_facet": self.memory_facet,
        }
        given = urlencode({name: value for name, value in query.items() if value is not None})
        return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path, given, ""))

    def http(self, path: str) -> str:
        """The address of one of the facade's HTTP routes, which are outside of `/ws`."""
        parts = urlsplit(self.base_url)
        scheme = "https" if _SCHEMES[parts.scheme] == "wss" else "http"
        return urlunsplit((scheme, parts.netloc, parts.path.removesuffix("/ws") + path, "", ""))
