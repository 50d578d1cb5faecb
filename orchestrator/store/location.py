"""The location of the store: the SQLite file of this user, or the PostgreSQL database that ORCH_STORE names.

The address may contain a password, which is used only to connect. Messages show `described()`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import unquote

from orchestrator.errors import UserError

STORE_VARIABLE = "ORCH_STORE"
Location: TypeAlias = Path | str
_LONG = 8  # characters of a secret that is part of no other word by chance

# A percent sign begins two hexadecimal digits, and no zero byte: libpq repeats the whole word when it refuses it.
_PERCENT = r"%(?!00)[0-9a-fA-F]{2}"
_WORD = rf"(?:[^:@/?#\s%]|{_PERCENT})*"
_OPTION = rf"\w+=(?:[^#\s%&=]|{_PERCENT})*"
_SHAPE = re.compile(
    r"postgres(?:ql)?(?:\+psycopg)?://"
    rf"(?:(?P<user>{_WORD})(?::(?P<password>{_WORD}))?@)?"
    r"(?P<hosts>(?:[\w.%-]*|\[[0-9a-fA-F:.]+\])(?::\d+)?)"
    rf"(?:/(?P<database>{_WORD}))?"
    rf"(?:\?(?P<query>(?:{_OPTION}(?:&{_OPTION})*)?))?",
    re.ASCII,
)


class HasDatabase(Protocol):
    """Anything with the path of a SQLite file."""

    @property
    def database(self) -> Path: ...


def store_location(environ: Mapping[str, str], paths: HasDatabase) -> Location:
    """Return the PostgreSQL address in ORCH_STORE, or the path of the SQLite file.

    Raises:
        UserError: ORCH_STORE is not such an address. Its value, which may contain a password, is not repeated.
    """
    value = environ.get(STORE_VARIABLE, "").strip()
    if not value:
        return paths.database
    if _SHAPE.fullmatch(value) is None:
        raise UserError(
            f"{STORE_VARIABLE} is not the address of a PostgreSQL database",
            "write postgresql://USER@HOST:PORT/DATABASE; characters such as @ : / # ? in a password become %40 "
            "%3A %2F %23 %3F",
            f"correct {STORE_VARIABLE}, or unset it to use {paths.database}",
        )
    return value


def describe_location(location: Location, *, login: str | None = None) -> str:
    """Return the path, or the address without password and options, for messages.

    Args:
        location: of the store.
        login: written in the place of the login in the address.
    """
    if isinstance(location, Path):
        return str(location)
    found = _SHAPE.fullmatch(location)
    if found is None:
        return "postgresql://(unreadable address)"
    shown = found["user"] if login is None else login
    user = f"{shown}@" if shown else ""
    return f"postgresql://{user}{found['hosts']}/{found['database'] or ''}"


def secrets_of(location: Location) -> tuple[str, ...]:
    """Return the parts of the address that must not be shown, as written and as decoded."""
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


def mask_secrets(text: str, location: Location) -> str:
    """Replace the secrets of the address in a text by ***; a short one only as a whole word."""
    longest_first = sorted(secrets_of(location), key=len, reverse=True)  # one may begin with another
    patterns = [re.escape(one) if len(one) >= _LONG else rf"(?<!\w){re.escape(one)}(?!\w)" for one in longest_first]
    return re.sub("|".join(patterns), "***", text) if patterns else text
