"""The facades by name. A facade's module is imported only when it is chosen: its packages are an extra."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_host.errors import UsageError

if TYPE_CHECKING:
    from vrt_host.server import Facade

FACADES: dict[str, tuple[str, str, str]] = {
    "aitp": ("vrt_host.facades.aitp", "AitpFacade", "an AITP 1.0.0 server, for OwlLayer's clients"),
    "omnia": ("vrt_host.facades.omnia", "OmniaFacade", "an Omnia agent facade, for Omnia's clients"),
    "fish": (
        "vrt_host.facades.fish",
        "FishFacade",
        "a Fish Audio agent in LiveKit rooms, for Fish Audio's clients",
    ),
}
"""Name -> module, class, what it is. The module has the facade's `Options`, the table `[NAME_facade]` of the options file."""


def make(name: str, config: Path | None) -> Facade:
    """A facade with its options; raises `UsageError` for what the operator can mend."""
    module, kind, _ = FACADES[name]
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("vrt_host"):
            raise
        extras = "facades,fish" if name == "fish" else "facades"  # LiveKit's SDK is large
        raise UsageError(
            f'the {name} facade needs the package {error.name!r}: pip install "vrt-edge[{extras}]"'
        ) from None
    from vrt_host.agents.options import load  # noqa: PLC0415  (its package comes with the same extra)
    from vrt_host.agents.registry import ADAPTERS  # noqa: PLC0415

    options: Any = load(imported.Options, f"{name}_facade", config, agents=ADAPTERS)
    made: Facade = getattr(imported, kind)(options)
    return made
