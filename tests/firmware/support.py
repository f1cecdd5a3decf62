# What firmware tests share on both runtimes: the reason for a skip, and expecting an error.


class SkipTest(Exception):
    pass


def raises(kind, function, *args, **kwargs):
    # Calls the function and returns the exception of that kind; fails when there is none.
    try:
        function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError("expected " + kind.__name__)
