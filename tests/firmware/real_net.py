# Real sockets on this machine, for tests of the link on MicroPython.
import sys
import time

from fake_socket import FakeNet
from peer import ANSWER
from support import SkipTest
from vrt.links import CLOSED, NONE, OPEN, connect

ON_MICROPYTHON = sys.implementation.name == "micropython"
REAL = {"socket": connect.socket, "select": connect.select, "os": connect.os}


class SmallNet:
    # The real module, with sockets that soon take no more.
    SOCK_STREAM = REAL["socket"].SOCK_STREAM

    def getaddrinfo(self, *name):
        return REAL["socket"].getaddrinfo(*name)

    def socket(self, *kind):
        made = REAL["socket"].socket(*kind)
        made.setsockopt(1, 7, 4096)  # SO_SNDBUF
        return made


def on_the_real_net():
    if not ON_MICROPYTHON:
        raise SkipTest("no MicroPython socket")
    connect.socket, connect.select, connect.os = SmallNet(), REAL["select"], REAL["os"]


def listen():
    # A listening socket and its port.
    socket = REAL["socket"]
    for port in range(20000 + time.ticks_us() % 20000, 60000):
        sock = socket.socket()
        sock.setsockopt(1, 2, 1)  # SO_REUSEADDR
        sock.setsockopt(1, 8, 4096)  # SO_RCVBUF
        try:
            sock.bind(socket.getaddrinfo("127.0.0.1", port)[0][-1])
            sock.listen(1)
        except OSError:
            sock.close()
            continue
        return sock, port
    raise AssertionError("no free port")


def until(link, *events):
    # Polls until one of the events comes.
    poll = REAL["select"].poll()
    for _ in range(500):
        event = link.poll(time.ticks_ms())
        if event in events:
            return event
        if link.sock and not link.unread():
            poll.register(link.sock, 1)
            poll.poll(10)
            poll.unregister(link.sock)
    raise AssertionError("no such event")


class Host:
    # The other end of a link on this machine, in the same thread.
    def __init__(self, link, listening, key=None, certificate=None):
        self.link = link
        link.open(time.ticks_ms())
        self.sock, _ = listening.accept()
        listening.close()
        self.sock.setblocking(False)
        if key:
            import ssl  # noqa: PLC0415  (MicroPython's, where there is one)

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.sock = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
        self.got = b""

    def read(self, n):
        # At least n bytes, while the link goes on.
        for _ in range(2000):
            self.got += self.sock.read(4096) or b""
            if len(self.got) >= n:
                return self.got
            event = self.link.poll(time.ticks_ms())
            assert event != CLOSED, self.link.close_reason
            time.sleep_us(100)
        raise AssertionError("too few bytes")

    def upgrade(self):
        # Up to OPEN.
        for _ in range(20000):
            self.got += self.sock.read(4096) or b""
            if self.got.endswith(b"\r\n\r\n"):
                break
            assert self.link.poll(time.ticks_ms()) == NONE, self.link.close_reason
        self.sock.write(ANSWER)
        assert until(self.link, OPEN, CLOSED) == OPEN
        self.got = b""


def fixed_key():
    # os.urandom that makes the key of ANSWER.
    connect.os = FakeNet()
