"""The three statements by which a person opens a store that was moved, copied or restored: `orch store ...`.

Each begins another incarnation: leases of the one before are over, and so are the commands that hold them.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update

from orchestrator.exits import Exit
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import FINAL_STATES, IntentState
from orchestrator.store.apply_change import LockedChain
from orchestrator.store.change import EventDetails, RowChange, Verb, update_row
from orchestrator.store.incarnation import read_tie
from orchestrator.store.ledger import Ledger
from orchestrator.store.meta_rows import INCARNATION, INSTALLATION, SERVERS_KEY, TIE, drop_meta, write_meta
from orchestrator.store.records import (
    ClusterRecord,
    JobRecord,
    PipelineRecord,
    cluster_from_row,
    job_from_row,
    pipeline_from_row,
)
from orchestrator.store.schema import clusters, intents, jobs, leases, pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecords:
    """The names of the clusters on record that exist, and how many of their jobs and pipelines have not ended."""

    clusters: tuple[str, ...]
    jobs: int
    pipelines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWork:
    """What has not ended on record, and what no unattended engine continues until a person says so.

    Attributes:
        jobs: of open clusters, those of pipelines left out.
        pipelines: those that run.
    """

    jobs: tuple[tuple[ClusterRecord, JobRecord], ...]
    pipelines: tuple[PipelineRecord, ...]


class StateChanges(Ledger):
    """The changes of the store as a whole. Open it with `accept_other_state`; see Ledger for the arguments."""

    def __enter__(self) -> StateChanges:
        return self

    def open_records(self) -> OpenRecords:
        """Return what is open on record."""
        names = self._read_all(select(clusters.c.name).where(clusters.c.gone.is_(None)), lambda row: str(row["name"]))
        open_jobs = self._read_all(select(jobs.c.id).where(jobs.c.state != "ended"), dict)
        running = self._read_all(select(pipelines.c.uid).where(pipelines.c.state == "running"), dict)
        return OpenRecords(clusters=tuple(sorted(names)), jobs=len(open_jobs), pipelines=len(running))

    def accept_move(self) -> None:
        """Record that the store lies in another place now, and that the original is not used any more."""
        with self.changing_whole() as chain:
            self._begin_incarnation(chain, "moved", "the store was moved here")

    def accept_restored_state(self, above: int = 0) -> HeldWork:
        """Record that an older state of the store was put back, on purpose, and take its work from unattended engines.

        An older state proves nothing about what is to run now: its machines may have been taken down since.

        Args:
            above: An incarnation that is known to have existed: the new one is higher.
        """
        with self.changing_whole() as chain:
            self._begin_incarnation(chain, "restored", "an older state of the store was put back", above)
            return _hold_work(chain)

    def accept_copy(self) -> OpenRecords:
        """Make this copy a separate store, beside the original, and return the records that were closed.

        What is open belongs to the original: its records are closed here, and nothing is ended.
        """
        found, original = self.open_records(), self.installation
        why = f"belongs to installation {original}, of which this store is a copy; nothing was ended"
        with self.changing_whole() as chain:
            self._begin_incarnation(chain, "copied", f"the store is a copy of that of installation {original}")
            _close_records(chain, why)
            self.installation = secrets.token_hex(6)
            write_meta(chain.tx, INSTALLATION, self.installation)
        return found

    def _begin_incarnation(self, chain: LockedChain, kind: str, what: str, above: int = 0) -> None:
        self.incarnation = max(self.incarnation, above) + 1
        write_meta(chain.tx, INCARNATION, str(self.incarnation))
        write_meta(chain.tx, TIE, read_tie(self._database).to_json())
        drop_meta(chain.tx, SERVERS_KEY)  # the next engine's key counts
        chain.tx.execute(update(leases).values(owner="", expires=0.0))
        what = f"{what}: incarnation {self.incarnation}"
        details = EventDetails(cluster="", kind="store", what=what, cause=f"orch store {kind}")
        chain.apply(RowChange(verb=Verb.EVENT, event=details))


def _hold_work(chain: LockedChain) -> HeldWork:
    why = "waits for a person: an older state of the store was put back"
    open_clusters = chain.tx.execute(select(clusters).where(clusters.c.gone.is_(None))).mappings().all()
    records = {row["uid"]: cluster_from_row(row) for row in open_clusters}
    open_jobs = select(jobs).where(jobs.c.state != "ended", jobs.c.cluster_uid.in_(records))
    open_jobs = open_jobs.order_by(jobs.c.created, jobs.c.id)
    held = [job_from_row(row) for row in chain.tx.execute(open_jobs).mappings().all()]
    for job in held:
        if job.watch:
            details = EventDetails(
                cluster=records[job.cluster_uid].qualified_name, kind="job", what=f"job {job.id} {why}"
            )
            chain.apply(update_row(jobs, {"cluster_uid": job.cluster_uid, "id": job.id}, {"watch": ""}, details))
    running = select(pipelines).where(pipelines.c.state == "running").order_by(pipelines.c.created)
    stages = [pipeline_from_row(row) for row in chain.tx.execute(running).mappings().all()]
    for pipeline in stages:
        request = json.loads(pipeline.launch_request or "{}")
        if request.pop("watch", ""):
            details = EventDetails(cluster="", kind="pipeline", what=f"{pipeline.name} {why}")
            chain.apply(update_row(pipelines, {"uid": pipeline.uid}, {"launch_request": json.dumps(request)}, details))
    shown = tuple((records[job.cluster_uid], job) for job in held if not job.pipeline)
    return HeldWork(jobs=shown, pipelines=tuple(stages))


def _close_records(chain: LockedChain, why: str) -> None:
    names: dict[str, str] = {row.uid: row.name for row in chain.tx.execute(select(clusters.c.uid, clusters.c.name))}
    for intent in chain.tx.execute(select(intents)).mappings().all():
        if IntentState(intent["state"]) in FINAL_STATES:
            continue
        values: dict[str, Any] = {
            "state": IntentState.DELETED.value, "since": chain.at, "cause": EndCause.REQUESTED.value, "why": why,
        }  # fmt: skip
        if intent["born"] is not None and intent["gone"] is None:
            values["gone"] = chain.at
        key = {"cluster_uid": intent["cluster_uid"], "generation": intent["generation"]}
        cluster = names.get(intent["cluster_uid"], "")
        details = EventDetails(cluster=cluster, kind="intent", what=f"{intent['name']} {why}")
        chain.apply(update_row(intents, key, values, details))
    for job in chain.tx.execute(select(jobs).where(jobs.c.state != "ended")).mappings().all():
        values = {"state": "ended", "status": int(Exit.CONFLICT), "code": "copied", "what": why, "ended": chain.at}
        details = EventDetails(cluster=names.get(job["cluster_uid"], ""), kind="job", what=f"job {job['id']} {why}")
        chain.apply(update_row(jobs, {"cluster_uid": job["cluster_uid"], "id": job["id"]}, values, details))
    for pipeline in chain.tx.execute(select(pipelines).where(pipelines.c.state == "running")).mappings().all():
        values = {"state": "cancelled", "status": int(Exit.CONFLICT), "what": why, "ended": chain.at}
        details = EventDetails(cluster="", kind="pipeline", what=f"{pipeline['name']} {why}")
        chain.apply(update_row(pipelines, {"uid": pipeline["uid"]}, values, details))
    for row in chain.tx.execute(select(clusters).where(clusters.c.gone.is_(None))).mappings().all():
        details = EventDetails(cluster=row["name"], kind="cluster", what=f"record closed: it {why}")
        chain.apply(update_row(clusters, {"uid": row["uid"]}, {"gone": chain.at, "hosts": "[]"}, details))
