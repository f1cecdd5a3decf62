"""What the server is told of the device, as of a page of a website ("3. CONTEXT_UPDATE"): its tools, and the application's context."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vrt_host.agents import aitp_messages as messages
from vrt_host.agents.aitp_messages import Frame, HandshakeAck
from vrt_host.agents.aitp_tools import declaration, named
from vrt_host.agents.base import Json, Tool

log = logging.getLogger(__name__)

BEFORE = "earlierConversation"
"""The member of the context that tells a new session of the server's what was said in the one before."""
_TITLE = "vRT device"


class Page:
    """One session's; `due`: the server does not know it as it is."""

    def __init__(self, tools: Sequence[Tool], context: Json) -> None:
        self._all = tools
        self._taken: Sequence[Tool] = ()
        self._context = _object(context)
        self._refused = False
        self.due = False

    def change(self, context: Json) -> None:
        """The application's context is another."""
        self._context, self.due = _object(context), True

    def heed(self, ack: HandshakeAck) -> None:
        """What the server does not take is left out, and told."""
        self.due = True
        self._taken = self._all[: ack.max_active_tools] if "tools" in ack.capabilities else ()
        left_out = self._all[len(self._taken) :]
        if left_out:
            log.warning(
                "aitp: the server takes %s tools: it will not call %.500s",
                ack.max_active_tools if self._taken else "no",
                named(left_out),
            )

    def update(self, before: Sequence[Frame]) -> Frame:
        """CONTEXT_UPDATE; `before` is what was said in the session before."""
        self.due = False
        context = messages.fitting(self._context, before, BEFORE)
        if context is None:
            if not self._refused:
                self._refused = True
                log.warning(
                    "aitp: the application's context is larger than the %d bytes that the server takes; it is not told",
                    messages.CONTEXT_BYTES,
                )
            context = messages.fitting({}, before, BEFORE)
        else:
            self._refused = False
        tools = [declaration(tool) for tool in self._taken]
        return {"url": "", "title": _TITLE, "activeTools": tools, "context": context or {}}


def _object(context: Json) -> Frame:
    """As AITP takes it."""
    return context if isinstance(context, dict) else {} if context is None else {"application": context}
