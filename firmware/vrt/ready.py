# What the server's `ready` means (vRT §5.2), or its refusal: once for each connection, and forgotten again.
from micropython import const

from vrt.errors import ConfigError

_PING_MS = const(1000)  # no server makes us ping more often
_ID_SHOWN = const(8)  # characters of a session id in the log: whoever has all of it could resume the session


def ready(conversation, event):
    session, tools = conversation.session, conversation.tools
    resumed = "resumedFrom" in event
    conversation.log.event("ready", session=session.id[:_ID_SHOWN], resumed=resumed)
    if not resumed:
        if session.bare:
            conversation.report()
        tools.begin(session.id)
    elif conversation.restored:
        tools.resumed()
    conversation.restored = False
    conversation.offer = event.get("update")
    limits = event.get("limits")
    beat = limits.get("heartbeatMs") if isinstance(limits, dict) else None
    beat = beat if isinstance(beat, int) else 0  # a server with less patience than usual (decisions 7)
    session.ping_ms = (
        max(_PING_MS, min(conversation.config["ping_ms"], beat // 3))
        if beat
        else conversation.config["ping_ms"]
    )
    conversation.waiting = session.ping = resumed  # its pong comes behind all of it
    try:
        conversation.sound.adopt(event)
    except (ConfigError, MemoryError, OSError) as error:
        conversation.log.fault("FORMAT", str(error) or "out of memory")
    conversation.quiet = True


def retry(conversation, now):
    # After a refusal, asked by the user or now and then: once with each new token that the configuration has (§5.3), and
    # when it was not about the token.
    try:
        token = conversation.board.config().get("token", "")
    except (OSError, ValueError, AttributeError) as error:  # the file is gone, or nonsense
        conversation.log.fault("CONFIG", str(error))
        return
    if conversation.refused != "UNAUTHORIZED" or (
        token != conversation.config["token"] and type(token) is str
    ):
        conversation.config["token"] = token
        conversation.session.again("retry", now)
