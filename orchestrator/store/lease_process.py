"""Which process holds a lease: its number, its start and where both are valid, so that a dead one is noticed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def is_alive(row: Any) -> bool:
    """Return whether the process of a lease's row may be alive; True where that is not visible from here."""
    if row["machine"] != os.uname().nodename or not str(row["process_start"]).startswith(_process_scope()):
        return True  # not visible from here: only its expiry decides
    return bool(identify_process(int(row["pid"])) == row["process_start"])


def identify_process(pid: int) -> str:
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
