"""What `down` ended while the store could not be written: a journal beside the store, replayed by the next command.

The journal lies in the state folder or, where that is full or read-only, in the runtime or temporary folder of this
user, which usually are other file systems. It says what the provider reported, so that replaying asks no cloud.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.engine.state.keys import delete_slice_keys
from orchestrator.exits import Exit
from orchestrator.paths import Paths
from orchestrator.plan.observed import FINAL_STATES, Outcome
from orchestrator.plan.ways_back import resume_or_launch
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

_FOLDER = "orch-unrecorded-ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedEnd:
    """The end of one slice.

    Attributes:
        installation: Id of the store that has it on record.
        cluster: The cluster's name; `uid`: its uid.
        token: Of the slice.
        at: When the provider reported it as deleted, in epoch seconds.
    """

    installation: str
    cluster: str
    uid: str
    token: str
    at: float


def keep_unrecorded_end(where: Paths, end: UnrecordedEnd) -> Path | None:
    """Write an end to the journal, and return its file; None where no folder can be written."""
    for folder in _folders(where):
        path = folder / f"{end.token}.json"
        with suppress(OSError):
            make_private_folder(folder)
            write_whole(path, json.dumps(asdict(end)))
            return path
    return None


def replay_unrecorded_ends(store: Store, where: Paths) -> None:
    """Record the ends of the journal, and remove it; a cluster that another command works on is left to the next."""
    for path, end in list(_read(where)):
        if end.installation != store.installation:
            continue
        cluster = next((one for one in store.clusters() if one.uid == end.uid), None)  # of any project
        if cluster is not None:
            lease = store.acquire(f"cluster:{cluster.qualified_name}", "recording an end")
            if not isinstance(lease, Lease):
                continue
            try:
                _record(store, where, lease, cluster, end)
            finally:
                store.release(lease)
        path.unlink(missing_ok=True)


def _record(store: Store, where: Paths, lease: Lease, cluster: ClusterRecord, end: UnrecordedEnd) -> None:
    for intent in store.intents(cluster):
        if intent.token == end.token and intent.state not in FINAL_STATES:
            delete_slice_keys(where, intent.name)
            store.record_earlier_end(lease, cluster, intent, end.at)
    if any(intent.state not in FINAL_STATES for intent in store.intents(cluster)):
        return
    _end_jobs(store, cluster)
    store.close_cluster(lease, cluster)


def _end_jobs(store: Store, cluster: ClusterRecord) -> None:
    for job in store.jobs(cluster):
        if job.state != "ended":
            what = f"job {job.id} ended: cluster '{cluster.name}' was taken down while the store could not be written"
            step = resume_or_launch(cluster.name, None if job.bucket else False)
            ended = Outcome(status=Exit.INTERRUPTED, code="cancelled", what=what, next_step=step)
            store.record_outcome(cluster, job.id, ended)


def _folders(where: Paths) -> Iterator[Path]:
    yield where.state / _FOLDER
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / _FOLDER
    yield Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.geteuid()}"


def _read(where: Paths) -> Iterator[tuple[Path, UnrecordedEnd]]:
    """Yield what is in the journal. A folder that another user could have written is not read."""
    for folder in _folders(where):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid() or folder.stat().st_mode & 0o022:
                continue
            for path in sorted(folder.glob("*.json")):
                with suppress(OSError, ValueError, TypeError):
                    yield path, UnrecordedEnd(**json.loads(path.read_text(encoding="utf-8")))
