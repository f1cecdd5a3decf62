# The WebSocket link: on fake sockets that take and give what they like, and on MicroPython on real ones.
import errno
import gc
import sys
import time

import micropython
from certificates import AUTHORITY, KEY, SERVER, STRANGER, der
from fake_socket import FakeNet, FakeSocket
from peer import ANSWER, BINARY, CLOSE, PING, PONG, TEXT, Dice, close, frame, unmask
from real_net import Host, fixed_key, listen, on_the_real_net, until
from support import raises
from vrt import links
from vrt.errors import ConfigError, ProtocolError
from vrt.links import AUDIO, CLOSED, NONE, OPEN, connect
from vrt.links import TEXT as TEXT_EVENT
from vrt.links.ws import WebSocketLink

connect.forget = lambda: None  # so that every link connects over what stands here for the net


def link_on(*sockets, **sizes):
    # A link whose next connections are these sockets.
    net = FakeNet(*sockets)
    connect.socket = connect.select = connect.os = net
    return WebSocketLink("ws://host:81/path", **sizes), net


def opened(now=1000, **sizes):
    sock = FakeSocket()
    link, _ = link_on(sock, **sizes)
    link.open(now)
    sock.inbox = ANSWER
    assert not link.writable
    assert link.poll(now) == OPEN
    assert link.writable
    sock.wrote = b""
    return link, sock


def ended(link, now):
    # What the link says at its end.
    assert link.poll(now) == CLOSED
    assert link.sock is None
    assert not link.writable
    assert link.poll(now) == NONE
    return link.close_code, link.close_reason


# Connecting


def test_link_connects():
    sock = FakeSocket(ready=0)
    link, net = link_on(sock)
    link.open(5)
    assert link.sock is sock
    assert sock.options == [("blocking", False), (6, 1, 1)], "no Nagle"
    assert net.asked == ("host", 81)
    assert link.poll(6) == NONE
    assert sock.wrote == b""
    sock.ready = 4
    assert link.poll(7) == NONE
    assert sock.wrote.startswith(b"GET /path HTTP/1.1\r\nHost: host:81\r\n")
    assert not link.send_text(b"early", 5)
    sock.inbox = ANSWER + frame(TEXT, b"at once")
    assert link.poll(8) == OPEN
    assert link.last_rx == 8
    assert not link.unread()
    assert sock.inbox == frame(TEXT, b"at once"), "the socket still knows of what it has"
    assert link.poll(9) == TEXT_EVENT
    assert link.rx[: link.n] == b"at once"
    assert link.last_rx == 9


def test_link_connects_to_the_first_address_that_answers():
    refuses = FakeSocket(errno.ECONNREFUSED)
    fails = FakeSocket(ready=4 | 8 | 16)
    fails.give = lambda: OSError(errno.ETIMEDOUT, "")
    works = FakeSocket(0)
    link, _ = link_on(refuses, fails, OSError(24, ""), works)
    link.open(0)
    for now in range(4):
        assert link.poll(now) == NONE
    assert link.sock is works
    assert works.wrote
    assert refuses.closed
    assert fails.closed


def test_link_says_why_it_cannot_connect():
    for number, word in (
        (errno.ECONNREFUSED, "refused"),
        (errno.EHOSTUNREACH, "unreachable"),
        (errno.ETIMEDOUT, "timeout"),
        (errno.ENOMEM, "memory"),
        (12345, "error 12345"),
    ):
        link, _ = link_on(FakeSocket(number))
        link.open(0)
        assert ended(link, 1) == (1006, word)
        sock = FakeSocket(ready=8)
        sock.give = lambda number=number: OSError(number, "")
        link, _ = link_on(sock)
        link.open(0)
        assert ended(link, 1) == (1006, word)
        assert sock.closed
    link, _ = link_on()
    link.open(0)
    assert ended(link, 1) == (1006, "dns")


def test_link_gives_up_connecting():
    for ready in (0, 4):  # no connection, and no answer to the upgrade
        link, _ = link_on(FakeSocket(ready=ready))
        link.open(0x3FFFFFFF - 100)  # the ticks turn over
        for later in (0, 14999):
            assert link.poll((0x3FFFFFFF - 100 + later) & 0x3FFFFFFF) == NONE
        assert ended(link, (0x3FFFFFFF - 100 + 15000) & 0x3FFFFFFF) == (1006, "timeout")


