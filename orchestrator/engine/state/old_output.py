"""Deletes the oldest output of jobs that have ended, where copies of all jobs take too much of this computer's disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from orchestrator.engine.state.kept_log import LogLimits
from orchestrator.paths import Paths


def drop_old_output(where: Paths, unfinished: Collection[tuple[str, int]], limits: LogLimits | None = None) -> int:
    """Delete folders of output, the oldest first, until the rest takes no more than the limit; return how many.

    Args:
        where: The folders of this installation.
        unfinished: The cluster's uid and the number of each job that has not ended: its output is kept.
        limits: What is kept.
    """
    most = (limits or LogLimits()).all_bytes
    folders = [(folder, *_measure(folder)) for folder in (where.state / "logs").glob("*/*") if folder.name.isdigit()]
    total, dropped = sum(size for _, size, _ in folders), 0
    for folder, size, _ in sorted(folders, key=lambda one: one[2]):
        if total <= most:
            break
        if (folder.parent.name, int(folder.name)) in unfinished:
            continue
        shutil.rmtree(folder, ignore_errors=True)  # the rest is deleted the next time
        total, dropped = total - size, dropped + 1
    return dropped


def _measure(folder: Path) -> tuple[int, float]:
    """Return the bytes that a folder takes of the disk, and when something in it changed last."""
    size, newest = 0, 0.0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(Path(root) / name)
            except FileNotFoundError:
                continue
            size, newest = size + found.st_blocks * 512, max(newest, found.st_mtime)
    return size, newest
