"""Runs that have ended, with what was estimated for them: measured from their metrics and machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator.documents
from orchestrator.cli.commands.before.offers import _read_like
from orchestrator.documents.accuracy import accuracy_as_json, count_inside, judge_runs
from orchestrator.documents.measured_run import measure_run
from orchestrator.errors import UserError
from orchestrator.plan.observed import IntentState, Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, OnDemand
from orchestrator.storage.bucket import Bucket
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

NOW = 1_700_006_400.0
HOUR = 3600.0
CANDIDATE = Candidate(
    provider="gcp", accelerator="v5e-8", hosts=1, chips_per_host=8, market=OnDemand(), price_per_hour=10.0
)
ESTIMATE: dict[str, Any] = {
    "machines": {
        "v5e-8": {
            "tokens_per_s": {"low": 900, "typical": 1000, "high": 1100},
            "seconds": {"low": 3600, "typical": 5400, "high": 9000},
            "dollars": {"low": 30.0, "typical": 40.0, "high": 50.0},
            "chip": "v5e",
            "settings": "engine=jax dtype=bf16",
            "flops_per_token": 6e9,
        }
    }
}


class _Clock:
    """The time of a store, moved by hand."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def run_once(
    file: Path, name: str, bucket: Path, *, status: int | None, speeds: tuple[float, ...], mfu: float | None = None
) -> None:
    clock = _Clock()
    with Store(file, clock) as store:
        cluster = store.open_cluster(name, "")
        lease = store.acquire(f"cluster:{name}", "test")
        assert isinstance(lease, Lease)
        new = NewJob(
            kind="launch", run_id=f"{name}-run", digest="d", task="", bucket=f"file://{bucket}", ranks=None,
            after_end=TeardownPolicy.DOWN,
        )  # fmt: skip
        job = store.open_job(cluster, new)
        store.record_prediction(f"{name}-run", json.dumps(ESTIMATE))
        store.write_intent(lease, cluster, 1, f"{name}-1", CANDIDATE, f"{cluster.uid}-1", "{}")
        store.update_intent(lease, cluster, f"{name}-1", IntentState.ACCEPTED)
        clock.now += 2 * HOUR
        if status is not None:
            store.record_outcome(cluster, job.id, Outcome(status=status, code="", what="it ended"))
            store.update_intent(lease, cluster, f"{name}-1", IntentState.DELETED)
            store.release(lease)
    folder = bucket / f"{name}-run" / "metrics" / "attempt-1"
    folder.mkdir(parents=True)
    rows = [
        {"step": step, "time": "2023-11-15T01:00:00+00:00", "tokens_per_s": speed, "mfu": mfu}
        for step, speed in enumerate(speeds)
    ]
    (folder / "part-1.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_runs_are_judged_by_their_metrics_and_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    file, bucket = tmp_path / "orch.db", tmp_path / "bucket"
    run_once(file, "good", bucket, status=0, speeds=(1.0, 1000, 1050, 5000))
    run_once(file, "failed", bucket, status=1, speeds=(2000.0,))
    run_once(file, "working", bucket, status=None, speeds=(1000.0,))
    with Reader(file) as store:
        found = {one.run_id: one for one in judge_runs(store, NOW + 3 * HOUR, lambda uri, _project: Bucket.open(uri))}
    good = {one.quantity: (one.measured, one.is_inside) for one in found["good-run"].compared}
    assert good == {"tokens_per_s": (1050, True), "seconds": (7200, True), "dollars": (20.0, False)}
    failed = {one.quantity: one.is_inside for one in found["failed-run"].compared}
    assert failed == {"tokens_per_s": False}, "it made fewer steps, so its time says nothing"
    assert set(found) == {"good-run", "failed-run"} and found["good-run"].machines == "v5e-8"
    assert count_inside(list(found.values())) == (2, 4)
    speed = found["good-run"].speed
    assert speed is not None and (speed.chip, speed.settings, speed.ratio) == ("v5e", "engine=jax dtype=bf16", 1.05)
    assert speed.day == "2023-11-15"
    schema = Path(orchestrator.documents.__file__).parent / "data" / "accuracy.schema.json"
    jsonschema.validate(accuracy_as_json(list(found.values()), NOW), json.loads(schema.read_text()))


def test_a_bucket_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    run_once(tmp_path / "orch.db", "good", tmp_path / "bucket", status=0, speeds=(1000.0,))
    with Reader(tmp_path / "orch.db") as store:
        (one,) = judge_runs(store, NOW + 3 * HOUR, lambda _uri, _project: Bucket.open("nonsense"))
    assert one.problem and {part.quantity for part in one.compared} == {"seconds", "dollars"}


def test_what_a_run_reached_is_measured_for_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    file, bucket = tmp_path / "home" / "state" / "orch.db", tmp_path / "bucket"
    run_once(file, "good", bucket, status=0, speeds=(1.0, 1000, 1000))
    with Reader(file) as store, pytest.raises(UserError, match="too little"):
        measure_run(store, "good-run", NOW + 3 * HOUR, lambda uri, _project: Bucket.open(uri))
    part = bucket / "good-run" / "metrics" / "attempt-1" / "part-2.jsonl"
    row = {
        "step": 9,
        "time": "2023-11-15T02:00:00+00:00",
        "tokens_per_s": 1000,
        "mfu": 0.4,
        "tokens": 5e6,
        "memory": 2**33,
    }
    part.write_text(json.dumps(row) + "\n")
    with Reader(file) as store:
        found = measure_run(store, "good-run", NOW + 3 * HOUR, lambda uri, _project: Bucket.open(uri))
    assert found.flops_per_token == pytest.approx(0.4 * 8 * 197e12 / 1000)
    assert (found.tokens, found.utilisation, found.memory_gib, found.machines) == (5e6, 0.4, 64.0, "8 v5e")
    work = _read_like("good-run", 1e9)
    assert work.flops == pytest.approx(1e9 * found.flops_per_token)
    assert work.utilisation == pytest.approx((0.24, 0.52)) and "40 % of the peak on 8 v5e" in work.source


def run_later(file: Path, name: str, accelerator: str) -> None:
    """Run something else on other machines of a cluster whose first run has ended."""
    clock = _Clock()
    clock.now += 2.5 * HOUR
    with Store(file, clock) as store:
        cluster = store.cluster(name)
        lease = store.acquire(f"cluster:{name}", "test")
        assert cluster is not None and isinstance(lease, Lease)
        new = NewJob(
            kind="launch", run_id="later", digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.DOWN
        )
        store.open_job(cluster, new)
        candidate = replace(CANDIDATE, accelerator=accelerator)
        store.write_intent(lease, cluster, 2, f"{name}-2", candidate, f"{cluster.uid}-2", "{}")
        store.update_intent(lease, cluster, f"{name}-2", IntentState.ACCEPTED)


def test_a_run_is_judged_by_its_own_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    file, bucket = tmp_path / "orch.db", tmp_path / "bucket"
    run_once(file, "good", bucket, status=0, speeds=(1000, 1000), mfu=0.4)
    run_later(file, "good", "v6e-8")
    with Reader(file) as store:
        (judged,) = judge_runs(store, NOW + 3 * HOUR, lambda uri, _project: Bucket.open(uri))
        measured = measure_run(store, "good-run", NOW + 3 * HOUR, lambda uri, _project: Bucket.open(uri))
    assert judged.machines == "v5e-8" and len(judged.compared) == 3
    assert measured.machines == "8 v5e"
