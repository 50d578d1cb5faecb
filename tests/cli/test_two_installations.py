"""Two installations in one cloud account: the same cluster name is two clusters, and neither touches the other's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.slice_names import slice_name

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.aws.ec2.visit import left
from orch_fronts.google.cloud import SimulatedGoogle
from orch_fronts.google.compute.visit import kept

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
RESOURCES = {
    "aws": "accelerators: 'H100:8', infra: aws/us-east-1",
    "tpu": "accelerators: v5e-8, infra: gcp/us-west4/us-west4-a",
    "compute": "accelerators: v6e-8, infra: gcp/us-east5/us-east5-a, accelerator_args: {api: compute}",
}


@dataclass(frozen=True)
class Account:
    """ann, bob: two installations with the same credentials."""

    ann: Orch
    bob: Orch
    cloud: SimulatedAws | SimulatedGoogle

    def auxiliary(self) -> list[str]:
        """Return the firewall rules on Google, and the groups on AWS."""
        with self.cloud.cloud.open() as cloud:
            if isinstance(self.cloud, SimulatedGoogle):
                return sorted(kept(cloud, "firewalls"))
            return sorted(one for one in left(cloud) if "train" in one)

    def living(self) -> list[str]:
        with self.cloud.cloud.open() as cloud:
            return sorted(look.name for look in cloud.live())


@pytest.fixture(params=list(RESOURCES))
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    place = tmp_path / "cloud"
    place.mkdir()
    (place / "scenario.toml").write_text(SCENARIO)
    with ExitStack() as stack:
        cloud = stack.enter_context(SimulatedAws(place) if request.param == "aws" else SimulatedGoogle(place))
        homes: list[Orch] = []
        for name in ("ann", "bob"):
            (tmp_path / name).mkdir()
            task = f"name: train\nresources: {{{RESOURCES[request.param]}}}\nrun: 'true'\n"
            (tmp_path / name / "train.yaml").write_text(task)
            homes.append(Orch(tmp_path / name, dict(cloud.env)))
            if request.param == "aws":
                homes[-1].ok("config", "set", "aws.instance_profile", "orch-host")
        account = Account(*homes, cloud)
        yield account
        for home in homes:
            home("down", "train")


def test_both_run_the_same_name_and_each_ends_its_own(account: Account) -> None:
    ann, bob = account.ann, account.bob
    planned = [slice_name("train", home=orch.state.parent) for orch in (ann, bob)]
    assert planned[0] != planned[1]
    for orch, name in zip((ann, bob), planned, strict=True):
        assert name in orch.ok("plan", "train.yaml", "-o", "json"), "a preview knows the name"
        orch.ok("launch", "train.yaml", "--yes")
    names = [slice_name("train", home=orch.state.parent) for orch in (ann, bob)]
    assert names == planned, "the launch sends what the preview shows"
    assert account.living() == sorted(names)
    both = account.auxiliary()
    assert all(any(name in one for one in both) for name in names)
    ann.ok("down", "train")
    assert account.living() == [names[1]]
    assert account.auxiliary() == [one for one in both if names[1] in one]
    assert "ok" in bob.ok("exec", "train", "--no-prefix", "--", "echo ok")
    bob.ok("down", "train")
    assert (account.living(), account.auxiliary()) == ([], [])
