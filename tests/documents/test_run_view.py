"""What a page shows of a run beside the cluster that it was on, which other runs use too."""

from __future__ import annotations

from pathlib import Path

from orchestrator.documents.curves import CurveReader
from orchestrator.documents.run_view import read_run
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import IntentState, Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, Spot
from orchestrator.storage.bucket import Bucket
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

HOUR = 3600.0
MACHINES = Candidate(provider="gcp", accelerator="v5e-8", hosts=1, chips_per_host=8, market=Spot(), zone="us-west4-a")


class _Clock:
    """The time of a store: an hour later at each reading."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        self.now += HOUR
        return self.now


def rent(store: Store, generation: int) -> None:
    cluster, lease = store.cluster("c"), store.acquire("cluster:c", "test")
    assert cluster is not None and isinstance(lease, Lease)
    name = f"c-{generation}"
    store.write_intent(lease, cluster, generation, name, MACHINES, f"{cluster.uid}-{generation}", "{}")
    store.update_intent(lease, cluster, name, IntentState.ACCEPTED)
    store.release(lease)


def lose(store: Store, generation: int) -> None:
    cluster, lease = store.cluster("c"), store.acquire("cluster:c", "test")
    assert cluster is not None and isinstance(lease, Lease)
    for state in (IntentState.ENDING, IntentState.DELETED):
        store.update_intent(lease, cluster, f"c-{generation}", state, EndCause.PREEMPTED, "taken")
    store.release(lease)


def begin(store: Store, run_id: str, *, started: bool = True) -> int:
    cluster = store.cluster("c") or store.open_cluster("c", "")
    job = store.open_job(cluster, NewJob(
        kind="launch", run_id=run_id, digest=run_id, task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP,
    ))  # fmt: skip
    if started:
        store.start_attempt(cluster, job.id)
    return job.id


def end(store: Store, job: int) -> None:
    cluster = store.cluster("c")
    assert cluster is not None
    store.record_outcome(cluster, job, Outcome(status=0, code="ok", what="done"))


def newest_slice(path: Path, run_id: str, now: float) -> str | None:
    def no_bucket(uri: str, project: str) -> Bucket:
        raise AssertionError(uri, project)

    with Reader(path) as reader:
        found = read_run(reader, run_id, now, no_bucket, CurveReader()).slice
    return found.name if found is not None else None


def test_a_run_shows_the_newest_of_its_own_slices(tmp_path: Path) -> None:
    path, clock = tmp_path / "orch.db", _Clock()
    with Store(path, clock) as store:
        first = begin(store, "first")
        assert newest_slice(path, "first", clock.now) is None
        rent(store, 1)
        lose(store, 1)
        rent(store, 2)
        assert newest_slice(path, "first", clock.now) == "c-2"
        end(store, first)
        second = begin(store, "second")
        assert newest_slice(path, "second", clock.now) == "c-2", "it continues with the machines that exist"
        lose(store, 2)
        rent(store, 3)
        assert (newest_slice(path, "first", clock.now), newest_slice(path, "second", clock.now)) == ("c-2", "c-3")
        end(store, second)
        lose(store, 3)
        end(store, begin(store, "third", started=False))
        rent(store, 4)
        assert [newest_slice(path, run, clock.now) for run in ("first", "second", "third")] == ["c-2", "c-3", None]
