# The firmware's errors. What a peer does wrong is never raised out of a session: it is counted and reported there.


class VrtError(Exception):
    pass


class ConfigError(VrtError):
    # The configuration, a board description or a tool declaration is wrong; the text says what to change.
    pass


class ProtocolError(VrtError):
    # Our own misuse of the protocol modules, such as a message that fits no frame. `wire.WireError` is the peer's.
    pass
