"""Processes of this computer: who descends from whom, who carries a mark, and ending them for certain.

Used by the provider and by the small process that stands for a host, so: standard library only, and light.
Linux is read from /proc; elsewhere `ps` is asked.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "ORCH_LOCAL_HOST"  # every process of a host carries MARK=<slice id>:<rank>: in its environment
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. start: its start time and the boot it belongs to; with the pid it never names another one."""

    pid: int
    parent: int
    start: str
    zombie: bool

    def is_same(self, other: Process | None) -> bool:
        return other is not None and (self.pid, self.start) == (other.pid, other.start)


Table = dict[int, Process]
Finder = Callable[[int], Process | None]


def snapshot() -> Table:
    """All processes that can be seen now."""
    return _read_proc() if _has_proc() else _ask_ps()


def find(pid: int) -> Process | None:
    """The process with this number, if there is one."""
    return _read_stat(pid, _boot()) if _has_proc() else _ask_ps().get(pid)


def make_finder() -> Finder:
    """Return `find` for several processes in a row: where there is no /proc, `ps` is asked once."""
    return find if _has_proc() else _ask_ps().get


def descendants(table: Table, roots: Iterable[int]) -> list[Process]:
    """Everything below `roots`, without them."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child.pid not in found:
                found[child.pid] = child
                waiting.append(child.pid)
    return list(found.values())


def carrying(table: Table, mark: str) -> list[Process]:
    """Processes whose environment has MARK set to a value that begins with `mark`."""
    wanted = f"{MARK}={mark}".encode()
    if not _has_proc():
        marked = _marked_by_ps(wanted)
        return [process for process in table.values() if process.pid in marked]
    return [process for process in table.values() if not process.zombie and _has_mark(process.pid, wanted)]


def send(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process: not one that got its number meanwhile. Gone or not ours to signal: no effect.

    Whoever needs the effect looks again (see `sweep`).
    """
    with suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            if process.is_same(find(process.pid)):
                os.kill(process.pid, number)
            return
        handle = os.pidfd_open(process.pid)
        try:
            if process.is_same(find(process.pid)):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def sweep(victims: Callable[[Table], Iterable[Process]], *, limit: float) -> list[Process]:
    """KILL whom `victims` names, look again, until it names nobody and all of them are gone. Returns who is left after
    `limit` seconds.
    """
    deadline = time.monotonic() + limit
    pause = 0.001
    killed: Table = {}
    while True:
        table = snapshot()
        dying = [table[pid] for pid, process in killed.items() if process.is_same(table.get(pid))]
        named = {process.pid: process for process in [*dying, *victims(table)] if not process.zombie}
        left = list(named.values())
        if not left or time.monotonic() > deadline:
            return left
        killed |= named
        for process in left:
            send(process, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _has_proc() -> bool:
    return sys.platform == "linux"


def _boot() -> str:
    """A name for the present boot: pids and start times begin anew with each."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"  # a container may hide it; the start time alone still tells nearly all


def _read_proc() -> Table:
    boot = _boot()
    pids = [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208  # names only: no Path for each
    found = [_read_stat(pid, boot) for pid in pids]
    return {process.pid: process for process in found if process is not None}


def _read_stat(pid: int, boot: str) -> Process | None:
    """Fields of /proc/PID/stat by number: 3 state, 4 parent, 22 start (proc_pid_stat(5), 2024)."""
    text = _read(f"/proc/{pid}/stat")
    if text is None:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name in parentheses may hold anything
    start = f"{fields[19].decode()}@{boot}"
    return Process(pid=pid, parent=int(fields[1]), start=start, zombie=fields[0] in (b"Z", b"X"))


def _has_mark(pid: int, wanted: bytes) -> bool:
    environment = _read(f"/proc/{pid}/environ")
    return environment is not None and any(entry.startswith(wanted) for entry in environment.split(b"\0"))


def _read(path: str) -> bytes | None:
    """None when the process is gone, or is another user's and so none of ours."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # thousands of these: no Path for each
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _ask_ps() -> Table:
    lines = _ps("-A", "-o", "pid=,ppid=,stat=,lstart=").splitlines()
    found: Table = {}
    for line in lines:
        fields = line.split()
        if len(fields) >= 4:
            pid, parent, state = int(fields[0]), int(fields[1]), fields[2].decode()
            start = b" ".join(fields[3:]).decode(errors="replace")
            found[pid] = Process(pid=pid, parent=parent, start=start, zombie=state.startswith("Z"))
    return found


def _marked_by_ps(wanted: bytes) -> set[int]:
    show = ("-A", "-E", "-ww") if sys.platform == "darwin" else ("axeww",)
    lines = _ps(*show, "-o", "pid=,command=").splitlines()
    return {int(line.split()[0]) for line in lines if b" " + wanted in line}


def _ps(*options: str) -> bytes:
    import subprocess  # not needed where /proc is

    return subprocess.run(["ps", *options], check=True, capture_output=True).stdout
