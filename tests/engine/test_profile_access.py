"""`orch profile` asks whether this computer may connect before it says anything about the jobs."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from orchestrator.engine.operations.profile import ProfileRequest, record_profile
from orchestrator.errors import AccessError
from orchestrator.hosts import HostAddress
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store


def refuse(_store: Reader, record: ClusterRecord) -> tuple[HostAddress, ...]:
    raise AccessError(f"cluster '{record.name}' belongs to another member")


def test_the_right_to_connect_is_checked_before_the_job(tmp_path: Path) -> None:
    request = ProfileRequest(cluster="mine", steps=1, first_only=True, into=tmp_path, wait=1.0)
    with Store(tmp_path / "store.db", time.time) as store:
        store.open_cluster("mine", "")
        with pytest.raises(AccessError, match="belongs to another member"):
            record_profile(request, lambda _done, _all: None, lambda _line: None, lambda: nullcontext(store), refuse)
