"""Leases with a fencing number: at most one orch works on a cluster, and a late one is refused at the write.

A holder that died on this machine is noticed by its process and replaced at once; one on another machine when its
lease expires. The fence rises with every new holder; every guarded write checks it in the same transaction.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update

from orchestrator.errors import ConflictError
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


def acquire(engine: Engine, name: str, doing: str) -> Lease | Holder:
    """The lease, or who has it. Never blocks longer than one transaction."""
    owner = uuid.uuid4().hex
    now = time.time()
    with engine.begin() as tx:
        row = tx.execute(select(leases).where(leases.c.name == name)).mappings().first()
        if row is not None and row["owner"] and row["expires"] > now and _alive(row):
            return Holder(str(row["machine"]), int(row["pid"]), str(row["doing"]))
        fence = (int(row["fence"]) if row is not None else 0) + 1
        values = {
            "fence": fence,
            "owner": owner,
            "machine": socket.gethostname(),
            "pid": os.getpid(),
            "process_start": _process_start(os.getpid()),
            "doing": doing,
            "expires": now + LEASE_SECONDS,
        }
        if row is None:
            tx.execute(insert(leases).values(name=name, **values))
        else:
            tx.execute(update(leases).where(leases.c.name == name).values(**values))
    return Lease(name, owner, fence)


def renew(engine: Engine, lease: Lease) -> bool:
    """Extend; False when somebody else has taken it meanwhile."""
    with engine.begin() as tx:
        done = tx.execute(
            update(leases)
            .where(leases.c.name == lease.name, leases.c.owner == lease.owner, leases.c.fence == lease.fence)
            .values(expires=time.time() + LEASE_SECONDS)
        )
        return bool(done.rowcount)


def release(engine: Engine, lease: Lease) -> None:
    """Give it back. The row stays: its fence must never go down."""
    with engine.begin() as tx:
        tx.execute(
            update(leases)
            .where(leases.c.name == lease.name, leases.c.owner == lease.owner)
            .values(expires=0.0, owner="")
        )


def check(tx: Connection, lease: Lease) -> None:
    """Raise ConflictError unless `lease` is still ours. Part of every guarded transaction."""
    row = tx.execute(select(leases.c.fence, leases.c.owner).where(leases.c.name == lease.name)).first()
    if row is None or row.owner != lease.owner or row.fence != lease.fence:
        raise ConflictError(
            f"another orch took over {lease.name}",
            "this one was asleep or cut off for too long; nothing of its last step was recorded",
            "orch status",
        )


def drop(tx: Connection, name: str) -> None:
    """Forget a lease for good, with the thing it guarded."""
    tx.execute(delete(leases).where(leases.c.name == name))


def _alive(row: Any) -> bool:
    if row["machine"] != socket.gethostname():
        return True  # cannot be looked at from here: only time tells
    return bool(_process_start(int(row["pid"])) == row["process_start"])


def _process_start(pid: int) -> str:
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
