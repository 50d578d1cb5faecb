"""Machines that cannot be stopped: the next step names the cluster, and promises no bucket that the task has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.commands import prepare_stop
from orchestrator.errors import CannotStopError
from orchestrator.paths import load_paths
from orchestrator.plan.observed import IntentState
from orchestrator.store.leases import Lease
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store
from orchestrator.task.parse import parse_task


@pytest.mark.parametrize(
    "resources",
    [
        "{accelerators: v5e-16, infra: gcp}",
        "{accelerators: v5e-4, infra: gcp, use_spot: true}",
        "{accelerators: 'L4:1', infra: gcp, use_spot: true}",
        "{accelerators: 'H100:8', infra: aws, use_spot: true}",
    ],
)
@pytest.mark.parametrize(
    ("bucket", "kept"), [("", "files that are only on their disks are lost"), ("gs://b/runs", "the bucket keeps the")]
)
def test_the_next_step_of_a_refused_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resources: str, bucket: str, kept: str
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    candidate = list_candidates(parse_task(f"run: x\nresources: {resources}", file="t.yaml", env={}).only)[0]
    with Store(load_paths().database) as store:
        cluster = store.open_cluster("mine", "")
        lease = store.acquire("cluster:mine", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, "mine-1", candidate, "token", "request")
        store.update_intent(lease, cluster, "mine-1", IntentState.ACCEPTED)
        job = NewJob(kind="launch", run_id="r", digest="d", task="{}", bucket=bucket, ranks=None, after_end="keep")
        store.open_job(cluster, job)

    with pytest.raises(CannotStopError, match="cannot be stopped and kept") as caught:
        prepare_stop("mine")
    assert caught.value.next_step.startswith(f"orch down mine   ends them; {kept}")
    assert caught.value.why
