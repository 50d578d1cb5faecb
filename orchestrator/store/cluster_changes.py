"""Changes of clusters and of the intents behind them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, update

from orchestrator.computer import identify_place
from orchestrator.errors import ConflictError
from orchestrator.hosts import HostAddress, hosts_to_json
from orchestrator.paths import load_paths
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.project import qualify_name, to_column
from orchestrator.slices import Candidate
from orchestrator.store.audited import format_subject
from orchestrator.store.budget_changes import BudgetChanges, BudgetRevisions
from orchestrator.store.change import EventDetails, Guard, complete_row, insert_row, update_row
from orchestrator.store.leases import Lease
from orchestrator.store.records import (
    ClusterRecord,
    Row,
    candidate_to_json,
    cluster_from_row,
    intent_from_row,
    make_portable,
)
from orchestrator.store.schema import clusters, events, intents
from orchestrator.store.uids import derive_uid_end, make_uid


class ClusterChanges(BudgetChanges):
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
        qualified = qualify_name(self.project, name)
        details = EventDetails(cluster=qualified, kind="cluster", what=f"record opened: {summary}")
        place = identify_place(load_paths().state)
        for at in self._tries(f"the record of '{name}'"):
            known = self._read_all(select(clusters).where(self._named(name)), cluster_from_row)
            if living := [one for one in known if one.deleted is None]:
                return living[0]
            end = derive_uid_end(place, self.project, name, len(known))
            values = {"uid": make_uid(end), "name": name, "created": at, "summary": summary}
            values |= {"owner": self.member, "project": to_column(self.project)}
            if self.change(insert_row(clusters, values, details), at=at) == (True,):
                return cluster_from_row(complete_row(clusters, values))
        raise AssertionError  # _tries has raised

    def set_desired_state(self, cluster: ClusterRecord, desired_state: str) -> None:
        """Record a request for a cluster: "up", "stopped" or "down".

        No lease is needed: whoever holds the lease reads the request before each step.
        """
        details = EventDetails(cluster=cluster.qualified_name, kind="wanted", what=desired_state)
        self._change_cluster(cluster, {"wanted": desired_state}, details)

    def set_limits(self, cluster: ClusterRecord, limits: dict[str, float]) -> None:
        """Replace the limits of a cluster: max_hours, idle_minutes and max_cost, those that are set."""
        text = ", ".join(f"{name} {value:g}" for name, value in sorted(limits.items()))
        details = EventDetails(cluster=cluster.qualified_name, kind="limits", what=f"limits: {text or 'none'}")
        self._change_cluster(cluster, {"limits": json.dumps(limits, sort_keys=True)}, details)

    def _change_cluster(self, cluster: ClusterRecord, values: dict[str, Any], details: EventDetails) -> None:
        self.change(update_row(clusters, {"uid": cluster.uid}, values, details), at=self._now())

    def note_hosts(self, lease: Lease | None, cluster: ClusterRecord, hosts: tuple[HostAddress, ...]) -> None:
        self._note(lease, cluster, {"hosts": hosts_to_json([make_portable(host) for host in hosts])})

    def note_host_contents(self, lease: Lease | None, cluster: ClusterRecord, held: dict[str, dict[str, Any]]) -> None:
        """Record what each host last reported to hold: {rank: {label: digest}}."""
        self._note(lease, cluster, {"held": json.dumps(held, sort_keys=True)})

    def note_state(self, cluster: ClusterRecord, state: str) -> None:
        self._note(None, cluster, {"last_state": state, "last_seen": self._now()})

    def record_observed_stop(self, cluster: ClusterRecord, *, stopped: bool) -> None:
        """Record once that the provider reports the machines as stopped, or no longer: what ends and begins their cost.

        A request to stop them is no such record, since it may fail (`Reader.stopped_times`).
        """
        subject = format_subject("clusters", {"uid": cluster.uid})
        seen = and_(events.c.kind == "observed", events.c.cause == subject)
        started = and_(events.c.kind == "wanted", events.c.subject == subject, events.c.what == "up")
        mine = (events.c.cluster == cluster.qualified_name) & or_(seen, started)
        last = self._read_first(select(events.c.what).where(mine).order_by(events.c.seq.desc()), dict)
        if stopped != (last is not None and last["what"] == "stopped"):
            self.event(cluster.qualified_name, "observed", "stopped" if stopped else "running", cause=subject)

    def close_cluster(self, lease: Lease, cluster: ClusterRecord) -> None:
        """Close the record. The last step of a teardown, after the provider has reported every machine absent."""
        why = EventDetails(
            cluster=cluster.qualified_name,
            kind="cluster",
            what="record closed: nothing is left",
            cause="the provider reports every machine absent",
        )
        at, key = self._now(), {"uid": cluster.uid}
        closing = update_row(clusters, key, {"gone": at, "hosts": "[]"}, why)
        self.change(closing, at=at, lease=lease, guards=(_is_open(cluster),))  # one that is closed stays as it is

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
        request: str, account: str = "", run_id: str | None = None,
    ) -> None:  # fmt: skip
        """Commit an intent before its create request. Written again for the same generation, it changes nothing.

        Raises:
            ConflictError: the cluster's record is closed, so the machines would never be ended.
            BudgetError: a budget does not allow the slice for the run `run_id`; it counts in them from now on.
        """
        values: dict[str, Any] = {
            "cluster_uid": cluster.uid,
            "generation": generation,
            "name": name,
            "candidate": candidate_to_json(candidate),
            "token": token,
            "request": hashlib.sha256(request.encode()).hexdigest(),
            "account": account,
            "state": IntentState.PLANNED.value,
        }
        what = f"{name}: planned, {candidate.where} {candidate.market}"
        details = EventDetails(cluster=cluster.qualified_name, kind="intent", what=what)

        def plan_slice(revisions: BudgetRevisions) -> bool:
            at = self._now()
            planned = insert_row(intents, {**values, "since": at, "touched": at}, details)
            guards = (_is_open(cluster), *revisions.guards)
            if self.change(planned, *revisions.moves, at=at, lease=lease, guards=guards) is not None:
                return True
            mine = (intents.c.cluster_uid == cluster.uid) & (intents.c.generation == generation)
            if self._read_first(select(intents).where(mine), intent_from_row) is not None:
                return True
            if self._read_first(select(clusters.c.gone).where(_is_closed(cluster)), dict) is not None:
                raise ConflictError(f"the record of '{cluster.name}' was closed meanwhile", next_step="orch status")
            return False

        self._do_under_budgets(cluster, candidate, run_id, plan_slice)

    def record_start(self, lease: Lease, cluster: ClusterRecord, name: str, run_id: str | None = None) -> None:
        """Record, before its request, that the machines of a stopped slice are to be started.

        Raises:
            BudgetError: a budget does not allow it, for the run `run_id`.
        """
        intent = self._read_intent(cluster, name)
        key = {"cluster_uid": cluster.uid, "generation": intent.generation}
        details = EventDetails(cluster=cluster.qualified_name, kind="wanted", what="up")

        def start_slice(revisions: BudgetRevisions) -> bool:
            at = self._now()
            up = update_row(clusters, {"uid": cluster.uid}, {"wanted": "up"}, details)
            touched = update_row(intents, key, {"touched": at}, details)
            return self.change(up, touched, *revisions.moves, at=at, lease=lease, guards=revisions.guards) is not None

        self._do_under_budgets(cluster, intent.candidate, run_id, start_slice, starts=name)

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
        for at in self._tries(name):
            before = self._read_intent(cluster, name)
            values: dict[str, Any] = {"state": state.value, "touched": at}
            if before.state is not state:
                values["since"] = at
            if state in (IntentState.ACCEPTED, IntentState.ENDING) and before.billed_from is None:
                # When it was planned: the create may have acted since then. A clock that was ahead until the provider's
                # first answer must not put the start of billing into the future.
                planned = before.since if requested_ago is None else at - requested_ago
                values["born"] = min(planned, at)
            if state is IntentState.DELETED and before.billed_from is not None and before.billed_until is None:
                values["gone"] = at
            if cause is not None:
                values |= {"cause": cause.value, "why": why}
            reason = f"{cause}: {why}" if cause else ""
            what = f"{name}: {before.state} -> {state}" + (f" ({reason})" if reason else "")
            key = {"cluster_uid": cluster.uid, "generation": before.generation}
            seen = {"state": before.state.value, "born": before.billed_from, "gone": before.billed_until}
            change = update_row(
                intents,
                key,
                values,
                EventDetails(cluster=cluster.qualified_name, kind="intent", what=what, cause=reason),
            )
            guard = Guard(table=intents, key=key, values=seen | {"since": before.since})
            if self.change(change, at=at, lease=lease, guards=(guard,)) is not None:
                return

    def note_billing_start(self, lease: Lease, cluster: ClusterRecord, name: str, born: float) -> None:
        """Record when billing of an intent's machines starts, in epoch seconds, if later than its request."""
        key = {"cluster_uid": cluster.uid, "generation": self._read_intent(cluster, name).generation}
        details = EventDetails(cluster=cluster.qualified_name, kind="intent", what=f"{name}: billing starts later")
        self.change(update_row(intents, key, {"born": born}, details), at=self._now(), lease=lease)

    def touch_intent(self, lease: Lease, cluster: ClusterRecord, name: str) -> None:
        which = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        self._write(lease, update(intents).where(which).values(touched=self._now()))

    def _read_intent(self, cluster: ClusterRecord, name: str) -> Intent:
        mine = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        return self._read_one(select(intents).where(mine), intent_from_row)


def _is_open(cluster: ClusterRecord) -> Guard:
    return Guard(table=clusters, key={"uid": cluster.uid}, values={"gone": None})


def _is_closed(cluster: ClusterRecord) -> ColumnElement[bool]:
    return and_(clusters.c.uid == cluster.uid, clusters.c.gone.is_not(None))


def _with_token(row: Row) -> tuple[str, Intent]:
    intent = intent_from_row(row)
    return str(row["token"]), replace(intent, state=IntentState.DELETED) if row["closed"] else intent
