"""How a mutant of our firmware is made: a patch that breaks one rule, and the checks that must notice."""

from types import SimpleNamespace

from vrt.protocol import session, stream

MUTANTS = {}


def breaks(*checks, also=(), settings=(), slow=False, rare=False):
    """`also`: checks that may fail as well, because what they need does not happen; one that ends in a dot stands for all
    that begin so. `settings`: of the firmware, as NAME=VALUE. `slow`: the scenarios that take long are wanted too.
    `rare`: not played each time."""

    def note(patch):
        MUTANTS[patch.__name__] = SimpleNamespace(
            patch=patch, checks=frozenset(checks), also=tuple(also), settings=settings, slow=slow, rare=rare
        )
        return patch

    return note


def wrap(owner, name, around):
    """Replace a method by around(method, self, *arguments)."""
    method = getattr(owner, name)

    def wrapped(self, *arguments, **named):
        return around(method, self, *arguments, **named)

    setattr(owner, name, wrapped)


def rewrite(change):
    """Change what is sent: change(message) of each control message, before it is text."""

    encode = session.encode

    def changed(message, limit):
        return encode(change(dict(message)) or message, limit)

    session.encode = stream.encode = changed


def rewrite_text(change):
    """Change what is sent as text: change(text) of each control message."""

    encode = session.encode
    session.encode = stream.encode = lambda message, limit: change(encode(message, limit))


def heard(change):
    """Change what is received: change(message) of each valid control message."""
    decode = session.decode

    def changed(buf, n):
        message = decode(buf, n)
        change(message)
        return message

    session.decode = changed
