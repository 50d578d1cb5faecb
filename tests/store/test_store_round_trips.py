"""How often a store on PostgreSQL is asked: every round trip is a pause of the command, and of others for a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from store_history import LOCAL
from support.postgres import PostgresServer
from support.slow_proxy import SlowProxy, slow_proxy

from orchestrator.hosts import HostPin, PinReason
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.store.leases import Lease
from orchestrator.store.provider_records import StoredRecords
from orchestrator.store.records import ClusterRecord, NewJob
from orchestrator.store.store import Store

JOB = NewJob(kind="launch", run_id="run-1", digest="digest", task="{}", bucket="", ranks=None, after_end="keep")
ENDED = EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="taken")
PIN = HostPin(name="me@[10.0.0.1]:2222", kind="ssh-ed25519", key="QQ==")


@dataclass(frozen=True, kw_only=True)
class Far:
    """A store with a cluster, its job, its intent and its lease, behind a relay that counts."""

    store: Store
    records: StoredRecords
    cluster: ClusterRecord
    lease: Lease
    proxy: SlowProxy
    folder: Path


@pytest.fixture
def far(postgres: PostgresServer, tmp_path: Path) -> Iterator[Far]:
    with ExitStack() as stack:
        proxy = stack.enter_context(slow_proxy(postgres.port, 0.0))
        address = postgres.new_store(port=proxy.port)
        store = stack.enter_context(Store(address))
        records = StoredRecords(lambda: address)
        stack.callback(records.database.close)
        records(tmp_path / "kind").put("warm", "{}")
        cluster = store.open_cluster("c", "")
        store.open_job(cluster, JOB)
        lease = store.acquire("cluster:c", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        yield Far(store=store, records=records, cluster=cluster, lease=lease, proxy=proxy, folder=tmp_path / "kind")


STEPS: dict[str, tuple[int, Callable[[Far], object]]] = {
    "read a cluster": (1, lambda far: far.store.cluster("c")),
    "read the jobs": (1, lambda far: far.store.jobs(far.cluster)),
    "note a state": (1, lambda far: far.store.note_state(far.cluster, "ready")),
    "note hosts under the lease": (1, lambda far: far.store.note_hosts(far.lease, far.cluster, ())),
    "touch an intent": (1, lambda far: far.store.touch_intent(far.lease, far.cluster, "c-1")),
    "take a lease": (2, lambda far: far.store.acquire("cluster:d", "test")),
    "renew a lease": (1, lambda far: far.store.renew(far.lease)),
    "give a lease back": (1, lambda far: far.store.release(far.lease)),
    "read a record": (1, lambda far: far.records(far.folder).read("warm")),
    "write a record": (1, lambda far: far.records(far.folder).put("warm", "{1}")),
    "record an event": (2, lambda far: far.store.event("c", "remark", "x")),
    "record a desired state": (2, lambda far: far.store.set_desired_state(far.cluster, "down")),
    "open a cluster": (3, lambda far: far.store.open_cluster("d", "")),
    "open a cluster that exists": (1, lambda far: far.store.open_cluster("c", "")),
    "close a cluster": (2, lambda far: far.store.close_cluster(far.lease, far.cluster)),
    "write an intent": (
        2,
        lambda far: far.store.write_intent(far.lease, far.cluster, 2, "c-2", LOCAL, "token", "request"),
    ),
    "update an intent": (3, lambda far: far.store.update_intent(far.lease, far.cluster, "c-1", IntentState.ACCEPTED)),
    "open a job": (3, lambda far: far.store.open_job(far.cluster, JOB)),
    "start an attempt": (3, lambda far: far.store.start_attempt(far.cluster, 1, lease=far.lease)),
    "end an attempt": (4, lambda far: far.store.end_attempt(far.cluster, 1, ENDED, lease=far.lease)),
    "begin the next attempt": (5, lambda far: far.store.next_attempt(far.cluster, 1, ENDED, 2, lease=far.lease)),
    "end a job": (3, lambda far: far.store.record_outcome(far.cluster, 1, Outcome(status=0, code="", what="done"))),
    "open a pipeline": (2, lambda far: far.store.open_pipeline("p", ("a",))),
    "pin a host": (3, lambda far: far.store.keep_host_pin(PIN, PinReason.FIRST)),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_asks_the_server_no_more_often_than_it_must(far: Far, step: str) -> None:
    allowed, act = STEPS[step]
    before = far.proxy.requests
    act(far)
    assert far.proxy.requests - before == allowed


def test_a_connection_that_the_server_closed_is_replaced_before_it_is_used(far: Far) -> None:
    far.proxy.cut()
    found = far.store.cluster("c")
    assert found is not None
    assert found.uid == far.cluster.uid
    far.proxy.cut()
    far.store.set_desired_state(far.cluster, "down")
