"""The server: links become connections, connections get sessions (vRT §5). Only this module and `runner` do asyncio.

    await serve(ServerConfig(), agent_factory, ready=print, observer=events.append, stop=event)

`agent_factory()` makes one agent for each session. `ready(port)` is called once the server listens. The coroutine
ends in good order when `stop` is set or when it is cancelled: no new links, clients told, open calls settled,
agents closed. `observer(event)` is told everything that happens, on the event loop; it must be quick. An event is
`{"t": monotonic seconds, "event": name, "session": id or None, ...}` with one of these names:

    link.open (peer)   link.lost (too_large)   link.close (code, reason)   fault (code, text)
    message.in, message.out (message, without credentials, or the text that is none)   audio.in, audio.out (bytes)
    session.connected   session.parked   session.closed
    turn.state (turn, id, epoch, state)   turn.interrupted (turn, id, epoch, reason)   turn.heard (turn, heard)
    call.sent (call, id, name)   call.settled (call, id, name, ok, code)   agent.error (code, message, recoverable)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.http11 import Request, Response
from websockets.typing import Origin

from vrt_host.agents.base import Agent
from vrt_host.auth import ANONYMOUS, Authenticator
from vrt_host.config import ServerConfig, TurnLimits, why_not
from vrt_host.errors import AgentStartError, UsageError
from vrt_host.lending import Lending
from vrt_host.links.base import Link
from vrt_host.links.serial import SerialLink
from vrt_host.links.websocket import CLOSE_TIMEOUT_S, WRITE_LIMIT, WebSocketLink, quiet
from vrt_host.ports import Ports
from vrt_host.runner import Observer, Runner, printable
from vrt_host.seat import Seat
from vrt_host.session import Close, Hello, Limits
from vrt_host.tools import DeclaredTools

if TYPE_CHECKING:
    from vrt_host.updates import Updates  # needs packages that are an extra

log = logging.getLogger(__name__)

READ_ON = 2
"""A message this many times larger than allowed is still read, so that it can be refused by name (decisions 7)."""
HANDSHAKE_S = 10.0
TOKENS_EVERY_S = 5.0
"""How often the tokens file is looked at, so that a revoked token ends the session it opened."""


class Facade(Protocol):
    """Another system's protocol on a port of its own (docs/facades.md)."""

    @property
    def name(self) -> str:
        """Of `--facade`."""

    @property
    def url(self) -> str:
        """Where its clients connect, once it listens."""

    def listen(self, host: Host) -> AbstractAsyncContextManager[None]:
        """Be there for clients meanwhile. Raises `UsageError` when it cannot listen."""

    async def drain(self) -> None:
        """The host is about to stop: let what is under way end, where the protocol wants that; return when it has."""


AgentFactory = Callable[[], Agent]


async def serve(
    config: ServerConfig,
    agent_factory: AgentFactory,
    *,
    limits: Limits | None = None,
    turn_limits: TurnLimits | None = None,
    ready: Callable[[int], None] | None = None,
    observer: Observer | None = None,
    stop: asyncio.Event | None = None,
    link: type[WebSocketLink] = WebSocketLink,
    serial_link: type[SerialLink] = SerialLink,
    updates: Updates | None = None,
    lending: Lending | None = None,
    facades: Sequence[Facade] = (),
) -> None:
    """Serve until `stop` is set; raises `UsageError` when it cannot listen. The module's docstring says the rest."""
    host = Host(
        config,
        agent_factory,
        limits or Limits(),
        turn_limits or TurnLimits(),
        observer,
        updates=updates,
        lending=lending,
    )
    async with contextlib.AsyncExitStack() as stack:
        if updates is not None:
            await stack.enter_async_context(updates.listen(config, host.auth))
        most = READ_ON * host.limits.message_bytes
        await stack.enter_async_context(Ports(config.serial, host.seat, max_message=most, link=serial_link))
        server = await host.listen(link)
        for facade in facades:
            await stack.enter_async_context(facade.listen(host))
            log.info("facade %s: %s", facade.name, facade.url)
        await _serve(host, server, ready, stop, facades)


async def _serve(
    host: Host,
    server: Server,
    ready: Callable[[int], None] | None,
    stop: asyncio.Event | None,
    facades: Sequence[Facade],
) -> None:
    watch = asyncio.create_task(host.watch())
    try:
        if ready is not None:
            ready(server.sockets[0].getsockname()[1])
        await (stop or asyncio.Event()).wait()
        server.close(close_connections=False)
        # Boards are still there meanwhile: the turns that are waited for may need their tools. Who cancels does not wait.
        await asyncio.gather(*(facade.drain() for facade in facades))
    finally:
        watch.cancel()
        server.close(close_connections=False)
        await host.stop()
        with contextlib.suppress(TimeoutError):  # a stranger half way through a handshake is not waited for
            async with asyncio.timeout(host.config.stop_timeout):
                await server.wait_closed()


