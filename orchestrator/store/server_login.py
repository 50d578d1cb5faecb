"""The login of PostgreSQL that servers use: its password is changed without being shown, and proven by logging in."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from orchestrator.errors import AccessError, UserError
from orchestrator.store.failures import translate_server_error
from orchestrator.store.grants import execute_all, quote_name
from orchestrator.store.password_file import is_refused_password, read_passwords, write_passwords
from orchestrator.store.transport import connect_options

_END_SECONDS = 30.0  # how long sessions with the former password are waited for
_OTHERS = (
    "FROM pg_stat_activity WHERE usename = session_user AND datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_start < :before"
)
_IDLE = "AND state = 'idle' AND state_change < clock_timestamp() - interval '250 milliseconds'"  # not within a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What happened after a change of the password: how many sessions ended, and whether the file has former lines."""

    ended: int
    keeps_former: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLogin:
    """A login, and the file with its password.

    Attributes:
        location: The address of the store, with whichever login.
        name: The login.
        file: The file, from which servers read the password.
    """

    location: str
    name: str
    file: Path

    def prepare(self) -> tuple[str, ...]:
        """Write the next password in front of the present one, unless it is there; return all lines of the file.

        A line that the database does not take is one that a killed command, or a person, has written as the next.
        """
        passwords = read_passwords(self.file) if self.file.exists() else ()
        if len(passwords) == 1 and not self.takes(passwords[0]):
            return passwords
        if len(passwords) < 2:  # the next and the present one
            passwords = (secrets.token_urlsafe(32), *passwords)
            write_passwords(self.file, passwords)
        return passwords

    def takes(self, password: str) -> bool:
        """Return whether the database takes a password of the login."""
        try:
            with self._open(password) as tx:
                tx.execute(text("SELECT 1"))
        except DBAPIError as error:
            cause = error.orig or error
            if is_refused_password(cause) or "does not exist" in str(cause):
                return False
            raise translate_server_error(cause, self.location, lost=True) from error
        return True

    def refuse_without_password(self) -> None:
        """Raise AccessError where the database lets the login in with any password: then none keeps anyone out."""
        if self.takes(secrets.token_urlsafe(24)):
            raise AccessError(
                f"PostgreSQL lets '{self.name}' in without its password from this computer",
                "pg_hba.conf has `trust`, `peer`, or another method without passwords for it",
                "the administrator: use scram-sha-256 there, for every address; then the same command again",
            )

    def set_password(self, tx: Connection, password: str, *, create: bool) -> None:
        """Give the login its password, in a transaction. The statement has a digest, as the server keeps it."""
        driver: Any = tx.connection.driver_connection
        digest = driver.pgconn.encrypt_password(password.encode(), self.name.encode(), b"scram-sha-256").decode()
        verb = "CREATE ROLE" if create else "ALTER ROLE"
        execute_all(tx, [f"{verb} {quote_name(self.name)} {'LOGIN ' * create}PASSWORD '{digest}'"])

    def finish(self) -> Finished:
        """End sessions that began with a former password, and drop it from the file. Servers connect again.

        Raises:
            AccessError: The database does not take the first password of the file, or takes any.
        """
        password, *former = read_passwords(self.file)
        self.refuse_without_password()
        if not self.takes(password):
            why = f"the first line of {self.file} is not the password of '{self.name}'"
            raise AccessError("the password was not changed", why, "the same command again")
        ended = self._end_other_sessions(password)
        if former:
            try:
                write_passwords(self.file, (password,))
            except UserError:  # a mounted secret: who made it drops the former line, which opens nothing any more
                return Finished(ended=ended, keeps_former=True)
        return Finished(ended=ended, keeps_former=False)

    def _end_other_sessions(self, password: str) -> int:
        """End sessions that are idle, so that no request of a server fails; after _END_SECONDS all that are left."""
        ended, idle, due = 0, _IDLE, time.monotonic() + _END_SECONDS
        with self._open(password) as tx:
            before = {"before": tx.execute(text("SELECT clock_timestamp()")).scalar_one()}
            while tx.execute(text(f"SELECT count(*) {_OTHERS}"), before).scalar_one():
                ending = f"SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) {_OTHERS} {idle}"
                ended += int(tx.execute(text(ending), before).scalar_one())
                idle = _IDLE if time.monotonic() < due else ""
                time.sleep(0.1)
        return ended

    def _open(self, password: str) -> Connection:
        return _engine(self.location, self.name, password).connect()


def _engine(location: str, login: str, password: str) -> Engine:
    url = make_url(location).set(drivername="postgresql+psycopg", username=login, password=password)
    settings: dict[str, Any] = {"connect_timeout": 10, "application_name": "orch"} | connect_options(location)
    settings = {name: value for name, value in settings.items() if name not in url.query}
    return create_engine(
        url, connect_args=settings, isolation_level="AUTOCOMMIT", use_native_hstore=False, poolclass=NullPool,
        hide_parameters=True,
    )  # fmt: skip
