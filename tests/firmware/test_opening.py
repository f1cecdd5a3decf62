# How a connection on a serial line begins.
import sys

from vrt.links.opening import answer, question

NONCE = b"00c0ffee"


def test_question_is_what_the_page_says():
    assert question(NONCE, 4096) == b'{"v":1,"nonce":"00c0ffee","window":4096}'


def test_answer_gives_the_window_of_the_host():
    assert answer(b'{"v":1,"nonce":"00c0ffee","window":16384,"more":[]}', NONCE) == 16384
    assert answer(b'{"v":1,"nonce":"00c0ffee","window":64}', NONCE) == 64
    assert answer(b'{"v":1,"nonce":"00c0ffee","window":1000000000000}', NONCE) == 0x100000


def test_answer_to_somebody_else_or_of_another_kind_is_none():
    for payload in (
        b"",
        b"{",
        b"[]",
        b"7",
        b'"window"',
        b'{"nonce":"00c0ffee","window":100}',
        b'{"v":2,"nonce":"00c0ffee","window":100}',
        b'{"v":1,"nonce":"00c0ffef","window":100}',
        b'{"v":1,"nonce":7,"window":100}',
        b'{"v":1,"nonce":"00c0ffee","window":63}',
        b'{"v":1,"nonce":"00c0ffee","window":"100"}',
        b'{"v":1,"nonce":"00c0ffee","window":null}',
    ):
        assert answer(payload, NONCE) == 0, payload


def test_answer_leaves_nothing_in_memory():
    from vrt.links import opening  # noqa: PLC0415

    opening.answer(b"{}", NONCE)
    assert "vrt.links.opening" not in sys.modules
