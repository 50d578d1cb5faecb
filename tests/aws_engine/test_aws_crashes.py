"""Killed by SIGKILL around every request to EC2, every verb ends as if nothing had happened.

The provider is the real one, with Amazon's client library; the cloud is simulated, behind EC2's API on the loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_matrix import AWS_VERBS, BY_NAME, MORE_VERBS, aws_place
from crash_matrix import Case, cases_of, empty_store, finish, matrix, points_passed
from crash_verbs import matrix_folder
from support.lanes import by_lane
from support.slice_names import slice_name

from orchestrator.engine.operations import sweep
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sweep, "RESEND_AFTER", 2 * sweep.PAUSE)  # each look until then asks every region, with 4 calls
    with matrix_folder(monkeypatch) as root:
        yield root


def kill(folder: Path, case: Case) -> None:
    with empty_store(case.database) as store, aws_place(folder, store=store) as place:
        counts = matrix(place, [case.verb], doubles=by_lane(0.0, 0.03), kills=2, day=case.day)
    if case.database == "SQLite":
        counts.report("SIGKILL around every request to EC2's API, over sockets, with boto3")
    else:
        counts.report("SIGKILL around every request to EC2's API, on PostgreSQL")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", cases_of(AWS_VERBS, on_server=1))
def test_on_ec2_every_command_killed_at_a_lasting_change_leaks_nothing(folder: Path, case: Case) -> None:
    kill(folder, case)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", cases_of(MORE_VERBS, on_server=1))
def test_on_ec2_the_other_commands_leak_nothing_either(folder: Path, case: Case) -> None:
    kill(folder, case)


@pytest.mark.slow
def test_the_commands_on_ec2_send_every_changing_request(folder: Path) -> None:
    with aws_place(folder) as place:
        passed = {name for verb in AWS_VERBS for name in points_passed(place, verb)}
    around = {name for name in passed if name.startswith(("sending", "answered"))}
    asked = {
        f"{when} {what}"
        for when in ("sending", "answered")
        for what in (
            "CreateSecurityGroup",
            "AuthorizeSecurityGroupIngress",
            "AuthorizeSecurityGroupEgress",
            "CreatePlacementGroup",
            "AllocateAddress",
            "RunInstances",
            "AssociateAddress",
            "StopInstances",
            "StartInstances",
            "TerminateInstances",
            "ReleaseAddress",
            "DeleteSecurityGroup",
            "DeletePlacementGroup",
        )
    }
    assert around == asked


@pytest.mark.slow
@pytest.mark.promise("P2")
def test_the_matrix_finds_leftover_groups_and_an_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AuxiliaryResources, "remove", lambda _: [])
    with aws_place(folder) as place:
        place.begin(BY_NAME["down"])
        wrong = finish(place, BY_NAME["down"], "nowhere")
    name = slice_name("c")
    for kind in (f"groups/orch-{name}", f"placement/orch-{name}", "addresses/"):
        assert any(f"{kind}" in what and "is left" in what for what in wrong), wrong
