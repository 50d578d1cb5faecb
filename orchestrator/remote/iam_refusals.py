"""What a cloud's own proxy program prints when IAM refuses the connection, and which role is missing. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A text that means a missing permission, and the lines that say what is missing and what to type."""

    pattern: re.Pattern[str]
    missing: str
    command: str


_GOOGLE = "an administrator runs: gcloud projects add-iam-policy-binding PROJECT --member=user:THEIR-ADDRESS --role={}"
_AWS = "an administrator allows it in an IAM policy of this user or role, on the instances{}: docs/iam/aws-policy.json"
_REFUSALS = (
    # "Error while connecting [4033: 'not authorized']." of gcloud; code 4033 is a missing permission, and 4003 a host
    # that does not answer (cloud.google.com/iap/docs/faq, "error codes", 2026; gcloud 528, start-iap-tunnel).
    _Refusal(
        pattern=re.compile(r"\[?4033: '?not authorized"),
        missing="missing: roles/iap.tunnelResourceAccessor",
        command=_GOOGLE.format("roles/iap.tunnelResourceAccessor"),
    ),
    # "User: arn:aws:iam::… is not authorized to perform: ssm:StartSession on resource: arn:aws:ec2:…:instance/i-…"
    # (github.com/kubernetes/test-infra, issue 18075, 2020). The document is its own resource (Systems Manager User
    # Guide, "Sample IAM policies for Session Manager", 2026).
    _Refusal(
        pattern=re.compile(r"not authorized to perform: ssm:StartSession on resource: arn:[\w-]+:ssm:\S*:document/"),
        missing="missing: ssm:StartSession on the document AWS-StartSSHSession",
        command=_AWS.format(" and on that document"),
    ),
    _Refusal(
        pattern=re.compile(r"not authorized to perform: ssm:StartSession"),
        missing="missing: ssm:StartSession on the instance",
        command=_AWS.format(" and on the document AWS-StartSSHSession"),
    ),
    # aws-cli ends the session that it has begun when the plugin is missing, and reports the refusal of that instead
    # (github.com/aws/aws-cli, issue 9837, 2025).
    _Refusal(
        pattern=re.compile(r"not authorized to perform: ssm:TerminateSession"),
        missing="the Session Manager plugin is missing on this computer",
        command="session-manager-plugin --version   shows whether it is",
    ),
)


def explain_iam_refusal(text: str) -> str:
    """Return which role is missing and the command that gives it, or "" for an error that is no refusal by IAM."""
    found = next((one for one in _REFUSALS if one.pattern.search(text)), None)
    return f"{found.missing}\n{found.command}" if found is not None else ""
