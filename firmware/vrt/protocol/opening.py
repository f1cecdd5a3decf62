# What `ready` means for the session (vRT §5.2, §5.4): once for each connection, and forgotten again.
from micropython import const

_NONE = const(-1)  # below every seq
_LEAST_BYTES = const(1024)  # a server's limit below this is none that we could keep to


def opened(session, message):
    # False: it ends the session.
    if session.id is None:
        fits = not message.pop("resumedFrom", 0)  # nothing of ours was handled in a session that is new
    else:
        fits = message["sessionId"] == session.id and session.streams.resume(
            message.get("resumedFrom", _NONE)
        )
    if not fits:
        session.end("RESUME_FAILED", "ready does not fit the session")
        return False
    session.id = message["sessionId"]
    limits = message.get("limits")
    size = limits.get("messageBytes") if type(limits) is dict else None
    if type(size) is int and size >= _LEAST_BYTES:
        session.streams.limit = min(session.streams.size, size)
    return True
