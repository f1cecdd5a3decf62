"""agents/dial.py: what leads to no WebSocket is told like any other failure of the network, and the environment's proxy sees no key."""

import asyncio
import os
import ssl
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET

import pytest
from agent_stage import answering
from self_signed import self_signed
from vrt_host.agents.aitp_link import Link
from vrt_host.agents.aitp_messages import AitpError
from vrt_host.agents.dial import Dial, goodbye
from websockets.asyncio.server import serve


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate that nobody signed, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))[:2]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


async def test_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch):
    """It is another machine, and what goes to this one is not encrypted: the key would be read on the way."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with answering() as (port, _):
        for host in ("127.0.0.1", "localhost"):
            socket = await Dial(f"ws://{host}:{port}/")
            await goodbye(socket, 0.01)


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("ftp://user:secret@proxy.example", "the proxy of the environment is not valid"),
        ("http://proxy.example:99999", "Port out of range"),
        ("socks5://proxy.example", "SOCKS"),
    ],
)
async def test_proxy_that_cannot_be_used_is_told_without_its_password(monkeypatch, proxy, said):
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(OSError, match=said) as caught:
        await Dial("ws://agents.example/")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", b""])
async def test_proxy_that_does_not_connect_may_do_so_later(monkeypatch, answer):
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        with pytest.raises(OSError, match="the proxy of the environment does not connect"):
            await Dial("ws://agents.example/")


async def test_name_that_no_computer_can_have_is_told():
    with pytest.raises(OSError, match="label"):
        await Dial(f"ws://{'a' * 64}.example/")


async def _wait(socket):
    await socket.wait_closed()


async def test_certificate_that_is_not_trusted_is_told_as_such(certificate):
    """So that each adapter can say so; it is a `ValueError` as well."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with serve(_wait, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError):
            await Dial(f"wss://127.0.0.1:{port}/")
        link = Link.open(f"wss://127.0.0.1:{port}/", {}, {}, 5.0)
        with pytest.raises(AitpError, match="its certificate is not trusted: self-signed certificate"):
            await link


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 101 Switching"])
async def test_server_that_hangs_up_before_it_answers_may_be_there_later(first):
    async def hang_up(_, writer):
        writer.write(first)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        with pytest.raises(ConnectionResetError, match="without an answer"):
            await Dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


async def test_peer_that_does_not_read_is_left_all_the_same():
    """A close frame waits behind all that was sent before it."""
    left = asyncio.Event()

    async def deaf(socket):
        socket.transport.pause_reading()
        socket.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_RCVBUF, 4096)
        await left.wait()

    async with serve(deaf, "127.0.0.1", 0, close_timeout=0.1) as server:
        socket = await Dial(
            f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", close_timeout=60, compression=None
        )
        socket.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 4096)
        sending = asyncio.create_task(socket.send(b"\0" * (8 << 20)))
        await asyncio.sleep(0)  # all of it is written at once
        assert socket.transport.get_write_buffer_size() > 1 << 20
        await goodbye(socket, 0.01)
        await asyncio.gather(sending, return_exceptions=True)
        assert socket.transport.is_closing()
        left.set()
