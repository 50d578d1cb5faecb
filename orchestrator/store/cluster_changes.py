"""Changes of clusters and of the intents behind them."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace
from typing import Any

from sqlalchemy import select, update

from orchestrator.errors import ConflictError
from orchestrator.hosts import HostAddress
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.slices import Candidate
from orchestrator.store import leases
from orchestrator.store.change import Why
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import (
    ClusterRecord,
    Row,
    candidate_to_json,
    cluster_from_row,
    hosts_to_json,
    intent_from_row,
)
from orchestrator.store.schema import clusters, intents


class ClusterChanges(Ledger):
    def cluster(self, name: str) -> ClusterRecord | None:
        query = select(clusters).where(clusters.c.name == name, clusters.c.gone.is_(None))
        return self._read_first(query, cluster_from_row)

    def half_down(self) -> tuple[ClusterRecord, ...]:
        """Clusters that shall be down and are not gone yet, oldest first."""
        query = select(clusters).where(clusters.c.wanted == "down", clusters.c.gone.is_(None))
        return self._read_all(query.order_by(clusters.c.created), cluster_from_row)

    def open_cluster(self, name: str, summary: str) -> ClusterRecord:
        """The living cluster of this name, made if there is none. Safe against a race of two."""
        query = select(clusters).where(clusters.c.name == name, clusters.c.gone.is_(None))
        with self.changing() as change:
            values = {"uid": secrets.token_hex(8), "name": name, "created": change.at, "summary": summary}
            change.insert(clusters, values, Why(name, "cluster", f"record opened: {summary}"))
            return cluster_from_row(change.tx.execute(query).mappings().one())

    def want(self, cluster: ClusterRecord, wanted: str) -> None:
        """Say what this cluster shall be, without the lease: whoever works on it reads this before each step."""
        with self.changing() as change:
            change.update(clusters, {"uid": cluster.uid}, {"wanted": wanted}, Why(cluster.name, "wanted", wanted))

    def set_limits(self, cluster: ClusterRecord, limits: dict[str, float]) -> None:
        """max_hours, idle_minutes, max_cost: those that are set. Replaces what was set before."""
        text = json.dumps(limits, sort_keys=True)
        with self.changing() as change:
            change.update(clusters, {"uid": cluster.uid}, {"limits": text}, Why(cluster.name, "limits", text))

    def note_hosts(self, lease: Lease | None, cluster: ClusterRecord, hosts: tuple[HostAddress, ...]) -> None:
        self._note(lease, cluster, {"hosts": hosts_to_json(hosts)})

    def note_held(self, lease: Lease | None, cluster: ClusterRecord, held: dict[str, dict[str, Any]]) -> None:
        """What each host was last seen to hold: {rank: {label: digest}}."""
        self._note(lease, cluster, {"held": json.dumps(held, sort_keys=True)})

    def note_state(self, cluster: ClusterRecord, state: str) -> None:
        self._note(None, cluster, {"last_state": state, "last_seen": self._now()})

    def close_cluster(self, lease: Lease, cluster: ClusterRecord) -> None:
        """The finalizer: only after the provider has said that nothing is left."""
        why = Why(cluster.name, "cluster", "record closed: nothing is left", "the provider has nothing of it any more")
        with self.changing(lease) as change:
            row = change.tx.execute(select(clusters.c.gone).where(clusters.c.uid == cluster.uid)).one()
            if row.gone is None:
                change.update(clusters, {"uid": cluster.uid}, {"gone": change.at, "hosts": "[]"}, why)

    def _note(self, lease: Lease | None, cluster: ClusterRecord, values: dict[str, Any]) -> None:
        """Only for the columns of audited.NOT_AUDITED: one statement, without the chain."""
        with self._database.writing() as tx:
            if lease is not None:
                leases.check(tx, lease)
            tx.execute(update(clusters).where(clusters.c.uid == cluster.uid).values(**values))
            tx.commit()

    # --- intents ------------------------------------------------------------------------------------------

    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        query = select(intents).where(intents.c.cluster_uid == cluster.uid).order_by(intents.c.generation)
        return self._read_all(query, intent_from_row)

    def all_intents(self) -> tuple[tuple[str, Intent], ...]:
        """Every intent of every cluster with its token. Those of a closed cluster are GONE, whatever they say."""
        closed = select(clusters.c.uid).where(clusters.c.gone.is_not(None))
        query = select(intents, intents.c.cluster_uid.in_(closed).label("closed"))
        return self._read_all(query.order_by(intents.c.cluster_uid, intents.c.generation), _with_token)

    def write_intent(
        self, lease: Lease, cluster: ClusterRecord, generation: int, name: str, candidate: Candidate, token: str,
        request: str,
    ) -> None:  # fmt: skip
        """Commit the wish before the call. Written again for the same generation, it changes nothing.

        Raises ConflictError when the cluster's record is closed: nobody would ever end what is made for it.
        """
        with self.changing(lease) as change:
            gone = change.tx.execute(select(clusters.c.gone).where(clusters.c.uid == cluster.uid)).scalar()
            mine = (intents.c.cluster_uid == cluster.uid) & (intents.c.generation == generation)
            if gone is not None and change.tx.execute(select(intents.c.name).where(mine)).first() is None:
                raise ConflictError(f"the record of '{cluster.name}' was closed meanwhile", next_step="orch status")
            values: dict[str, Any] = {
                "cluster_uid": cluster.uid,
                "generation": generation,
                "name": name,
                "candidate": candidate_to_json(candidate),
                "token": token,
                "request": hashlib.sha256(request.encode()).hexdigest(),
                "state": IntentState.PLANNED.value,
                "since": change.at,
                "touched": change.at,
            }
            what = f"{name}: planned, {candidate.where} {candidate.market}"
            change.insert(intents, values, Why(cluster.name, "intent", what))

    def move_intent(
        self, lease: Lease, cluster: ClusterRecord, name: str, state: IntentState, cause: EndCause | None = None,
        why: str = "",
    ) -> None:  # fmt: skip
        which = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        with self.changing(lease) as change:
            before = change.tx.execute(select(intents).where(which)).mappings().one()
            values: dict[str, Any] = {"state": state.value, "touched": change.at}
            if before["state"] != state.value:
                values["since"] = change.at
            if state in (IntentState.ACCEPTED, IntentState.ENDING) and before["born"] is None:
                values["born"] = before["since"]  # when it was planned: the create may have acted since then
            if state is IntentState.GONE and before["born"] is not None and before["gone"] is None:
                values["gone"] = change.at
            if cause is not None:
                values |= {"cause": cause.value, "why": why}
            reason = f"{cause}: {why}" if cause else ""
            what = f"{name}: {before['state']} -> {state}" + (f" ({reason})" if reason else "")
            key = {"cluster_uid": cluster.uid, "generation": before["generation"]}
            change.update(intents, key, values, Why(cluster.name, "intent", what, reason))

    def note_born(self, lease: Lease, cluster: ClusterRecord, name: str, born: float) -> None:
        """From when the machines of an intent are paid for, when that is later than its request (epoch seconds)."""
        which = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        with self.changing(lease) as change:
            before = change.tx.execute(select(intents).where(which)).mappings().one()
            key = {"cluster_uid": cluster.uid, "generation": before["generation"]}
            change.update(intents, key, {"born": born}, Why(cluster.name, "intent", f"{name}: its time begins later"))

    def touch_intent(self, lease: Lease, cluster: ClusterRecord, name: str) -> None:
        which = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        with self._database.writing() as tx:
            leases.check(tx, lease)
            tx.execute(update(intents).where(which).values(touched=self._now()))
            tx.commit()


def _with_token(row: Row) -> tuple[str, Intent]:
    intent = intent_from_row(row)
    return str(row["token"]), replace(intent, state=IntentState.GONE) if row["closed"] else intent
