"""Faults by which others leave paid things behind, or lose what they made. aws_defect_table.py says whose they are."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from aws_defects_bench import ZONES, Bench, Struck
from support.aws_cloud import EFA, ONE_CARD, aws_candidate
from support.slice_names import short_names

from orchestrator.engine.loop.drive import Detached
from orchestrator.exits import Exit
from orchestrator.paths import load_paths
from orchestrator.simulator.scenario import Fault, FaultKind

CLUSTER = aws_candidate(EFA, hosts=2)  # with groups and Elastic IPs
MAKING = (
    "CreateSecurityGroup",
    "AuthorizeSecurityGroupIngress",
    "AuthorizeSecurityGroupEgress",
    "CreatePlacementGroup",
    "AllocateAddress",
    "RunInstances",
    "AssociateAddress",
)


class Killed(BaseException):
    pass


def struck(bench: Bench) -> bool:
    points = bench.home.points
    return isinstance(points, Struck) and points.struck


@pytest.mark.parametrize("point", ["sending RunInstances", *(f"answered {operation}" for operation in MAKING)])
def test_ctrl_c_while_machines_are_made_gives_everything_back(bench: Bench, point: str) -> None:
    bench.strike(point, KeyboardInterrupt)
    with pytest.raises((Detached, KeyboardInterrupt)):
        bench.launch(CLUSTER)
    assert struck(bench)
    assert (bench.ec2.left(), bench.recorded()) == ({}, [])


@pytest.mark.parametrize("lag", [0.0, 20.0])
def test_a_launch_that_is_killed_leaves_nothing_after_down_also_when_ec2_shows_it_late(
    bench: Bench, lag: float
) -> None:
    """What was made a moment ago is not in any list yet: that is no proof that it is not there."""
    bench.ec2.rule(lag=lag)
    bench.strike("answered RunInstances", Killed)
    with pytest.raises(Killed):
        bench.launch(CLUSTER)
    assert len(bench.alive()) == 1
    assert bench.down().status == Exit.OK
    bench.ec2.clock.advance(60)
    assert (bench.alive(), bench.ec2.left(), bench.recorded()) == ([], {}, [])


@pytest.mark.parametrize("lag", [5.0, 20.0])
def test_a_launch_that_is_killed_is_gone_on_with_by_the_next_one_also_when_ec2_shows_it_late(
    bench: Bench, lag: float
) -> None:
    bench.ec2.rule(lag=lag)
    bench.strike("answered RunInstances", Killed)
    with pytest.raises(Killed):
        bench.launch(CLUSTER)
    assert bench.launch(CLUSTER).status == Exit.OK
    assert len(bench.ec2.cloud.made()) == 1, "no second machines"


def test_names_are_free_again_for_the_next_launch(bench: Bench) -> None:
    for _ in range(2):
        assert bench.launch(CLUSTER).status == Exit.OK
        assert bench.down().status == Exit.OK
        assert bench.ec2.left() == {}


def test_a_launch_while_the_last_one_is_still_going_away(bench: Bench) -> None:
    assert bench.launch(CLUSTER).status == Exit.OK
    bench.strike("answered TerminateInstances", Killed)
    with pytest.raises(Killed):
        bench.down()
    ending = bench.launch(CLUSTER)
    assert ending.status == Exit.OK, ending
    assert len(bench.alive()) == 1
    bench.down()
    assert (bench.ec2.left(), bench.recorded()) == ({}, [])


@pytest.mark.parametrize("kind", [FaultKind.IGNORED, FaultKind.STUCK, FaultKind.TIMEOUT_BEFORE, FaultKind.UNAVAILABLE])
def test_what_is_not_gone_is_never_said_to_be(bench: Bench, kind: FaultKind) -> None:
    """Also when EC2 has answered the request well."""
    bench.launch(CLUSTER)
    bench.ec2.rule(faults=(Fault(call="end", kind=kind, nth=(1,)),))
    while bench.down().status != Exit.OK:
        assert bench.recorded() == bench.alive() != [], "the next down can end it"
    assert (bench.alive(), bench.ec2.left(), bench.recorded()) == ([], {}, [])


def test_an_end_that_is_never_done_is_no_success(bench: Bench) -> None:
    """Also where nothing of ours is beside the machines that could tell."""
    groups = bench.ec2.calls().every("DescribeSecurityGroups", "SecurityGroups", {})
    theirs = next(one["GroupId"] for one in groups if one["GroupName"] == "default")
    bench.ec2.calls().change("CreatePlacementGroup", {"GroupName": "theirs", "Strategy": "cluster"})
    bench.launch(aws_candidate(ONE_CARD, hosts=2, security_group=theirs, placement_group="theirs"))
    bench.ec2.rule(faults=(Fault(call="end", kind=FaultKind.IGNORED, rate=1.0),))
    assert bench.down().status != Exit.OK
    assert short_names(bench.recorded()) == short_names(bench.alive()) == ["c-1"]


def test_name_and_token_are_on_disk_before_the_first_request_that_makes_something(bench: Bench) -> None:
    seen: dict[str, list[str]] = {}

    def look(point: str) -> None:
        when, _, operation = point.partition(" ")
        if when == "sending" and operation in MAKING:
            files = sorted((load_paths().state / "aws").glob("*.json"))
            seen.setdefault(operation, [f"{json.loads(one.read_text())['token']}" for one in files])
            assert short_names(bench.recorded()) == ["c-1"], operation

    bench.watch(look)
    assert bench.launch(CLUSTER).status == Exit.OK
    assert set(seen) == set(MAKING)
    (run,) = bench.calls("RunInstances")
    assert set(map(tuple, seen.values())) == {(run.params["ClientToken"],)}
    for operation in MAKING:
        for call in bench.calls(operation) if not operation.startswith(("Authorize", "Associate")) else ():
            assert run.params["ClientToken"] in call.params.values(), f"{operation} carries no tag of its slice"


def test_nothing_secret_of_this_computer_goes_to_the_machines(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither the cloud's credentials nor the key that opens the hosts; the account gets no role and no key pair."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-environment")
    (tmp_path / "credentials").write_text("[default]\naws_secret_access_key = canary-of-the-file\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert bench.launch(CLUSTER).status == Exit.OK
    ours = [file for file in tmp_path.rglob("*") if file.is_file() and b"OPENSSH PRIVATE KEY" in file.read_bytes()]
    assert ours, "the key that opens the hosts is here"
    secret = [line for file in ours for line in file.read_text().splitlines()[1:-1]]
    sent = [value for call in bench.ec2.server.requests for value in call.params.values() if isinstance(value, str)]
    (user_data,) = [call.params["UserData"] for call in bench.calls("RunInstances")]
    sent.append(base64.b64decode(user_data).decode())
    for value in sent:
        assert "canary" not in value
        assert not [line for line in secret[2:] if line in value]
    services = {call.service for call in bench.ec2.server.requests}
    assert services == {"ec2", "ssm", "servicequotas", "sts"}, "quotas and whose account it is, and nothing of IAM"
    assert not [call.operation for call in bench.ec2.server.requests if "KeyPair" in call.operation]
    assert not [key for call in bench.calls("RunInstances") for key in call.params if key.startswith("IamInstance")]


def test_what_the_first_zones_made_is_gone_before_the_last_one_is_used(bench: Bench) -> None:
    """Groups and addresses of a zone that said no at the very end."""
    bench.ec2.rule(faults=(Fault(call="create", kind=FaultKind.NO_CAPACITY, nth=(1, 2)),))
    found: list[dict[str, int]] = []

    def look(point: str) -> None:
        if point == "sending RunInstances":
            found.append({kind: len(names) for kind, names in bench.ec2.left().items()})

    bench.watch(look)
    assert bench.launch(*(aws_candidate(EFA, hosts=2, zone=zone) for zone in ZONES)).status == Exit.OK
    assert found == [{"groups": 1, "placements": 1, "addresses": 2}] * 3
