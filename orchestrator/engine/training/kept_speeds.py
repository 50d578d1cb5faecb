"""The speeds of own runs as `orch offers --accuracy` measured them: a file, so that offers ask no bucket."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

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


def _find_file() -> Path:
    return load_paths().state / "speeds.json"
