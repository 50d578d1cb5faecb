"""The answers of a cloud tell the time to a computer whose own clock is set wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from googleapiclient.errors import HttpError  # type: ignore[import-untyped]  # the library ships no types
from provider_support import make_keys, make_spec
from support.aws_cloud import aws_candidate
from support.ec2_front import EC2
from support.google_cloud import tpu_candidate
from support.tpu_front import TPU_API
from support.zones import EVERY_TYPE

from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.clock import RealClock, SteadyClock
from orchestrator.cloud_access import GOOGLE_API
from orchestrator.providers.google.session import open_session
from orchestrator.providers.registry import open_provider
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.scenario import Scenario
from orchestrator.slices import Candidate

DAYS = 2 * 86400.0


@pytest.fixture(params=[DAYS, -DAYS], ids=["ahead", "behind"])
def clock(request: pytest.FixtureRequest, tmp_path: Path) -> SteadyClock:
    return SteadyClock(tmp_path / "state", lambda: time.time() + request.param)


@pytest.fixture(params=[(TPU_API, tpu_candidate("v4-8")), (EC2, aws_candidate())], ids=["gcp", "aws"])
def candidate(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Candidate]:
    front, found = request.param
    access = Durable(tmp_path / "cloud.json", Scenario(zones=front.to_zones(found.zone), pools=EVERY_TYPE), RealClock())
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
    with front.serve(access) as server:
        monkeypatch.setenv(front.variable, server.url)
        yield found


def test_a_create_tells_the_time(clock: SteadyClock, candidate: Candidate, tmp_path: Path) -> None:
    assert abs(clock.now() - time.time()) > DAYS / 2
    provider = open_provider(candidate.provider, tmp_path / "state", clock)
    provider.create(make_spec(candidate=candidate), make_keys(tmp_path / "keys", 1))
    assert abs(clock.now() - time.time()) < 10


def test_a_refusal_of_another_service_tells_the_time(
    clock: SteadyClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TpuServer(Durable(tmp_path / "cloud.json", Scenario(), RealClock()), project=PROJECT) as server:
        monkeypatch.setenv(GOOGLE_API, server.url)
        with pytest.raises(HttpError, match=r"Required .compute\.zones\.list"):
            open_session(clock.learn).service("compute", "v1").zones().list(project=PROJECT).execute()
    assert abs(clock.now() - time.time()) < 10