def test_link_that_fails_before_it_is_open_tells_poll_alone():
    sock = FakeSocket()
    takes = [10]
    sock.take = lambda: takes.pop() if takes else None
    link, _ = link_on(sock)
    link.open(0)
    assert link.poll(1) == NONE
    assert len(sock.wrote) == 10
    sock.take = lambda: OSError(errno.ECONNRESET, "")
    assert not link.send_text(b"early", 5)
    assert not link.send_audio(b"early", 5)
    assert ended(link, 2) == (1006, "reset")


def test_link_reports_a_refused_upgrade():
    sock = FakeSocket()
    link, _ = link_on(sock)
    link.open(0)
    sock.inbox = b"HTTP/1.1 401 Unauthorized\r\nServer: x\r\n\r\nno"
    assert ended(link, 1) == (1006, "http 401")
    assert sock.closed


def test_link_loses_the_connection_before_the_answer():
    for number, answer in ((errno.ECONNRESET, ANSWER[:20]), (0, ANSWER[:-1]), (0, b"")):
        sock = FakeSocket()
        link, _ = link_on(sock)
        link.open(0)
        sock.inbox = answer
        assert link.poll(1) == NONE
        sock.ended = True
        if number:
            sock.give = lambda number=number: OSError(number, "")
        assert ended(link, 2) == (1006, "reset" if number else "eof")


def test_link_reads_an_answer_cut_at_every_byte():
    rest = frame(TEXT, b"hello") + frame(PING, b"p")
    for cut in range(len(ANSWER + rest)):
        sock = FakeSocket()
        link, _ = link_on(sock)
        link.open(0)
        events = []
        for part in ((ANSWER + rest)[:cut], (ANSWER + rest)[cut:]):
            sock.inbox += part
            for now in range(4):
                event = link.poll(now)
                if event:
                    events.append(event)
        assert events == [OPEN, TEXT_EVENT], cut
        assert unmask(sock.wrote.partition(b"\r\n\r\n")[2]) == [(PONG, b"p")]


def test_link_does_not_wait_for_the_end_of_a_long_answer():
    sock = FakeSocket()
    link, _ = link_on(sock, rx=200)
    link.open(0)
    sock.inbox = ANSWER[:-2] + b"X: " + b"x" * 300
    assert ended(link, 1) == (1006, "answer too long")


ONLY_TO_CONNECT = ["vrt.links." + name for name in ("connect", "tls", "upgrade", "url")]


def hide_what_connects():
    # So that the link imports it afresh, and truly forgets it. Returns what show_again() takes.
    return [(name, sys.modules.pop(name)) for name in ONLY_TO_CONNECT if name in sys.modules]


def show_again(held):
    for name, module in held:
        sys.modules[name] = module
        setattr(links, name.rpartition(".")[2], module)


def test_link_forgets_what_it_needed_to_connect():
    held = hide_what_connects()
    try:
        for url in ("ws://127.0.0.1:1/", "wss://host/"):
            link = WebSocketLink(url, ca=AUTHORITY)
            assert not [name for name in ONLY_TO_CONNECT if name in sys.modules]
        link = WebSocketLink("ws://127.0.0.1:1/")
        link.open(0)
        assert "vrt.links.connect" in sys.modules
        assert "vrt.links.url" not in sys.modules
        sys.modules["vrt.links.connect"].forget()
        assert not [name for name in ONLY_TO_CONNECT if name in sys.modules]
        assert not hasattr(links, "connect")
        link.close(1000)
        assert ended(link, 1) == (1006, "closed")
    finally:
        show_again(held)


def test_link_tells_of_a_heap_too_full_to_connect():
    class Full:
        def connect(self, *_):
            raise MemoryError

        explain = connect

    held = hide_what_connects()
    link = WebSocketLink("ws://127.0.0.1:1/")
    sys.modules["vrt.links.connect"] = Full()
    try:
        link.open(0)
        assert ended(link, 1) == (1006, "memory")
    finally:
        show_again(held)


