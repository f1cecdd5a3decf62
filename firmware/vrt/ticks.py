# Time as the firmware counts it: milliseconds of `time.ticks_ms()`, compared only by `diff`.


def diff(now, since):
    # Milliseconds from `since` to `now`. The clock wraps at 2**30 on the boards; masking makes every port's ticks the same
    # and keeps all intermediate values small integers. Good for intervals below 6 days either way.
    return (((now - since) & 0x3FFFFFFF) ^ 0x20000000) - 0x20000000
