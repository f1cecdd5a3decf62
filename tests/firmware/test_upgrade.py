# The request for a WebSocket and the check of its answer.

import hashlib

from peer import ACCEPT, ANSWER, ENTROPY
from support import SkipTest
from vrt.links import upgrade

KEY = b"AAECAwQFBgcICQoLDA0ODw=="


def refusal(answer, size=600):
    # What is wrong with the answer, which comes byte by byte and is read no further than that; None: nothing.
    buf = bytearray(size)
    for n in range(len(answer)):
        buf[n] = answer[n]
        reason = upgrade.read(buf, n + 1, KEY)
        if reason is not None:
            assert reason or n == len(answer) - 1
            return reason or None
    raise AssertionError("no end of the answer")


def test_request_is_what_the_standard_asks_for():
    request, key = upgrade.request("[::1]:8080", "/a?b=c", ENTROPY[:16])
    assert key == KEY
    assert request == (
        b"GET /a?b=c HTTP/1.1\r\nHost: [::1]:8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\n\r\n"
    )


def test_accept_is_the_example_of_the_standard():
    # RFC 6455 section 1.3.
    if not hasattr(hashlib, "sha1"):
        raise SkipTest("no hashlib.sha1")
    assert upgrade._accept(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_good_answers_pass():
    assert refusal(ANSWER) is None
    assert refusal(ANSWER.replace(b"101 Switching Protocols", b"101")) is None
    assert refusal(ANSWER.replace(b"Upgrade: websocket", b"UPGRADE:\t WebSocket  ")) is None
    assert refusal(ANSWER.replace(b"Connection: Upgrade", b"connection: keep-alive , upgrade")) is None
    assert (
        refusal(ANSWER.replace(b"Connection: Upgrade", b"Connection: Upgrade\r\nConnection: close")) is None
    )
    assert refusal(ANSWER.replace(b"\r\n\r\n", b"\r\nServer:\r\nX-Odd: a:b \xff\r\n\r\n")) is None


def test_status_is_told():
    for status in (b"200 OK", b"301 Moved", b"401 Unauthorized", b"403 Forbidden", b"404", b"503 Busy"):
        for version in (b"HTTP/1.1 ", b"HTTP/1.0 "):
            assert refusal(version + status + b"\r\n\r\n") == "http " + status[:3].decode()


def test_what_is_not_http_is_told():
    for line in (b"", b"HTTP/1.1", b"HTTP/1.1 1", b"HTTP/1.1 1x1", b"HTTP/1.1 1011", b"HTTP/1.1  101 x"):
        assert refusal(line + b"\r\n\r\n") == "answer is not http"
    assert refusal(ANSWER.replace(b"HTTP/1.1", b"HTTP/1.0")) == "answer is not http 1.1"
    assert refusal(ANSWER.replace(b"HTTP/1.1", b"HTTP/2")) == "answer is not http 1.1"


def test_headers_that_lack_are_told():
    for line in (b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + ACCEPT):
        assert refusal(ANSWER.replace(line + b"\r\n", b"", 1)) == "answer lacks an upgrade header"
    assert refusal(ANSWER.replace(b": websocket", b": h2c")) == "answer lacks an upgrade header"
    assert refusal(ANSWER.replace(b": Upgrade", b": upgraded")) == "answer lacks an upgrade header"


def test_wrong_accept_is_told():
    for wrong in (ACCEPT[:-1], ACCEPT + b"=", ACCEPT.lower(), b"", b"x"):
        assert refusal(ANSWER.replace(ACCEPT, wrong)) == "wrong Sec-WebSocket-Accept"
    twice = b"\r\nSec-WebSocket-Accept: " + ACCEPT
    assert refusal(ANSWER.replace(b"\r\n\r\n", twice + b"\r\n\r\n")) == "wrong Sec-WebSocket-Accept"


def test_what_was_not_asked_for_is_told():
    for line in (b"Sec-WebSocket-Extensions: permessage-deflate", b"sec-websocket-protocol: chat"):
        answer = ANSWER.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")
        assert refusal(answer) == "extension or subprotocol that was not asked for"


def test_bad_headers_are_told():
    for line in (b"no colon", b": no name", b" folded: line", b"Space : x", b"\tx: y"):
        answer = ANSWER.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")
        assert refusal(answer) == "bad header in the answer", line


def test_an_answer_that_is_too_long_is_told():
    head = b"HTTP/1.1 101 Switching Protocols\r\nX: "
    assert refusal(head + b"x" * 600) == "answer too long"
    assert refusal(head + b"x" * 4100, 10000) == "answer too long"
    assert refusal(ANSWER, len(ANSWER)) is None
    assert refusal(ANSWER, len(ANSWER) - 1) == "answer too long"


def test_another_protocol_is_told_at_its_first_bytes():
    buf = bytearray(b"HTTP/x")
    for n in range(5):
        assert upgrade.read(buf, n + 1, KEY) is None
    for n in range(5):
        buf = bytearray(b"HTTP/x")
        buf[n] += 1
        assert upgrade.read(buf, n + 1, KEY) == "answer is not http"
    assert refusal(b"SSH-2.0-OpenSSH_9.2\r\n") == "answer is not http"
