# The device's parsers under tools/fuzz.py: each function takes bytes and returns, as text, what the parser made of them.
# It runs on CPython, where the inputs are found and the texts are judged, and on MicroPython, whose texts have to be the same:
#   micropython tools/fuzz_device.py < INPUTS          INPUTS: records of a letter, 4 bytes of length, the input
# prints a line for each, "!" and the exception when one was raised. Which functions there are: PARSERS.
# mypy: ignore-errors
import sys
from array import array
from binascii import crc32, hexlify
from math import frexp

if __name__ == "__main__":
    _here = (sys.path[0] or ".") + "/.."
    sys.path.insert(0, _here + "/firmware")

from vrt.config import checked
from vrt.errors import ConfigError
from vrt.links import CLOSED, frames_plain, framing, opening, stuffing_plain, url, websocket
from vrt.links.upgrade import read
from vrt.protocol.grammar import weigh
from vrt.protocol.session import Session
from vrt.protocol.wire import WireError, decode

try:
    from vrt.links import frames
except (SyntaxError, ValueError):
    frames = None
try:
    from vrt.links import stuffing
except (SyntaxError, ValueError):
    stuffing = None
if sys.implementation.name != "micropython":
    frames = stuffing = None  # the shim imports them, and there they mean nothing

KEY = b"AAECAwQFBgcICQoLDA0ODw=="
SEPARATOR = b"\x1e"  # between the steps of a sequence; JSON has no place for it
STEPS = 24  # of a sequence are taken, or mutations would make long ones of it that find nothing more
LINE = 600  # bytes of a serial line that are taken: more find nothing more
LIMIT = 300  # bytes of the largest message, so that larger ones are met too


def grammar(data):
    return str(weigh(data, len(data)) > 0)


def message(data):
    # A control message: the code and seq of its error, or all of its members.
    try:
        made = decode(bytearray(data + 32 * data), len(data))  # so large a buffer that nothing is too heavy
    except WireError as error:
        return f"{error.code} {error.seq}"
    return f"valid {made['seq']} {canonical(made)}"


def canonical(value):
    # The same text for equal values on both runtimes, whose dicts, floats and escapes are written differently.
    if isinstance(value, dict):
        members = sorted([canonical(name) + ":" + canonical(value[name]) for name in value])
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join([canonical(one) for one in value]) + "]"
    if isinstance(value, str):
        try:
            octets = value.encode()
        except (
            UnicodeError
        ):  # CPython's, of half a surrogate pair; MicroPython makes the same bytes of it unasked
            octets = value.encode("utf-8", "surrogatepass")
        return "'" + hexlify(octets).decode() + "'"
    if isinstance(value, float) and value - value == 0:  # neither infinite nor none
        if value % 1 == 0 and abs(value) < 1e15:
            return str(int(value))
        part, power = frexp(value)
        return f"{int(part * 0x100000)}*2^{power}"  # cut, not rounded, which the two do differently
    return str(value)


def stream(data):
    # Frames from the host, cut as the first byte says, through the kernels: every twin there is has to do the same.
    texts = []
    for kernels in (frames_plain, frames):
        if kernels:
            texts.append(_feed(kernels, data))
    if texts[0] != texts[-1]:
        raise ValueError("the twins differ: " + texts[-1])
    return texts[0]


def _feed(kernels, data):
    state = array("i", bytes(4 * 32))  # more than there are
    state[9] = LIMIT
    state[13] = state[14] = 2
    size = (data[0] & 63) + 1 if data else 1
    chunk, msg, ctl = bytearray(64), bytearray(LIMIT), bytearray(125)
    out = []
    at = 1
    while at < len(data):
        n = min(size, len(data) - at)
        chunk[:n] = data[at : at + n]
        at += n
        while True:
            got = kernels.feed(state, chunk, n, msg, ctl)
            n = 0
            if got < 0:
                out.append(str(got))
                return " ".join(out)
            out.append(f"{got}:{crc32(msg)}:{crc32(ctl)}:{crc32(bytes(state))}")
            if state[13]:
                break
    return " ".join(out)


def connection(data):
    # The same bytes through the whole client, answers and closes included.
    client = websocket.WebSocket(LIMIT, 128, 64)
    client.start(b"seed")
    size = (data[0] & 63) + 1 if data else 1
    out = []
    at = 1
    while at < len(data) and not client.close_code:
        n = min(size, client.want, len(data) - at)
        client.chunk[:n] = data[at : at + n]
        at += n
        event = client.next_event(n)
        while True:
            if event in (2, 3):
                out.append(f"{event}:{client.n}:{crc32(bytes(client.rx[: client.n]))}")
            while client.out_n:
                sent = bytes(client.tx[client.out_at : client.out_at + client.out_n])
                out.append(f"sent:{crc32(sent)}")
                client.sent(client.out_n)
            if client.close_code or client.want:
                break
            event = client.next_event(0)
    client.receive_eof()
    out.append(f"{client.close_code} {canonical(client.close_reason)} {client.dropped}")
    if client.close_code == CLOSED:  # no close code is so small
        raise ValueError("no close code")
    return " ".join(out)


def line(data):
    # What comes over a serial line, cut as the first byte says, through the kernels: kind, count, size and CRC of each frame, and
    # how much was noise. Every twin there is has to do the same.
    data = data[:LINE]
    texts = []
    for kernels in (stuffing_plain, stuffing):
        if kernels:
            texts.append(_take(kernels, data))
    if texts[0] != texts[-1]:
        raise ValueError("the twins differ: " + texts[-1])
    return texts[0]


