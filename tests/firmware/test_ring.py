# What the speaker relies on in MicroPython's RingIO, and in CPython's stand-in for it.
import random
import sys

import micropython
from micropython import RingIO
from support import SkipTest, raises


def make(size):
    return RingIO(bytearray(size + 1))


def test_ring_gives_back_what_it_took():
    ring = make(10)
    assert ring.any() == 0
    assert ring.write(b"..abcd", 2, 4) == 4
    assert ring.any() == 4
    out = bytearray(10)
    assert ring.readinto(out, 3) == 3
    assert bytes(out[:3]) == b"abc"
    assert ring.readinto(out, 10) == 1
    assert ring.readinto(out, 10) == 0


def test_ring_full_takes_the_first_bytes_that_fit():
    ring = make(4)
    assert ring.write(b"abcdef", 0, 6) == 4
    assert ring.write(b"x", 0, 1) == 0
    assert ring.any() == 4
    out = bytearray(6)
    assert ring.readinto(out, 6) == 4
    assert bytes(out[:4]) == b"abcd"


def test_ring_equals_a_list_on_random_use():
    ring = make(50)
    model = []
    out = bytearray(64)
    source = bytes(range(64))
    for _ in range(3000):
        n = random.randrange(30)
        off = random.randrange(30)
        if random.getrandbits(1):
            took = ring.write(source, off, n)
            assert took == min(n, 50 - len(model))
            model += source[off : off + took]
        else:
            got = ring.readinto(out, n)
            assert list(out[:got]) == model[:n]
            del model[:n]
        assert ring.any() == len(model)


def test_ring_refuses_a_size_that_cannot_be():
    raises(ValueError, make, 0)
    raises(ValueError, make, 65535)
    ring = make(65534)
    assert ring.write(bytes(65600), 0, 65600) == 65534


def test_ring_allocates_nothing():
    if sys.implementation.name != "micropython":
        raise SkipTest("heap_lock")
    ring = make(300)
    frame = bytearray(165)
    out = bytearray(80)
    micropython.heap_lock()
    for _ in range(20):
        ring.write(frame, 5, 160)
        while ring.any() >= 80:
            ring.readinto(out, 80)
    micropython.heap_unlock()
    assert ring.any() == 0
