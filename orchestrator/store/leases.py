"""Leases with a fencing number: at most one orch works on a cluster, and a late one is refused at the write.

A holder that died on this machine is noticed by its process and replaced at once; one on another machine when its
lease expires. The fence rises with every new holder; every guarded write checks it in the same transaction.
Times are real, never a test's: of the server's clock on PostgreSQL, since laptops' clocks differ.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, text, update

from orchestrator.errors import ConflictError
from orchestrator.store.connection import Database
from orchestrator.store.schema import leases

LEASE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease now, in words for a person."""

    machine: str
    pid: int
    doing: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.machine} ({self.doing})"


def acquire(database: Database, name: str, doing: str, seconds: float = LEASE_SECONDS) -> Lease | Holder:
    """The lease, or who has it. Never blocks longer than one transaction."""
    owner = uuid.uuid4().hex
    with database.writing() as tx:
        row = _row(tx, name)
        now = clock(tx)  # after the row is locked: waiting for it may have taken long
        if row["owner"] and row["expires"] > now and _alive(row):
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
    """The lease's row, locked. Made when it is missing, so that two who come first lock the same row."""
    query = select(leases).where(leases.c.name == name).with_for_update()
    row = tx.execute(query).mappings().first()
    if row is None:
        empty = "INSERT INTO leases (name, fence, owner, machine, pid, process_start, doing, expires) "
        tx.execute(text(empty + "VALUES (:name, 0, '', '', 0, '', '', 0) ON CONFLICT DO NOTHING"), {"name": name})
        row = tx.execute(query).mappings().one()
    return row


def clock(tx: Connection) -> float:
    """Epoch seconds of the one clock that all holders share: the server's, or this computer's for a file."""
    if tx.dialect.name == "postgresql":
        return float(tx.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return time.time()


def renew(database: Database, lease: Lease, seconds: float = LEASE_SECONDS) -> bool:
    """Extend; False when somebody else has taken it meanwhile."""
    with database.writing() as tx:
        done = tx.execute(
            update(leases)
            .where(leases.c.name == lease.name, leases.c.owner == lease.owner, leases.c.fence == lease.fence)
            .values(expires=clock(tx) + seconds)
        )
        tx.commit()
        return bool(done.rowcount)


def release(database: Database, lease: Lease) -> None:
    """Give it back. The row stays: its fence must never go down."""
    with database.writing() as tx:
        tx.execute(
            update(leases)
            .where(leases.c.name == lease.name, leases.c.owner == lease.owner)
            .values(expires=0.0, owner="")
        )
        tx.commit()


def check(tx: Connection, lease: Lease) -> None:
    """Raise ConflictError unless `lease` is still ours. Locks it: nobody takes it over before this commit."""
    query = select(leases.c.fence, leases.c.owner).where(leases.c.name == lease.name).with_for_update()
    row = tx.execute(query).first()
    if row is None or row.owner != lease.owner or row.fence != lease.fence:
        raise ConflictError(
            f"another orch took over {lease.name}",
            "this one was asleep or cut off for too long; nothing of its last step was recorded",
            "orch status",
        )


def _alive(row: Any) -> bool:
    if row["machine"] != socket.gethostname() or not str(row["process_start"]).startswith(_world()):
        return True  # cannot be looked at from here: only time tells
    return bool(_process_start(int(row["pid"])) == row["process_start"])


def _process_start(pid: int) -> str:
    """Identity of a process, "" when it is gone: where its number counts, and when it started."""
    ticks = _ticks(pid)
    return _world() + ticks if ticks else ""


def _world() -> str:
    """Where process numbers mean the same: this boot and this container. Two containers may share a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}/"
    except OSError:
        return ""  # no /proc, or a closed one: the host's name has to do


def _ticks(pid: int) -> str:
    """Start time of a process in clock ticks since boot, so that a reused pid is not taken for the old one."""
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
