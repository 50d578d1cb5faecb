"""PostgreSQL: lost connections, lost answers, restarts, clocks and locks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from store_history import LOCAL
from support.cut_proxy import cut_proxy
from support.postgres import PostgresServer, postgres_server
from test_store_audit import audit_of

from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.errors import ConflictError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, Outcome
from orchestrator.store import connection
from orchestrator.store.failures import StoreError
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.leases import Holder, Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import ClusterRecord, NewJob
from orchestrator.store.store import Store

pytestmark = pytest.mark.rotating

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


@pytest.mark.parametrize("write", sorted(WRITES))
def test_a_commit_whose_answer_was_lost_is_found_and_not_repeated(postgres: PostgresServer, write: str) -> None:
    direct = postgres.new_store()
    with cut_proxy(postgres.port) as proxy, Store(direct.replace(f":{postgres.port}/", f":{proxy.port}/")) as store:
        cluster, lease = prepared(store)
        before = len(audit_of(direct)[0])
        proxy.arm(b"COMMIT\0", after=True)
        WRITES[write](store, cluster, lease)  # no error: it was found to be committed
        assert proxy.cuts == 1
        made = len(audit_of(direct)[0]) - before
    assert made == (2 if write == "next_attempt" else 1)
    assert find_store_faults(direct) == ()


@pytest.mark.parametrize("write", sorted(WRITES))
def test_a_commit_that_never_arrived_is_an_error_and_leaves_nothing(postgres: PostgresServer, write: str) -> None:
    direct = postgres.new_store()
    with cut_proxy(postgres.port) as proxy, Store(direct.replace(f":{postgres.port}/", f":{proxy.port}/")) as store:
        cluster, lease = prepared(store)
        before = audit_of(direct)
        proxy.arm(b"COMMIT\0", after=False)
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            WRITES[write](store, cluster, lease)
        assert "repeat the command" in caught.value.next_step
        assert proxy.cuts == 1
        assert audit_of(direct) == before
        WRITES[write](store, cluster, lease)  # given again, it goes through
    assert find_store_faults(direct) == ()


def test_a_connection_lost_inside_a_transaction_leaves_nothing_and_the_next_command_works(
    postgres: PostgresServer,
) -> None:
    address = postgres.new_store()
    with Store(address) as store:
        cluster, _ = prepared(store)
        before = audit_of(address)
        with pytest.raises(StoreError, match="cannot be reached"), store.changing() as change:
            mine = change.tx.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            postgres.sql(f"SELECT pg_terminate_backend({mine})")
            change.tx.exec_driver_sql("SELECT 1")
        assert audit_of(address) == before
        store.set_desired_state(cluster, "down")
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
def test_no_other_can_take_a_lease_over_between_the_check_and_the_commit(postgres: PostgresServer) -> None:
    address = postgres.new_store()
    order: list[str] = []
    with Store(address, lease_seconds=0.2) as store, Store(address, lease_seconds=5.0) as other:
        cluster = store.open_cluster("c", "")
        lease = taken(store)

        def take_over() -> None:
            got = other.acquire("cluster:c", "over")
            order.append("taken over" if isinstance(got, Lease) else "refused")

        with store.changing(lease) as change:
            time.sleep(0.3)  # the lease has run out, and is ours until another takes it
            thread = threading.Thread(target=take_over)
            thread.start()
            time.sleep(0.3)
            order.append("committing")
            assert change.at > 0
        thread.join()
        assert order == ["committing", "taken over"]
        with pytest.raises(ConflictError, match="took over"):
            store.close_cluster(lease, cluster)


def test_a_client_that_is_stopped_midway_does_not_keep_the_others_out_for_ever(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.5)
    address = postgres.new_store()
    with Store(address) as sleeper, Store(address) as other:
        cluster = sleeper.open_cluster("c", "")
        with pytest.raises(StoreError, match="cannot be reached"), sleeper.changing() as change:
            change.tx.exec_driver_sql("SELECT 1")
            other.set_desired_state(cluster, "down")  # waits until the server has thrown the sleeper out
            change.tx.exec_driver_sql("SELECT 1")
        assert [record.name for record in other.clusters_going_down()] == ["c"]
    assert find_store_faults(address) == ()


def test_a_writer_that_waits_too_long_gets_the_reason(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.new_store()
    Store(address).__exit__()
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.3)
    refused = pytest.raises(StoreError, match="writing for too long")
    with Store(address) as store, Store(address) as other, other.changing(), refused:
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
