"""Every change of the durable memory. A change and the event that tells of it are one transaction.

Changes of a cluster take a Lease and are refused when it is no longer ours (leases.check).
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, func, insert, select, update

from orchestrator.hosts import HostAddress
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Ended, Intent, IntentState, Outcome
from orchestrator.slices import Candidate
from orchestrator.store import leases
from orchestrator.store.connection import connect
from orchestrator.store.leases import Holder, Lease
from orchestrator.store.records import (
    ClusterRecord,
    JobRecord,
    NewJob,
    candidate_to_json,
    cluster_from_row,
    hosts_to_json,
    intent_from_row,
    job_from_row,
)
from orchestrator.store.schema import SCHEMA_VERSION, attempts, clusters, events, intents, jobs, meta


class Store:
    """Use as a context manager. `installation` names this user's orch in every label it puts on machines."""

    def __init__(self, location: Path | str) -> None:
        self._engine = connect(location)
        self.installation = self._first_use()
        self._actor = f"{getpass.getuser()}@{os.uname().nodename}:{os.getpid()}"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._engine.dispose()

    # --- leases -------------------------------------------------------------------------------------------

    def acquire(self, name: str, doing: str) -> Lease | Holder:
        return leases.acquire(self._engine, name, doing)

    def renew(self, lease: Lease) -> bool:
        return leases.renew(self._engine, lease)

    def release(self, lease: Lease) -> None:
        leases.release(self._engine, lease)

    # --- clusters -----------------------------------------------------------------------------------------

    def cluster(self, name: str) -> ClusterRecord | None:
        query = select(clusters).where(clusters.c.name == name, clusters.c.gone.is_(None))
        with self._engine.connect() as tx:
            row = tx.execute(query).mappings().first()
        return cluster_from_row(row) if row is not None else None

    def open_cluster(self, name: str, summary: str) -> ClusterRecord:
        """The living cluster of this name, made if there is none. Safe against a race of two."""
        now = time.time()
        values = {"uid": secrets.token_hex(8), "name": name, "created": now, "summary": summary}
        with self._engine.begin() as tx:
            made = tx.execute(_insert_or_nothing(self._engine, clusters, values)).rowcount
            if made:
                self._event(tx, name, "cluster", f"record opened: {summary}")
        record = self.cluster(name)
        assert record is not None  # noqa: S101  # made above, by us or by the other
        return record

    def want(self, cluster: ClusterRecord, wanted: str) -> None:
        """Say what this cluster shall be, without the lease: whoever works on it reads this before each step."""
        with self._engine.begin() as tx:
            tx.execute(update(clusters).where(clusters.c.uid == cluster.uid).values(wanted=wanted))
            self._event(tx, cluster.name, "wanted", wanted)

    def note_hosts(self, lease: Lease | None, cluster: ClusterRecord, hosts: tuple[HostAddress, ...]) -> None:
        self._patch_cluster(lease, cluster, {"hosts": hosts_to_json(hosts)})

    def note_held(self, lease: Lease | None, cluster: ClusterRecord, held: dict[str, dict[str, Any]]) -> None:
        """What each host was last seen to hold: {rank: {label: digest}}."""
        self._patch_cluster(lease, cluster, {"held": json.dumps(held, sort_keys=True)})

    def note_state(self, cluster: ClusterRecord, state: str) -> None:
        self._patch_cluster(None, cluster, {"last_state": state, "last_seen": time.time()})

    def close_cluster(self, lease: Lease, cluster: ClusterRecord) -> None:
        """The finalizer: only after the provider has said that nothing is left."""
        with self.guarded(lease) as tx:
            tx.execute(update(clusters).where(clusters.c.uid == cluster.uid).values(gone=time.time(), hosts="[]"))
            self._event(tx, cluster.name, "cluster", "record closed: nothing is left")

    # --- intents ------------------------------------------------------------------------------------------

    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        query = select(intents).where(intents.c.cluster_uid == cluster.uid).order_by(intents.c.generation)
        with self._engine.connect() as tx:
            return tuple(intent_from_row(row) for row in tx.execute(query).mappings())

    def write_intent(
        self, lease: Lease, cluster: ClusterRecord, generation: int, name: str, candidate: Candidate, token: str,
        request: str,
    ) -> None:  # fmt: skip
        """Commit the wish before the call. Written again for the same generation, it changes nothing."""
        now = time.time()
        values: dict[str, Any] = {
            "cluster_uid": cluster.uid,
            "generation": generation,
            "name": name,
            "candidate": candidate_to_json(candidate),
            "token": token,
            "request": hashlib.sha256(request.encode()).hexdigest(),
            "state": IntentState.PLANNED.value,
            "since": now,
            "touched": now,
        }
        with self.guarded(lease) as tx:
            if tx.execute(_insert_or_nothing(self._engine, intents, values)).rowcount:
                self._event(tx, cluster.name, "intent", f"{name}: planned, {candidate.where} {candidate.market}")

    def move_intent(
        self, lease: Lease, cluster: ClusterRecord, name: str, state: IntentState, cause: EndCause | None = None,
        why: str = "",
    ) -> None:  # fmt: skip
        now = time.time()
        which = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        with self.guarded(lease) as tx:
            before = tx.execute(select(intents.c.state, intents.c.since).where(which)).first()
            assert before is not None  # noqa: S101  # decide() only names intents it was shown
            values: dict[str, Any] = {"state": state.value, "touched": now}
            values["since"] = before.since if before.state == state.value else now
            if cause is not None:
                values |= {"cause": cause.value, "why": why}
            tx.execute(update(intents).where(which).values(**values))
            if before.state != state.value:
                words = f"{name}: {before.state} -> {state}" + (f" ({cause}: {why})" if cause else "")
                self._event(tx, cluster.name, "intent", words)

    def touch_intent(self, lease: Lease, cluster: ClusterRecord, name: str) -> None:
        which = (intents.c.cluster_uid == cluster.uid) & (intents.c.name == name)
        with self.guarded(lease) as tx:
            tx.execute(update(intents).where(which).values(touched=time.time()))

    # --- jobs ---------------------------------------------------------------------------------------------

    def open_job(self, cluster: ClusterRecord, new: NewJob) -> JobRecord:
        """The next number on this cluster. Two at once get two numbers."""
        with self._engine.begin() as tx:
            mine = jobs.c.cluster_uid == cluster.uid
            number = (tx.execute(select(func.max(jobs.c.id)).where(mine)).scalar() or 0) + 1
            newest = tx.execute(select(func.max(intents.c.generation)).where(intents.c.cluster_uid == cluster.uid))
            values: dict[str, Any] = {
                "cluster_uid": cluster.uid,
                "id": number,
                "kind": new.kind,
                "run_id": new.run_id,
                "digest": new.digest,
                "task": new.task,
                "bucket": new.bucket,
                "attempt": new.first_attempt,
                "started": False,
                "opened_at": newest.scalar() or 0,
                "state": "pending",
                "created": time.time(),
                "ranks": json.dumps(new.ranks) if new.ranks is not None else None,
                "after_end": new.after,
            }
            tx.execute(insert(jobs).values(**values))
            self._event(tx, cluster.name, "job", f"job {number} opened ({new.kind}), run {new.run_id}")
        return self.job(cluster, number)

    def job(self, cluster: ClusterRecord, number: int) -> JobRecord:
        query = select(jobs).where(jobs.c.cluster_uid == cluster.uid, jobs.c.id == number)
        with self._engine.connect() as tx:
            return job_from_row(tx.execute(query).mappings().one())

    def jobs(self, cluster: ClusterRecord) -> tuple[JobRecord, ...]:
        query = select(jobs).where(jobs.c.cluster_uid == cluster.uid).order_by(jobs.c.id)
        with self._engine.connect() as tx:
            return tuple(job_from_row(row) for row in tx.execute(query).mappings())

    def find_run(self, run_id: str) -> tuple[str, JobRecord] | None:
        """The newest job of a run on any cluster, gone or not, with the cluster's name."""
        query = (
            select(jobs, clusters.c.name.label("cluster_name"))
            .join(clusters, clusters.c.uid == jobs.c.cluster_uid)
            .where(jobs.c.run_id == run_id)
            .order_by(jobs.c.created.desc())
        )
        with self._engine.connect() as tx:
            row = tx.execute(query).mappings().first()
        return (str(row["cluster_name"]), job_from_row(row)) if row is not None else None

    def last_run_of(self, cluster: str) -> JobRecord | None:
        """The newest launch or resume under a cluster name, the cluster gone or not."""
        query = (
            select(jobs)
            .join(clusters, clusters.c.uid == jobs.c.cluster_uid)
            .where(clusters.c.name == cluster, jobs.c.kind != "exec")
            .order_by(jobs.c.created.desc())
        )
        with self._engine.connect() as tx:
            row = tx.execute(query).mappings().first()
        return job_from_row(row) if row is not None else None

    def start_attempt(self, cluster: ClusterRecord, job: int) -> None:
        """The program may be running from now on; committed before it is started."""
        self._patch_job(cluster, job, {"started": True, "state": "running"}, f"job {job} is being started")

    def next_attempt(self, cluster: ClusterRecord, job: int, ended: Ended, attempt: int) -> None:
        values: dict[str, Any] = {
            "cluster_uid": cluster.uid,
            "job_id": job,
            "attempt": ended.attempt,
            "cause": ended.cause.value,
            "why": ended.why,
            "generation": ended.generation,
            "at": time.time(),
        }
        with self._engine.begin() as tx:
            tx.execute(_insert_or_nothing(self._engine, attempts, values))
            which = (jobs.c.cluster_uid == cluster.uid) & (jobs.c.id == job)
            tx.execute(update(jobs).where(which).values(attempt=attempt, started=False))
            self._event(
                tx, cluster.name, "attempt", f"job {job}: attempt {ended.attempt} ended ({ended.cause}: {ended.why})"
            )

    def ended(self, cluster: ClusterRecord, job: int) -> tuple[Ended, ...]:
        query = select(attempts).where(attempts.c.cluster_uid == cluster.uid, attempts.c.job_id == job)
        with self._engine.connect() as tx:
            rows = tx.execute(query.order_by(attempts.c.attempt)).mappings()
            return tuple(Ended(r["attempt"], EndCause(r["cause"]), r["why"], r["generation"]) for r in rows)

    def conclude(self, cluster: ClusterRecord, job: int, outcome: Outcome) -> None:
        values: dict[str, Any] = {
            "state": "ended",
            "status": outcome.status,
            "code": outcome.code,
            "what": outcome.what,
            "why": outcome.why,
            "next_step": outcome.next_step,
            "ended": time.time(),
        }
        self._patch_job(cluster, job, values, f"job {job} ended: {outcome.what} (status {outcome.status})")

    # --- the rest -----------------------------------------------------------------------------------------

    def event(self, cluster: str, kind: str, what: str) -> None:
        with self._engine.begin() as tx:
            self._event(tx, cluster, kind, what)

    @contextmanager
    def guarded(self, lease: Lease) -> Generator[Connection]:
        """A transaction that only the present holder of `lease` can commit."""
        with self._engine.begin() as tx:
            leases.check(tx, lease)
            yield tx

    def _patch_cluster(self, lease: Lease | None, cluster: ClusterRecord, values: dict[str, Any]) -> None:
        with self.guarded(lease) if lease is not None else self._engine.begin() as tx:
            tx.execute(update(clusters).where(clusters.c.uid == cluster.uid).values(**values))

    def _patch_job(self, cluster: ClusterRecord, job: int, values: dict[str, Any], event: str) -> None:
        with self._engine.begin() as tx:
            which = (jobs.c.cluster_uid == cluster.uid) & (jobs.c.id == job)
            tx.execute(update(jobs).where(which).values(**values))
            self._event(tx, cluster.name, "job", event)

    def _event(self, tx: Connection, cluster: str, kind: str, what: str) -> None:
        tx.execute(insert(events).values(at=time.time(), cluster=cluster, actor=self._actor, kind=kind, what=what))

    def _first_use(self) -> str:
        with self._engine.begin() as tx:
            for key, value in (("installation", secrets.token_hex(6)), ("schema", str(SCHEMA_VERSION))):
                tx.execute(_insert_or_nothing(self._engine, meta, {"key": key, "value": value}))
            found = tx.execute(select(meta.c.value).where(meta.c.key == "installation")).scalar_one()
        return str(found)


def _insert_or_nothing(engine: Engine, table: Table, values: dict[str, Any]) -> Any:
    if engine.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table).values(**values).on_conflict_do_nothing()
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table).values(**values).on_conflict_do_nothing()