def test_link_leaves_nothing_of_what_it_needed_to_connect_on_the_heap():
    on_the_real_net()
    listening, port = listen()
    listening.close()
    held = hide_what_connects()
    link = WebSocketLink(f"ws://127.0.0.1:{port}/")
    used = []
    for turn in range(4):
        link.open(turn)
        assert until(link, CLOSED) == CLOSED
        gc.collect()
        used.append(gc.mem_alloc())
        sys.modules["vrt.links.connect"].forget()
        gc.collect()
        used.append(gc.mem_alloc())
    show_again(held)
    with_it, without = used[-2:]
    assert with_it - without > 4000, used
    assert without - used[1] < 500, used


def test_link_forgets_when_it_is_open():
    forgotten = []
    sock = FakeSocket()
    link, _ = link_on(sock)
    connect.forget = lambda: forgotten.append(1)
    try:
        link.open(0)
        assert link.poll(1) == NONE
        assert not forgotten
        sock.inbox = ANSWER
        assert link.poll(2) == OPEN
        assert len(forgotten) == 1
    finally:
        connect.forget = lambda: None


def test_link_is_closed_while_it_connects():
    for ready in (0, 4):
        sock = FakeSocket(ready=ready)
        link, _ = link_on(sock)
        link.open(0)
        link.poll(1)
        link.close(1000)
        assert sock.closed
        assert ended(link, 2) == (1006, "closed")


def test_link_opens_again():
    first, second = FakeSocket(), FakeSocket()
    link, net = link_on(first, second)
    for sock in (first, second):
        net.addresses = [(2, 1, 6, "", 0)]
        link.open(0)
        sock.inbox = ANSWER + frame(TEXT, b"half")[: 3 if sock is first else 9]
        assert link.poll(1) == OPEN
        if sock is first:
            assert link.poll(2) == NONE
            sock.ended = True
            assert ended(link, 3) == (1006, "eof")
    assert link.poll(4) == TEXT_EVENT
    assert (link.close_code, link.close_reason) == (0, "")


def test_link_opened_while_open_drops_the_old_connection():
    link, sock = opened()
    net = connect.socket
    again = FakeSocket()
    net.sockets.append(again)
    link.open(2000)
    assert sock.closed
    assert not link.writable
    assert not link.send_audio(b"x", 1)
    again.inbox = ANSWER
    assert link.poll(2001) == OPEN


# Messages


def test_link_moves_messages_byte_by_byte():
    def one_and_none():
        turns = [1, None]

        def turn():
            turns.reverse()
            return turns[1]

        return turn

    sock = FakeSocket()
    sock.give = one_and_none()
    sock.take = one_and_none()
    link, _ = link_on(sock)
    link.open(0)
    for now in range(1000):
        assert link.poll(now) == NONE
    sock.inbox = (
        ANSWER + frame(TEXT, "\u20ac".encode()) + frame(BINARY, bytes(200)) + frame(PING, b"p") + frame(TEXT)
    )
    events = []
    sent = 0
    for now in range(1000, 4000):
        event = link.poll(now)
        if event in (TEXT_EVENT, AUDIO):
            events.append((event, bytes(link.rx[: link.n])))
        elif event:
            events.append(event)
        if sent < 3 and link.writable:
            assert link.send_text(b"m%d" % sent, 2)
            sent += 1
    assert events == [OPEN, (TEXT_EVENT, "\u20ac".encode()), (AUDIO, bytes(200)), (TEXT_EVENT, b"")]
    _, _, frames = sock.wrote.partition(b"\r\n\r\n")
    assert sorted(unmask(frames)) == [(TEXT, b"m0"), (TEXT, b"m1"), (TEXT, b"m2"), (PONG, b"p")]


