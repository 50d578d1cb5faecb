"""`down --all` and `cancel --all`: what they would end is listed first, and nothing is forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch

pytestmark = [pytest.mark.slow]


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    own = Orch(tmp_path)
    yield own
    own("down", "--all", "--yes")


def names(orch: Orch) -> list[str]:
    return [cluster["name"] for cluster in json.loads(orch.ok("status", "-o", "json"))["clusters"]]


def test_all_clusters_are_deleted_after_they_were_listed(orch: Orch) -> None:
    for name in ("one", "two"):
        orch.ok("launch", "true", "-c", name, "--infra", "local:1", "--yes")
    refused = orch("down", "--all")
    assert refused.returncode == 2
    assert "this deletes 2 clusters, and there is no terminal to ask on" in refused.stderr
    assert "one, two" in refused.stderr and names(orch) == ["one", "two"]
    assert "end 'one-" in orch.ok("down", "--all", "--dry-run") and names(orch) == ["one", "two"]
    orch.ok("down", "--all", "--yes")
    assert names(orch) == []
    assert "there are no clusters of yours" in orch("down", "--all").stderr


def test_all_jobs_of_a_cluster_are_cancelled(orch: Orch) -> None:
    for _ in range(2):
        orch.ok("launch", "sleep 100", "-c", "one", "--infra", "local:1", "--yes", "--detach")
    orch.ok("cancel", "one", "--all")
    (cluster,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert {job["state"] for job in cluster["jobs"]} == {"ended"}
    assert "no job of 'one' runs or waits" in orch("cancel", "one", "--all").stderr
