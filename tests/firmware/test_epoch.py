from vrt.protocol.session import Session


def session():
    return Session(64, None, None, 4, 15_000)


def test_nothing_is_closed_at_first():
    one = session()
    assert one.observed == one.closed == -1
    assert not one.close(one.observed)  # a client that has observed nothing sends no interrupt


def test_close_again_or_lower_has_no_effect():
    one = session()
    assert one.close(3)  # also an epoch that was not observed yet
    assert not one.close(3)
    assert not one.close(1)
    assert one.closed == 3


def test_epochs_beyond_small_integers_close_in_order():
    one = session()
    for value in (0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        assert one.close(value)
        assert not one.close(value)
        assert one.closed == value
