"""Changes of clusters and of the intents behind them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select, update

from orchestrator.computer import identify_place
from orchestrator.errors import ConflictError
from orchestrator.hosts import HostAddress, hosts_to_json
from orchestrator.paths import load_paths
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.project import qualify_name, to_column
from orchestrator.slices import Candidate
from orchestrator.store.change import Change, EventDetails
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import (
    ClusterRecord,
    Row,
    candidate_to_json,
    cluster_from_row,
    intent_from_row,
    make_portable,
)
from orchestrator.store.schema import clusters, intents
from orchestrator.store.uids import derive_uid_end, make_uid


class ClusterChanges(Ledger):
    """The changes of clusters and intents."""

    def cluster(self, name: str) -> ClusterRecord | None:
        """Return the open cluster of this name, or None."""
        query = select(clusters).where(self._named(name), clusters.c.gone.is_(None))
        return self._read_first(query, cluster_from_row)

    def deleted_cluster(self, name: str) -> ClusterRecord | None:
        """Return the newest deleted cluster of this name, or None."""
        query = select(clusters).where(self._named(name), clusters.c.gone.is_not(None))
        return self._read_first(query.order_by(clusters.c.gone.desc()), cluster_from_row)

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return the existing clusters of all projects, by name and age."""
        query = select(clusters).where(clusters.c.gone.is_(None))
        return self._read_all(query.order_by(clusters.c.name, clusters.c.created), cluster_from_row)

    def clusters_going_down(self) -> tuple[ClusterRecord, ...]:
        """Return the clusters whose teardown was requested and is not complete, oldest first."""
        query = select(clusters).where(clusters.c.wanted == "down", clusters.c.gone.is_(None))
        return self._read_all(query.order_by(clusters.c.created), cluster_from_row)

    def open_cluster(self, name: str, summary: str) -> ClusterRecord:
        """Return the open cluster of this name, made if there is none. Two at the same time get the same one."""
        query = select(clusters).where(self._named(name), clusters.c.gone.is_(None))
        with self.changing() as change:
            earlier = select(func.count()).select_from(clusters).where(self._named(name))
            ordinal = change.tx.execute(earlier).scalar_one()
            end = derive_uid_end(identify_place(load_paths().state), self.project, name, ordinal)
            values = {"uid": make_uid(end), "name": name, "created": change.at, "summary": summary}
            values |= {"owner": self.user, "project": to_column(self.project)}
            qualified = qualify_name(self.project, name)
            change.insert(
                clusters, values, EventDetails(cluster=qualified, kind="cluster", what=f"record opened: {summary}")
            )
            return cluster_from_row(change.tx.execute(query).mappings().one())

    def set_desired_state(self, cluster: ClusterRecord, desired_state: str) -> None:
        """Record a request for a cluster: "up", "stopped" or "down".

        No lease is needed: whoever holds the lease reads the request before each step.
        """
        with self.changing() as change:
            change.update(
                clusters,
                {"uid": cluster.uid},
                {"wanted": desired_state},
                EventDetails(cluster=cluster.qualified_name, kind="wanted", what=desired_state),
            )

    def set_limits(self, cluster: ClusterRecord, limits: dict[str, float]) -> None:
        """Replace the limits of a cluster: max_hours, idle_minutes and max_cost, those that are set."""
        text = json.dumps(limits, sort_keys=True)
        with self.changing() as change:
            change.update(
                clusters,
                {"uid": cluster.uid},
                {"limits": text},
                EventDetails(cluster=cluster.qualified_name, kind="limits", what=text),
            )

    def note_hosts(self, lease: Lease | None, cluster: ClusterRecord, hosts: tuple[HostAddress, ...]) -> None:
        self._note(lease, cluster, {"hosts": hosts_to_json([make_portable(host) for host in hosts])})

    def note_host_contents(self, lease: Lease | None, cluster: ClusterRecord, held: dict[str, dict[str, Any]]) -> None:
        """Record what each host last reported to hold: {rank: {label: digest}}."""
        self._note(lease, cluster, {"held": json.dumps(held, sort_keys=True)})

    def note_state(self, cluster: ClusterRecord, state: str) -> None:
        self._note(None, cluster, {"last_state": state, "last_seen": self._now()})

    def close_cluster(self, lease: Lease, cluster: ClusterRecord) -> None:
        """Close the record. The last step of a teardown, after the provider has reported every machine absent."""
        why = EventDetails(
            cluster=cluster.qualified_name,
            kind="cluster",
            what="record closed: nothing is left",
            cause="the provider reports every machine absent",
        )
        with self.changing(lease) as change:
            row = change.tx.execute(select(clusters.c.gone).where(clusters.c.uid == cluster.uid)).one()
            if row.gone is None:
                change.update(clusters, {"uid": cluster.uid}, {"gone": change.at, "hosts": "[]"}, why)

    def _named(self, name: str) -> ColumnElement[bool]:
        return and_(clusters.c.project == to_column(self.project), clusters.c.name == name)

    def _note(self, lease: Lease | None, cluster: ClusterRecord, values: dict[str, Any]) -> None:
        """Write columns of audited.NOT_AUDITED: one statement, without an event."""
        self._write(lease, update(clusters).where(clusters.c.uid == cluster.uid).values(**values))

    # --- intents ------------------------------------------------------------------------------------------

    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        """Return the intents of a cluster by generation."""
        query = select(intents).where(intents.c.cluster_uid == cluster.uid).order_by(intents.c.generation)
        return self._read_all(query, intent_from_row)

    def all_intents(self) -> tuple[tuple[str, Intent], ...]:
        """Return every intent of every cluster with its token. The intents of a closed cluster count as GONE."""
        closed = select(clusters.c.uid).where(clusters.c.gone.is_not(None))
        query = select(intents, intents.c.cluster_uid.in_(closed).label("closed"))
        return self._read_all(query.order_by(intents.c.cluster_uid, intents.c.generation), _with_token)

    def write_intent(
        self, lease: Lease, cluster: ClusterRecord, generation: int, name: str, candidate: Candidate, token: str,
        request: str, account: str = "",
    ) -> None:  # fmt: skip
        """Commit an intent before its create request. Written again for the same generation, it changes nothing.

        Raises:
            ConflictError: the cluster's record is closed, so the machines would never be ended.
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
                "account": account,
                "state": IntentState.PLANNED.value,
                "since": change.at,
                "touched": change.at,
            }
            what = f"{name}: planned, {candidate.where} {candidate.market}"
            change.insert(intents, values, EventDetails(cluster=cluster.qualified_name, kind="intent", what=what))

    def update_intent(
        self, lease: Lease, cluster: ClusterRecord, name: str, state: IntentState, cause: EndCause | None = None,
        why: str = "", *, requested_ago: float | None = None,
    ) -> None:  # fmt: skip
        """Record the state of an intent, and when its machines began to cost.

        Args:
            lease: The lease of the cluster.
            cluster: The cluster.
            name: The intent's name.
            state: The new state.
            cause: Why it ended.
            why: The same for people.
            requested_ago: Seconds since the only create request, when this process sent it. A clock that was wrong
                until the provider's answer must make no machine older.
        """
        with self.changing(lease) as change:
            before = _read_intent(change, cluster, name)
            values: dict[str, Any] = {"state": state.value, "touched": change.at}
            if before.state is not state:
                values["since"] = change.at
            if state in (IntentState.ACCEPTED, IntentState.ENDING) and before.billed_from is None:
                # When it was planned: the create may have acted since then. A clock that was ahead until the provider's
                # first answer must not put the start of billing into the future.
                planned = before.since if requested_ago is None else change.at - requested_ago
                values["born"] = min(planned, change.at)
            if state is IntentState.DELETED and before.billed_from is not None and before.billed_until is None:
                values["gone"] = change.at
            if cause is not None:
                values |= {"cause": cause.value, "why": why}
            reason = f"{cause}: {why}" if cause else ""
            what = f"{name}: {before.state} -> {state}" + (f" ({reason})" if reason else "")
            key = {"cluster_uid": cluster.uid, "generation": before.generation}
            change.update(
                intents,
                key,
                values,
                EventDetails(cluster=cluster.qualified_name, kind="intent", what=what, cause=reason),
            )

    def note_billing_start(self, lease: Lease, cluster: ClusterRecord, name: str, born: float) -> None:
        """Record when billing of an intent's machines starts, in epoch seconds, if later than its request."""
        with self.changing(lease) as change:
            before = _read_intent(change, cluster, name)
            key = {"cluster_uid": cluster.uid, "generation": before.generation}
            change.update(
                intents,
                key,
                {"born": born},
                EventDetails(cluster=cluster.qualified_name, kind="intent", what=f"{name}: billing starts later"),
            )

    def note_account(self, cluster: ClusterRecord, name: str, account: str) -> None:
        """Record whose machines an intent of an older version has, once the provider has shown them."""
        with self.changing(None) as change:
            before = _read_intent(change, cluster, name)
            if before.account:
                return
            key = {"cluster_uid": cluster.uid, "generation": before.generation}
            what = f"{name}: its account is {account}"
            change.update(
                intents,
                key,
                {"account": account},
                EventDetails(cluster=cluster.qualified_name, kind="intent", what=what),
            )

    def touch_intent(self, lease: Lease, cluster: ClusterRecord, name: str) -> None:
        which = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        self._write(lease, update(intents).where(which).values(touched=self._now()))


def _read_intent(change: Change, cluster: ClusterRecord, name: str) -> Intent:
    mine = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
    return intent_from_row(change.tx.execute(select(intents).where(mine)).mappings().one())


def _with_token(row: Row) -> tuple[str, Intent]:
    intent = intent_from_row(row)
    return str(row["token"]), replace(intent, state=IntentState.DELETED) if row["closed"] else intent
