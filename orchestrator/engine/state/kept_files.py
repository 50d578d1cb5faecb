"""The copies of what launches sent, all together: which are needed, and how much they may take."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.snapshots import (
    FILE_INDEX,
    drop_unused_snapshots,
    find_kept_copy,
    has_stale_snapshot,
    list_snapshots,
)
from orchestrator.errors import UserError
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.file_index import drop_old_indexes
from orchestrator.remote.tree import Tree
from orchestrator.store.records import PipelineRecord
from orchestrator.store.store import Store
from orchestrator.task.config import load_config
from orchestrator.task.sent_tree import SCHEME, find_sent_digests

RESUMABLE = 30 * 86400.0  # seconds for which the files that were sent for a run outlive its cluster
_OPENING = 600.0  # seconds after which a copy that no record names is not that of a launch that begins
_KEY = "files.keep_bytes"
_NAMED_PARTS = 3


def drop_stale_snapshots() -> None:
    """Delete the copies on this computer that no job needs: each launch does it, for there may be no engine."""
    where = load_paths()
    drop_old_indexes(where.state / FILE_INDEX)
    if not has_stale_snapshot(where):
        return
    services = real_services(where)
    with open_store(where, services) as store:
        drop_unused_snapshots(where, list_used_snapshots(store, services.clock.now()))


def make_room(store: Store, where: Paths, trees: Iterable[Tree], now: float) -> None:
    """Delete copies that no job needs, the one that was used longest ago first, until these trees can be kept.

    Raises:
        UserError: They cannot: they are too large, or jobs need the copies of other launches.
    """
    most = load_config(os.environ).number(_KEY)
    fresh = [tree for tree in trees if find_kept_copy(where, tree) is None]
    for tree in fresh:
        if tree.total_bytes > most:
            raise _too_large_error(tree, most)
    needed = sum(tree.total_bytes for tree in fresh)
    kept = list_snapshots(where) if fresh else {}
    if needed + sum(kept.values()) <= most:
        return
    used = list_used_snapshots(store, now)
    for digest in [digest for digest in kept if digest not in used]:
        if needed + sum(kept.values()) > most:
            drop_unused_snapshots(where, kept.keys() - {digest}, older=_OPENING)
            kept = list_snapshots(where)
    if needed + sum(kept.values()) > most:
        raise UserError(
            "what is sent cannot be kept for later attempts",
            f"{_KEY} is {most / 1e6:,.1f} MB, of which other jobs need {sum(kept.values()) / 1e6:,.1f} MB",
            f"orch config set {_KEY} BYTES",
        )


def list_used_snapshots(store: Store, now: float) -> set[str]:
    """Return the digests of the copies that jobs may still need, or a resume of what was sent not long ago."""
    used: set[str] = set()
    for request in store.launch_requests():
        for source in json.loads(request).get("trees", {}).values():
            used.add(Path(source).parent.name)
    for pipeline in store.unended_pipelines():
        used |= _list_pipeline_snapshots(pipeline)
    tasks = store.tasks_that_name(SCHEME, now - RESUMABLE)
    for text in (*tasks, *(order.arguments for order in store.open_orders())):
        used |= find_sent_digests(text)
    return used


def _list_pipeline_snapshots(record: PipelineRecord) -> set[str]:
    """Return the digests of the copies that the stages of a pipeline may still need."""
    stages: list[dict[str, str]] = json.loads(record.launch_request or "{}").get("trees", [])
    return {Path(source).parent.name for stage in stages for source in stage.values()}


def _too_large_error(tree: Tree, most: int) -> UserError:
    parts: dict[str, int] = {}
    for file in tree.files:
        part = file.path.partition("/")[0]
        parts[part] = parts.get(part, 0) + file.size
    largest = sorted(parts.items(), key=lambda item: -item[1])[:_NAMED_PARTS]
    named = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in largest)
    return UserError(
        f"{tree.root} is too large to be sent: {tree.total_bytes / 1e6:,.1f} MB, and {_KEY} is {most / 1e6:,.1f} MB",
        f"the largest parts: {named}",
        f"leave them out: .orchignore; large data belongs into a bucket; or: orch config set {_KEY} BYTES",
    )
