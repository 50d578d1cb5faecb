"""Copies of what launches sent, and which of them are still needed."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.snapshots import drop_unused_snapshots, has_stale_snapshot
from orchestrator.engine.unattended.pipeline import snapshot_digests
from orchestrator.paths import load_paths
from orchestrator.store.store import Store
from orchestrator.task.sent_tree import SCHEME, find_sent_digests

RESUMABLE = 30 * 86400.0  # seconds for which the files that were sent for a run outlive its cluster


def drop_stale_snapshots() -> None:
    """Delete the copies on this computer that no job needs: each launch does it, for there may be no engine."""
    where = load_paths()
    if not has_stale_snapshot(where):
        return
    services = real_services(where)
    with open_store(where, services) as store:
        drop_unused_snapshots(where, list_used_snapshots(store, services.clock.now()))


def list_used_snapshots(store: Store, now: float) -> set[str]:
    """Return the digests of the copies that jobs may still need, or a resume of what was sent not long ago."""
    used: set[str] = set()
    for request in store.launch_requests():
        for source in json.loads(request).get("trees", {}).values():
            used.add(Path(source).parent.name)
    for pipeline in store.pipelines():
        used |= snapshot_digests(pipeline) if pipeline.state == "running" else set()
    tasks = store.tasks_that_name(SCHEME, now - RESUMABLE)
    for text in (*tasks, *(order.arguments for order in store.open_orders())):
        used |= find_sent_digests(text)
    return used
