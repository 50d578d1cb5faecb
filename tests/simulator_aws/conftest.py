"""One server for all tests of the EC2 API here; each test has a new cloud behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from ec2_support import Ec2, Make, scenario

from orch_fronts.aws.server import AwsServer
from orchestrator.clock import Clock
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Scenario


class _Swapped:
    """The access of the test that runs now."""

    def __init__(self) -> None:
        self.now = InMemory(Scenario(), ManualClock())

    @property
    def clock(self) -> Clock:
        return self.now.clock

    def open(self) -> AbstractContextManager[SimulatedCloud]:
        return self.now.open()


@pytest.fixture(scope="session")
def ec2_bench() -> Iterator[tuple[_Swapped, AwsServer, dict[str, Any]]]:
    swapped = _Swapped()
    with AwsServer(swapped) as server:
        yield swapped, server, {}


@pytest.fixture
def make_ec2(ec2_bench: tuple[_Swapped, AwsServer, dict[str, Any]]) -> Make:
    """now: where the clock begins. Else fields of the scenario."""
    swapped, server, clients = ec2_bench

    def make(now: float = 1_800_000_000.0, **fields: Any) -> Ec2:
        clock = ManualClock(now)
        swapped.now = InMemory(scenario(**fields), clock)
        server.requests.clear()
        return Ec2(server, swapped.now, clock, clients)

    return make


@pytest.fixture
def ec2(make_ec2: Make) -> Ec2:
    return make_ec2()
