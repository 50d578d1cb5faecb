"""The real provider of EC2, asked to go to a server on this computer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from orch_fronts.aws.pricing import PricingFront
from orch_fronts.aws.quotas import QuotasFront
from orch_fronts.aws.server import AwsServer
from orch_fronts.aws.ssm import SsmFront
from orchestrator.clock import Clock
from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.aws.session import AwsSession
from orchestrator.simulator.access import Access
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Scenario, Zone
from orchestrator.slices import Candidate, Market, OnDemand

REGION, ZONE, OTHER = "us-east-1", "us-east-1a", "us-east-1b"
ONE_CARD = "trn1.2xlarge"  # one plain interface, and so a public address
EFA = "p4d.24xlarge"  # five interfaces where there are several hosts, and so an Elastic IP


class Account:
    """An Access to the account of the test that runs now, so that many tests can use one server and its client."""

    current: Access

    @property
    def clock(self) -> Clock:
        return self.current.clock

    def open(self) -> AbstractContextManager[SimulatedCloud]:
        return self.current.open()


def aws_server(access: Access, **options: Any) -> AwsServer:
    """EC2, the parameters that say which image is the newest, and the quotas."""
    fronts = {
        "pricing": PricingFront(access, page=20),
        "servicequotas": QuotasFront(Scenario(), {}, access),
        "ssm": SsmFront(access),
    }
    return AwsServer(access, fronts=fronts, **options)


def aws_provider(
    url: str,
    state: Path,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    hook: Callable[[Any], None] | None = None,
    kind: type[AwsProvider] = AwsProvider,
) -> AwsProvider:
    """url: of an AwsServer. state: the folder in which orch keeps its own state. hook: called with each client."""
    return kind(lambda profile: aws_session(url, profile, hook), state / "aws", now, sleep)


def aws_session(url: str, profile: str = "", hook: Callable[[Any], None] | None = None) -> AwsSession:
    return AwsSession(profile, url, tries=2, hook=hook)


def aws_candidate(
    instance_type: str = ONE_CARD, market: Market | None = None, *, hosts: int = 1, zone: str = ZONE, **details: str
) -> Candidate:
    return Candidate(
        provider="aws",
        accelerator=instance_type,
        hosts=hosts,
        chips_per_host=8,
        market=market or OnDemand(),
        region=zone[:-1],
        zone=zone,
        details=tuple(details.items()),
    )


def aws_zones(*names: str) -> tuple[Zone, ...]:
    return tuple(Zone(name, name[:-1]) for name in names)