class Host:
    """All links and sessions of one server."""

    def __init__(
        self,
        config: ServerConfig,
        agent_factory: AgentFactory,
        limits: Limits,
        turn_limits: TurnLimits,
        observer: Observer | None,
        *,
        updates: Updates | None = None,
        lending: Lending | None = None,
    ) -> None:
        self.config = config
        self._offer = (lambda _: {}) if updates is None else updates.offer
        self.limits = limits
        self.observer = observer
        self.auth = Authenticator(config.tokens)
        self.lending = Lending() if lending is None else lending
        self._turn_limits = turn_limits
        self._agent_factory = agent_factory
        self._runners: dict[str, Runner] = {}
        self._seats: set[Seat] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def listen(self, link: type[WebSocketLink] = WebSocketLink) -> Server:
        """Open the port; each client gets a `link`."""
        config = self.config
        options: dict[str, Any] = {"ssl_handshake_timeout": HANDSHAKE_S} if config.tls is not None else {}
        # A name with two addresses would get two different ports from the system; only one can be told.
        host = "127.0.0.1" if config.port == 0 and config.host.lower() == "localhost" else config.host
        try:
            return await serve_websockets(
                self._on_link,
                host or None,
                config.port,
                ssl=config.tls,
                create_connection=link,
                origins=[None, *map(Origin, config.origins)],
                process_request=self._on_request,
                compression=None,  # payloads are compressed sound; for the rest it costs more than it saves
                server_header=None,
                open_timeout=HANDSHAKE_S,
                ping_interval=None,  # vRT has a heartbeat of its own
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=READ_ON * max(self.limits.message_bytes, self.limits.audio_bytes),
                write_limit=WRITE_LIMIT,
                logger=quiet,
                **options,
            )
        except OSError as error:
            raise UsageError(why_not(config, error)) from None
        except UnicodeError:  # a label of the name is empty or too long
            raise UsageError(f"{config.host[:80]} is not an address or a name; give --host another") from None

    async def watch(self) -> None:
        """End the sessions of principals that were revoked; let boards that are idle hear of an update."""
        while self.auth.required:
            await asyncio.sleep(TOKENS_EVERY_S)
            self.auth.reload()
            for runner in list(self._runners.values()):
                if not self.auth.knows(runner.session.principal or ANONYMOUS, runner.token):
                    log.info("session %s: its token was revoked", runner.id[:8])
                    runner.end("UNAUTHORIZED", "the token was revoked", 4401)
                    continue
                session, offer = runner.session, self._offer(runner.session.hello.message)
                if runner.manager.idle and session.announce != offer:
                    session.announce = offer
                    session.renew(asyncio.get_running_loop().time(), "an update is there")

    async def stop(self) -> None:
        """End everything, within `config.stop_timeout` for what does not end by itself."""
        self._stopping = True
        now = asyncio.get_running_loop().time()
        calls = sum(runner.manager.open_calls for runner in self._runners.values())
        log.info("stopping: %d sessions, %d calls without a result", len(self._runners), calls)
        for task in self._starting:
            task.cancel()
        for runner in list(self._runners.values()):
            runner.stop(now)
        for seat in list(self._seats):
            seat.connection.end(Close(1001, "the host is stopping"))
            seat.flush()
        for wait in (self.config.stop_timeout, 1.0):
            if self._tasks:
                _, late = await asyncio.wait(self._tasks, timeout=wait)
                for task in late:
                    task.cancel()

    # --- links

    def _on_request(self, link: ServerConnection, request: Request) -> Response | None:
        """Answer what is no vRT link before the WebSocket handshake."""
        if request.path == "/healthz":
            status = HTTPStatus.SERVICE_UNAVAILABLE if self._stopping else HTTPStatus.OK
            response = link.respond(status, '{"status": "%s"}\n' % ("stopping" if self._stopping else "ok"))
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        if len(self._seats) >= self.config.max_links:
            return link.respond(HTTPStatus.SERVICE_UNAVAILABLE, "too many links\n")
        return None

    async def _on_link(self, link: ServerConnection) -> None:
        """The life of one link."""
        assert isinstance(link, WebSocketLink)
        seat = self.seat(link)
        try:
            link.attach(seat)
            await link.wait_closed()
        finally:
            seat.gone()

    def seat(self, link: Link) -> Seat:
        """A seat for one more client."""
        seat = Seat(self, link)
        self._seats.add(seat)
        return seat

    def left(self, seat: Seat) -> None:
        """Its link is gone."""
        self._seats.discard(seat)

    # --- sessions

    def open(self, seat: Seat, hello: Hello) -> None:
        """Answer a `hello` (§5.2-§5.4)."""
        connection = seat.connection
        principal = self.auth.authenticate(hello.token)
        if principal is None:
            connection.refuse("UNAUTHORIZED", "a valid token is needed")
        elif hello.session_id is not None:
            runner = self._runners.get(hello.session_id)
            if (
                connection.resume(None if runner is None else runner.session, principal, seat.now())
                and runner
            ):
                runner.greeted(hello)
                seat.bind(runner)
        else:
            self._starting.add(task := self._spawn(self._start(seat, hello, principal)))
            task.add_done_callback(self._starting.discard)

    async def _start(self, seat: Seat, hello: Hello, principal: str) -> None:
        """Make an agent and a session for it."""
        # Checking their schemas can take seconds, which nobody else's session should wait for.
        tools = await asyncio.to_thread(DeclaredTools, hello.message.get("tools", ()))
        if self._stopping or len(self._runners) >= self.config.max_sessions:
            seat.connection.refuse("START_FAILED", "the host takes no more sessions now")
            return
        try:
            runner = Runner(
                principal,
                hello,
                tools,
                self._agent(principal, hello, tools),
                limits=self.limits,
                turn_limits=self._turn_limits,
                ended=self._on_end,
                observer=self.observer,
            )
        except Exception:
            log.exception("an agent could not be made")
            seat.connection.refuse("START_FAILED", "the agent cannot be made")
            return
        self._runners[runner.id] = runner
        runner.session.announce = self._offer(hello.message)
        opened = False
        try:
            await runner.start(self.config.start_timeout)
            seat.bind(runner)
            opened = seat.connection.accept(runner.session, seat.now())
        except AgentStartError as error:
            seat.refusal = error
            log.warning("session %s: %s", runner.id[:8], printable(str(error), 300))
            seat.connection.refuse("START_FAILED", str(error))
        except Exception:
            log.exception("session %s: could not be opened", runner.id[:8])
            seat.connection.refuse("START_FAILED", "the session cannot be opened")
        finally:
            if not opened:
                seat.runner = None
                runner.session.close()
        if opened:
            log.info("session %s: opened by %s from %s", runner.id[:8], _who(principal, hello), seat.peer)
            runner.greeted(hello)
            self._replace_older(runner)

    def _agent(self, principal: str, hello: Hello, tools: DeclaredTools) -> Agent:
        """One for this session; a board's may lend its tools. An id alone proves nothing, so a token's name comes first."""
        agent = self._agent_factory()
        board = (principal or _device(hello)) if _is_board(hello) else None
        return self.lending.wraps(board, agent, tools.tools) if board else agent

    def _replace_older(self, runner: Runner) -> None:
        """A board that opens a new session has lost the old one: after a power cut its old link still looks alive.

        An id alone proves nothing, so only a token makes two sessions one board's.
        """
        device = _device(runner.session.hello)
        if runner.session.principal == ANONYMOUS or device is None:
            return
        for other in list(self._runners.values()):
            session = other.session
            same = session.principal == runner.session.principal and _device(session.hello) == device
            if same and other is not runner:
                session.close(4000, "the device opened a newer session")

    def _on_end(self, runner: Runner) -> None:
        self._runners.pop(runner.id, None)
        counters = {name: value for name, value in runner.session.counters().items() if value}
        log.info("session %s: ended%s", runner.id[:8], f" {counters}" if counters else "")
        self._spawn(runner.finish(self.config.stop_timeout))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _device(hello: Hello) -> str | None:
    """The id that a device gives itself."""
    device = hello.message.get("device")
    name = device.get("id") if isinstance(device, dict) else None
    return name if isinstance(name, str) and name else None


def _is_board(hello: Hello) -> bool:
    device = hello.message.get("device")
    return isinstance(device, dict) and isinstance(device.get("board"), str)


def _who(principal: str, hello: Hello) -> str:
    device = _device(hello)
    named = "" if device is None else f" ({printable(device, 64)})"
    return (principal or "anyone") + named
