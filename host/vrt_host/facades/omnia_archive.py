"""The sessions of an Omnia facade, by id: those in use, parked calls, and those that can be resumed."""

from __future__ import annotations

from collections import Counter

from vrt_host.facades.omnia_session import Session
from vrt_host.facades.omnia_sides import Server

MOST = 1000
"""Sessions that are remembered. Of those that are not in use the oldest goes first, of the owner who has the most of them."""


class ExpiredError(Exception):
    """A session that the caller cannot resume."""


class Archive:
    """Who may use which session. An owner is the name of a token, "" where there are no tokens."""

    def __init__(self, server: Server, ttl: float) -> None:
        self._server = server
        self._ttl = ttl
        self._sessions: dict[str, Session] = {}

    @property
    def busy(self) -> bool:
        """Whether a turn runs anywhere."""
        return any(session.busy for session in self._sessions.values())

    def get(self, id_: str, owner: str, facet: str | None, *, maker: object, joins: bool) -> Session:
        """Session handling: the session of that id, a new one when it was never seen.

        `maker` is the connection's: of an id that it did not mint, a session is for the user alone whom a credential shows
        to be its owner.
        `joins`: it is the connection's own session, where whoever was told that another one has expired goes on.
        Raises `ExpiredError`.
        """
        session = self._sessions.get(id_)
        if session is None:
            self._trim()
            session = self._sessions[id_] = Session(self._server, id_, owner, facet)
            session.maker = maker
        elif session.expired(self._ttl):
            session.forget()
            if not joins:
                raise ExpiredError
        elif session.maker is not maker and (not owner or owner != session.owner or facet != session.facet):
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
        """Make room for one more."""
        unused = [one for one in self._sessions.values() if one.client is None and not one.parked]
        while unused and len(self._sessions) >= MOST:
            [(crowd, _)] = Counter(one.owner for one in unused).most_common(1)
            oldest = next(one for one in unused if one.owner == crowd)
            unused.remove(oldest)
            del self._sessions[oldest.id]
