"""A proxy program that IAM refuses: the host is not lost, and the missing role is named."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.sshd import sshd_farm

from orchestrator.hosts import Failure
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.iam_refusals import explain_iam_refusal

# As gcloud and aws print them; sources in iam_refusals.py.
_USER = "User: arn:aws:iam::111122223333:user/ann is not authorized to perform:"
_DENIED = "An error occurred (AccessDeniedException) when calling the {} operation: " + _USER + " {} on resource: {}"
REFUSALS = {
    "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4033: 'not authorized'].": (
        "roles/iap.tunnelResourceAccessor",
        "gcloud projects add-iam-policy-binding",
    ),
    _DENIED.format("StartSession", "ssm:StartSession", "arn:aws:ec2:us-west-2:111122223333:instance/i-0f379ed1"): (
        "ssm:StartSession on the instance",
        "docs/iam/aws-policy.json",
    ),
    _DENIED.format("StartSession", "ssm:StartSession", "arn:aws:ssm:us-west-2::document/AWS-StartSSHSession"): (
        "ssm:StartSession on the document AWS-StartSSHSession",
        "docs/iam/aws-policy.json",
    ),
    _DENIED.format("TerminateSession", "ssm:TerminateSession", "arn:aws:ssm:us-west-2:111122223333:session/ann-0"): (
        "Session Manager plugin",
        "session-manager-plugin --version",
    ),
}
OTHERS = (
    "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4003: 'failed to connect to backend'].",
    "An error occurred (TargetNotConnected) when calling the StartSession operation: i-0f379ed1 is not connected.",
    "",
)


@pytest.mark.parametrize("text", REFUSALS)
def test_the_missing_role_and_its_command_are_named(tmp_path: Path, text: str) -> None:
    with sshd_farm(tmp_path, 1) as farm:
        proxy = (sys.executable, "-c", f"import sys; sys.exit({text!r})")
        with Fleet([replace(farm.addresses[0], proxy=proxy)]) as fleet:
            (outcome,) = fleet.run("true", timeout=60).outcomes
    assert outcome.failure is Failure.AUTH
    assert text[-40:] in outcome.detail, "the vendor's own words are missing"
    for words in REFUSALS[text]:
        assert words in outcome.remedy


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors_of_a_proxy_name_no_role(text: str) -> None:
    assert explain_iam_refusal(text) == ""
