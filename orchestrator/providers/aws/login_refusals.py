"""What the aws command prints when IAM refuses the connection to a host, and which permission is missing. Pure."""

from __future__ import annotations

import re

from orchestrator.remote.iam_refusals import LoginRefusal

_COMMAND = (
    "an administrator allows it in an IAM policy of this user or role, on the instances{}: docs/iam/aws-policy.json"
)

REFUSALS = (
    # "User: arn:aws:iam::… is not authorized to perform: ssm:StartSession on resource: arn:aws:ec2:…:instance/i-…"
    # (github.com/kubernetes/test-infra, issue 18075, 2020). The document is its own resource (Systems Manager User
    # Guide, "Sample IAM policies for Session Manager", 2026).
    LoginRefusal(
        pattern=re.compile(r"not authorized to perform: ssm:StartSession on resource: arn:[\w-]+:ssm:\S*:document/"),
        missing="missing: ssm:StartSession on the document AWS-StartSSHSession",
        command=_COMMAND.format(" and on that document"),
    ),
    LoginRefusal(
        pattern=re.compile(r"not authorized to perform: ssm:StartSession"),
        missing="missing: ssm:StartSession on the instance",
        command=_COMMAND.format(" and on the document AWS-StartSSHSession"),
    ),
    # aws-cli ends the session that it has begun when the plugin is missing, and reports the refusal of that instead
    # (github.com/aws/aws-cli, issue 9837, 2025).
    LoginRefusal(
        pattern=re.compile(r"not authorized to perform: ssm:TerminateSession"),
        missing="the Session Manager plugin is missing on this computer",
        command="session-manager-plugin --version   shows whether it is",
    ),
)
