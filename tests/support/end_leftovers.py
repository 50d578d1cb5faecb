"""End every process that a test run has left behind: `end_leftovers.py PID MARK FOLDER TMPDIR`.

Waits until the process PID, its parent, is gone, however it ended. Then kills what carries MARK in its environment,
works below FOLDER or TMPDIR, names one of them in its command line, or descends from such a process. Deletes the run's
network namespaces (support/namespaces.py), and removes TMPDIR. Linux only: it reads /proc.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PROC = Path("/proc")
ROUNDS = 5  # a process may start another one while it is being killed


def main(parent: int, mark: str, *folders: str) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    for _ in range(ROUNDS):
        found = leftovers([mark.encode(), *(f"{folder}/".encode() for folder in folders)])
        if not found:
            break
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    delete_networks(network_lead(mark))
    shutil.rmtree(folders[-1], ignore_errors=True)


def network_lead(mark: str) -> str:
    """Return the beginning of the names of a run's namespaces and network links."""
    return f"ot{mark[:8]}"


def delete_networks(lead: str) -> None:
    """Delete the namespaces and links whose names begin so."""
    if shutil.which("ip") is None:
        return
    for line in output_of("ip", "netns", "list"):
        if line.startswith(lead):
            output_of("ip", "netns", "del", line.split()[0])
    for line in output_of("ip", "-brief", "link"):
        if line.startswith(lead):
            output_of("ip", "link", "del", line.split()[0].partition("@")[0])


def output_of(*command: str) -> list[str]:
    """Return the lines that a command prints; nothing when it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def leftovers(signs: list[bytes]) -> set[int]:
    """Return the processes of the run, with all their descendants."""
    pids = {int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()} - {os.getpid()}
    found = {pid for pid in pids if belongs(pid, signs)}
    parents = {pid: parent_of(pid) for pid in pids}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def belongs(pid: int, signs: list[bytes]) -> bool:
    seen = b" ".join([read(pid, "environ"), read(pid, "cmdline"), working_folder(pid) + b"/"])
    return any(sign in seen for sign in signs)


def working_folder(pid: int) -> bytes:
    try:
        return os.fsencode((PROC / str(pid) / "cwd").readlink())
    except OSError:
        return b""


def read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    fields = read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


if __name__ == "__main__" and PROC.is_dir():
    main(int(sys.argv[1]), *sys.argv[2:])