def test_link_keeps_every_message_whole_over_any_socket():
    for seed in range(25):
        dice = Dice(seed)
        link, sock = opened(rx=800, tx=800)
        sock.give = lambda dice=dice: (None, 1, 2, 7, 700)[dice.roll(5)]
        sock.take = lambda dice=dice: (None, 0, 1, 3, 100, 700)[dice.roll(6)]
        sent, heard, sends, pings = [], [], [], []
        for now in range(1000, 1600):
            kind = dice.roll(8)
            payload = dice.bytes(dice.roll(300))
            if kind == 0:
                sent.append((AUDIO, payload))
                sock.inbox += frame(BINARY, payload)
            elif kind == 1:
                pings.append(payload[:125])
                sock.inbox += frame(PING, payload[:125])
            elif kind < 4:
                free = link.writable
                taken = link.send_audio(payload, len(payload))
                assert taken or not free, "writable and not taken"
                if taken:
                    sends.append((BINARY, payload))
            event = link.poll(now)
            assert event in (NONE, AUDIO)
            if event:
                heard.append((event, bytes(link.rx[: link.n])))
        sock.give = sock.take = lambda: 1000
        for now in range(1600, 1900):
            if link.poll(now):
                heard.append((AUDIO, bytes(link.rx[: link.n])))
        assert heard == sent
        frames = unmask(sock.wrote)
        assert [one for one in frames if one[0] == BINARY] == sends
        pongs = [payload for first, payload in frames if first == PONG]
        assert pongs[-1] == pings[-1]
        for pong in pongs:  # each answers one ping, in their order
            pings = pings[pings.index(pong) + 1 :]


def test_link_writes_a_frame_at_once():
    link, sock = opened()
    writes = []
    sock.take = lambda: writes.append(1) or 1000000
    for message, send in ((b"t" * 300, link.send_text), (b"a" * 165, link.send_audio)):
        assert send(message, len(message))
    assert len(writes) == 2
    assert unmask(sock.wrote) == [(TEXT, b"t" * 300), (BINARY, b"a" * 165)]


def test_link_sends_a_long_text_in_pieces():
    text = Dice(3).bytes(5000)
    link, sock = opened(tx=1000)
    takes = [1008, 300]
    sock.take = lambda: takes.pop(0) if takes else None
    assert link.send_text(text, 5000)
    assert not link.send_audio(bytes(165), 165)
    sock.take = lambda: 7
    assert link.poll(1001) == NONE
    sock.take = lambda: 1000000
    assert link.send_text(text, 5000)
    assert unmask(sock.wrote) == [(TEXT, text), (TEXT, text)]
    takes = [1008, 300]
    sock.take = lambda: takes.pop(0) if takes else OSError(32, "")
    assert link.send_text(text, 5000)
    sock.inbox = frame(TEXT, b"why")
    assert link.poll(1002) == TEXT_EVENT, "it breaks in the middle, and reads on"


def test_link_sends_all_pieces_at_once_to_a_socket_that_takes_them():
    for size in (999, 1000, 1001, 1990, 5000):
        link, sock = opened(tx=1000)
        sound = Dice(4).bytes(size)
        for _ in range(2):
            assert link.send_audio(sound, size), size
            assert link.writable, size
        assert unmask(sock.wrote) == [(BINARY, sound), (BINARY, sound)]


def test_link_answers_a_ping_before_more_audio():
    link, sock = opened()
    takes = [50]
    sock.take = lambda: takes.pop() if takes else None
    assert link.send_audio(bytes(165), 165)
    assert not link.writable
    sock.inbox = frame(PING, b"alive?")
    assert link.poll(1001) == NONE
    assert not link.send_audio(bytes(165), 165)
    sock.take = lambda: 1000
    assert link.send_audio(b"next", 4)
    assert unmask(sock.wrote) == [(BINARY, bytes(165)), (PONG, b"alive?"), (BINARY, b"next")]


def test_link_answers_every_ping_of_one_read():
    link, sock = opened()
    sock.inbox = b"".join([frame(PING, b"%d" % number) for number in range(10)]) + frame(TEXT, b"end")
    events = [link.poll(1001) for _ in range(3)]
    assert events[-1] == NONE
    assert TEXT_EVENT in events
    assert unmask(sock.wrote) == [(PONG, b"%d" % number) for number in range(10)]


def test_link_counts_what_does_not_fit():
    link, sock = opened(rx=300)
    sock.inbox = frame(BINARY, bytes(301)) + frame(BINARY, b"fits")
    while not link.poll(1001):
        pass
    assert bytes(link.rx[: link.n]) == b"fits"
    assert link.dropped == 1


def test_link_lets_go_of_the_loop_in_a_flood():
    link, sock = opened()
    sock.inbox = frame(BINARY, bytes(20000))
    assert link.poll(1001) == NONE
    assert (len(sock.inbox) > 0, link.unread()) == (True, True), "one poll must not swallow everything"
    for now in range(1002, 1100):
        link.poll(now)
    assert (len(sock.inbox) > 0, link.unread()) == (False, False)


