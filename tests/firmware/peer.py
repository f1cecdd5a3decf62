# The server's half of a WebSocket for tests: frames as a server makes them, and a reader of what the client
# wrote.
from vrt.links import upgrade

ENTROPY = bytes(range(20))
# What RFC 6455 makes of the key in ENTROPY, base64(0, 1, ... 15).
ACCEPT = b"Bz3qJYTGdOe8gUSpLosEdiLKDrk="
ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    + ACCEPT
    + b"\r\n\r\n"
)
TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
FIRST_TEXT, FIRST_BINARY, MIDDLE, LAST = 0x01, 0x02, 0x00, 0x80

try:
    from hashlib import sha1  # noqa: F401
except ImportError:  # a build without SHA-1: every key in these tests is the one above
    upgrade._accept = lambda key: ACCEPT


def frame(first, payload=b""):
    n = len(payload)
    if n < 126:
        return bytes((first, n)) + payload
    if n < 0x10000:
        return bytes((first, 126, n >> 8, n & 255)) + payload
    return bytes((first, 127)) + n.to_bytes(8, "big") + payload


def close(code, reason=b""):
    return frame(CLOSE, bytes((code >> 8, code & 255)) + reason)


def unmask(stream):
    # The client's frames in the stream, as (first byte, payload); what is not a whole masked frame fails.
    frames = []
    at = 0
    while at < len(stream):
        first = stream[at]
        n = stream[at + 1]
        assert n & 0x80, "a client masks"
        n &= 0x7F
        at += 2
        if n > 125:
            size = 2 if n == 126 else 8
            n = int.from_bytes(stream[at : at + size], "big")
            at += size
        key = stream[at : at + 4]
        at += 4
        payload = bytearray(stream[at : at + n])
        assert len(payload) == n, "half a frame"
        for index in range(n):
            payload[index] ^= key[index & 3]
        frames.append((first, bytes(payload)))
        at += n
    return frames


class Dice:
    # Repeatable numbers on every build, one without `random` too.
    def __init__(self, seed):
        self.state = seed

    def roll(self, n):
        # 0 to n - 1.
        self.state = (self.state * 757 + 12345) & 0xFFFFF
        return (self.state >> 4) % n

    def bytes(self, n):
        made = bytearray(n)
        for index in range(n):
            made[index] = self.roll(256)
        return bytes(made)
