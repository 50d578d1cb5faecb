"""PostgreSQL: lost connections, lost answers, restarts, clocks and locks."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from store_history import LOCAL
from support.cut_proxy import cut_proxy
from support.postgres import PostgresServer, postgres_server
from support.slow_proxy import slow_proxy
from test_store_audit import audit_of

from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.errors import ConflictError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, Outcome
from orchestrator.store import batches, connection
from orchestrator.store.apply_change import Applied, apply_change
from orchestrator.store.change import ChangeRequest, EventDetails, RowChange, Verb, update_row
from orchestrator.store.failures import StoreError
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.leases import Holder, Lease, guard_lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import ClusterRecord, NewJob
from orchestrator.store.replay import verify_chain
from orchestrator.store.schema import clusters
from orchestrator.store.store import Store

JOB = NewJob(kind="launch", run_id="run-1", digest="digest", task="{}", bucket="", ranks=None, after_end="keep")

WRITES: dict[str, Callable[[Store, ClusterRecord, Lease], object]] = {
    "open_cluster": lambda store, cluster, lease: store.open_cluster("other", ""),
    "set_desired_state": lambda store, cluster, lease: store.set_desired_state(cluster, "down"),
    "write_intent": lambda store, cluster, lease: store.write_intent(lease, cluster, 1, "c-1", LOCAL, "t", "r"),
    "open_job": lambda store, cluster, lease: store.open_job(cluster, JOB),
    "start_attempt": lambda store, cluster, lease: store.start_attempt(cluster, 1),
    "next_attempt": lambda store, cluster, lease: store.next_attempt(
        cluster, 1, EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="taken"), 2
    ),
    "record_outcome": lambda store, cluster, lease: store.record_outcome(
        cluster, 1, Outcome(status=0, code="", what="done")
    ),
    "open_pipeline": lambda store, cluster, lease: store.open_pipeline("p", ("a",)),
    "event": lambda store, cluster, lease: store.event("c", "remark", "x"),
    "close_cluster": lambda store, cluster, lease: store.close_cluster(lease, cluster),
}


def taken(store: Store, name: str = "cluster:c") -> Lease:
    lease = store.acquire(name, "test")
    assert isinstance(lease, Lease)
    return lease


def prepared(store: Store) -> tuple[ClusterRecord, Lease]:
    cluster = store.open_cluster("c", "")
    store.open_job(cluster, JOB)
    return cluster, taken(store)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("write", sorted(WRITES))
def test_a_change_whose_answer_or_request_was_lost_is_done_once(
    postgres: PostgresServer, write: str, *, arrives: bool
) -> None:
    direct = postgres.new_store()
    with cut_proxy(postgres.port) as proxy, Store(direct.replace(f":{postgres.port}/", f":{proxy.port}/")) as store:
        cluster, lease = prepared(store)
        before = len(audit_of(direct)[0])
        proxy.arm(b"COMMIT", after=arrives)
        WRITES[write](store, cluster, lease)  # no error
        assert proxy.cuts == 1
        made = len(audit_of(direct)[0]) - before
    assert made == (2 if write == "next_attempt" else 1)
    assert find_store_faults(direct) == ()


def test_a_change_that_was_lost_twice_is_reported_as_unknown(postgres: PostgresServer) -> None:
    direct = postgres.new_store()
    with cut_proxy(postgres.port) as proxy, Store(direct.replace(f":{postgres.port}/", f":{proxy.port}/")) as store:
        cluster, _ = prepared(store)
        proxy.arm(b"COMMIT", after=False, times=2)
        with pytest.raises(StoreError, match="unknown whether the last step was recorded") as caught:
            store.set_desired_state(cluster, "down")
        assert "repeat the command" in caught.value.next_step
        store.set_desired_state(cluster, "down")  # given again, it goes through
    assert find_store_faults(direct) == ()


def request_of(store: Store, cluster: ClusterRecord, lease: Lease, number: int) -> ChangeRequest:
    """A change of two rows and an event, under the lease."""
    details = EventDetails(cluster="c", kind="remark", what=f"request {number}")
    key = {"uid": cluster.uid}
    changes = (
        update_row(clusters, key, {"summary": f"{number}"}, details),
        update_row(clusters, key, {"summary": f"{number}"}, replace(details, what="nothing new")),
        RowChange(verb=Verb.EVENT, event=replace(details, what="and more")),
    )
    return ChangeRequest(
        id=f"id-{number}", at=1.0, user=store.user, client="here:1", cause="test", guards=guard_lease(lease),
        changes=changes,
    )  # fmt: skip


def test_a_request_that_arrives_twice_is_done_once_and_answered_twice(postgres: PostgresServer) -> None:
    address = postgres.new_store()
    with Store(address) as store:
        cluster, lease = prepared(store)
        for number in range(4):
            before = len(audit_of(address)[0])
            with ThreadPoolExecutor(2) as pool:
                sent = [pool.submit(send, store, request_of(store, cluster, lease, number)) for _ in range(2)]
                assert [each.result().made for each in sent] == [(True, False, True)] * 2
            assert len(audit_of(address)[0]) == before + 2
    assert find_store_faults(address) == ()


def send(store: Store, request: ChangeRequest) -> Applied:
    with store._database.calling() as tx:
        return apply_change(tx, request)


def test_a_connection_that_the_server_ends_inside_a_change_does_it_once(postgres: PostgresServer) -> None:
    import psycopg

    address = postgres.new_store()
    with Store(address) as store, psycopg.connect(address) as raw, ThreadPoolExecutor(1) as pool:
        cluster, _ = prepared(store)
        before = len(audit_of(address)[0])
        raw.execute("SELECT FROM meta WHERE key = 'chain' FOR UPDATE")
        changing = pool.submit(store.set_desired_state, cluster, "down")
        waiting = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not postgres.sql(waiting):
            time.sleep(0.02)
        time.sleep(0.3)  # it has connected again, and waits once more
        raw.rollback()
        changing.result(30)
        assert len(audit_of(address)[0]) == before + 1
        assert [record.name for record in store.clusters_going_down()] == ["c"]


def test_a_server_that_restarts_is_waited_for_and_one_that_stays_away_is_reported() -> None:
    with postgres_server() as server:
        address = server.url()
        with Store(address) as store:
            cluster = store.open_cluster("c", "")
            server.stop(orderly=True)
            starting = threading.Timer(1.0, server.start)
            starting.start()
            store.set_desired_state(cluster, "stopped")
            starting.join()
            seen = store.cluster("c")
            assert seen is not None
            assert seen.desired_state == "stopped"
            server.stop(orderly=True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(connection, "RECONNECT_SECONDS", 0.5)
                with pytest.raises(StoreError, match="cannot be reached") as caught:
                    store.set_desired_state(cluster, "up")
            assert "when the server answers" in caught.value.next_step
        for opened in (Store, open_reader_at):
            began = time.monotonic()
            with pytest.raises(StoreError, match="cannot be reached"):
                opened(address)
            assert time.monotonic() - began < 5


def test_a_lease_is_kept_through_a_restart_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RECONNECT_SECONDS", 0.2)  # the renewal fails, instead of waiting for the server
    with postgres_server() as server, Store(server.url(), lease_seconds=6.0) as store:
        cluster = store.open_cluster("c", "")
        with LeaseKeeper(store, "c", "test", Silent()) as keeper:  # type: ignore[arg-type]  # only note() is called
            keeper.hold()
            server.stop(orderly=True)
            time.sleep(2.5)  # a renewal falls into this
            server.start()
            time.sleep(4.5)
            store.close_cluster(keeper.lease, cluster)
            with Store(server.url()) as other:
                assert isinstance(other.acquire("cluster:c", "other"), Holder)


class Silent:
    def note(self, words: str) -> None:
        raise AssertionError(words)


def test_leases_run_by_the_servers_clock_whatever_the_clocks_of_the_clients_show(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.new_store()
    real = time.time
    with Store(address, lease_seconds=1.0) as store:
        first = taken(store)
        for wrong in (3600.0, -3600.0):  # this computer's clock is wrong by an hour
            monkeypatch.setattr(time, "time", lambda wrong=wrong: real() + wrong)
            assert isinstance(store.acquire("cluster:c", "too early"), Holder)
            with open_reader_at(address) as reader:
                assert "test" in reader.lease_holder("cluster:c")
        time.sleep(1.2)
        assert taken(store).fence == first.fence + 1


@pytest.mark.promise("P7")
def test_of_many_that_take_a_lease_together_one_gets_it(location: Location) -> None:
    count = 8
    with Store(location) as store:
        for number in range(6):
            barrier = threading.Barrier(count)

            def grab(_: int, number: int = number, barrier: threading.Barrier = barrier) -> Lease | Holder:
                with Store(location) as mine:
                    barrier.wait(30)
                    return mine.acquire(f"cluster:{number}", "race")

            with ThreadPoolExecutor(count) as pool:
                got = list(pool.map(grab, range(count)))
            (winner,) = [lease for lease in got if isinstance(lease, Lease)]
            assert winner.fence == 1
            store.release(winner)
            assert taken(store, f"cluster:{number}").fence == 2


@pytest.mark.promise("P7")
def test_two_that_wait_for_the_same_lease_do_not_both_get_it(postgres: PostgresServer) -> None:
    import psycopg

    address = postgres.new_store()
    with Store(address) as store, Store(address) as other, psycopg.connect(address) as raw:
        store.release(taken(store))
        raw.execute("SELECT FROM leases FOR UPDATE")
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(each.acquire, "cluster:c", "race") for each in (store, other)]
            time.sleep(0.5)  # both have come to the row, and wait for it
            raw.commit()
            got = [each.result(30) for each in waiting]
    assert sorted(type(each).__name__ for each in got) == ["Holder", "Lease"]


@pytest.mark.promise("P7")
def test_no_other_can_take_a_lease_over_between_the_check_and_the_commit(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.new_store()
    order: list[str] = []
    with Store(address, lease_seconds=0.2) as store, Store(address, lease_seconds=5.0) as other:
        cluster = store.open_cluster("c", "")
        lease = taken(store)

        def take_over() -> None:
            got = other.acquire("cluster:c", "over")
            order.append("taken over" if isinstance(got, Lease) else "refused")

        commit, thread = batches._Together.commit, threading.Thread(target=take_over)

        def commit_late(sent: batches._Together, statements: Sequence[batches.Statement]) -> None:
            thread.start()
            time.sleep(0.3)
            order.append("committing")
            commit(sent, statements)

        time.sleep(0.3)  # the lease has run out, and is ours until another takes it
        with monkeypatch.context() as patch:
            patch.setattr(batches._Together, "commit", commit_late)
            assert send(store, request_of(store, cluster, lease, 1)).failed is None
        thread.join()
        assert order == ["committing", "taken over"]
        with pytest.raises(ConflictError, match="took over"):
            store.close_cluster(lease, cluster)


CHANGING = """
import sys
from orchestrator.store.replay import verify_chain
from orchestrator.store.schema import clusters
from orchestrator.store.store import Store
with Store(sys.argv[1]) as store:
    cluster = store.open_cluster("c", "x" * 1_000_000)
    print("begins", flush=True)
    while True:
        store.set_desired_state(cluster, "down")
        store.set_desired_state(cluster, "up")