def test_link_never_says_none_with_bytes_unread():
    for seed in range(20):
        dice = Dice(seed)
        link, sock = opened(rx=200, chunk=64)
        stream = b""
        while len(stream) < 3000:
            kind = dice.roll(4)
            stream += frame((PING, PONG, BINARY, BINARY)[kind], bytes(dice.roll(20) if kind < 3 else 201))
        sock.inbox = stream
        for now in range(1001, 1300):
            if link.poll(now) == NONE:
                assert link._state[0] == link._state[1], "what was read has been eaten"
        assert not sock.inbox


# Ending


def test_link_closes():
    link, sock = opened()
    link.close(1000)
    assert unmask(sock.wrote) == [(CLOSE, b"\x03\xe8")]
    assert not link.writable
    assert not link.send_text(b"x", 1)
    assert link.poll(1001) == NONE
    sock.inbox = frame(TEXT, b"late") + close(1000)
    assert link.poll(1002) == NONE
    sock.ended = True
    assert ended(link, 1003) == (1000, "closed")
    link.close(1000)
    raises(ProtocolError, link.close, 1005)


def test_link_does_not_wait_for_ever_to_close():
    link, sock = opened()
    link.close(4000)
    assert link.poll(2999) == NONE
    assert ended(link, 3000) == (1006, "timeout")
    link, sock = opened()
    sock.inbox = close(1001, b"going")  # the host closes and never ends the stream
    assert link.poll(1000) == NONE
    assert link.poll(2999) == NONE
    assert ended(link, 3000) == (1001, "going")


def test_link_does_not_wait_for_a_host_that_pings_instead_of_closing():
    link, sock = opened()
    link.close(1000)
    for now in (1500, 2500):
        sock.inbox = frame(PING, b"still here")
        assert link.poll(now) == NONE
    assert ended(link, 3000) == (1006, "timeout")


def test_link_is_closed_by_the_host():
    link, sock = opened()
    sock.inbox = frame(TEXT, b"last") + close(4401, b"who?")
    assert link.poll(1001) == TEXT_EVENT
    assert link.poll(1002) == NONE
    assert unmask(sock.wrote) == [(CLOSE, b"\x11\x31")]
    sock.ended = True
    assert ended(link, 1003) == (4401, "who?")


def test_link_fails_a_host_that_breaks_the_protocol():
    link, sock = opened()
    sock.inbox = b"\xff\x00" + frame(TEXT, b"x")
    assert link.poll(1001) == NONE
    assert unmask(sock.wrote) == [(CLOSE, b"\x03\xea")]
    sock.inbox = bytes(3000)
    assert link.poll(1002) == NONE
    sock.ended = True
    for now in range(1003, 1010):
        if link.poll(now):
            break
    assert (link.close_code, link.close_reason) == (1002, "protocol error")


def test_link_loses_the_connection():
    link, sock = opened()
    sock.ended = True
    assert ended(link, 1001) == (1006, "eof")
    assert sock.closed
    link, sock = opened()
    sock.give = lambda: OSError(errno.ECONNRESET, "")
    assert ended(link, 1001) == (1006, "reset")


def test_link_reads_on_when_it_cannot_write():
    # The host refused the session and closed; audio on its way there met a reset. Why must not get lost with
    # it.
    link, sock = opened()
    sock.inbox = frame(TEXT, b"UNAUTHORIZED") + close(4401)
    sock.take = lambda: OSError(32, "")
    reset = OSError(errno.ECONNRESET, "")
    sock.give = lambda: 1000 if sock.inbox else reset
    assert link.send_audio(bytes(165), 165)
    assert not link.writable
    assert not link.send_audio(bytes(165), 165)
    assert link.poll(1001) == TEXT_EVENT
    assert bytes(link.rx[: link.n]) == b"UNAUTHORIZED"
    assert ended(link, 1002) == (4401, "closed")
    link, sock = opened()
    sock.take = lambda: OSError(32, "")
    assert link.send_audio(bytes(165), 165)
    assert link.poll(1001) == NONE
    assert link.poll(2999) == NONE
    assert ended(link, 3000) == (1006, "reset")


