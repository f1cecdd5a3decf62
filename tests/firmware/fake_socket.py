# A socket that takes and gives what a test likes, and the net it belongs to.
import errno

from peer import ENTROPY


class FakeSocket:
    # MicroPython's non-blocking stream: None is "later", reads go on until there is no more. `give` and
    # `take` say how much the next call may move: a number, None for "later", or an error to raise.
    def __init__(self, connects=errno.EINPROGRESS, ready=4):
        self.connects = connects
        self.ready = ready
        self.inbox = b""
        self.wrote = b""
        self.ended = False
        self.options = []
        self.closed = False
        self.give = lambda: 1000000
        self.take = lambda: 1000000

    def setblocking(self, on):
        self.options.append(("blocking", on))

    def setsockopt(self, *option):
        self.options.append(option)

    def connect(self, address):
        self.address = address
        if self.connects:
            raise OSError(self.connects, "")

    def readinto(self, buf, n):
        assert not self.closed
        assert n > 0
        at = 0
        while at < min(n, len(buf)):
            given = self.give()
            if isinstance(given, OSError):
                raise given
            if given is None or (not self.inbox and not self.ended):
                return at or None
            given = min(given, n - at, len(self.inbox), len(buf) - at)
            if given == 0:
                break
            buf[at : at + given] = self.inbox[:given]
            self.inbox = self.inbox[given:]
            at += given
        return at

    def write(self, buf, at, n):
        assert not self.closed
        assert n > 0, "an empty write"
        taken = self.take()
        if isinstance(taken, OSError):
            raise taken
        if taken is None:
            return None
        taken = min(taken, n)
        self.wrote += bytes(buf[at : at + taken])
        return taken

    def close(self):
        assert not self.closed
        self.closed = True


class FakeNet:
    # Stands for the modules socket, select and os.
    SOCK_STREAM = 1
    POLLOUT, POLLERR, POLLHUP = 4, 8, 16

    def __init__(self, *sockets):
        self.sockets = list(sockets)
        self.addresses = [(2, 1, 6, "", index) for index in range(len(sockets))]
        self.made = []

    def getaddrinfo(self, host, port, *_):
        if not self.addresses:
            raise OSError(-2)
        self.asked = (host, port)
        return self.addresses

    def socket(self, *_):
        made = self.sockets.pop(0)
        if isinstance(made, OSError):
            raise made
        self.made.append(made)
        return made

    def poll(self, _=None):
        if _ is None:
            return self
        return [(self.polled, self.polled.ready)] if self.polled.ready else []

    def register(self, sock, events):
        assert events == self.POLLOUT
        self.polled = sock

    def urandom(self, n):
        return ENTROPY[:n]
