"""The copies of what launches sent, all together: which are needed, and how much they may take."""

from __future__ import annotations

import json
from collections.abc import Iterable

from orchestrator.engine.services import real_services
from orchestrator.engine.state.file_objects import RECENT, count_kept_bytes, delete_trees, plan_deletion
from orchestrator.engine.state.kept_trees import FILE_INDEX, drop_unused_trees, has_stale_tree, is_kept
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.tree_size import KEEP_BYTES, find_too_large, list_sizes, read_keep_bytes
from orchestrator.errors import UserError
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.file_index import drop_old_indexes
from orchestrator.remote.tree import Tree
from orchestrator.store.records import PipelineRecord
from orchestrator.store.store import Store
from orchestrator.task.sent_tree import SCHEME, find_sent_digests

RESUMABLE = 30 * 86400.0  # seconds for which the files that were sent for a run outlive its cluster
_FULL = 0.9  # of the limit: room for more than one launch is made, for it reads all records


def drop_stale_trees() -> None:
    """Delete the copies on this computer that no job needs: each launch does it, for there may be no engine."""
    where = load_paths()
    drop_old_indexes(where.state / FILE_INDEX)
    if not has_stale_tree(where):
        return
    services = real_services(where)
    with open_store(where, services) as store:
        drop_unused_trees(where, list_used_trees(store, services.clock.now()))


def make_room(store: Store, where: Paths, trees: Iterable[Tree], now: float) -> None:
    """Delete copies that no job needs, the one that was used longest ago first, until these trees can be kept.

    Raises:
        UserError: They cannot: they are too large, or jobs need the copies of other launches.
    """
    most = read_keep_bytes()
    fresh = [tree for tree in trees if not is_kept(where, tree.digest)]
    if (refused := find_too_large(fresh, most)) is not None:
        raise refused
    if not fresh or count_kept_bytes(where) + sum(tree.total_bytes for tree in fresh) <= most:
        return
    sizes = {sha256: size for tree in fresh for sha256, size in list_sizes(tree).items()}
    deletion = plan_deletion(where, sizes, most)
    if deletion.bytes > most:
        deletion = plan_deletion(where, sizes, int(most * _FULL), list_used_trees(store, now))
    if deletion.bytes > most:
        others = deletion.bytes - sum(sizes.values())
        raise UserError(
            "what is sent cannot be kept for later attempts",
            f"{KEEP_BYTES} is {most / 1e6:,.1f} MB, of which other jobs need {others / 1e6:,.1f} MB",
            f"orch config set {KEEP_BYTES} BYTES",
        )
    if deletion.digests:
        delete_trees(where, deletion.digests, older=RECENT, needed=sizes.keys())


def list_used_trees(store: Store, now: float) -> set[str]:
    """Return the digests of the copies that jobs may still need, or a resume of what was sent not long ago."""
    used: set[str] = set()
    for request in store.launch_requests():
        used.update(json.loads(request).get("trees", {}).values())
    for pipeline in store.unended_pipelines():
        used |= _list_pipeline_trees(pipeline)
    tasks = store.tasks_that_name(SCHEME, now - RESUMABLE)
    for text in (*tasks, *(order.arguments for order in store.open_orders())):
        used |= find_sent_digests(text)
    return used


def _list_pipeline_trees(record: PipelineRecord) -> set[str]:
    """Return the digests of the copies that the stages of a pipeline may still need."""
    stages: list[dict[str, str]] = json.loads(record.launch_request or "{}").get("trees", [])
    return {digest for stage in stages for digest in stage.values()}
