"""`socket` as the firmware knows it: MicroPython's non-blocking streams, on CPython's sockets."""

import _socket
import errno

SOCK_STREAM = _socket.SOCK_STREAM
TCP_NODELAY = _socket.TCP_NODELAY


def getaddrinfo(host, port, *rest):
    return _socket.getaddrinfo(host, port, *rest)


class socket(_socket.socket):
    """None is "later"."""

    def connect(self, address):
        code = self.connect_ex(address)
        if code:
            raise OSError(code, errno.errorcode.get(code, ""))

    def readinto(self, buf, n):
        try:
            return self.recv_into(memoryview(buf)[:n])
        except BlockingIOError:
            return None

    def write(self, buf, at, n):
        try:
            return self.send(memoryview(buf)[at : at + n])
        except BlockingIOError:
            return None
