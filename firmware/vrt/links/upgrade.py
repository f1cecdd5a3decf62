# The HTTP request that asks for a WebSocket and the check of its answer (RFC 6455 section 4).
import binascii

from micropython import const

_HEAD_MAX = const(4096)  # bytes of the answer, if the buffer holds as many


def request(host, path, seed):
    # Returns (the request's bytes, the key); seed: 16 random bytes.
    key = binascii.b2a_base64(seed)[:-1]
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return head.encode() + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n", key


def read(buf, n, key):
    # buf[0:n] is the answer so far, one byte more than the last time. Returns None while there must be more, ""
    # when the host agrees, or what is wrong, for people.
    byte = buf[n - 1]
    if n < 6 and byte != b"HTTP/"[n - 1]:
        return "answer is not http"
    if byte == 10 and n > 4 and buf[n - 2] == 13 and buf[n - 3] == 10 and buf[n - 4] == 13:
        lines = bytes(buf[: n - 4]).split(b"\r\n")
        return _status(lines[0]) or _headers(lines[1:], key)
    return "answer too long" if n == min(len(buf), _HEAD_MAX) else None


def _status(line):
    version, _, status = line.partition(b" ")
    code = status[:3]
    if len(code) < 3 or not code.isdigit() or status[3:4] not in (b"", b" "):
        return "answer is not http"
    if code != b"101":
        return "http " + code.decode()
    return "" if version == b"HTTP/1.1" else "answer is not http 1.1"


def _headers(entries, key):
    upgrade = connection = accept = False
    for line in entries:
        name, colon, value = line.partition(b":")
        if not colon or not name or name.strip() != name:
            return "bad header in the answer"
        name = name.lower()
        value = value.strip()
        if name == b"upgrade":
            upgrade = value.lower() == b"websocket"
        elif name == b"connection":
            connection = connection or b"upgrade" in [token.strip() for token in value.lower().split(b",")]
        elif name == b"sec-websocket-accept":
            if accept or value != _accept(key):
                return "wrong Sec-WebSocket-Accept"
            accept = True
        elif name in (b"sec-websocket-extensions", b"sec-websocket-protocol"):
            return "extension or subprotocol that was not asked for"
    return "" if upgrade and connection and accept else "answer lacks an upgrade header"


def _accept(key):
    from hashlib import sha1  # noqa: PLC0415  (not every build has it, and the rest works without)

    return binascii.b2a_base64(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())[:-1]
