"""Which modules of the firmware a board gets as one, what the others are called there, and which names stay: see firmware.py."""

from __future__ import annotations

from collections.abc import Mapping

JOINED: Mapping[str, tuple[str, ...]] = {
    "vrt": (
        *("vrt", "vrt.errors", "vrt.log", "vrt.links", "vrt.ui"),
        *("vrt.protocol", "vrt.protocol.grammar", "vrt.protocol.tables", "vrt.protocol.wire", "vrt.protocol.stream"),
        *("vrt.protocol.lifecycle", "vrt.protocol.session"),
        *("vrt.audio", "vrt.audio.dsp", "vrt.audio.mic", "vrt.audio.speaker", "vrt.sound"),
        *("vrt.tools.arguments", "vrt.tools", "vrt.tools.call", "vrt.tools.confirm", "vrt.tools.journal"),
        *("vrt.tools.registry", "vrt.conversation", "vrt.app"),
    ),
    "vrt.ws": ("vrt.links.frames", "vrt.links.websocket", "vrt.links.ws"),
    "vrt.serial": ("vrt.links.stuffing", "vrt.links.sender", "vrt.links.framing", "vrt.links.serial"),
    "vrt.wifi": ("vrt.links.wifi", "vrt.setup.forget"),
    "vrt.codecs": (*("vrt.audio.codecs" + one for one in ("", ".es8311", ".es7210", ".expander")),),
    "vrt.live": ("vrt.setup.live",),
    "vrt.stream": ("vrt.tools.stream",),
    "vrt.connect": ("vrt.links.upgrade", "vrt.links.connect"),
    "vrt.make": ("vrt.audio.formats", "vrt.audio.make"),
    "vrt.declare": ("vrt.tools.declaration", "vrt.tools.recovery"),
    "vrt.shelf": ("vrt.tools.rules", "vrt.tools.shelf"),
    "vrt.seldom": ("vrt.figures", "vrt.tools.report", "vrt.hello", "vrt.protocol.opening", "vrt.ready", "vrt.protocol.surrogates"),
}  # fmt: skip
"""What becomes one module, in an order in which each finds what it needs."""
FORGOTTEN = ("vrt.connect", "vrt.make", "vrt.declare", "vrt.shelf", "vrt.seldom")
"""Of these those that do not stay."""
TEXTS = "vrt.text"
"""The module of texts that are loaded when they are said."""
FLAT: Mapping[str, str] = {
    "vrt.build": "vrt.start",
    "vrt.audio.probe": "vrt.echo",
}
"""Modules that stay apart and whose last name the device would not have otherwise: what they are called there."""
TWINS = {
    "vrt.audio.dsp": "vrt.audio.dsp_plain",
    "vrt.links.frames": "vrt.links.frames_plain",
    "vrt.links.stuffing": "vrt.links.stuffing_plain",
}
"""Modules of machine code, and what takes their place on a runtime that has none."""
PUBLIC = {
    "vrt.tools": ("tool", "current"),
    "vrt.errors": ("VrtError", "ConfigError"),
    "vrt.volume": ("volume",),
}
"""What tools and boards of others import: module -> names."""
PROBED = {
    "vrt.config": ("checked",),
    "vrt.links.url": ("parse",),
    "vrt.links.tls": ("context",),
    "vrt.links.wifi": ("explain",),
}
"""What the host calls at a board's prompt (settings.py, probes.py), whichever version is on it."""
SEEN = ("call_id", "turn_id", "epoch", "cancelled")
"""What they see of our objects."""
