# The host's end of a serial line, for tests of the device's: frames made and taken apart without the code under test, and a
# port that takes and gives what a test likes.
import binascii
import json

CODES = (0, 1, 3, 4, 0xC0, 0xDB)


def frame(kind, count=0, payload=b""):
    body = kind.encode() + bytes((count & 255,)) + payload
    crc = binascii.crc32(body) & 0xFFFFFFFF
    body += bytes((crc & 255, crc >> 8 & 255, crc >> 16 & 255, crc >> 24))
    made = bytearray(b"\xc0")
    for byte in body:
        if byte in CODES:
            made.append(0xDB)
        made.append(byte ^ 0x20 if byte in CODES else byte)
    made.append(0xC0)
    return bytes(made)


def frames(data):
    # [(kind, count, payload)] of what was sent; everything else between them fails.
    found = []
    for part in data.split(b"\xc0"):
        if not part:
            continue
        made = bytearray()
        at = 0
        while at < len(part):
            byte = part[at]
            assert byte not in (0, 1, 3, 4), part
            if byte == 0xDB:
                at += 1
                byte = part[at] ^ 0x20
                assert byte in CODES, part
            made.append(byte)
            at += 1
        crc = made[-4] | made[-3] << 8 | made[-2] << 16 | made[-1] << 24
        assert binascii.crc32(bytes(made[:-4])) & 0xFFFFFFFF == crc, part
        found.append((chr(made[0]), made[1], bytes(made[2:-4])))
    return found


def answer(question, window=16384):
    # The host's answer to the device's last question.
    kind, count, payload = frames(question)[-1]
    assert (kind, count) == ("O", 0)
    said = json.loads(payload)
    assert said["v"] == 1
    return frame("Y", 0, json.dumps({"v": 1, "nonce": said["nonce"], "window": window}).encode())


class FakePort:
    # What board.serial() returns. `give` and `take` say how much the next call may move: a number, None for "later", or an error
    # to raise.
    window = 300

    def __init__(self):
        self.inbox = b""
        self.wrote = b""
        self.closed = False
        self.stops = None  # whether Ctrl-C does
        self.give = lambda: 1000000
        self.take = lambda: 1000000

    def interrupt(self, on):
        self.stops = on

    def readinto(self, buf, n):
        assert not self.closed
        given = self.give()
        if isinstance(given, OSError):
            raise given
        if given is None or not self.inbox:
            return given if given == 0 else None
        given = min(given, n, len(self.inbox), len(buf))
        buf[:given] = self.inbox[:given]
        self.inbox = self.inbox[given:]
        return given

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
