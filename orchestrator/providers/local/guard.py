"""The processes that stand for a host: nothing that was started through it outlives them.

    launcher ─ guard ─ keeper ─ sshd ─ sessions, jobs, …

The provider runs one launcher for all hosts it starts (`python -I -S`, so: standard library only). Guard and keeper
watch each other: whichever is killed, or when sshd ends, the rest ends every process of the host and then itself. The
guard also watches the owner, where hosts have one (owner.py).
Both are subreapers (Linux, prctl(2)), so that a job which left its session and lost its parent is still found below
them. When both are killed together, the kernel ends sshd, and the mark in the environment finds all else.

The slice's lock is held by the launcher until all hosts are up, and by each guard until it has written its name
down. So whoever gets the lock knows all guards there are, even when the creating command was killed at any point.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from orchestrator.private_files import narrow, write_whole
from orchestrator.providers.local import processes
from orchestrator.providers.local.layout import CLEAN_PATH, HostFolder, SlicePaths
from orchestrator.providers.local.owner import watch_owner

SSHD_LIMIT = 20.0  # seconds until sshd must listen
SWEEP_LIMIT = 30.0
UP = "up"
_PR_SET_PDEATHSIG = 1  # numbers of linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36  # since Linux 3.4


def main(arguments: list[str]) -> int:
    """Start the hosts of these ranks and print one line `rank<TAB>up` or `rank<TAB>what went wrong` for each."""
    lock, sshd, slice_folder, slice_id, ranks = arguments
    paths = SlicePaths(Path(slice_folder))
    reports = {
        rank: _start_guard(_Host(paths.host(rank), mark_of(slice_id, rank), sshd, paths.state))
        for rank in map(int, ranks.split(","))
    }
    for rank, report in reports.items():
        with os.fdopen(report, "r", encoding="utf-8", errors="replace") as file:
            said = file.read().strip() or "its guard process ended immediately"
        sys.stdout.write(f"{rank}\t{' '.join(said.split())}\n")
    os.close(int(lock))
    return 0


def mark_of(slice_id: str, rank: int | None = None) -> str:
    """The mark of a host's processes; without a rank, what the marks of all hosts of a slice begin with."""
    return f"{slice_id}:" if rank is None else f"{slice_id}:{rank}:"


@dataclass(frozen=True, slots=True)
class _Host:
    folder: HostFolder
    mark: str
    sshd: str
    state: Path


def _start_guard(host: _Host) -> int:
    """Fork the guard, away from any terminal and from us. Returns where it will report."""
    report, report_write = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            _run_and_exit(lambda: _guard(host, report_write))
        os._exit(0)
    os.close(report_write)
    os.waitpid(middle, 0)
    return report


def _guard(host: _Host, report: int) -> None:
    """Wait for the keeper; when it or the owner is gone, or we are asked to end, end everything of this host."""
    os.chdir("/")
    os.umask(0o022)
    _quiet_streams(host.folder.log)
    _become_subreaper()
    _write_name(host.folder)
    _close_all_but(report)  # with it our copy of the slice's lock
    alive, alive_write = os.pipe()  # the keeper sees its end when we are gone
    keeper = os.fork()
    if keeper == 0:
        os.close(alive_write)
        _run_and_exit(lambda: _keeper(host, alive, report))
    os.close(alive)
    os.close(report)
    wake, owner = _Wake(), watch_owner(host.state)
    while keeper not in _reap() and not wake.asked_to_end(owner):
        pass
    _end_host(host)