def _take(kernels, data):
    state = array("i", bytes(4 * 16))
    state[10] = LIMIT
    size = (data[0] & 63) + 1 if data else 1
    msg = bytearray(LIMIT + 4)
    out = []
    for at in range(1, len(data), size):
        piece = data[at : at + size]
        n = len(piece)
        while True:
            kind = kernels.feed(state, piece, n, msg)
            n = 0
            if not kind:
                break
            if kind in KINDS:
                payload = bytes(msg[: min(state[2], LIMIT)])
                out.append(f"{kind}:{state[6]}:{state[2]}:{crc32(payload)}")
            else:
                state[11] += 1
    out.append(f"noise:{state[11]}")
    return " ".join(out)


KINDS = b"OYCcAPQX"


def side(data):
    # The same bytes through the device's side of a line that is open, answers included.
    data = data[:LINE]
    device = framing.Framing(LIMIT, 100, 64)
    device.nonce = b"00c0ffee"
    device.begin(1000)
    size = (data[0] & 63) + 1 if data else 1
    out = []
    for at in range(1, len(data), size):
        piece = data[at : at + size]
        device.chunk[: len(piece)] = piece
        n = len(piece)
        while n or device.left():
            event = device.next_event(n)
            n = 0
            if event in (2, 3):
                out.append(f"{event}:{device.n}:{crc32(bytes(device.rx[: device.n]))}")
            while device.out_n:
                out.append(f"sent:{device.tx[1]}")
                device.sent(device.out_n)
    out.append(f"{device.close_code} {canonical(device.close_reason)} {device.dropped}")
    out.append(str(opening.answer(data, b"00c0ffee")))
    return " ".join(out)


def upgrade(data):
    # The answer to the handshake, byte by byte.
    buf = bytearray(max(1, min(len(data), 512)))
    n = 0
    reason = None
    while reason is None and n < len(data):
        buf[n] = data[n]
        n += 1
        reason = read(buf, n, KEY)
    return f"{n} {reason}"


def address(data):
    if frames_plain.utf8(data, 0, len(data), 0):
        return "no text"  # MicroPython takes it for one
    try:
        return canonical(list(url.parse(str(data, "utf-8"))))
    except ConfigError as error:
        return canonical(str(error))


def settings(data):
    # A configuration; only what both runtimes take for the same JSON is compared.
    import json  # noqa: PLC0415

    if not weigh(data, len(data)) or b"\\u" in data:
        return "no json"  # or escapes, of which MicroPython's parser makes something else than CPython's
    try:
        made = json.loads(bytes(data).decode())
    except ValueError:
        return "no json"
    try:
        return canonical(checked(made, "half" if len(data) & 1 else "full"))
    except ConfigError as error:
        return f"refused {len(str(error)) > 0}"


class Watched(Session):
    # A session that notes what it told and sent.
    def __init__(self):
        super().__init__(1024, lambda resumed: {"tools": []}, lambda n: 0, 4, 15_000)
        self.now = 0
        self.handled = []
        self.frames = []
        self.open = []  # calls without a result
        self.was_open = False

    def take(self):
        event = self.next_event()
        while event:
            kind = event["type"]
            self.handled.append((kind, event.get("seq"), event.get("code"), self.was_open))
            if kind == "tool.call":
                self.open.append(event)
            elif kind == "ended":
                self.open.clear()
            event = self.next_event()

    def step(self, op, body):
        # One of: t text frame, a audio frame, o open, l lost, + time, s send, i interrupt, r a result, p playback,
        # c context, n renew.
        self.was_open = self.state == "open"
        if op == 0x74:
            self.receive_text(bytearray(body), len(body), self.now)
        elif op == 0x61:
            self.receive_audio(body, len(body))
        elif op == 0x6F and self.wants_link(self.now):
            self.opened(self.now)
        elif op == 0x6C and self.next_state("lost"):
            self.lost(self.now, 1009 if body[:1] == b"9" else 1006)
        elif op == 0x2B:
            self.now = (self.now + 200 * (1 + len(body))) & 0x3FFFFFFF
            self.tick(self.now, self.now if body else 0)
        elif op == 0x73:
            data = self.data_to_send(self.now)
            if data:
                self.frames.append(data)
                self.sent(self.now)
        elif op == 0x69 and self.id is not None and self.close(self.observed):
            self.interrupt(self.observed, "user")
        elif op == 0x72 and self.open:
            call = self.open.pop(0)
            self.result({"callId": call["callId"], "epoch": call["epoch"], "ok": True, "output": None})
        elif op == 0x70 and self.id is not None:
            self.playback("item", len(body))
        elif op == 0x63 and self.id is not None:
            self.offer("context", len(body))
        elif op == 0x6E and self.state in ("closed", "failed"):
            self.again("renew" if self.state == "closed" else "retry", self.now)
        self.take()


def life(data):
    session = Watched()
    for part in data.split(SEPARATOR)[:STEPS]:
        if part:
            session.step(part[0], part[1:])
    return session


def sequence(data):
    # A whole life of a session.
    return told(life(data))


def told(session):
    made = [str(one) for one in session.handled]
    streams = session.streams
    made.append(f"{session.state} {streams.last} {streams.acked} {streams.handled} {len(session.frames)}")
    return " ".join(made)


PARSERS = {
    "g": grammar,
    "m": message,
    "f": stream,
    "w": connection,
    "l": line,
    "d": side,
    "u": upgrade,
    "a": address,
    "c": settings,
    "s": sequence,
}


def main():
    source = sys.stdin.buffer
    head = source.read(5)
    while len(head) == 5:
        data = source.read(int.from_bytes(head[1:], "little"))
        try:
            print(PARSERS[chr(head[0])](data))
        except Exception as error:
            print("!", type(error).__name__, error)
        head = source.read(5)


if __name__ == "__main__":
    main()
