"""The circumstances of a measurement, which every bench prints before its figures."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def describe_context() -> str:
    """Describe the commit, the machine and the date in one line."""
    return (
        f"commit {_commit()}, {datetime.now(UTC):%Y-%m-%d}; {_processor()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}"
    )


def print_context(*, quick: bool = False) -> None:
    """Print the context, and with `quick` that the figures mean nothing."""
    print(describe_context(), flush=True)
    if quick:
        print("--quick: checks that the bench runs; its figures mean nothing, and targets are not checked", flush=True)


def _commit() -> str:
    try:
        commit = _git("rev-parse", "--short=9", "HEAD")
        return f"{commit} with local changes" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.CalledProcessError):  # no git, or a copy without its history
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
