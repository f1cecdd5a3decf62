"""What the operator decides about the host, checked before anything listens."""

from __future__ import annotations

import errno
import ipaddress
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from vrt_host.errors import UsageError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8765

# As browsers write it in their Origin header (RFC 6454 section 6.2); what is written otherwise would never be met.
_ORIGIN = re.compile(r"(https?)://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::([1-9][0-9]{0,4}))?")
_USUAL_PORT = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Times of turns in seconds, and how much an agent may pile up."""

    buffer_ms: int = 600
    """Audio in flight to a device that announces no limit (decisions 11)."""
    queued_calls: int = 16
    """Calls at a device that announces no limit."""
    playback_wait: float = 0.3
    """How long an interruption waits for what the device played (decisions 14)."""
    call_margin: float = 2.0
    """Added to the device's own deadline of a call, which includes the wait for a confirmation (decisions 8)."""
    drain_s: float = 4.0
    """Seconds of audio that may wait before `Port.drain` makes the agent wait."""
    agent_audio_s: float = 60.0
    """Seconds of audio that may wait; an agent that is further ahead has its turn ended."""
    agent_silence: float = 120.0
    """A response in which nothing happens for so long is given up."""
    events: int = 10_000
    """Events an agent may queue between two ticks; more end the session."""
    per_turn: int = 256
    """Calls, and audio items, in one turn; more end it."""
    held: int = 64
    """Messages of the client that may wait for the truncation of the turn before."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where and for whom the host listens. Times are seconds."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    """0 lets the system choose one."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tokens: Path | None = None
    insecure: bool = False
    origins: tuple[str, ...] = ()
    """Browser origins that may connect; what sends no Origin header is no browser and is not asked."""
    serial: tuple[str, ...] = ()
    """Serial ports with a board each, besides the network."""
    max_links: int = 512
    """Open links; more are refused with HTTP 503."""
    max_sessions: int = 512
    """Sessions, parked ones included; more are refused with START_FAILED."""
    start_timeout: float = 30.0
    """How long an agent may take to get ready."""
    stop_timeout: float = 5.0
    """How long agents and links may take to end when the host stops."""
    tls: ssl.SSLContext | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises `UsageError` for what cannot work or would be unsafe."""
        if not 0 <= self.port <= 65535:
            raise UsageError(f"{self.port} is not a port; give a number from 0 to 65535")
        for origin in self.origins:
            _check_origin(origin)
        if (self.tls_cert is None) != (self.tls_key is None):
            given, missing = ("--tls-cert", "--tls-key") if self.tls_cert else ("--tls-key", "--tls-cert")
            raise UsageError(
                f"{given} needs {missing} too: TLS takes a certificate and its key, both as PEM files"
            )
        if self.tls_cert is not None and self.tls_key is not None:
            object.__setattr__(self, "tls", load_tls(self.tls_cert, self.tls_key))
        if not self.insecure and not is_loopback(self.host) and (self.tls is None or self.tokens is None):
            raise UsageError(
                f"{self.host or 'every address'} can be reached from outside: give --tls-cert, --tls-key and --tokens, "
                "listen on 127.0.0.1, or accept the risk with --insecure"
            )

    @property
    def scheme(self) -> str:
        """What URLs of this host begin with."""
        return "ws" if self.tls is None else "wss"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. Names other than `localhost` may point anywhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_tls(cert: Path, key: Path) -> ssl.SSLContext:
    """A server's TLS context; raises `UsageError` naming the file that cannot be used."""
    for name, path in (("certificate", cert), ("key", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f"cannot read the TLS {name} {path}: {error.strerror or error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase would ask on the terminal and hang a service: the empty answer makes it an error.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(
            f"{cert} and {key} are not a certificate and its key without a passphrase, as PEM ({reason})"
        ) from None
    return context


def _check_origin(origin: str) -> None:
    match = _ORIGIN.fullmatch(origin)
    port = None if match is None else match[2]
    if match is None or (port is not None and not 0 < int(port) < 65536) or port == _USUAL_PORT[match[1]]:
        raise UsageError(
            f"{origin!r} is not an origin; write it as https://HOST or https://HOST:PORT, as browsers do: in lower case, "
            "without a port that is the usual one"
        )


def why_not(config: ServerConfig, error: OSError) -> str:
    """Why it cannot be listened there, and what to do about it."""
    where = f"{config.host or 'every address'} port {config.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use: stop the program that has it, or choose another --port (0: any free one)"
    if error.errno == errno.EACCES:
        return f"{where} may not be opened by this user: choose a --port above 1023"
    return f"cannot listen on {where}: {error.strerror or error}; give --host an address of this machine"
