"""The options of the chat agent; `docs/agents/chat.md` tells what each is for."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SecretStr, model_validator

from vrt_host.agents import options
from vrt_host.agents.options import checked_url
from vrt_host.speech import parts

INSTRUCTIONS = (
    "You are the voice of a small device with a microphone, a loudspeaker and tools that act on the real world. "
    "Answer in one or two short sentences that are pleasant to hear: no lists, no formatting, no emoji. "
    "When the user wants something done that a tool can do, call it. Say that something was done only if the tool's result "
    "says so; if it failed or was rejected, say that."
)


class Options(options.Options):
    """The table `[chat]`."""

    secrets = {  # noqa: RUF012  (a ClassVar of the base)
        "api_key": ("OPENAI_API_KEY",),
        "recogniser_key": ("VRT_RECOGNISER_KEY",),
        "synthesiser_key": ("VRT_SYNTHESISER_KEY",),
    }

    model: str = Field(min_length=1)
    base_url: str = "https://api.openai.com/v1"
    api_key: SecretStr | None = None
    insecure: bool = False
    instructions: str = INSTRUCTIONS
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    extra: dict[str, Any] = Field(default_factory=dict)
    timeout_s: float = Field(45.0, gt=0, le=110)
    history: int = Field(20, ge=1, le=200)
    recogniser: parts.RecogniserName = "moonshine"
    recogniser_url: str | None = None
    recogniser_key: SecretStr | None = None
    recogniser_model: str | None = None
    language: str | None = None
    synthesiser: parts.SynthesiserName = "piper"
    synthesiser_url: str | None = None
    synthesiser_key: SecretStr | None = None
    synthesiser_model: str | None = None
    voice: str | None = None
    vad: parts.VadName = "silero"
    silence_ms: int = Field(500, ge=100, le=3000)
    longest_s: float = Field(30.0, ge=1, le=120)

    @model_validator(mode="after")
    def _addresses(self) -> Options:
        web, tcp = ["https", "http"], ["tcp"]
        urls = [("base_url", self.base_url, web)]
        for name, kind, url in (
            ("recogniser_url", self.recogniser, self.recogniser_url),
            ("synthesiser_url", self.synthesiser, self.synthesiser_url),
        ):
            if kind == "wyoming" and url is None:
                raise ValueError(
                    f"{name} is missing: where the Wyoming server is, such as tcp://127.0.0.1:10300"
                )
            if url is not None:
                urls.append((name, url, tcp if kind == "wyoming" else web))
        for name, url, schemes in urls:
            try:
                checked_url(url, schemes, insecure=self.insecure)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self