def _keeper(host: _Host, alive: int, report: int) -> None:
    """Run sshd; when it or the guard is gone, or we are asked to end, end everything of this host."""
    os.setsid()
    _become_subreaper()
    wake = _Wake()
    sshd = _spawn_sshd(host)
    said: str | None = None
    deadline = time.monotonic() + SSHD_LIMIT
    while sshd not in _reap() and not wake.asked_to_end(alive, pause=None if said else 0.003):
        if said is None and (host.folder.sshd_pid.exists() or time.monotonic() > deadline):
            narrow(host.folder.sshd_pid)  # sshd has the umask of its sessions
            said = UP if host.folder.sshd_pid.exists() else f"sshd did not listen within {SSHD_LIMIT:.0f} s"
            _say(report, said)
            if said is not UP:
                break
    if said is None:
        _say(report, "sshd ended: " + _last_words(host.folder.log))
    _end_host(host)


def _spawn_sshd(host: _Host) -> int:
    """Start sshd in its own session, with default signals, a clean environment and the mark.

    It overwrites its environment with its title, and so loses the mark: it has to end with the keeper by itself.
    """
    environment = {"PATH": CLEAN_PATH, processes.MARK: host.mark}
    environment |= {name: os.environ[name] for name in ("TZ", "LD_LIBRARY_PATH") if name in os.environ}
    argv = [host.sshd, "-D", "-f", str(host.folder.config), "-E", str(host.folder.log)]
    keeper, sshd = os.getpid(), os.fork()
    if sshd == 0:
        _run_and_exit(lambda: _become_sshd(argv, environment, keeper))
    return sshd


def _become_sshd(argv: list[str], environment: dict[str, str], keeper: int) -> None:
    os.setsid()
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):  # the C library keeps some for itself
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _set_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == keeper:
        os.execve(argv[0], argv, environment)  # noqa: S606  # in a forked process, without a shell


def _end_host(host: _Host) -> None:
    """End all that is below this process or carries the mark."""

    def victims(table: processes.Table) -> list[processes.Process]:
        below = processes.descendants(table, [os.getpid()])
        return [*below, *processes.carrying(table, host.mark)]

    _reap()
    left = processes.sweep(victims, limit=SWEEP_LIMIT)
    for process in left:
        os.write(2, f"guard: process {process.pid} cannot be ended\n".encode())


class _Wake:
    """Sleeps until a signal or the end of a pipe."""

    def __init__(self) -> None:
        self._ended = False
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_only)
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._ended = True

    def asked_to_end(self, alive: int | None, pause: float | None = None) -> bool:
        """After a signal, after `pause` seconds, or when `alive` was closed: is it time to end?"""
        if self._ended:
            return True
        watched = [self._read] if alive is None else [self._read, alive]
        ready, _, _ = select.select(watched, [], [], pause)
        with suppress(BlockingIOError):
            os.read(self._read, 4096)
        return self._ended or alive in ready


def _wake_only(_number: int, _frame: object) -> None:
    """A signal without a handler would not reach the wake-up pipe."""


def _reap() -> set[int]:
    """Take the exit status of every child that has ended, also of those that we inherited."""
    ended: set[int] = set()
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.add(pid)
    return ended


def _become_subreaper() -> None:
    _set_process(_PR_SET_CHILD_SUBREAPER, 1)


def _set_process(option: int, value: int) -> None:
    """prctl(2) of Linux. Elsewhere the mark has to do."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _write_name(folder: HostFolder) -> None:
    me = processes.find(os.getpid())
    if me is None:
        raise ProcessLookupError("the guard does not find itself among the processes")
    write_whole(folder.guard, f"{me.pid} {me.start}\n")


def _quiet_streams(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)


def _close_all_but(kept: int) -> None:
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _say(report: int, words: str) -> None:
    with suppress(BrokenPipeError):  # the creating command is gone; the next one looks at the folder
        os.write(report, words.encode())
    os.close(report)


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "; ".join(lines[-3:]) or "without a message"


def _run_and_exit(work: Callable[[], None]) -> NoReturn:
    """A forked child ends here: it never returns into the code of its parent."""
    status = 1
    try:
        work()
        status = 0
    except Exception as error:  # last resort of a detached process: its log must say why it ended
        os.write(2, f"guard: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)