def test_link_meets_the_error_in_the_middle_of_a_frame():
    for waiting in (b"", frame(PING, b"p")):
        link, sock = opened()
        takes = [50]
        sock.take = lambda takes=takes: takes.pop() if takes else None
        assert link.send_audio(bytes(165), 165)
        sock.inbox = waiting
        assert link.poll(1001) == NONE
        sock.take = lambda: OSError(32, "")
        sock.inbox = frame(TEXT, b"bye") + frame(PING, b"q")
        assert link.poll(1002) == TEXT_EVENT
        assert link.poll(1003) == NONE
        assert not link.writable
        assert len(sock.wrote) == 50
        sock.ended = True
        assert ended(link, 1004) == (1006, "reset")


def test_link_gives_up_a_peer_that_takes_nothing():
    for nothing in (None, 0):
        link, sock = opened()
        sock.take = lambda nothing=nothing: nothing
        link.poll(20000)
        assert link.send_audio(bytes(165), 165)
        assert link.poll(20001) == NONE
        assert link.poll(29999) == NONE
        takes = [nothing, 1]
        sock.take = lambda nothing=nothing, takes=takes: (
            takes.pop() if takes else nothing
        )  # a byte is progress
        assert not link.send_audio(b"x", 1)
        assert link.poll(30001) == NONE
        assert link.poll(39998) == NONE
        assert ended(link, 39999) == (1006, "timeout")


def test_link_counts_a_stall_from_its_beginning():
    link, sock = opened()
    start = 0x3FFFFFFF - 65000  # the ticks turn over on the way
    for now in range(start, start + 60000, 1000):  # never a poll without an event
        sock.inbox = frame(BINARY, b"x")
        assert link.poll(now) == AUDIO
    takes = [10]
    sock.take = lambda: takes.pop() if takes else None
    assert link.send_audio(bytes(165), 165)
    assert link.poll(start + 60000) == NONE
    assert link.poll((start + 68999) & 0x3FFFFFFF) == NONE
    assert ended(link, (start + 69000) & 0x3FFFFFFF) == (1006, "timeout")


def test_link_gives_up_a_peer_that_pings_and_takes_nothing():
    link, sock = opened()
    sock.take = lambda: None
    assert link.poll(19999) == NONE
    for now in range(20000, 30000, 1000):
        sock.inbox = frame(PING, b"x")
        assert link.poll(now) == NONE
    assert ended(link, 30000) == (1006, "timeout")


# TLS


def test_link_over_tls_needs_someone_to_trust():
    assert "PEM or DER" in str(raises(ConfigError, WebSocketLink, "wss://host", ca="nonsense"))
    WebSocketLink("wss://host", ca=AUTHORITY)


def fill(host):
    # Sends until the socket takes no more, and pings meanwhile; everything arrives, whole.
    link = host.link
    big = bytes(range(250)) * 16
    sends = 0
    while link.writable:
        assert link.send_audio(big, 4000)
        sends += 1
    assert not link.send_audio(big, 4000)
    host.sock.write(frame(PING, b"full"))
    for _ in range(50):
        assert link.poll(time.ticks_ms()) == NONE
    host.got = b""
    assert unmask(host.read(sends * 4008 + 10)) == [(BINARY, big)] * sends + [(PONG, b"full")]
    assert link.writable


def test_link_on_a_real_socket():
    on_the_real_net()
    fixed_key()
    listening, port = listen()
    link = WebSocketLink(f"ws://127.0.0.1:{port}/")
    host = Host(link, listening)
    host.upgrade()
    assert link.send_text(b"hello", 5)
    assert unmask(host.read(11)) == [(TEXT, b"hello")]
    host.sock.write(frame(TEXT, b"hi") + frame(PING, b"p"))
    assert until(link, TEXT_EVENT) == TEXT_EVENT
    host.got = b""
    assert unmask(host.read(7)) == [(PONG, b"p")]
    fill(host)
    host.sock.write(close(1000, b"bye"))
    assert link.poll(time.ticks_ms()) == NONE
    host.sock.close()
    assert until(link, CLOSED) == CLOSED
    assert (link.close_code, link.close_reason) == (1000, "bye")


