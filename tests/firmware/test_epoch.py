from vrt.protocol.epoch import NONE, Epoch


def closed(epoch, value):
    return value <= epoch.closed


def test_nothing_is_closed_at_first():
    epoch = Epoch()
    assert epoch.observed == NONE
    assert not closed(epoch, 0)


def test_close_observed_closes_what_was_seen_and_no_more():
    epoch = Epoch()
    epoch.observe(4)
    epoch.observe(3)  # a message of an older turn does not lower it
    assert epoch.close_observed() == 4
    assert closed(epoch, 4)
    assert closed(epoch, 0)
    assert not closed(epoch, 5)


def test_close_observed_without_an_open_epoch_gives_none():
    epoch = Epoch()
    assert epoch.close_observed() == NONE  # a client that has observed nothing sends no interrupt
    epoch.observe(2)
    epoch.close_observed()
    assert epoch.close_observed() == NONE
    assert epoch.closed == 2


def test_close_reaches_epochs_not_yet_observed():
    epoch = Epoch()
    assert epoch.close(7)
    epoch.observe(6)
    assert closed(epoch, 6)
    assert epoch.close_observed() == NONE
    assert epoch.closed == 7


def test_close_again_or_lower_has_no_effect():
    epoch = Epoch()
    assert epoch.close(3)
    assert not epoch.close(3)
    assert not epoch.close(1)
    assert epoch.closed == 3


def test_epochs_beyond_small_integers_compare():
    epoch = Epoch()
    for value in (0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        epoch.observe(value)
        assert not closed(epoch, value)
        assert epoch.close_observed() == value
        assert closed(epoch, value)


def test_reset_forgets():
    epoch = Epoch()
    epoch.observe(9)
    epoch.close_observed()
    epoch.reset()
    assert not closed(epoch, 0)
    assert epoch.observed == NONE
