"""Options of the agent `fish`; docs/agents/fish.md explains them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, SecretStr, field_validator, model_validator

from vrt_host.agents import options
from vrt_host.agents.base import Json

_OVERRIDES = ("first_message", "first_message_prompt", "system_prompt", "voice_id", "language")
_PUBLIC = ("voice_id", "language")
"""What a session without a key may override."""


class Options(options.Options):
    """`api_key` is for authenticated sessions; public agents need none."""

    secrets: ClassVar[Mapping[str, tuple[str, ...]]] = {"api_key": ("FISH_API_KEY",)}

    agent_id: str = Field(min_length=1, max_length=256)
    base_url: str = "https://api.fish.audio"
    api_key: SecretStr | None = None
    insecure: bool = False
    name: str | None = Field(None, min_length=1, max_length=128)
    timezone: str | None = None
    client_timezone: str | None = None
    world_context: bool | None = None
    overrides: dict[str, str] = Field(default_factory=dict)
    dynamic_variables: dict[str, str | float | bool] = Field(default_factory=dict)
    end_user_id: str | None = None
    tool_events: bool = True
    metadata: dict[str, Any] = Field(default_factory=dict)
    context_variable: str = "device_context"
    typed_audio: bool = True
    tool_timeout_s: float = Field(30.0, ge=1, le=120)
    connect_timeout_s: float = Field(10.0, gt=0, le=60)

    @field_validator("base_url")
    @classmethod
    def _address(cls, url: str) -> str:
        # Whether it may be unencrypted is asked when `insecure` is known.
        return options.checked_url(url, ("https", "http"), insecure=True)

    @field_validator("overrides")
    @classmethod
    def _known(cls, overrides: dict[str, str]) -> dict[str, str]:
        if unknown := overrides.keys() - set(_OVERRIDES):
            raise ValueError(f"there is no {sorted(unknown)[0]!r}; there are {', '.join(_OVERRIDES)}")
        if {"first_message", "first_message_prompt"} <= overrides.keys():
            raise ValueError("first_message or first_message_prompt, not both")
        return overrides

    @model_validator(mode="after")
    def _together(self) -> Options:
        try:
            options.checked_url(self.base_url, ("https", "http"), insecure=self.insecure)
        except ValueError as error:
            raise ValueError(f"base_url: {error}") from None
        if self.api_key is None:
            if self.name is not None:
                raise ValueError("name: a session without a key has no name")
            if barred := self.overrides.keys() - set(_PUBLIC):
                raise ValueError(f"overrides: {sorted(barred)[0]} needs a key")
        return self

    def request(self, context: Json) -> dict[str, Json]:
        """The body of the request for a session; what is not set is left out."""
        optional = ("name", "timezone", "client_timezone", "world_context", "end_user_id")
        body: dict[str, Json] = {"agent_id": self.agent_id}
        body |= {name: value for name in optional if (value := getattr(self, name)) is not None}
        variables = dict(self.dynamic_variables)
        if context is not None and self.context_variable:
            variables[self.context_variable] = json.dumps(context, ensure_ascii=False)
        more = {"overrides": self.overrides, "dynamic_variables": variables, "metadata": self.metadata}
        body |= {name: value for name, value in more.items() if value}
        if not self.tool_events:
            body["tool_events"] = False
        return body
