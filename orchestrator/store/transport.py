"""How the connection to PostgreSQL is secured: off loopback the server proves its name, by TLS. Light and pure.

Source: "SSL Support" and "Database Connection Control Functions" of libpq, documentation of PostgreSQL 17
(read 2026-11-25).
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, unquote_plus

from orchestrator.distribution import install_command
from orchestrator.errors import UserError
from orchestrator.store.location import describe_location

VERIFIED = "verify-full"
_SYSTEM_ROOTS = 160000  # the version of libpq in which sslrootcert=system appeared
_AUTHORITY = re.compile(r"://(?:[^@/?]*@)?(?P<host>\[[^\]]*\]|[^:/?]*)")


def secure_options(location: str, environ: Mapping[str, str], libpq: int) -> dict[str, str]:
    """Return the options of a connection that verifies the server: none on loopback and on Unix sockets.

    Args:
        location: the address of the store.
        environ: the environment, whose variables libpq reads where the address has no option.
        libpq: the version of libpq, such as 160004.

    Raises:
        UserError: the address or a variable has an sslmode that does not verify the server's name.
    """
    written = _options(location)
    if all(_is_local(host) for host in _hosts(location, written, environ)):
        return {}
    name = "sslmode" if "sslmode" in written else "PGSSLMODE"
    mode = written.get("sslmode") or environ.get("PGSSLMODE", "")
    if mode not in ("", VERIFIED):
        change = "write ?sslmode=verify-full in ORCH_STORE" if name == "sslmode" else "unset PGSSLMODE"
        raise UserError(
            f"{name}={mode} does not verify the server of the store {describe_location(location)}",
            "anyone on the network in between could read and change all that is recorded",
            f"{change}, and sslrootcert=FILE for your own certificate authority   (docs/team.md)",
        )
    options = {"sslmode": VERIFIED}
    own = Path(environ.get("HOME", "~")).expanduser() / ".postgresql" / "root.crt"
    named = "sslrootcert" in written or environ.get("PGSSLROOTCERT") or own.exists()
    if not named and libpq >= _SYSTEM_ROOTS:
        options["sslrootcert"] = "system"
    return options


def connect_options(location: str) -> dict[str, str]:
    """Return `secure_options` for this process. Raises UserError, also where the driver is missing."""
    try:
        from psycopg import pq
    except ImportError as error:
        raise UserError(
            "a store on PostgreSQL needs the driver psycopg", str(error), install_command("server")
        ) from error
    return secure_options(location, os.environ, pq.version())


def _options(location: str) -> dict[str, str]:
    pairs = (option.partition("=") for option in location.partition("?")[2].split("&") if option)
    return {name: unquote_plus(value) for name, _, value in pairs}


def _hosts(location: str, written: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Return every host and address that libpq may use. A service file may name any: it counts as a far host."""
    found = _AUTHORITY.search(location)
    host = written.get("host") or (unquote(found["host"]) if found else "") or environ.get("PGHOST", "")
    if not host and (written.get("service") or environ.get("PGSERVICE")):
        return ["a host of a service file"]
    addresses = written.get("hostaddr") or environ.get("PGHOSTADDR", "")
    return [*host.split(","), *(addresses.split(",") if addresses else ())]


def _is_local(host: str) -> bool:
    """Return whether a host is this computer: a Unix socket, or a loopback address."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name: where it leads is not known before the connection
