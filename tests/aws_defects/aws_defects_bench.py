"""The real engine and the real provider of EC2, with an account of the test's own behind one port.

Its clock is the test's, so that hours pass in no time; what boto3 sends goes over a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ec2_account import Ec2
from support.aws_cloud import aws_zones
from support.driving import Listener
from support.ec2_front import Ec2Home, Ec2Service, PointedAws
from support.simulated import Points, sim_launch, sim_task
from support.zones import EVERY_TYPE

from orch_fronts.aws.calls import AwsCall
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.state.recorded import open_reader
from orchestrator.paths import load_paths
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Scenario
from orchestrator.slices import Candidate

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
FAR = "us-west-2a"
EVEN = Durations(create=4.0, end=2.0, stop=2.0, start=2.0, contact=0.01, jitter=0.0)


class DefectHome(Ec2Home):
    """The engine's home; the provider keeps its records in files, as an orch before the store did."""

    def provider(self) -> PointedAws:
        return self.opened(load_paths().state / self.records, self.points)


@dataclass
class Bench:
    """ec2: the account, and the provider without the engine. home: the engine."""

    ec2: Ec2
    home: DefectHome

    def launch(self, *candidates: Candidate, listener: Listener | None = None) -> CommandResult:
        return self._drive(sim_launch(sim_task(), *candidates), listener or Listener())

    def down(self) -> CommandResult:
        return self._drive(commands.prepare_down("c"), Listener())

    def _drive(self, ready: PreparedCommand, listener: Listener) -> CommandResult:
        return drive_cluster(ready, listener, services=self.home.services())

    def strike(self, name: str, error: type[BaseException]) -> None:
        """The command is cut off with this error when it passes the point of this name for the first time."""
        self.home.points = Struck(name, error)

    def watch(self, look: Callable[[str], None]) -> None:
        """look: called with the name of each point."""
        self.home.points = Watched(look)

    def calls(self, operation: str) -> list[AwsCall]:
        return [call for call in self.ec2.server.requests if call.operation == operation]

    def launched_in(self) -> list[str]:
        """The zone of each RunInstances, as its subnet says."""
        subnets = self.ec2.calls().every("DescribeSubnets", "Subnets", {})
        zones = {one["SubnetId"]: one["AvailabilityZone"] for one in subnets}
        return [zones[call.params["NetworkInterface.1.SubnetId"]] for call in self.calls("RunInstances")]

    def alive(self) -> list[str]:
        return sorted(look.name for look in self.ec2.cloud.live())

    def recorded(self) -> list[str]:
        """Names of slices of which the store says that they may be there."""
        with open_reader() as reader:
            rows = list(reader.rows("intents"))
        return sorted(str(row["name"]) for row in rows if row["state"] not in ("gone", "refused"))


class Watched(Points):
    def __init__(self, look: Callable[[str], None]) -> None:
        super().__init__()
        self._look = look

    def here(self, name: str) -> None:
        super().here(name)
        self._look(name)


class Struck(Watched):
    """Once: what comes after the blow, to put things right, is let through."""

    def __init__(self, at: str, error: type[BaseException]) -> None:
        super().__init__(self._blow)
        self.struck = False
        self._where, self._error = at, error

    def _blow(self, name: str) -> None:
        if name == self._where and not self.struck:
            self.struck = True
            raise self._error


def empty_account(service: Ec2Service, folder: Path) -> Bench:
    clock = ManualClock()
    scenario = Scenario(zones=aws_zones(*ZONES, FAR), pools=EVERY_TYPE, durations=EVEN)
    access = service.account.current = InMemory(scenario, clock)
    service.server.requests.clear()
    service.client.session.account = ""  # of the account of an earlier test: a new command asks whose it is
    home = DefectHome(access, client=service.client)
    return Bench(Ec2(access, clock, service.server, folder / "state", service.client.session), home)
