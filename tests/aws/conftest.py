"""A pretend EC2 for the tests of the provider: one server and one client, and behind it a new account for each test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ec2_account import FOREIGN_ZONE, Ec2
from support.aws_cloud import OTHER, ZONE, Account, aws_server, aws_session, aws_zones

from orch_fronts.aws.server import AwsServer
from orchestrator.providers.aws.session import AwsSession
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Scenario


@dataclass(frozen=True)
class Line:
    account: Account
    server: AwsServer
    session: AwsSession


@pytest.fixture(scope="session")
def line() -> Iterator[Line]:
    account = Account()
    with aws_server(account) as server:
        yield Line(account, server, aws_session(server.url))


@pytest.fixture
def ec2(line: Line, tmp_path: Path) -> Iterator[Ec2]:
    clock = ManualClock()
    durations = Durations(create=3.0, end=2.0, stop=2.0, start=2.0, jitter=0.0)
    access = InMemory(Scenario(zones=aws_zones(ZONE, OTHER, FOREIGN_ZONE), durations=durations), clock)
    line.account.current = access
    line.server.requests.clear()
    yield Ec2(access, clock, line.server, tmp_path / "state", line.session)
    wrong = list(line.server.errors)
    line.server.errors.clear()
    assert wrong == []
