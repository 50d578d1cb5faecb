"""Machines belong to an account: credentials of another one prove nothing about them, and end nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from support.orch_process import Orch, until
from support.slice_names import slice_name

import orchestrator.cli
from orch_fronts.aws.cloud import SimulatedAws
from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DATA = Path(orchestrator.cli.__file__).parent / "data"
SCENARIO = """
account = "%s"

[durations]
create = 0.2
end = 0.2
detect = 0.2
contact = 0
"""
MINE, OTHER = "111122223333", "444455556666"
TASK = """
name: p5
resources: {accelerators: "H100:8", infra: aws/us-east-1}
run: sleep 600
"""


@dataclass(frozen=True)
class Accounts:
    """One person with credentials of two accounts. mine, other: the same state folder, in either account."""

    mine: Orch
    other: Orch
    my_cloud: SimulatedAws
    other_cloud: SimulatedAws


def living(aws: SimulatedAws) -> list[str]:
    with aws.cloud.open() as cloud:
        return [look.name for look in cloud.live()]


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    with ExitStack() as stack:
        clouds: list[SimulatedAws] = []
        for number in (MINE, OTHER):
            folder = tmp_path / number
            folder.mkdir()
            (folder / "scenario.toml").write_text(SCENARIO % number)
            clouds.append(stack.enter_context(SimulatedAws(folder)))
        (tmp_path / "p5.yaml").write_text(TASK)
        mine, other = (Orch(tmp_path, dict(cloud.env)) for cloud in clouds)
        mine.ok("config", "set", "aws.instance_profile", "orch-host")
        yield Accounts(mine, other, *clouds)
        mine("down", "p5")
        assert living(clouds[0]) == []


def machines(orch: Orch) -> dict[str, object]:
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    return {key: value for key, value in found["machines"].items() if key in ("slice", "state", "account")}


@pytest.mark.promise("P3")
def test_credentials_of_another_account_end_nothing_and_close_no_record(accounts: Accounts) -> None:
    accounts.mine.ok("launch", "p5.yaml", "--detach", "--yes")
    before = machines(accounts.mine)
    for words in (("down", "p5"), ("stop", "p5"), ("exec", "p5", "--", "true"), ("watch", "p5")):
        done = accounts.other(*words)
        assert done.returncode == Exit.OTHER_ACCOUNT, (words, done.stderr)
        assert f"belong to AWS account {MINE}" in done.stderr and f"are of AWS account {OTHER}" in done.stderr
        assert len(done.stderr.strip().splitlines()) <= 8 and "Traceback" not in done.stderr
    accounts.other("launch", "p5.yaml", "--yes")
    assert living(accounts.my_cloud) == [slice_name("p5", home=accounts.mine.state.parent)]
    assert living(accounts.other_cloud) == []
    assert machines(accounts.mine) == before
    accounts.mine.ok("down", "p5")
    assert living(accounts.my_cloud) == []


def test_a_job_is_driven_beside_an_engine_with_credentials_of_another_account(accounts: Accounts) -> None:
    accounts.mine.ok("launch", "p5.yaml", "--detach", "--yes")
    (accounts.mine.folder / "short.yaml").write_text(TASK.replace("p5", "short").replace("sleep 600", "echo done"))
    accounts.other.ok("launch", "short.yaml", "--detach", "--down", "--yes")
    until("its machine is ended", lambda: living(accounts.other_cloud) == [], 100)
    assert len(living(accounts.my_cloud)) == 1


@pytest.mark.promise("P5")
def test_a_sweep_is_never_clean_while_an_account_on_record_does_not_answer(accounts: Accounts) -> None:
    accounts.mine.ok("launch", "p5.yaml", "--detach", "--yes")
    own = accounts.mine("reap")
    assert own.returncode == 0 and f"asked: local, aws (account {MINE}, every region)\n" in own.stderr, own.stderr
    missing = f"could not be asked: aws account {MINE} of a simulated cloud: 1 open record of it"
    for verb in ("reap", "recover"):
        done = accounts.other(verb)
        assert done.returncode == Exit.OTHER_ACCOUNT, done.stderr
        assert f"asked: local, aws (account {OTHER}, every region)\n" in done.stderr and missing in done.stderr
        assert "next: give the command credentials of that account: export AWS_PROFILE=" in done.stderr
    assert "no orphans\n" not in accounts.other("reap").stderr
    shown = json.loads(accounts.other("reap", "-o", "json").stdout)
    jsonschema.validate(shown, json.loads((DATA / "reap.schema.json").read_text()))
    places = {one["account"]: one["asked"] for one in shown["places"] if one["account"]}
    assert places == {f"aws:{OTHER}@loopback": True, f"aws:{MINE}@loopback": False}
    accounts.mine.ok("down", "p5")
    assert accounts.mine("reap").returncode == 0
    after = accounts.other("reap")
    assert after.returncode == Exit.OTHER_ACCOUNT and "machines were made there before" in after.stderr, after.stderr
