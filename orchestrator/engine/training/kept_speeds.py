"""The speeds of own runs as `orch offers --accuracy` measured them: a file, so that offers ask no bucket.

It is a copy of what records and buckets say, and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from orchestrator.acting import find_acting_member
from orchestrator.engine.state.recorded import open_reader
from orchestrator.offers.own_speeds import MOST_RUNS, OwnSpeed, read_speeds
from orchestrator.paths import load_paths
from orchestrator.private_files import make_private_folder, write_whole

_LARGEST = 1 << 20  # bytes of the file


def keep_speeds(speeds: Iterable[OwnSpeed]) -> None:
    """Keep the speeds, best effort, with those that were kept of other runs."""
    measured = {one.run_id: one for one in speeds}
    if not measured:
        return
    older = {one.run_id: one for one in load_speeds()}
    newest = sorted((older | measured).values(), key=lambda one: (one.day, one.run_id), reverse=True)[:MOST_RUNS]
    path = _find_file()
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        write_whole(path, json.dumps([one.as_json() for one in newest]))


def load_speeds() -> tuple[OwnSpeed, ...]:
    """Return the speeds that were kept; none where the file cannot be used."""
    path = _find_file()
    try:
        if path.stat().st_size > _LARGEST:
            return ()
        return read_speeds(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return ()


def read_project_speeds(project: str) -> tuple[OwnSpeed, ...]:
    """Return the speeds that a plan may use: for a member of a service, those of runs of the project alone.

    Args:
        project: Of the cluster; "" for that of the environment.
    """
    kept = load_speeds()
    if not kept or not find_acting_member():
        return kept
    with open_reader(project, alone=True) as reader:
        own = {one.run_id for one in reader.predictions()}
    return tuple(one for one in kept if one.run_id in own)


def _find_file() -> Path:
    return load_paths().state / "speeds.json"
