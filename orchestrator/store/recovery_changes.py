"""Machines that change hands: taken over here from a lost record, or taken over from here by another installation."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import select

from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.store.change import Change, EventDetails
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import (
    ClusterRecord,
    NewSliceRecord,
    SliceOwner,
    candidate_to_json,
    cluster_from_row,
    slice_owner_from_row,
)
from orchestrator.store.schema import clusters, intents, slice_owners


class RecoveryChanges(Ledger):
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
        found = select(clusters).where(clusters.c.name == new.cluster, clusters.c.gone.is_(None))
        with self.changing(lease) as change:
            values: dict[str, Any] = {"uid": secrets.token_hex(8), "name": new.cluster, "created": change.at}
            values |= {"summary": new.summary, "owner": self.user}
            what = f"record opened: {new.summary}, taken over from installation {new.installation or '(unknown)'}"
            change.insert(clusters, values, EventDetails(cluster=new.cluster, kind="cluster", what=what))
            record = cluster_from_row(change.tx.execute(found).mappings().one())
            self._insert_intent(change, record, new)
            _set_owner(change, new.cluster, SliceOwner(token=new.token, epoch=new.epoch, holder=""))
            return record

    def raise_epoch(self, lease: Lease, cluster: ClusterRecord, token: str, epoch: int) -> None:
        """Record a higher epoch of a slice that is ours."""
        with self.changing(lease) as change:
            _set_owner(change, cluster.name, SliceOwner(token=token, epoch=epoch, holder=""))

    def record_transfer(self, lease: Lease, cluster: ClusterRecord, intent: Intent, holder: str) -> None:
        """Close the record of machines that another installation has taken over. Nothing of them was ended from here.

        The intent's state is DELETED, which every version reads: for this record there are no machines any more. That
        they exist elsewhere is in `slice_owners`, so that no sweep ends them.
        """
        why = f"taken over {holder}"
        with self.changing(lease) as change:
            details = EventDetails(cluster=cluster.name, kind="intent", what=f"{intent.name}: {why}", cause=why)
            values: dict[str, Any] = {"state": IntentState.DELETED.value, "since": change.at, "why": why}
            values |= {"cause": EndCause.REQUESTED.value, "touched": change.at}
            if intent.billed_from is not None and intent.billed_until is None:
                values["gone"] = change.at
            change.update(intents, {"cluster_uid": cluster.uid, "generation": intent.generation}, values, details)
            owner = self._owner_in(change, intent.token)
            epoch = owner.epoch if owner is not None else 1
            _set_owner(change, cluster.name, SliceOwner(token=intent.token, epoch=epoch, holder=holder))
            closed = EventDetails(cluster=cluster.name, kind="cluster", what=f"record closed: {why}", cause=why)
            change.update(clusters, {"uid": cluster.uid}, {"gone": change.at, "hosts": "[]"}, closed)

    def record_earlier_end(self, lease: Lease, cluster: ClusterRecord, intent: Intent, at: float) -> None:
        """Record that a slice was deleted at an earlier moment, when the store could not be written."""
        why = "taken down while the store could not be written"
        with self.changing(lease) as change:
            values: dict[str, Any] = {"state": IntentState.DELETED.value, "since": at, "touched": change.at, "why": why}
            values["cause"] = EndCause.REQUESTED.value
            if intent.billed_from is not None and intent.billed_until is None:
                values["gone"] = at
            details = EventDetails(cluster=cluster.name, kind="intent", what=f"{intent.name}: {why}", cause=why)
            change.update(intents, {"cluster_uid": cluster.uid, "generation": intent.generation}, values, details)

    def _insert_intent(self, change: Change, record: ClusterRecord, new: NewSliceRecord) -> None:
        values: dict[str, Any] = {
            "cluster_uid": record.uid,
            "generation": new.generation,
            "name": new.name,
            "candidate": candidate_to_json(new.candidate),
            "token": new.token,
            "request": "",
            "account": new.account,
            "state": IntentState.ACCEPTED.value,
            "since": change.at,
            "touched": change.at,
            "born": new.created or change.at,
        }
        what = f"{new.name}: taken over, {new.candidate.where} {new.candidate.market}, epoch {new.epoch}"
        change.insert(intents, values, EventDetails(cluster=new.cluster, kind="intent", what=what))

    @staticmethod
    def _owner_in(change: Change, token: str) -> SliceOwner | None:
        row = change.tx.execute(select(slice_owners).where(slice_owners.c.token == token)).mappings().first()
        return None if row is None else slice_owner_from_row(row)


def _set_owner(change: Change, cluster: str, owner: SliceOwner) -> None:
    values = {"token": owner.token, "epoch": owner.epoch, "holder": owner.holder}
    details = EventDetails(cluster=cluster, kind="owner", what=owner.holder or f"ours, epoch {owner.epoch}")
    if not change.insert(slice_owners, values, details):
        change.update(slice_owners, {"token": owner.token}, values, details)
