"""The password of a team's database in a private file, which is read again for each connection. Light.

The file has one password a line, which are tried in order. So the next password lies on every server before the
database takes it, and no connection is refused while it is changed.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import UserError
from orchestrator.store.location import Location, secrets_of

PASSWORD_FILE_VARIABLE = "ORCH_STORE_PASSWORD_FILE"  # noqa: S105  # the name of a variable
MOST_BYTES = 4096

T = TypeVar("T")


def find_password_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file that ORCH_STORE_PASSWORD_FILE names, or None."""
    name = environ.get(PASSWORD_FILE_VARIABLE, "").strip()
    return Path(name).expanduser().absolute() if name else None


def read_passwords(file: Path) -> tuple[str, ...]:
    """Return the passwords of a file in the order in which they are tried.

    Raises:
        UserError: It cannot be read, others may read it, or it is another kind of file.
    """
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            content = opened.read(MOST_BYTES + 1)
        lines = tuple(line for line in content.decode("utf-8").splitlines() if line)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        step = f"name a file that you can read: export {PASSWORD_FILE_VARIABLE}=FILE   (docs/team.md)"
        raise UserError(f"the password file {file} cannot be read", str(why), step) from error
    # A secret that is mounted for a group belongs to root; libpq accepts that of its key files, too.
    accepted = 0o040 if found.st_uid == 0 else 0
    if stat.S_IMODE(found.st_mode) & 0o077 & ~accepted:
        why = f"others may read or change it (mode {stat.S_IMODE(found.st_mode):04o})"
        raise UserError(f"the password file {file} is not used", why, f"chmod 600 {shlex.quote(str(file))}")
    if not lines or len(content) > MOST_BYTES:
        why = "it has no line" if not lines else f"it has more than {MOST_BYTES} bytes"
        raise UserError(f"the password file {file} is not used", why, "write the password into it, one a line")
    return lines


def connect_with_passwords(location: Location, environ: Mapping[str, str], connect: Callable[[dict[str, Any]], T]) -> T:
    """Connect with the first password of the file that the server takes; without a file, as the address says.

    Args:
        location: The address of the store.
        environ: Where ORCH_STORE_PASSWORD_FILE may name a file.
        connect: Connects with further options.

    Raises:
        UserError: The file cannot be used, or the address has a password, too.
        Exception: That of `connect`.
    """
    file = find_password_file(environ)
    if file is None:
        return connect({})
    if secrets_of(location):
        why = f"{PASSWORD_FILE_VARIABLE} names a file, and ORCH_STORE has a password, too"
        raise UserError(
            "the store has two passwords", why, f"leave the one in ORCH_STORE out, or unset {PASSWORD_FILE_VARIABLE}"
        )
    refused: tuple[str, ...] = ()
    telling: Exception | None = None  # that of another reason than the password, where there is one
    while True:
        present = read_passwords(file)
        for number, password in enumerate(present, start=1):
            try:
                return connect({"password": password})
            except Exception as error:
                if not is_refused_password(error):
                    raise
                telling = telling if telling is not None or _says_so(error) else error
                # The database may have changed from the last line to the first, between the two, or the file did.
                if number == len(present) and (present == refused or (number == 1 and present == read_passwords(file))):
                    raise telling or error from None
        refused = present


def is_refused_password(error: BaseException) -> bool:
    """Return whether psycopg's error of a connection may say that the server refused the password.

    libpq gives no SQLSTATE of it, and its text is in the server's language: what refuses after a password was sent
    counts, such as too many connections. The next password does no harm then.
    """
    return bool(getattr(getattr(error, "pgconn", None), "used_password", False)) or _says_so(error)


def _says_so(error: BaseException) -> bool:
    return "password authentication failed" in str(error)
