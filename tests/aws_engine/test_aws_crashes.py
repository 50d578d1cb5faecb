"""Killed by SIGKILL around every request to EC2, every verb ends as if nothing had happened.

The provider is the real one, with Amazon's client library; the cloud is simulated, behind EC2's API on the loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_matrix import AWS_VERBS, BY_NAME, aws_place
from crash_matrix import finish, matrix
from crash_verbs import matrix_folder
from support.proof import report

from orchestrator.providers.aws.belongings import Belongings


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(900)
def test_on_ec2_every_verb_killed_where_something_lasting_changes_leaks_nothing(folder: Path) -> None:
    with aws_place(folder) as place:
        counts = matrix(place, AWS_VERBS, points="distinct")
    report(f"crash matrix on EC2's API over sockets: {counts}")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    around = {name for name in counts.names if name.startswith(("sending", "answered"))}
    assert around == {
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


@pytest.mark.slow
@pytest.mark.promise("P2")
def test_the_matrix_sees_groups_and_an_address_that_were_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Belongings, "remove", lambda _: [])
    with aws_place(folder) as place:
        place.begin(BY_NAME["down"])
        wrong = finish(place, BY_NAME["down"], "nowhere")
    for kind in ("groups/orch-c-1", "placement/orch-c-1", "addresses/"):
        assert any(f"{kind}" in what and "is left" in what for what in wrong), wrong
