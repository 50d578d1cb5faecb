"""Deadlines of commands on hosts: a host may answer SSH and run nothing, so every command has one."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TypeAlias

SHORT = 60.0  # seconds for a command that reads or writes a few small files, on a host under load too
TRANSFER_SECONDS = 60.0  # seconds without a byte after which a copy is given up
READ_SECONDS = 3600.0  # seconds for what a log has at this moment: 100 GB at 30 MB/s
WRITE_SECONDS = 1800.0  # seconds in which a host writes what it has taken completely: a disk may be slow
SCRIPT_SECONDS = 43_200.0  # seconds for a script that mounts, or downloads a large data set
_BEAT = 15.0  # seconds between two signs of life of a silent command


@dataclass(frozen=True, slots=True)
class Stall:
    """A deadline that progress extends.

    Attributes:
        seconds: Without output, and without input that the host takes.
        longest: For how many seconds output alone extends it: signs of life (`beat_while`) are no progress.
    """

    seconds: float
    longest: float = math.inf


Deadline: TypeAlias = "float | Stall"  # a number: seconds from the start of the command on each host


def beat_while(line: str) -> str:
    """Return a command that prints an empty line now and then while `line`, which may be silent for long, runs.

    Its output is for the person who reads why `line` failed, so the lines are empty. Its deadline has a `longest`.
    """
    script = (
        f"(while sleep {_BEAT:.0f} >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do echo; done) & beat=$!\n"
        f"{line}\nstatus=$?\nkill $beat 2>/dev/null\nexit $status"
    )
    return shlex.join(["exec", "/bin/sh", "-c", script])
