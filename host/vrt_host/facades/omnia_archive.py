"""The sessions of an Omnia facade, by id: those in use, parked calls, and those that can be resumed."""

from __future__ import annotations

from vrt_host.facades.omnia_session import Session
from vrt_host.facades.omnia_sides import Server

MOST = 1000
"""Sessions that are remembered; those that are not in use go first, the oldest of them at first."""


class ExpiredError(Exception):
    """A session that the caller cannot resume."""


class Archive:
    """Who may use which session. An owner is the name of a token, "" where there are no tokens."""

    def __init__(self, server: Server, ttl: float) -> None:
        self._server = server
        self._ttl = ttl
        self._sessions: dict[str, Session] = {}

    def get(self, id_: str, owner: str, facet: str | None, *, own: bool) -> Session:
        """Session handling: the session of that id, a new one when it was never seen.

        `own`: the connection minted the id. Any other is for the user alone whom a credential shows to be its owner.
        Raises `ExpiredError`.
        """
        session = self._sessions.get(id_)
        if session is None:
            session = self._sessions[id_] = Session(self._server, id_, owner, facet)
            self._trim()
        elif session.expired(self._ttl):
            session.forget()
            raise ExpiredError
        elif not own and (not owner or owner != session.owner or facet != session.facet):
            raise ExpiredError
        return session

    def parked(self, id_: str, owner: str, facet: str | None) -> Session | None:
        """The call of that id, for its owner: parked, or on a connection whose loss was not noticed yet."""
        session = self._sessions.get(id_)
        if session is None or session.voice is None or (session.owner, session.facet) != (owner, facet):
            return None
        return session

    def close(self) -> None:
        """All sessions end."""
        for session in self._sessions.values():
            session.close()

    def _trim(self) -> None:
        for id_ in list(self._sessions) if len(self._sessions) > MOST else ():
            if self._sessions[id_].client is None and not self._sessions[id_].parked:
                del self._sessions[id_]
            if len(self._sessions) <= MOST:
                return
