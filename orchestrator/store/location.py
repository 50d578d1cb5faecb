"""Where the store is: the SQLite file of this user, or the team's PostgreSQL that ORCH_STORE names.

The address may carry a password. It is used to connect and for nothing else: `described()` is what people see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import unquote

from orchestrator.errors import UserError

VARIABLE = "ORCH_STORE"
Location: TypeAlias = Path | str

_SHAPE = re.compile(
    r"postgres(?:ql)?(?:\+psycopg)?://"
    r"(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^:@/?#\s]*))?@)?"
    r"(?P<hosts>(?:[\w.%-]*|\[[0-9a-fA-F:.]+\])(?::\d+)?)"
    r"(?:/(?P<database>[^/?#@:\s]*))?"
    r"(?:\?(?P<query>[^#\s]*))?",
    re.ASCII,
)


class HasDatabase(Protocol):
    @property
    def database(self) -> Path: ...


def store_location(environ: Mapping[str, str], paths: HasDatabase) -> Location:
    """The PostgreSQL address in ORCH_STORE, or the path of the SQLite file. Raises UserError for another address.

    The value itself is never repeated in the error: it may hold a password.
    """
    value = environ.get(VARIABLE, "").strip()
    if not value:
        return paths.database
    if _SHAPE.fullmatch(value) is None:
        raise UserError(
            f"{VARIABLE} is no address of a PostgreSQL database",
            "one reads postgresql://USER@HOST:PORT/DATABASE; signs such as @ : / # ? in a password are written as %40 "
            "%3A %2F %23 %3F",
            f"correct {VARIABLE}, or unset it to use {paths.database}",
        )
    return value


def described(location: Location) -> str:
    """The path, or the address without password and options, for messages."""
    if isinstance(location, Path):
        return str(location)
    found = _SHAPE.fullmatch(location)
    if found is None:
        return "postgresql://(unreadable address)"
    user = f"{found['user']}@" if found["user"] else ""
    return f"postgresql://{user}{found['hosts']}/{found['database'] or ''}"


def secrets_of(location: Location) -> tuple[str, ...]:
    """Texts of the address that must not be shown, as written and as decoded."""
    if isinstance(location, Path):
        return ()
    found = _SHAPE.fullmatch(location)
    if found is None:
        return (location,)
    hidden = [found["password"] or ""]
    for option in (found["query"] or "").split("&"):
        name, _, value = option.partition("=")
        if "pass" in name.lower():
            hidden.append(value)
    return tuple({text for written in hidden for text in (written, unquote(written)) if text})


def without_secrets(text: str, location: Location) -> str:
    for secret in secrets_of(location):
        text = text.replace(secret, "***")
    return text
