import time

from vrt.setup.clock import Clock, read

NONCE = b"\1\2\3\4\5\6\7\x08"


class FakeSocket:
    def __init__(self, *kind):
        self.inbox = []
        self.sent = []
        self.closed = False

    def setblocking(self, on):
        assert on is False

    def sendto(self, data, address):
        self.sent.append((data, address))

    def recv(self, n):
        if not self.inbox:
            raise OSError(11, "EAGAIN")
        return self.inbox.pop(0)[:n]

    def close(self):
        self.closed = True


class Asking:
    def __init__(self, known=True):
        self.known = known
        self.socks = []
        self.set = []
        self.events = []
        self.clock = Clock("pool.example", self.event, self.set.append, self.resolve, self.new)

    def event(self, kind, **fields):
        fields["event"] = kind
        self.events.append(fields)

    def resolve(self, name, port, *more):
        if not self.known:
            raise OSError(-2)
        return [(2, 2, 0, "", (name, port))]

    def new(self, *kind):
        self.socks.append(FakeSocket())
        return self.socks[-1]


def answer(nonce, seconds=3_976_214_400, first=0x24, stratum=2):  # 2026-01-01
    return (
        bytes((first, stratum, 6, 0xEC))
        + bytes(20)
        + nonce
        + bytes(8)
        + seconds.to_bytes(4, "big")
        + bytes(4)
    )


def test_the_time_is_asked_for_and_set():
    asking = Asking()
    assert not asking.clock.poll(10)
    data, address = asking.socks[0].sent[0]
    assert (len(data), data[0], address) == (48, 0x23, ("pool.example", 123))
    assert not asking.clock.poll(20)
    asking.socks[0].inbox.append(answer(data[40:]))
    assert asking.clock.poll(30)
    assert asking.set[0][:6] == time.gmtime(asking_epoch(2026))[:6]
    assert asking.set[0][:3] == (2026, 1, 1)
    assert asking.socks[0].closed
    assert asking.events == [{"event": "clock", "state": "set"}]


def asking_epoch(year):
    days = (year - time.gmtime(0)[0]) * 365 + (year - 1) // 4 - (time.gmtime(0)[0] - 1) // 4
    return days * 86400


def test_no_answer_is_named_and_asked_for_again_ever_later():
    asking = Asking()
    for now in range(0, 600_000, 100):
        assert not asking.clock.poll(now)
    assert 10 < len(asking.socks) < 20
    assert all(sock.closed for sock in asking.socks[:-1])
    assert len(asking.events) == 1
    assert asking.events[0]["code"] == "CLOCK"
    assert "pool.example: no answer" in asking.events[0]["message"]


def test_an_unknown_name_is_told():
    asking = Asking(known=False)
    asking.clock.poll(0)
    assert "its name is not known" in asking.events[0]["message"]
    assert asking.socks == []


def test_what_is_no_answer_to_us_is_passed_over():
    for wrong in (
        b"",
        answer(NONCE)[:47],
        answer(b"12345678"),
        answer(NONCE, first=0x23),  # a question
        answer(NONCE, first=0xE4),  # its own clock is not set
        answer(NONCE, stratum=0),  # go away
    ):
        assert read(wrong, NONCE) is None
    assert read(answer(NONCE), NONCE) == 3_976_214_400


def test_the_next_era_of_ntp_is_understood():
    assert read(answer(NONCE, seconds=1000), NONCE) == 0x100000000 + 1000
