"""A pretend AWS on this computer: its APIs and its buckets on the loopback, real hosts behind them.

with SimulatedAws(folder) as aws:
    subprocess.run(command, env={**os.environ, **aws.env})
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from orch_fronts.aws.grants import Grants, owner
from orch_fronts.aws.guard import Guard
from orch_fronts.aws.roles import Roles
from orch_fronts.aws.s3 import REGION, S3Server
from orch_fronts.aws.server import AwsServer
from orch_fronts.aws.services import S3Front, account_fronts, admit_to_buckets
from orch_fronts.aws.tables import zones_by_region
from orch_fronts.buckets import serve_buckets
from orch_fronts.ending import end_hosts
from orch_fronts.serving import make_token
from orchestrator.cloud_access import SIMULATED
from orchestrator.providers.local.owner import own_hosts
from orchestrator.simulator.bodies import LocalBodies
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.rehearsal import folder_scenario, open_cloud
from orchestrator.simulator.scenario import Scenario, Zone

KEY = SIMULATED  # unlike a real key, so that the planner may show it and pass it on
NO_ACCOUNT: Mapping[str, str] = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What hides the accounts that this computer knows."""


class SimulatedAws:
    """Lives while the block lasts; then all of its hosts are ended, also when this process is killed.

    Buckets that are asked for are there.

    folder: of its own, holds `cloud.json` and, if it is not the calm one, `scenario.toml`. port: 0 takes a free one.
    grants: what the caller may do; by default what docs/iam/aws-policy.json grants.
    Each object has a secret of its own, which only `env` has: whoever lacks it is refused.
    """

    def __init__(self, folder: Path, *, port: int = 0, grants: Grants | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._bodies = LocalBodies(folder)
        opened = open_cloud(folder)
        self.cloud = Durable(opened.path, aws_scenario(folder_scenario(folder)), opened.clock)
        self.guard = Guard(grants)
        self._secret = make_token()
        self.roles = Roles(self.guard.grants.roles)
        self.buckets = S3Server(
            KEY, secret=self._secret, create=True, admit=admit_to_buckets(self.guard), roles=self.roles
        )
        fronts = {**account_fronts(self.cloud, self.guard, self.roles), "s3": S3Front(self.buckets.url)}
        self.server = AwsServer(
            self.cloud, self._bodies, port=port, fronts=fronts, guard=self.guard, secret=self._secret, roles=self.roles
        )
        self._stack = ExitStack()

    @property
    def env(self) -> Mapping[str, str]:
        """What leads orch, its hosts' programs, boto3 and the `aws` command here."""
        return {
            "AWS_ENDPOINT_URL": self.server.url,
            "AWS_ENDPOINT_URL_S3": self.buckets.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,  # what version 1 of the `aws` command reads
            "AWS_PAGER": "",
            **NO_ACCOUNT,
        }

    def __enter__(self) -> SimulatedAws:
        self._stack.enter_context(own_hosts(self._folder))
        self._stack.callback(end_hosts, self._bodies, "the pretend AWS")
        self._stack.enter_context(serve_buckets(self.buckets))
        self._stack.enter_context(self.server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def open_front(folder: Path) -> SimulatedAws:
    """What `orch simulate aws` starts (entry point `aws` of the group orch.fronts)."""
    return SimulatedAws(folder, grants=owner())


def aws_scenario(scenario: Scenario) -> Scenario:
    """The scenario with the zones of all regions, where it names none."""
    if scenario.zones != Scenario().zones:
        return scenario
    return replace(
        scenario, zones=tuple(Zone(zone, region) for region, zones in zones_by_region().items() for zone in zones)
    )


def without_aws(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment in which nothing leads to the real AWS, or to records that are not this pretend one's."""
    return {name: value for name, value in env.items() if not name.startswith(("AWS_", "BOTO_", "ORCH_"))}
