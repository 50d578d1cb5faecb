"""A pretend EC2 for the tests of the provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ec2_account import FOREIGN_ZONE, Ec2
from support.aws_cloud import OTHER, ZONE, aws_server, aws_session, aws_zones

from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Scenario


@pytest.fixture
def ec2(tmp_path: Path) -> Iterator[Ec2]:
    clock = ManualClock()
    durations = Durations(create=3.0, end=2.0, stop=2.0, start=2.0, jitter=0.0)
    access = InMemory(Scenario(zones=aws_zones(ZONE, OTHER, FOREIGN_ZONE), durations=durations), clock)
    with aws_server(access) as server:
        yield Ec2(access, clock, server, tmp_path / "state", aws_session(server.url))
