"""Killed by SIGKILL around every request to EC2, every verb ends as if nothing had happened.

One kill for every other lasting change, in turn; ORCH_EVERY_POINT=1: at every point, and of more verbs. The provider is
the real one, with Amazon's client library; the cloud is simulated, behind EC2's API on the loopback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_matrix import AWS_VERBS, BY_NAME, MORE_VERBS, aws_place
from crash_matrix import finish, matrix
from crash_verbs import matrix_folder
from support.proof import report

from orchestrator.engine import sweep
from orchestrator.providers.aws.belongings import Belongings


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sweep, "RESEND_AFTER", 2 * sweep.PAUSE)  # each look until then asks every region, with 4 calls
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(3600)
def test_on_ec2_every_verb_killed_where_something_lasting_changes_leaks_nothing(folder: Path) -> None:
    all_of_it = bool(os.environ.get("ORCH_EVERY_POINT"))
    verbs, points = ((*AWS_VERBS, *MORE_VERBS), "all") if all_of_it else (AWS_VERBS, "alternate")
    with aws_place(folder) as place:
        counts = matrix(place, verbs, doubles=0.02 if all_of_it else 0.0, points=points)
    report(f"crash matrix on EC2's API over sockets: {counts}")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    around = {name for name in counts.passed if name.startswith(("sending", "answered"))}
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
    assert around >= asked if all_of_it else around == asked


@pytest.mark.slow
@pytest.mark.promise("P2")
def test_the_matrix_sees_groups_and_an_address_that_were_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Belongings, "remove", lambda _: [])
    with aws_place(folder) as place:
        place.begin(BY_NAME["down"])
        wrong = finish(place, BY_NAME["down"], "nowhere")
    for kind in ("groups/orch-c-1", "placement/orch-c-1", "addresses/"):
        assert any(f"{kind}" in what and "is left" in what for what in wrong), wrong
