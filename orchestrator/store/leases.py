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

from sqlalchemy import Connection, select, text, update

from orchestrator.clock import SteadyClock
from orchestrator.errors import ConflictError
from orchestrator.store.connection import Database
from orchestrator.store.schema import leases

LEASE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to change a cluster: its name, the random id of the holder, and the fencing token."""

    name: str
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class Holder:
    """The present holder of a lease, for messages."""

    machine: str
    pid: int
    doing: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.machine} ({self.doing})"


def acquire_lease(database: Database, name: str, doing: str, seconds: float = LEASE_SECONDS) -> Lease | Holder:
    """Take a lease, or return its holder. Blocks for one transaction at most."""
    owner = uuid.uuid4().hex
    with database.writing() as tx:
        row = _row(tx, name)
        now = read_lease_time(database, tx)  # after the row is locked, which may have taken long
        if row["owner"] and row["expires"] > now and _is_alive(row):
            return Holder(str(row["machine"]), int(row["pid"]), str(row["doing"]))
        fence = int(row["fence"]) + 1
        values = {
            "fence": fence,
            "owner": owner,
            "machine": socket.gethostname(),
            "pid": os.getpid(),
            "process_start": _process_start(os.getpid()),
            "doing": doing,
            "expires": now + seconds,
        }
        tx.execute(update(leases).where(leases.c.name == name).values(**values))
        tx.commit()
    return Lease(name, owner, fence)


def _row(tx: Connection, name: str) -> Any:
    """Return the lease's row, locked. A missing one is made, so that the first two callers lock the same row."""
    query = select(leases).where(leases.c.name == name).with_for_update()
    row = tx.execute(query).mappings().first()
    if row is None:
        empty = "INSERT INTO leases (name, fence, owner, machine, pid, process_start, doing, expires) "
        tx.execute(text(empty + "VALUES (:name, 0, '', '', 0, '', '', 0) ON CONFLICT DO NOTHING"), {"name": name})
        row = tx.execute(query).mappings().one()
    return row


def read_lease_time(database: Database, tx: Connection) -> float:
    """Return the seconds in which leases expire: the server's epoch seconds, or this boot's for a file."""
    if isinstance(database.location, Path):
        return SteadyClock(database.location.parent).keep().uncorrected()
    return float(tx.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def renew_lease(database: Database, lease: Lease, seconds: float = LEASE_SECONDS) -> bool:
    """Extend a lease. Return False when another holder has taken it."""
    with database.writing() as tx:
        done = tx.execute(
            update(leases)
            .where(leases.c.name == lease.name, leases.c.owner == lease.owner, leases.c.fence == lease.fence)
            .values(expires=read_lease_time(database, tx) + seconds)
        )
        tx.commit()
        return bool(done.rowcount)


def release_lease(database: Database, lease: Lease) -> None:
    """Give a lease back. The row stays: its fence must never decrease."""
    with database.writing() as tx:
        tx.execute(
            update(leases)
            .where(leases.c.name == lease.name, leases.c.owner == lease.owner)
            .values(expires=0.0, owner="")
        )
        tx.commit()


def check_lease(tx: Connection, lease: Lease) -> None:
    """Raise ConflictError unless `lease` is still ours, and lock it until this transaction ends."""
    query = select(leases.c.fence, leases.c.owner).where(leases.c.name == lease.name).with_for_update()
    row = tx.execute(query).first()
    if row is None or row.owner != lease.owner or row.fence != lease.fence:
        raise ConflictError(
            f"another orch took over {lease.name}",
            "this one was suspended or disconnected for too long; nothing of its last step was recorded",
            "orch status",
        )


def _is_alive(row: Any) -> bool:
    if row["machine"] != socket.gethostname() or not str(row["process_start"]).startswith(_process_scope()):
        return True  # not visible from here: only its expiry decides
    return bool(_process_start(int(row["pid"])) == row["process_start"])


def _process_start(pid: int) -> str:
    """Return the identity of a process, its scope and start time; "" when it has ended."""
    ticks = _ticks(pid)
    return _process_scope() + ticks if ticks else ""


def _process_scope() -> str:
    """Return the scope of process numbers: this boot and this container. Two containers may share a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}/"
    except OSError:
        return ""  # no readable /proc: the host's name is the scope


def _ticks(pid: int) -> str:
    """Return the start of a process in clock ticks since boot, to distinguish a reused pid from the old one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else _without_proc(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _without_proc(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
