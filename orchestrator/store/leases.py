"""Leases with a fencing token: at most one orch works on a cluster, and a stale one is refused at the write.

A holder that died on this machine is detected by its process and replaced immediately; one on another machine when
its lease expires. The fence rises with every new holder; every guarded write checks it in the same transaction.
Times are real even in tests: of the server's clock on PostgreSQL, since the clocks of computers differ; for a file, of
a clock that all processes of one boot share and that no setting moves.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, and_, cast, exists, func, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.clock import SteadyClock
from orchestrator.errors import ConflictError
from orchestrator.store.change import Guard
from orchestrator.store.connection import Database
from orchestrator.store.failures import StoreError
from orchestrator.store.lease_process import identify_process, is_alive
from orchestrator.store.meta_rows import INCARNATION
from orchestrator.store.schema import leases, meta

LEASE_SECONDS = 30.0
_TRIES = 10  # each lost one means that the row changed meanwhile, and so nearly always that there is a holder now


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to change a cluster: its name, the random id of the holder, and the fencing token in two numbers.

    The fence rises with every holder, the incarnation with every store that was moved, copied or restored: an older
    state that was put back has lower fences.
    """

    name: str
    owner: str
    fence: int
    incarnation: int = 1


@dataclass(frozen=True, slots=True)
class Holder:
    """The present holder of a lease, for messages."""

    machine: str
    pid: int
    doing: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.machine} ({self.doing})"


def acquire_lease(
    database: Database, name: str, doing: str, seconds: float = LEASE_SECONDS, *, incarnation: int = 1
) -> Lease | Holder:
    """Take a lease, or return its holder. Of several that take it at the same time, one succeeds.

    Raises:
        StoreError: the store has another incarnation than when it was opened.
        ConflictError: others took it and gave it back between our looks, again and again.
    """
    owner = uuid.uuid4().hex
    for _ in range(_TRIES):
        now = _now(database)
        with database.reading() as tx:
            query = select(leases, now.label("now"), meta.c.value.label("incarnation"))
            query = query.select_from(meta).outerjoin(leases, leases.c.name == name)
            found = tx.execute(query.where(meta.c.key == INCARNATION)).mappings().one()
        if int(found["incarnation"]) != incarnation:
            raise _replaced_store_error()
        row = found if found["name"] is not None else None
        if row is not None and row["owner"] and row["expires"] > row["now"] and is_alive(row):
            return Holder(str(row["machine"]), int(row["pid"]), str(row["doing"]))
        fence = int(row["fence"]) + 1 if row is not None else 1
        values = {
            "fence": fence,
            "owner": owner,
            "machine": socket.gethostname(),
            "pid": os.getpid(),
            "process_start": identify_process(os.getpid()),
            "doing": doing,
            "expires": now + seconds,
        }
        if database.write(_insert(database, name, values) if row is None else _replace(name, row, values)):
            return Lease(name, owner, fence, incarnation)
    raise ConflictError(f"the lease of {name} changes hands too often", f"{_TRIES} tries failed", "orch status")


def _insert(database: Database, name: str, values: dict[str, Any]) -> Any:
    insert = sqlite.insert if database.is_file else postgresql.insert
    return insert(leases).values(name=name, **values).on_conflict_do_nothing()


def _replace(name: str, seen: Any, values: dict[str, Any]) -> Any:
    """Change the row if it still has the holder that was seen, and was not renewed since."""
    same = [leases.c[column] == seen[column] for column in ("fence", "owner", "expires")]
    return update(leases).where(leases.c.name == name, *same).values(**values)


def _now(database: Database) -> ColumnElement[float]:
    """Return the seconds in which leases expire: the server's epoch seconds, or this boot's for a file."""
    if isinstance(database.location, Path):
        return literal(SteadyClock(database.location.parent).keep().uncorrected(), Float)
    return cast(func.extract("epoch", func.clock_timestamp()), Float)


def renew_lease(database: Database, lease: Lease, seconds: float = LEASE_SECONDS) -> bool:
    """Extend a lease. Return False when another holder has taken it."""
    return bool(database.write(update(leases).where(_is(lease)).values(expires=_now(database) + seconds)))


def release_lease(database: Database, lease: Lease) -> None:
    """Give a lease back. The row stays: its fence must never decrease."""
    database.write(update(leases).where(_is(lease)).values(expires=0.0, owner=""))


def guard_lease(lease: Lease) -> tuple[Guard, ...]:
    """Return the guards of a change that `lease` is still ours, in the same incarnation of the store."""
    ours = Guard(table=leases, key={"name": lease.name}, values=_identify(lease))
    return ours, Guard(table=meta, key={"key": INCARNATION}, values={"value": str(lease.incarnation)})


def is_held(lease: Lease) -> ColumnElement[bool]:
    """Return the condition of a statement that `lease` is still ours while the statement takes effect."""
    return exists(select(leases.c.name).where(_is(lease)).with_for_update(of=leases))


def find_live_holders(tx: Connection, database: Database) -> list[Holder]:
    """Return who holds a lease now."""
    query = select(leases).where(leases.c.owner != "", leases.c.expires > _now(database))
    rows = tx.execute(query).mappings().all()
    return [Holder(str(row["machine"]), int(row["pid"]), str(row["doing"])) for row in rows if is_alive(row)]


def lost_lease_error(lease: Lease) -> ConflictError:
    """Return the error of a write under a lease that has another holder."""
    return ConflictError(
        f"another orch took over {lease.name}",
        "this one was suspended or disconnected for too long; nothing of its last step was recorded",
        "orch status",
    )


def _replaced_store_error() -> StoreError:
    return StoreError(
        "the store was moved, copied or restored since this command opened it", "", "repeat the command: orch status"
    )


def _is(lease: Lease) -> ColumnElement[bool]:
    mine = (leases.c[column] == value for column, value in _identify(lease).items())
    same_store = exists().where(meta.c.key == INCARNATION, meta.c.value == str(lease.incarnation))
    return and_(leases.c.name == lease.name, *mine, same_store)


def _identify(lease: Lease) -> dict[str, Any]:
    """Return the columns by which a lease is ours. Every condition for a write under a lease is made from them."""
    return {"owner": lease.owner, "fence": lease.fence}
