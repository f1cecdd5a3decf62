"""Who may connect: a file of named tokens, stored as hashes (vRT §5.3).

A token is 256 random bits, so its SHA-256 is safe to store as it is: there is no dictionary to run through, and a
salt or a slow hash would protect nothing. A principal is the *name* of the token that a board presented.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrt_host.errors import UsageError

log = logging.getLogger(__name__)

ANONYMOUS = ""
"""The one principal of a host without tokens; no token can have this name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_MAX_FILE = 1 << 20
"""Bytes of a tokens file, some thousand boards."""
_MAX_TOKEN = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A token as it is stored: `digest` is the SHA-256 of its text in hex, `added` a date for people."""

    name: str
    digest: str
    added: str


def digest(token: str) -> str:
    """What is stored of a token. Lone surrogates, which JSON can carry, must not raise."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenFile:
    """The file as the commands edit it: read whole, replaced whole, readable by its owner alone (0600)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, Entry]:
        """Name -> entry. Raises `UsageError` when the file is missing or not what `vrt token` writes."""
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_FILE + 1)
        except FileNotFoundError:
            raise UsageError(
                f"there is no tokens file {self.path}; make one with `vrt token add NAME --tokens {self.path}`"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot read the tokens file {self.path}: {error.strerror or error}") from None
        if len(data) > _MAX_FILE:
            raise UsageError(f"the tokens file {self.path} is larger than 1 MiB; is it the right file?")
        try:
            return _parse(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"the tokens file {self.path} cannot be used: {error}; mend it, or remove it and add the tokens again"
            ) from None

    def add(self, name: str) -> str:
        """Make a token for `name` and return its text, which is not stored anywhere. Raises `UsageError`."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a name: use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
            )
        entries = self.load() if self.path.exists() else {}
        if name in entries:
            raise UsageError(
                f"there is a token named {name} already; revoke it first: "
                f"`vrt token revoke {name} --tokens {self.path}`"
            )
        token = "vrt_" + secrets.token_urlsafe(32)
        entries[name] = Entry(name, digest(token), time.strftime("%Y-%m-%d", time.gmtime()))
        self._save(entries)
        return token

    def revoke(self, name: str) -> None:
        """Forget the token of `name`; raises `UsageError` when there is none."""
        entries = self.load()
        if entries.pop(name, None) is None:
            raise UsageError(
                f"there is no token named {name!r} in {self.path}; "
                f"`vrt token list --tokens {self.path}` shows the names"
            )
        self._save(entries)

    def _save(self, entries: Mapping[str, Entry]) -> None:
        """Replace the file in one step, so that a host that reads it meanwhile sees the old or the new one."""
        tokens = {entry.name: {"sha256": entry.digest, "added": entry.added} for entry in entries.values()}
        text = json.dumps({"version": 1, "tokens": tokens}, indent=2) + "\n"
        temporary = ""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(
                dir=self.path.parent, prefix=self.path.name
            )  # mkstemp gives 0600
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self.path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise UsageError(f"cannot write the tokens file {self.path}: {error.strerror or error}") from None


class Authenticator:
    """Says who presented a token; reads the file again when it changes, so that `revoke` needs no restart.

    Without a file everybody is the one anonymous principal. A file that became unreadable lets nobody in.
    """

    def __init__(self, path: Path | None) -> None:
        """Raises `UsageError` when the file cannot be used at the start."""
        self._file = None if path is None else TokenFile(path)
        self._entries: dict[str, Entry] = {}
        self._seen: tuple[int, ...] | None = None
        if self._file is not None:
            self._seen = self._stamp()
            self._entries = self._file.load()
            self._warn_when_writable()

    @property
    def required(self) -> bool:
        """Whether a `hello` needs a token."""
        return self._file is not None

    def authenticate(self, token: str | None) -> str | None:
        """The principal of `token`, or None to refuse."""
        if self._file is None:
            return ANONYMOUS
        self.reload()
        if not token or len(token) > _MAX_TOKEN:
            return None
        presented = digest(token)
        found = None
        for (
            entry
        ) in self._entries.values():  # all of them, so that the time does not tell which one came near
            if hmac.compare_digest(entry.digest, presented):
                found = entry.name
        return found

    def knows(self, principal: str, token: str | None) -> bool:
        """Whether the principal may still be here with that token; False once it was revoked, or replaced by another."""
        if self._file is None:
            return True
        entry = self._entries.get(principal)
        return entry is not None and hmac.compare_digest(entry.digest, digest(token or ""))

    def reload(self) -> bool:
        """Read the file again if it changed; returns whether it did."""
        if self._file is None:
            return False
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self._entries = self._file.load()
        except UsageError as error:
            self._entries = {}
            log.error("nobody can connect: %s", error)  # noqa: TRY400  (the message is for the operator)
        else:
            log.info("the tokens file changed: %d tokens", len(self._entries))
        return True

    def _stamp(self) -> tuple[int, ...]:
        """What changes whenever the file does; empty when it is not there."""
        assert self._file is not None
        try:
            status = self._file.path.stat()
        except OSError:
            return ()
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    def _warn_when_writable(self) -> None:
        assert self._file is not None
        if os.name == "posix" and self._file.path.stat().st_mode & 0o022:
            log.warning("others can write the tokens file %s: `chmod 600` it", self._file.path)


def _parse(value: Any) -> dict[str, Entry]:
    """Check what `_save` wrote; raises `ValueError`."""
    if not isinstance(value, dict) or value.get("version") != 1 or not isinstance(value.get("tokens"), dict):
        raise ValueError("it is not a version 1 tokens file")
    entries = {}
    for name, token in value["tokens"].items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name")
        stored = token if isinstance(token, dict) else {}
        if not _HASH.fullmatch(str(stored.get("sha256"))):
            raise ValueError(f"the sha256 of {name} is not 64 hexadecimal digits in lower case")
        entries[name] = Entry(name, stored["sha256"], str(stored.get("added", ""))[:32])
    return entries