def test_link_refused_by_a_real_socket():
    on_the_real_net()
    listening, port = listen()
    listening.close()
    link = WebSocketLink(f"ws://127.0.0.1:{port}/")
    link.open(time.ticks_ms())
    assert until(link, CLOSED) == CLOSED
    assert (link.close_code, link.close_reason) == (1006, "refused")
    link = WebSocketLink("ws://nobody.invalid/")
    link.open(time.ticks_ms())
    assert until(link, CLOSED) == CLOSED
    assert link.close_reason == "dns"


def test_link_fails_for_ever_in_the_same_memory():
    on_the_real_net()
    listening, port = listen()
    listening.close()
    link = WebSocketLink(f"ws://127.0.0.1:{port}/")
    for attempt in range(1500):  # more than there may be open sockets
        link.open(attempt)
        assert until(link, CLOSED) == CLOSED
        assert link.close_reason == "refused"
        if attempt == 100:
            gc.collect()
            before = gc.mem_alloc()
    gc.collect()
    assert gc.mem_alloc() - before < 500


def exchange(host, frames, lock):
    # Audio frames each way, one after the other. Returns all the bytes allocated meanwhile.
    poll = host.link.poll
    send = host.link.send_audio
    ticks = time.ticks_ms
    down = frame(BINARY, bytes(165))
    up = bytearray(165)
    bucket = bytearray(173)
    before = micropython.mem_total()
    if lock:
        micropython.heap_lock()
    try:
        for _ in range(frames):
            host.sock.write(down)
            while poll(ticks()) != AUDIO:
                pass
            assert send(up, 165)
            left = 173
            while left:
                left -= host.sock.readinto(bucket, left) or 0
    finally:
        if lock:
            micropython.heap_unlock()
    return micropython.mem_total() - before


def allocates_nothing(host):
    exchange(host, 100, True)
    # Nor does it borrow from the heap and give back at once, which the lock does not see.
    assert exchange(host, 200, False) == exchange(host, 100, False)


def test_link_allocates_nothing_for_a_frame():
    on_the_real_net()
    fixed_key()
    listening, port = listen()
    host = Host(WebSocketLink(f"ws://127.0.0.1:{port}/"), listening)
    host.upgrade()
    allocates_nothing(host)


def tls_host(ca, name="localhost"):
    on_the_real_net()
    fixed_key()
    listening, port = listen()
    link = WebSocketLink(f"wss://{name}:{port}/", ca=ca)
    return Host(link, listening, der(KEY), der(SERVER))


def test_link_over_tls_opens_and_allocates_nothing_for_a_frame():
    host = tls_host(AUTHORITY)
    host.upgrade()
    assert host.link.send_text(b"secret", 6)
    assert unmask(host.read(12)) == [(TEXT, b"secret")]
    host.sock.write(frame(TEXT, b"one") + frame(TEXT, b"two"))
    for _ in range(2):
        assert until(host.link, TEXT_EVENT) == TEXT_EVENT
    allocates_nothing(host)
    fill(host)
    host.sock.close()
    assert until(host.link, CLOSED) == CLOSED


def distrusts(host):
    for _ in range(2000):
        try:  # noqa: SIM105  (MicroPython has no contextlib)
            host.sock.read(100)
        except OSError:  # the link's alert
            pass
        if host.link.poll(time.ticks_ms()) == CLOSED:
            assert host.link.close_code == 1006
            return host.link.close_reason
        time.sleep_us(100)
    raise AssertionError("the link trusts a stranger")


def test_link_over_tls_trusts_no_stranger():
    assert "not correctly signed" in distrusts(tls_host(STRANGER))
    assert "does not match" in distrusts(tls_host(AUTHORITY, "127.0.0.1"))


def test_link_over_tls_names_an_unset_clock():
    host = tls_host(STRANGER)

    class Clock:
        def gmtime(self):
            return (2000, 1, 1, 0, 0, 0, 5, 1)

    connect.time = Clock()
    try:
        assert distrusts(host) == "tls: the clock is not set"
    finally:
        connect.time = time


def test_link_over_tls_meets_a_host_without_it():
    on_the_real_net()
    listening, port = listen()
    host = Host(WebSocketLink(f"wss://localhost:{port}/", ca=AUTHORITY), listening)
    host.sock.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert distrusts(host) == "tls"
