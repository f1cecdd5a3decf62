"""The host's errors.

VrtError
├── UsageError          bad input from the operator; the message is one line that says what to do (exit code 2)
├── ProtocolError
│   ├── LocalError      we broke the protocol: a bug in this host
│   └── RemoteError     the peer broke it; `code` is the vRT code to answer with (§9.1)
└── AgentStartError     an agent refused to start; the client sees START_FAILED
"""

from __future__ import annotations


class VrtError(Exception):
    """Root of everything this package raises on purpose."""


class UsageError(VrtError):
    """Bad input from the operator: one line that says what is wrong and what to do."""


class ProtocolError(VrtError):
    """The vRT protocol was broken."""


class LocalError(ProtocolError):
    """This side broke the protocol."""


class RemoteError(ProtocolError):
    """The peer broke the protocol; `code` is what §9.1 answers."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AgentStartError(VrtError):
    """The agent cannot serve this session; the message is shown to the operator and the client."""
