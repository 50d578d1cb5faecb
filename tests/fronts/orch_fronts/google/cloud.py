"""A pretend Google on this computer: its APIs and its buckets on the loopback, real hosts behind them.

with SimulatedGoogle(folder) as google:
    subprocess.run(command, env={**os.environ, **google.env})
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from orch_fronts.ending import end_hosts
from orch_fronts.google import limits
from orch_fronts.google.booting import BootingBodies
from orch_fronts.google.compute.types import all_zones
from orch_fronts.google.gcs import GcsServer, gcs_server
from orch_fronts.google.grants import Grants
from orch_fronts.google.iam import owner
from orch_fronts.google.server import PROJECT, TpuServer
from orch_fronts.google.tables import all_zones as tpu_zones
from orch_fronts.serving import make_token
from orchestrator.private_files import write_whole
from orchestrator.providers.local.owner import own_hosts
from orchestrator.simulator.bodies import LocalBodies
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.rehearsal import folder_scenario, open_cloud
from orchestrator.simulator.scenario import Scenario, Zone


class SimulatedGoogle:
    """Lives while the block lasts; then all of its hosts are ended, also when this process is killed.

    Buckets that are asked for are there.

    folder: of its own, holds `cloud.json` and, if it is not the calm one, `scenario.toml`. port: 0 takes a free one.
    grants: see TpuServer. Each object has a token of its own, which only `env` has: whoever lacks it is refused.
    """

    def __init__(self, folder: Path, *, port: int = 0, grants: Grants | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        opened = open_cloud(folder)
        scenario = google_scenario(folder_scenario(folder))
        late = scenario.boot.delay > 0
        self._bodies = BootingBodies(folder, scenario.boot, scenario.speed) if late else LocalBodies(folder)
        self.cloud = Durable(opened.path, scenario, opened.clock)
        self.token = make_token()
        self._token_file = folder / "token"
        write_whole(self._token_file, self.token)
        grants = with_listed_quotas(grants or Grants(), scenario)
        self.server = TpuServer(self.cloud, self._bodies, port=port, grants=grants, token=self.token)
        self.buckets: GcsServer | None = None
        self._stack = ExitStack()

    @property
    def env(self) -> Mapping[str, str]:
        """What leads orch, its hosts' programs, and gcloud here."""
        url, buckets = self.server.url, self.buckets.url if self.buckets is not None else ""
        return {
            "ORCH_GCP_ENDPOINT": url,
            "ORCH_GCP_TOKEN": self.token,
            "STORAGE_EMULATOR_HOST": buckets,
            "GOOGLE_BEARER_TOKEN": self.token,
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(self._token_file),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
        }

    def __enter__(self) -> SimulatedGoogle:
        self._stack.enter_context(own_hosts(self._folder))
        self._stack.callback(end_hosts, self._bodies, "the pretend Google")
        self.buckets = self._stack.enter_context(gcs_server(self.token, create=True, tokens=self.server.tokens))
        self._stack.enter_context(self.server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def open_front(folder: Path) -> SimulatedGoogle:
    """What `orch simulate gcp` starts (entry point `gcp` of the group orch.fronts)."""
    return SimulatedGoogle(folder, grants=owner())


def with_listed_quotas(grants: Grants, scenario: Scenario) -> Grants:
    """What Service Usage lists is what creates are refused for."""
    return replace(grants, limits=(*grants.limits, *limits.listed(scenario)))


def google_scenario(scenario: Scenario) -> Scenario:
    """The scenario with the zones that are known to have TPUs or GPUs, where it names none."""
    if scenario.zones != Scenario().zones:
        return scenario
    names = sorted(tpu_zones() | all_zones())
    return replace(scenario, zones=tuple(Zone(name, name.rpartition("-")[0]) for name in names))


def without_google(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment in which nothing leads to the real Google, or to records that are not this pretend one's."""
    lead = ("GOOGLE_", "CLOUDSDK_", "ORCH_")
    return {name: value for name, value in env.items() if not name.startswith(lead)}
