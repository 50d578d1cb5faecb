"""Why PostgreSQL refused a login, as its SQLSTATE: libpq gives only the text, which is in the server's language.

libpq's own trace of the protocol has the code, so a refusal that is not plain is asked for once more, with the trace in
memory. Codes: PostgreSQL 18, appendix A: 28P01 invalid_password, 28000 invalid_authorization_specification, 53300
too_many_connections.
"""

from __future__ import annotations

import os
import re
import select
import time
from typing import Any

SUCCESS = "00000"
REFUSED_LOGIN = frozenset({"28P01", "28000"})
_SECONDS = 10.0
_CODE = re.compile(rb'\tErrorResponse\t[^\n]*? C "([0-9A-Z]{5})"')


def read_sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of the refusal that a connection ended with; 00000 where it is none any more, "" unknown.

    Args:
        error: That of psycopg. Its connection is begun again, to see the refusal.
    """
    from psycopg import pq

    info = getattr(getattr(error, "pgconn", None), "info", None)
    if not info or not hasattr(os, "memfd_create"):  # Linux has it
        return ""
    words = [f"{option.keyword.decode()}='{_escape(option.val.decode())}'" for option in info if option.val is not None]
    connection = pq.PGconn.connect_start(" ".join(words).encode())
    with os.fdopen(os.memfd_create("login"), "rb") as kept:  # never on a disk: it has what is sent
        try:
            connection.trace(os.dup(kept.fileno()))
            is_made = _await_end(connection)
            connection.untrace()
        except Exception:  # a libpq without it
            return ""
        finally:
            connection.finish()
        if is_made:
            return SUCCESS
        kept.seek(0)
        found = _CODE.findall(kept.read())
    return found[-1].decode() if found else ""


def _await_end(connection: Any) -> bool:
    """Return whether a connection was made."""
    from psycopg import pq

    end = time.monotonic() + _SECONDS
    while (left := end - time.monotonic()) > 0 and connection.status != pq.ConnStatus.BAD:
        state = connection.connect_poll()
        if state in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
            return bool(state == pq.PollingStatus.OK)
        reads = [connection.socket] if state == pq.PollingStatus.READING else []
        select.select(reads, [] if reads else [connection.socket], [], left)
    return False


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
