"""An account of moto for one test: its slices, the real provider, and what moto itself shows of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moto_proxy import REGIONS, MotoProxy
from support.aws_cloud import ZONE, aws_candidate

from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.aws.session import open_session
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.keys import make_host_key, write_known_hosts
from orchestrator.slices import Candidate, SliceKeys, SliceSpec, SliceState, SliceView
from orchestrator.values import Text

INSTALLATION = "inst-1"
S = SliceState
PASSING = frozenset({S.CREATING, S.ENDING, S.STOPPING, S.STARTING})
CPU = "m7i.large"


@dataclass
class MotoAccount:
    """number: of the account. key: its access key, which is that of this process. url: of the proxy."""

    number: str
    key: str
    url: str
    proxy: MotoProxy
    folder: Path
    _providers: dict[Path, AwsProvider] = field(default_factory=dict[Path, AwsProvider])

    @property
    def env(self) -> dict[str, str]:
        """What leads orch here."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": "none"}

    def moto(self, region: str = ZONE[:-1]) -> Any:
        """A client of EC2, straight to moto."""
        return self.proxy.client(self.key, region)

    def provider(self, state: str = "state") -> AwsProvider:
        """The product's own way to AWS: the endpoint and the key are those of the environment."""
        folder = self.folder / state / "aws"
        return self._providers.setdefault(folder, AwsProvider(open_session, folder))

    def spec(self, candidate: Candidate | None = None, token: str = "t-1", name: str = "c-1") -> SliceSpec:
        given = {"orch-installation": INSTALLATION, "orch-cluster": name.rpartition("-")[0], "orch-intent": token}
        labels = tuple((key, Text.of(value)) for key, value in given.items())
        candidate = candidate or aws_candidate(CPU)
        return SliceSpec(
            cluster=given["orch-cluster"], name=name, token=Text.of(token), candidate=candidate, labels=labels
        )

    def keys(self, hosts: int) -> SliceKeys:
        """New keys of the hosts; one key of the user for all."""
        identity = self.folder / "id_ed25519"
        if not identity.exists():
            private, public = make_host_key()
            identity.touch(mode=0o600)
            identity.write_text(private)
            identity.with_suffix(".pub").write_text(public)
        pairs = [make_host_key() for _ in range(hosts)]
        return SliceKeys(
            user_public=identity.with_suffix(".pub").read_text(),
            identity_file=str(identity),
            known_hosts=str(self.folder / "known_hosts"),
            host_private=tuple(private for private, _ in pairs),
            host_public=tuple(public for _, public in pairs),
        )

    def create(self, spec: SliceSpec, keys: SliceKeys | None = None, provider: AwsProvider | None = None) -> SliceKeys:
        keys = keys or self.keys(spec.candidate.hosts)
        (provider or self.provider()).create(spec, keys)
        return keys

    def settled(self, name: str = "c-1", seconds: float = 30.0, provider: AwsProvider | None = None) -> SliceView:
        """What is observed when nothing is under way any more."""
        provider, end = provider or self.provider(), time.monotonic() + seconds
        while (view := provider.finish(name)).state in PASSING:
            assert time.monotonic() < end, view
            time.sleep(0.05)
        return view

    def run(self, view: SliceView, command: str) -> list[str]:
        """Run one command on all hosts over SSH, as orch does; return what each has written, by rank."""
        assert all(host.host.startswith("127.") for host in view.hosts), "moto's addresses are somebody's"
        write_known_hosts(self.folder / "known_hosts", view.hosts)
        with Fleet(view.hosts) as fleet:
            done = fleet.run(command, timeout=60)
        assert done.ok, done
        return [host.output.decode().strip() for host in done.hosts]

    def end_machines(self) -> None:
        """End what a test has left running, past orch."""
        for region in REGIONS:
            if left := self._left(region)["instances"]:
                self.moto(region).terminate_instances(InstanceIds=left)
                self.proxy.machines.follow(self.moto(region))

    def left(self) -> dict[str, list[str]]:
        """All that moto has beyond an empty account, and the placement groups of the proxy."""
        return {kind: found for region in REGIONS for kind, found in self._left(region).items() if found}

    def _left(self, region: str) -> dict[str, list[str]]:
        ec2 = self.moto(region)
        made = [one for each in ec2.describe_instances()["Reservations"] for one in each["Instances"]]
        list_of: Callable[[str, str, str], list[str]] = lambda call, key, name: [  # noqa: E731 - used four times here
            one[name] for one in getattr(ec2, call)()[key]
        ]
        groups = list_of("describe_security_groups", "SecurityGroups", "GroupName")
        return {
            "instances": [one["InstanceId"] for one in made if one["State"]["Name"] != "terminated"],
            "groups": [name for name in groups if name != "default"],
            "addresses": list_of("describe_addresses", "Addresses", "AllocationId"),
            "volumes": list_of("describe_volumes", "Volumes", "VolumeId"),
            "placements": [*self.proxy.placement.groups.get((self.key, region), {})],
        }
