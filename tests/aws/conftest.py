"""A pretend EC2 for the tests of the provider: one server and one client, and behind it a new account for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ec2_account import FOREIGN_ZONE, Ec2
from support.aws_cloud import OTHER, ZONE, aws_zones
from support.ec2_front import Ec2Service, ec2_service
from support.zones import EVERY_TYPE

from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Scenario


@pytest.fixture(scope="session")
def service() -> Iterator[Ec2Service]:
    with ec2_service() as service:
        yield service


@pytest.fixture
def ec2(service: Ec2Service, tmp_path: Path) -> Iterator[Ec2]:
    clock = ManualClock()
    durations = Durations(create=3.0, end=2.0, stop=2.0, start=2.0, jitter=0.0)
    access = InMemory(
        Scenario(zones=aws_zones(ZONE, OTHER, FOREIGN_ZONE), pools=EVERY_TYPE, durations=durations), clock
    )
    service.account.current = access
    service.server.requests.clear()
    yield Ec2(access, clock, service.server, tmp_path / "state", service.client.session)
    wrong = list(service.server.errors)
    service.server.errors.clear()
    assert wrong == []