"""


@pytest.mark.promise("P7")
def test_a_client_that_is_frozen_in_a_change_delays_others_by_seconds_and_does_it_once(
    postgres: PostgresServer,
) -> None:
    address = postgres.new_store()
    inside = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
    with slow_proxy(postgres.port, 0.01) as proxy, Store(address) as other:
        command = [sys.executable, "-c", CHANGING, address.replace(f":{postgres.port}/", f":{proxy.port}/")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as frozen:
            try:
                assert frozen.stdout is not None
                assert frozen.stdout.readline() == b"begins\n"
                _freeze_when(frozen, lambda: bool(postgres.sql(inside)))
                began = time.monotonic()
                other.event("c", "remark", "meanwhile")
                assert time.monotonic() - began < connection.IDLE_SECONDS + 3
                before = len(audit_of(address)[0])
                frozen.send_signal(signal.SIGCONT)
                while len(audit_of(address)[0]) < before + 4:
                    assert frozen.poll() is None
                    time.sleep(0.05)
            finally:
                frozen.kill()
    time.sleep(0.5)  # the server may still have a request of the killed client
    assert find_store_faults(address) == ()


def _freeze_when(process: subprocess.Popen[bytes], is_inside: Callable[[], bool]) -> None:
    """Stop a process at a moment at which it is inside a transaction."""
    while True:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)  # what it has sent arrives
        if is_inside():
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(random.uniform(0.01, 0.05))


@pytest.mark.promise("P25")
def test_many_writers_at_once_lose_nothing_and_keep_the_chain(location: Location) -> None:
    count, each = 8, 12
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        before = len(audit_of(location)[0])

        def write(number: int) -> None:
            with Store(location) as mine:
                for turn in range(each):
                    mine.event("c", "remark", f"{number}/{turn}")
                    mine.open_job(cluster, JOB)

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(write, range(count)))
        assert [job.id for job in store.jobs(cluster)] == list(range(1, count * each + 1))
    events, head = audit_of(location)
    assert len(events) == before + 2 * count * each
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert verify_chain(events, head) is None
    said = [event.what for event in events if event.kind == "remark"]
    assert sorted(said) == sorted(f"{number}/{turn}" for number in range(count) for turn in range(each))
    assert find_store_faults(location) == ()


def test_a_writer_that_waits_too_long_gets_the_reason(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    address = postgres.new_store()
    Store(address).__exit__()
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.3)
    refused = pytest.raises(StoreError, match="writing for too long")
    with Store(address) as store, psycopg.connect(address) as raw:
        raw.execute("SELECT FROM meta WHERE key = 'chain' FOR UPDATE")
        with refused:
            store.event("c", "remark", "x")


def test_the_sessions_settings_do_not_depend_on_the_administrators(postgres: PostgresServer) -> None:
    address = postgres.new_store()
    postgres.sql("ALTER ROLE orch SET synchronous_commit = off")
    postgres.sql("ALTER ROLE orch SET default_transaction_isolation = 'serializable'")
    try:
        with Store(address) as store, store._database.reading() as tx:
            assert tx.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
            assert tx.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
    finally:
        postgres.sql("ALTER ROLE orch RESET ALL")


def test_a_read_only_server_is_reported(postgres: PostgresServer) -> None:
    address = postgres.new_store()
    with Store(address) as store:
        store.open_cluster("c", "")
    postgres.sql("ALTER ROLE orch SET default_transaction_read_only = on")
    try:
        with open_reader_at(address) as reader:
            assert [cluster.name for cluster in reader.clusters()] == ["c"]
        with Store(address) as store, pytest.raises(StoreError, match="read-only") as caught:
            store.open_cluster("d", "")
        assert "ORCH_STORE" in caught.value.next_step
    finally:
        postgres.sql("ALTER ROLE orch RESET ALL")
