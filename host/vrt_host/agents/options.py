"""Options of an agent: a table of a TOML file that has the agent's name, and over it the environment.

    [openai]
    model = "gpt-realtime-2.1"
    api_key_file = "openai.key"

`VRT_OPENAI_MODEL` replaces `model`. A secret is a field of type `SecretStr`: it is read from the environment variables
that `Options.secrets` lists for it, or from the file that `<field>_file` names, which holds it alone. It is refused
in the TOML file, which people copy, publish and post.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError
from pydantic_core import to_json

from vrt_host.config import is_loopback
from vrt_host.errors import UsageError

FACADES = ("aitp_facade", "omnia_facade", "fish_facade")
"""Tables of the same file that are not agents' (facades/registry.py)."""
_SECRET_BYTES = 16_384


class Options(BaseModel):
    """What every agent's options are derived from: unknown ones are refused, and nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    secrets: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Field of type `SecretStr` -> environment variables that may hold it, the first that is set."""


_T = TypeVar("_T", bound=Options)


def load(
    kind: type[_T],
    agent: str,
    path: Path | None,
    *,
    agents: Collection[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> _T:
    """The options of `agent`; `agents` are the tables that the file may have besides.

    Raises `UsageError`, one line that names the file and the option, for what is missing or wrong. It never shows a value.
    """
    fields = [name for name in kind.model_fields if name not in kind.secrets]
    files = [f"{name}_file" for name in kind.secrets]
    table = _table(path, agent, {agent, *agents, *FACADES}) if path is not None else {}
    where = f"{path}, [{agent}]" if path is not None else f"the options of {agent}"
    for name in table:
        if name in kind.secrets:
            raise UsageError(
                f"{where}: {name} does not belong there; put it into a file of its own and name that by "
                f"{name}_file, or set {kind.secrets[name][0]}"
            )
        if name not in fields and name not in files:
            raise UsageError(f"{where}: there is no option {name!r}{_nearest(name, [*fields, *files])}")
    given = dict(table)
    prefix = f"VRT_{agent.upper()}_"
    for name in (*fields, *files):
        if (text := environ.get(prefix + name.upper())) is not None:
            given[name] = text if name in files else _value(kind, name, text)
    base = path.parent if path is not None else Path()
    for name, variables in kind.secrets.items():
        found = _secret(given.pop(f"{name}_file", None), base, variables, environ, f"{where}: {name}_file")
        if found is not None:
            given[name] = found
    try:
        return kind.model_validate_json(to_json(given), strict=True)
    except ValidationError as error:
        raise UsageError(_line(error, kind, where, prefix)) from None


def _table(path: Path, agent: str, known: Collection[str]) -> Mapping[str, Any]:
    try:
        everything = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"the options file {path} cannot be read: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the options file {path} is not TOML: {error}") from None
    for name, table in everything.items():
        if name not in known:
            raise UsageError(f"{path}: there is no agent {name!r}{_nearest(name, known)}")
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name} has to be a table: [{name}]")
    found: Mapping[str, Any] = everything.get(agent, {})
    return found


def _value(kind: type[Options], name: str, text: str) -> Any:
    """What an environment variable says: the text itself for a text, and TOML for all else."""
    if kind.model_fields[name].annotation in (str, str | None, Path, Path | None):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def sendable(secret: str) -> bool:
    """Whether it can be in a header. What cannot would be shown in the error about that."""
    return re.fullmatch(r"[\x21-\x7e]+", secret) is not None


def _secret(
    file: Any, base: Path, variables: tuple[str, ...], environ: Mapping[str, str], where: str
) -> str | None:
    if file is None:
        name = next((name for name in variables if environ.get(name, "").strip()), None)
        text = environ[name].strip() if name is not None else None
        if text is not None and not sendable(text):
            raise UsageError(f"{name} has to hold the secret alone, in printable ASCII without spaces")
        return text
    if not isinstance(file, str):
        raise UsageError(f"{where} has to be the name of a file")
    path = base / Path(file).expanduser()
    try:
        with path.open("rb") as stream:
            text = stream.read(_SECRET_BYTES + 1).decode("utf-8-sig").strip()
    except OSError as error:
        raise UsageError(f"{where}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{where}: {path} is not text") from None
    if not sendable(text) or len(text) > _SECRET_BYTES:
        raise UsageError(f"{where}: {path} has to hold the secret alone, in one line of printable ASCII")
    return text


def _line(error: ValidationError, kind: type[Options], where: str, prefix: str) -> str:
    """The first thing that is wrong, in one line."""
    first = error.errors(include_input=False, include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "missing" and name in kind.secrets:
        variables = " or ".join(kind.secrets[name])
        return f"{where}: {name} is missing; set {variables}, or name a file that holds it by {name}_file"
    if first["type"] == "missing":
        return f"{where}: {name} is missing; set it there or in {prefix}{name.upper()}"
    if first["type"] == "extra_forbidden":
        return f"{where}: there is no option {name!r}"
    more = error.error_count() - 1
    said = first["msg"].removeprefix("Value error, ")
    told = f"{name}: {said[:1].lower()}{said[1:]}" if name else said
    return f"{where}: {told}" + (f" (and {more} more)" if more else "")


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are {', '.join(sorted(known))}" if known else ""


def shown(secret: SecretStr | None) -> str:
    """The secret itself, for a request's header and for nothing else."""
    return secret.get_secret_value() if secret is not None else ""


def checked_url(
    url: str, schemes: Collection[str], *, insecure: bool, secure: Collection[str] = ("https", "wss")
) -> str:
    """A server's address without the slash at its end, for a validator; raises `ValueError`.

    What is not encrypted (a scheme that is not among `secure`) may only go to this machine, unless `insecure`.
    """
    parts = urlsplit(url)
    if not (url.isprintable() and url == "".join(url.split())):
        raise ValueError("it has a space or another character that no address has")
    try:
        _ = parts.port, (parts.hostname or "").encode("idna")
    except UnicodeError:
        raise ValueError(f"{parts.hostname} can be no name of a computer") from None
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"it has to be an address like {next(iter(schemes))}://HOST")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("nothing but the address belongs there; a key is an option of its own")
    if parts.scheme not in secure and not insecure and not is_loopback(parts.hostname):
        raise ValueError(
            f"{parts.scheme} is not encrypted, and {parts.hostname} is another machine; set insecure = true if that network is yours"
        )
    if parts.scheme == "tcp" and parts.port is None:
        raise ValueError("the port is missing, as in tcp://127.0.0.1:10300")
    return url.rstrip("/")
