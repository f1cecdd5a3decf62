from vrt import diff


def test_diff_is_signed_and_survives_the_wrap():
    assert diff(1000, 400) == 600
    assert diff(400, 1000) == -600
    assert diff(5, 0x3FFFFFFF) == 6
    assert diff(0x3FFFFFFF, 5) == -6


def test_diff_takes_the_long_ticks_of_a_64_bit_port():
    base = 0x3FFFFFFF * 5 + 123
    assert diff(base + 37_500, base) == 37_500
