"""Machines that change hands: taken over here from a lost record, or from here by another installation."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Intent, IntentState, Outcome
from orchestrator.project import qualify_name, to_column
from orchestrator.store.admission_records import NewSliceRecord, SliceOwner, slice_owner_from_row
from orchestrator.store.budget_changes import BudgetChanges
from orchestrator.store.change import EventDetails, RowChange, complete_row, insert_row, update_row
from orchestrator.store.job_changes import guard_unchanged_job, make_job_end
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, candidate_to_json, cluster_from_row, job_from_row
from orchestrator.store.schema import clusters, intents, jobs, slice_owners


class RecoveryChanges(BudgetChanges):
    """The changes of owners of slices. A slice without a row here is ours, with epoch 1."""

    def slice_owner(self, token: str) -> SliceOwner | None:
        """Return who has a slice, if it ever changed hands."""
        return self._read_first(select(slice_owners).where(slice_owners.c.token == token), slice_owner_from_row)

    def slice_owners(self) -> tuple[SliceOwner, ...]:
        """Return the owners of all slices that changed hands."""
        return self._read_all(select(slice_owners), slice_owner_from_row)

    def record_take_over(self, lease: Lease, new: NewSliceRecord) -> ClusterRecord:
        """Open a record for machines that have none here: cluster, intent and epoch in one transaction.

        The cluster gets a new uid, so that its jobs are not mistaken for those of the lost record. The intent
        keeps its token, by which the provider knows the machines. Repeated, it returns the record that is open.
        """
        if (found := self._open_record(new)) is not None:
            return found
        uid, at = secrets.token_hex(8), self._now()
        values: dict[str, Any] = {"uid": uid, "name": new.cluster, "created": at, "summary": new.summary}
        values |= {"owner": self.user, "project": to_column(self.project)}
        what = f"record opened: {new.summary}, taken over from installation {new.installation or '(unknown)'}"
        opened = insert_row(clusters, values, EventDetails(cluster=self._qualified(new), kind="cluster", what=what))
        owner = SliceOwner(token=new.token, epoch=new.epoch, holder="")
        changes = (opened, self._intent_row(uid, at, new), *self._owner_rows(self._qualified(new), owner))
        record = cluster_from_row(complete_row(clusters, values))
        for _ in self._tries(f"the budget of '{new.cluster}'"):  # the machines exist: they count, and are not refused
            counted = self.read_budget_revisions(record)
            if self.change(*changes, *counted.moves, at=at, lease=lease, guards=counted.guards) is not None:
                return record
        raise AssertionError  # _tries has raised

    def raise_epoch(self, lease: Lease, cluster: ClusterRecord, token: str, epoch: int) -> None:
        """Record a higher epoch of a slice that is ours."""
        owner = SliceOwner(token=token, epoch=epoch, holder="")
        self.change(*self._owner_rows(cluster.qualified_name, owner), at=self._now(), lease=lease)

    def record_transfer(self, lease: Lease, cluster: ClusterRecord, intent: Intent, holder: str) -> None:
        """Close the record of machines that another installation has taken over. Nothing of them was ended from here.

        The intent's state is DELETED, which every version reads: for this record there are no machines any more. That
        they exist elsewhere is in `slice_owners`, so that no sweep ends them.
        """
        why, at, name = f"taken over {holder}", self._now(), cluster.qualified_name
        known = self.slice_owner(intent.token)
        owner = SliceOwner(token=intent.token, epoch=known.epoch if known is not None else 1, holder=holder)
        closed = EventDetails(cluster=name, kind="cluster", what=f"record closed: {why}", cause=why)
        self.change(
            _deleted(cluster, intent, EndCause.REQUESTED, why, at, at),
            *self._owner_rows(name, owner, known),
            update_row(clusters, {"uid": cluster.uid}, {"gone": at, "hosts": "[]"}, closed),
            at=at,
            lease=lease,
        )

    def record_earlier_end(self, lease: Lease, cluster: ClusterRecord, intent: Intent, at: float) -> None:
        """Record that a slice was deleted at an earlier moment, when the store could not be written."""
        why, now = "taken down while the store could not be written", self._now()
        self.change(_deleted(cluster, intent, EndCause.REQUESTED, why, at, now), at=now, lease=lease)

    def record_absence(
        self, lease: Lease, cluster: ClusterRecord, intent: Intent, cause: EndCause, why: str,
        outcomes: Mapping[int, Outcome],
    ) -> None:  # fmt: skip
        """Record that a slice is absent, and with it the end of its jobs.

        All in one change: an engine that finds one without the other would rent machines for the jobs that are left.

        Args:
            lease: The lease of the cluster.
            cluster: The cluster.
            intent: Of the slice.
            cause: Of its end.
            why: The same for people.
            outcomes: By the numbers of the jobs; one that has ended keeps the outcome that it has.
        """
        for at in self._tries(f"the list of jobs of '{cluster.name}'"):
            query = select(jobs).where(jobs.c.cluster_uid == cluster.uid, jobs.c.state != "ended")
            left = [job for job in self._read_all(query.order_by(jobs.c.id), job_from_row) if job.id in outcomes]
            ends = (make_job_end(cluster, job.id, outcomes[job.id], max(at, job.created)) for job in left)
            changes = (*ends, _deleted(cluster, intent, cause, why, at, at))
            guards = tuple(guard_unchanged_job(job) for job in left)
            if self.change(*changes, at=at, lease=lease, guards=guards) is not None:
                return

    def _open_record(self, new: NewSliceRecord) -> ClusterRecord | None:
        mine = (clusters.c.name == new.cluster) & (clusters.c.project == to_column(self.project))
        return self._read_first(select(clusters).where(mine, clusters.c.gone.is_(None)), cluster_from_row)

    def _qualified(self, new: NewSliceRecord) -> str:
        return qualify_name(self.project, new.cluster)

    def _intent_row(self, uid: str, at: float, new: NewSliceRecord) -> RowChange:
        values: dict[str, Any] = {
            "cluster_uid": uid,
            "generation": new.generation,
            "name": new.name,
            "candidate": candidate_to_json(new.candidate),
            "token": new.token,
            "request": "",
            "account": new.account,
            "state": IntentState.ACCEPTED.value,
            "since": at,
            "touched": at,
            "born": new.created or at,
        }
        what = f"{new.name}: taken over, {new.candidate.where} {new.candidate.market}, epoch {new.epoch}"
        return insert_row(intents, values, EventDetails(cluster=self._qualified(new), kind="intent", what=what))

    def _owner_rows(self, cluster: str, owner: SliceOwner, known: SliceOwner | None = None) -> tuple[RowChange, ...]:
        """Return the change that records an owner; the lease of the cluster keeps others from doing the same."""
        values = {"token": owner.token, "epoch": owner.epoch, "holder": owner.holder}
        details = EventDetails(cluster=cluster, kind="owner", what=owner.holder or f"ours, epoch {owner.epoch}")
        if known is None and (known := self.slice_owner(owner.token)) is None:
            return (insert_row(slice_owners, values, details),)
        return (update_row(slice_owners, {"token": owner.token}, values, details),)


def _deleted(cluster: ClusterRecord, intent: Intent, cause: EndCause, why: str, at: float, now: float) -> RowChange:
    values: dict[str, Any] = {"state": IntentState.DELETED.value, "since": at, "touched": now, "why": why}
    values["cause"] = cause.value
    if intent.billed_from is not None and intent.billed_until is None:
        values["gone"] = at
    details = EventDetails(cluster=cluster.qualified_name, kind="intent", what=f"{intent.name}: {why}", cause=why)
    return update_row(intents, {"cluster_uid": cluster.uid, "generation": intent.generation}, values, details)
