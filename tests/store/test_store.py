"""The durable memory keeps what it promised: one intent per generation, one living cluster per name, fenced writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.errors import ConflictError, OrchError
from orchestrator.next_step import NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.slices import Candidate, CapacityBlock, OnDemand, Owned, Reservation, Spot
from orchestrator.store.leases import Holder, Lease
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.records import NewJob, candidate_from_json, candidate_to_json
from orchestrator.store.store import Store

LOCAL = Candidate(
    provider="local", accelerator="cpu", hosts=4, chips_per_host=0, market=OnDemand(), details=(("shape", "4"),)
)
JOB = NewJob(
    kind="launch", run_id="run-1", digest="digest", task="{}", bucket="file:///b", ranks=None, after_end="keep"
)


def taken(store: Store, name: str = "cluster:c") -> Lease:
    lease = store.acquire(name, "test")
    assert isinstance(lease, Lease)
    return lease


def test_what_is_written_is_read_back_by_the_light_reader(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "local:4")
        lease = taken(store)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        store.update_intent(lease, cluster, "c-1", IntentState.ENDING, EndCause.PREEMPTED, "taken back")
        job = store.open_job(cluster, JOB)
        store.start_attempt(cluster, job.id)
        store.next_attempt(
            cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="taken back", generation=1), 2
        )
        store.record_outcome(
            cluster,
            job.id,
            Outcome(status=3, code="program-failed", what="it failed", why="why", next_step=NextStep(words="next")),
        )
        written = (store.intents(cluster), store.jobs(cluster), store.ended_attempts(cluster, job.id))
    with open_reader_at(location) as reader:
        (seen,) = reader.clusters()
        assert (reader.intents(seen), reader.jobs(seen), reader.ended_attempts(seen, 1)) == written
        assert reader.find_run("run-1") == ("c", written[1][0])
        assert reader.last_run_of("c") == written[1][0]
        assert [event.kind for event in reader.events("c")] == [
            "cluster", "intent", "intent", "job", "job", "attempt", "job", "job",
        ]  # fmt: skip
        assert reader.lease_holder("cluster:c").startswith("process ")


def test_a_store_that_is_not_there_reads_as_empty(tmp_path: Path) -> None:
    with Reader(tmp_path / "none.db") as reader:
        assert reader.clusters() == ()
        assert reader.events(None) == ()
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_store_is_refused_with_an_explanation(tmp_path: Path) -> None:
    broken = tmp_path / "orch.db"
    broken.write_text("this is not a database, not at all, but it is long enough to look like a file")
    with pytest.raises(OrchError, match="cannot be used"):
        Store(broken)
    with pytest.raises(OrchError, match="cannot be read"), Reader(broken) as reader:
        reader.clusters()


def test_an_intent_written_twice_is_one_intent(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        lease = taken(store)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        store.update_intent(lease, cluster, "c-1", IntentState.ACCEPTED)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        (intent,) = store.intents(cluster)
    assert intent.state is IntentState.ACCEPTED
    assert intent.candidate == LOCAL


def test_the_time_of_a_state_is_kept_when_its_request_is_sent_again(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        lease = taken(store)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        store.update_intent(lease, cluster, "c-1", IntentState.ENDING, EndCause.REQUESTED, "x")
        (first,) = store.intents(cluster)
        time.sleep(0.01)
        store.update_intent(lease, cluster, "c-1", IntentState.ENDING, EndCause.REQUESTED, "x")
        (again,) = store.intents(cluster)
    assert again.since == first.since
    assert again.last_sent > first.last_sent


def test_a_name_is_free_again_when_its_cluster_is_closed_and_gets_a_new_uid(location: Location) -> None:
    with Store(location) as store:
        first = store.open_cluster("c", "")
        assert store.open_cluster("c", "").uid == first.uid
        store.close_cluster(taken(store), first)
        assert store.cluster("c") is None
        assert store.open_cluster("c", "").uid != first.uid


def test_two_openers_of_one_name_get_one_cluster(location: Location) -> None:
    Store(location).__exit__()

    def open_it(_: int) -> str:
        with Store(location) as store:
            return store.open_cluster("c", "").uid

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(open_it, range(8)))) == 1


def test_two_jobs_opened_together_get_two_numbers(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")

        def open_job(_: int) -> int:
            with Store(location) as mine:
                return mine.open_job(cluster, JOB).id

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(open_job, range(8))) == list(range(1, 9))


def test_a_second_command_sees_who_holds_the_lease(location: Location) -> None:
    with Store(location) as store:
        lease = taken(store)
        holder = store.acquire("cluster:c", "down")
        assert isinstance(holder, Holder)
        assert "test" in str(holder)
        store.release(lease)
        assert taken(store).fence == lease.fence + 1


def test_a_holder_that_was_overtaken_can_write_nothing(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        late = taken(store)
        store.release(late)
        taken(store)
        with pytest.raises(ConflictError, match="took over"):
            store.write_intent(late, cluster, 1, "c-1", LOCAL, "token", "request")
        assert store.intents(cluster) == ()
        assert not store.renew(late)


def test_the_lease_of_a_killed_process_is_taken_over_immediately(location: Location) -> None:
    script = textwrap.dedent(f"""
        import pathlib, time
        from orchestrator.store.store import Store
        given = {str(location)!r}
        store = Store(given if "://" in given else pathlib.Path(given))
        print(store.acquire("cluster:c", "launch").fence, flush=True)
        time.sleep(60)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        fence = int(process.stdout.readline())
        with Store(location) as store:
            assert isinstance(store.acquire("cluster:c", "down"), Holder)
            assert _find_holder(location) == f"process {process.pid} on {os.uname().nodename} (launch)"
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert _find_holder(location) == ""
            assert taken(store).fence == fence + 1
    finally:
        process.kill()
        process.wait()


def _find_holder(location: Location) -> str:
    with open_reader_at(location) as reader:
        return reader.lease_holder("cluster:c")


@pytest.mark.parametrize("market", [OnDemand(), Spot(), Owned(), Reservation("r-1"), CapacityBlock("cb-1")])
def test_every_market_survives_the_store(market: OnDemand | Spot | Owned | Reservation | CapacityBlock) -> None:
    candidate = Candidate(
        provider="aws",
        accelerator="H100:8",
        hosts=2,
        chips_per_host=8,
        market=market,
        region="us-east-1",
        zone="use1-az4",
        price_per_hour=110.08,
        price_note="list",
        disk_gib=500,
        details=(("a", "b"),),
    )
    assert candidate_from_json(candidate_to_json(candidate)) == candidate
