"""Machines whose record is lost, or on a computer that sleeps, are taken over; the one that had them is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.aws.ec2.visit import left
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
TASKS = {
    "aws": 'name: two\nresources: {accelerators: "H100:1", infra: aws/us-east-1}\nrun: echo done\n',
    "tpu": "name: two\nresources: {accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}\nrun: echo done\n",
    "queued": "name: two\nresources: {accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a, use_spot: true}\n"
    "run: echo done\n",
    "compute": "name: two\nresources: {accelerators: v6e-8, infra: gcp/us-east5/us-east5-a, "
    "accelerator_args: {api: compute}}\nrun: echo done\n",
}


@dataclass(frozen=True)
class Two:
    """ann and bob: two installations that share nothing but the credentials of one cloud. Ann has launched `two`."""

    ann: Orch
    bob: Orch
    cloud: SimulatedAws | SimulatedGoogle

    def living(self) -> list[str]:
        with self.cloud.cloud.open() as cloud:
            return [look.name for look in cloud.live()]

    def let_bob_in(self) -> None:
        """Give bob the key that the hosts admit, as a recovery key would be."""
        shutil.copytree(self.ann.state / "keys", self.bob.state / "keys", dirs_exist_ok=True)


@pytest.fixture
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Two]:
    kind = getattr(request, "param", "aws")
    with ExitStack() as stack:
        place = tmp_path / "cloud"
        place.mkdir()
        (place / "scenario.toml").write_text(SCENARIO)
        cloud = stack.enter_context(SimulatedAws(place) if kind == "aws" else SimulatedGoogle(place))
        computers: list[Orch] = []
        for name in ("ann", "bob"):
            (tmp_path / name).mkdir()
            computers.append(Orch(tmp_path / name, dict(cloud.env)))
            (tmp_path / name / "two.yaml").write_text(TASKS[kind])
            if kind == "aws":
                computers[-1].ok("config", "set", "aws.instance_profile", "orch-host")
        computers[0].ok("launch", "two.yaml", "--yes")
        yield Two(*computers, cloud)


def take_over(orch: Orch, *words: str) -> subprocess.CompletedProcess[str]:
    """Every region is listed twice, which takes minutes on a busy machine."""
    return orch("recover", "two", "--take-over", "--yes", *words, timeout=360)


def listed(orch: Orch, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(orch("recover", *words, "-o", "json").stdout)["places"]
    return [one for place in found for one in place["slices"]]


def clusters(orch: Orch) -> list[str]:
    return [one["name"] for one in json.loads(orch.ok("status", "-o", "json"))["clusters"]]


@pytest.mark.promise("P5")
@pytest.mark.parametrize("two", [*TASKS], indirect=True)
def test_the_one_that_had_the_machines_is_refused_everywhere_and_ends_nothing(two: Two) -> None:
    two.ann.ok("exec", "two", "--", "true")
    two.let_bob_in()
    done = take_over(two.bob)
    assert done.returncode == 0, done.stderr
    assert "its hosts obey this installation alone" in done.stderr and "/h" in done.stderr, done.stderr
    (mine,) = listed(two.bob, "--all")
    assert (mine["ours"], mine["record"], mine["state"]) == (True, "open", "ready")
    assert "hello" in two.bob.ok("exec", "two", "--", "echo", "hello")

    copied = two.ann("cp", "two.yaml", "two:file")
    assert copied.returncode == Exit.CONFLICT and "taken over by installation" in copied.stderr, copied.stderr
    refused = two.ann("exec", "two", "--", "touch", "ran")
    assert refused.returncode == Exit.CONFLICT, refused.stderr
    assert "error[taken-over]" in refused.stderr and "next: to take them back" in refused.stderr
    assert clusters(two.ann) == [] and clusters(two.bob) == ["two"]
    assert "taken over by installation" in two.ann.ok("events", "two")
    assert two.ann.ok("events", "--verify") is not None
    assert two.ann("down", "two").returncode == Exit.CONFLICT
    two.ann("reap", "--yes")
    assert len(two.living()) == 1, "neither down nor reap of the loser ends it"
    assert "ran" not in two.bob.ok("exec", "two", "--no-prefix", "--", "ls")
    two.bob.ok("down", "two")
    assert two.living() == [] and listed(two.bob, "--all") == []


@pytest.mark.parametrize("two", [*TASKS], indirect=True)
def test_down_of_the_loser_meets_the_labels_first(two: Two) -> None:
    assert take_over(two.bob).returncode == 0
    done = two.ann("down", "two")
    assert done.returncode == Exit.CONFLICT, done.stderr
    for words in (("down", "two"), ("exec", "two", "--", "true"), ("stop", "two")):
        again = two.ann(*words)
        assert again.returncode == Exit.CONFLICT and "taken over by installation" in again.stderr, again.stderr
    assert "were taken over by installation" in done.stderr and len(two.living()) == 1
    assert clusters(two.ann) == []
    two.bob.ok("down", "two")
    assert two.living() == []


@pytest.mark.parametrize("two", ["aws", "tpu", "compute"], indirect=True)
def test_hosts_that_admit_no_key_of_this_computer_are_said_to_be_so_and_can_be_ended(two: Two) -> None:
    shutil.rmtree(two.ann.state)
    done = take_over(two.bob)
    assert done.returncode == 0, done.stderr
    assert "cannot enter its hosts: no key of this computer is admitted" in done.stderr, done.stderr
    assert clusters(two.bob) == ["two"]
    (price,) = [one["machines"]["price_per_hour"] for one in json.loads(two.bob.ok("status", "-o", "json"))["clusters"]]
    assert price
    two.bob.ok("down", "two")
    assert two.living() == []
    if isinstance(two.cloud, SimulatedAws):
        with two.cloud.cloud.open() as cloud:
            assert [one for one in left(cloud) if not one.endswith("/default")] == []


def test_machines_can_be_taken_back(two: Two) -> None:
    two.let_bob_in()
    assert take_over(two.bob).returncode == 0
    assert two.ann("exec", "two", "--", "true").returncode == Exit.CONFLICT
    assert take_over(two.ann).returncode == 0
    assert "hello" in two.ann.ok("exec", "two", "--", "echo", "hello")
    assert two.bob("down", "two").returncode == Exit.CONFLICT and len(two.living()) == 1
    two.ann.ok("down", "two")


def test_what_cannot_or_must_not_be_taken_over_is_refused_before_anything_changes(two: Two) -> None:
    tracked = take_over(two.ann)
    assert tracked.returncode == Exit.CONFLICT and "is on record here" in tracked.stderr
    assert two.bob("recover", "--take-over").returncode == Exit.USAGE
    assert two.bob("recover", "two", "--take-over", "--end").returncode == Exit.USAGE
    assert two.bob("recover", "two", "--take-over").returncode == Exit.USAGE, "there is no terminal to ask on"
    preview = two.bob("recover", "two", "--take-over", "--dry-run", "--yes")
    assert preview.returncode == 0 and "nothing was done" in preview.stderr
    assert "done" in two.ann.ok("exec", "two", "--", "echo", "done"), "nothing has changed for ann"
    assert clusters(two.bob) == []
    colleague = replace(two.bob, more={**two.bob.more, "LOGNAME": "bob"})
    proposed = colleague("recover").stderr
    assert "recover two" not in proposed and "next: orch recover NAME --take-over" in proposed, proposed
    assert "perhaps in use by a colleague" in proposed
    swept = colleague("reap")
    assert swept.returncode == 1 and "in use by a colleague: left as it is" in swept.stderr, swept.stderr
    two.ann.ok("down", "two")


def test_a_record_of_the_same_name_keeps_its_name(two: Two) -> None:
    (two.bob.folder / "two.yaml").write_text(TASKS["aws"].replace("us-east-1", "us-east-2"))
    two.bob.ok("launch", "two.yaml", "--yes")
    refused = take_over(two.bob)
    assert refused.returncode == Exit.CONFLICT and "--as NAME" in refused.stderr, refused.stderr
    assert take_over(two.bob, "--as", "other").returncode == 0
    assert sorted(clusters(two.bob)) == ["other", "two"]
    two.bob.ok("down", "two", "other")
    assert two.living() == []
