"""The agents by name. An agent's module is imported only when it is chosen: some need packages that are extras."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vrt_host.agents.base import Agent
from vrt_host.errors import UsageError

LOCAL = "vrt_host.agents.local"

AGENTS = {
    "echo": "says back what it hears; to try a board",
    "scripted": "does what a JSON file says on which input (docs/scripted.md)",
    "local": 'understands speech and runs the device\'s tools, all offline (pip install "vrt-edge[local]")',
    "openai": 'OpenAI Realtime and servers of its dialect (docs/agents/openai.md; pip install "vrt-edge[openai]")',
    "openai_live": 'OpenAI Live, full duplex (docs/agents/openai_live.md; pip install "vrt-edge[openai]")',
    "gemini": 'Gemini Live, with your key (docs/agents/gemini.md; pip install "vrt-edge[gemini]")',
    "aitp": 'an agent behind an OwlLayer server, by AITP (docs/agents/aitp.md; pip install "vrt-edge[aitp]")',
    "omnia": 'an agent behind Omnia\'s facade (docs/agents/omnia.md; pip install "vrt-edge[omnia]")',
    "fish": 'a Fish Audio agent, over LiveKit (docs/agents/fish.md; pip install "vrt-edge[fish]")',
    "chat": 'any chat model, with recognisers and voices by name (docs/agents/chat.md; pip install "vrt-edge[chat,local]")',
}
"""Name -> what it is, for help texts."""

ADAPTERS: dict[str, tuple[str, str, str]] = {
    "openai": ("vrt_host.agents.openai_realtime", "OpenAIAgent", "openai"),
    "openai_live": ("vrt_host.agents.openai_live", "LiveAgent", "openai"),
    "gemini": ("vrt_host.agents.gemini_live", "GeminiLive", "gemini"),
    "aitp": ("vrt_host.agents.aitp", "Aitp", "aitp"),
    "omnia": ("vrt_host.agents.omnia", "OmniaAgent", "omnia"),
    "fish": ("vrt_host.agents.fish", "FishAgent", "fish"),
    "chat": ("vrt_host.agents.chat", "ChatAgent", "chat,local"),
}
"""Name -> module, class and extra of an adapter for somebody's model. The module has the adapter's `Options`."""


def factory(name: str, *, script: Path | None = None, config: Path | None = None) -> Callable[[], Agent]:
    """What makes one agent of that name for each session; raises `UsageError` for what the operator can mend.

    `config` is the file with the adapters' options (agents/options.py).
    """
    if script is not None and name != "scripted":
        raise UsageError(f"--script is for --agent scripted, not for {name}")
    if config is not None and name not in ADAPTERS:
        raise UsageError(f"--config is for an agent with options ({', '.join(ADAPTERS)}), not for {name}")
    if name == "echo":
        return _load("vrt_host.agents.echo", "EchoAgent")
    if name == "scripted":
        if script is None:
            raise UsageError("--agent scripted needs --script FILE; docs/scripted.md describes the file")
        return _scripted(script)
    if name == "local":
        return _load(LOCAL, "LocalAgent")
    if name in ADAPTERS:
        return _Adapter(name, config)
    raise UsageError(f"there is no agent {name!r}; choose one of {', '.join(AGENTS)}")


class _Adapter:
    """Makes one agent with options for each session. What is wrong with the options is told at once."""

    def __init__(self, name: str, config: Path | None) -> None:
        module, made, extra = ADAPTERS[name]
        self._kind = _load(module, made, extra)
        from vrt_host.agents.options import load  # noqa: PLC0415  (its package comes with the adapters' extras)

        options = importlib.import_module(module).Options
        self._options = load(options, name, config, agents=ADAPTERS)
        self.abilities = self._kind.abilities

    def prepare(self) -> None:
        """Load what all sessions share."""
        prepare: Callable[[Any], None] | None = getattr(self._kind, "prepare", None)
        if prepare is not None:
            prepare(self._options)

    def __call__(self) -> Agent:
        made: Callable[[Any], Agent] = self._kind
        return made(self._options)


def prepare(agents: Callable[[], Agent]) -> None:
    """Load what all sessions share, so that the first does not wait for it; may take seconds.

    Raises `UsageError` for what is to be installed: by the agent's own `prepare`, and for Opus where it has nothing else, since
    every client without it needs its packets decoded.
    """
    load = getattr(agents, "prepare", None)
    if load is not None:
        load()
    abilities = getattr(agents, "abilities", None)
    for able in (abilities.inputs, abilities.outputs) if abilities else ():
        if able and all(one.encoding == "opus" for one in able):
            from vrt_host.speech import opus  # noqa: PLC0415  (its numpy is 15 MiB, and few agents need it)

            opus.load()


def _scripted(path: Path) -> Callable[[], Agent]:
    from vrt_host.agents.script import load  # noqa: PLC0415
    from vrt_host.agents.scripted import ScriptedAgent  # noqa: PLC0415

    script = load(path)
    return lambda: ScriptedAgent(script)


def _load(module: str, name: str, extra: str = "local") -> type[Agent]:
    try:
        made: type[Agent] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("vrt_host"):
            raise
        raise UsageError(
            f'the {module.rpartition(".")[2]} agent needs the package {error.name!r}: pip install "vrt-edge[{extra}]"'
        ) from None
    return made
