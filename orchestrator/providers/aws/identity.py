"""The account of the credentials, requested once for each of them (STS API reference, GetCallerIdentity)."""

from __future__ import annotations

from orchestrator.errors import OtherAccountError
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.session import AwsSession

SIMULATED_MARK = "@loopback"  # of a server on this computer, whose accounts have the numbers of real ones


def read_account(session: AwsSession) -> str:
    """Return "<partition>:<number>", such as "aws:123456789012". Raises Refused."""
    if not session.account:
        caller = Calls(session, session.region).read("sts", "GetCallerIdentity", {})
        partition = str(caller.get("Arn", "")).split(":")[1:2] or ["aws"]
        session.account = f"{partition[0]}:{caller['Account']}{SIMULATED_MARK if session.loopback else ''}"
    return session.account


def refuse_other_account(session: AwsSession, account: str) -> None:
    """Raise OtherAccountError unless these credentials are of `account`. Raises Refused."""
    mine = read_account(session)
    if mine == account:
        return
    profile = f" (profile {session.profile})" if session.profile else ""
    if session.principal.role_arn:
        profile = f" (as {session.principal.role_arn})"
    raise OtherAccountError(
        f"these machines belong to {_describe(account)}",
        f"your credentials{profile} are of {_describe(mine)}, and say nothing about them; nothing was changed",
        "switch to that account, then the same command again: export AWS_PROFILE=...   "
        "(aws configure list-profiles; aws sts get-caller-identity)",
    )


def _describe(account: str) -> str:
    number, _, simulated = account.partition("@")
    partition, _, number = number.rpartition(":")
    words = f"AWS account {number}" if partition == "aws" else f"account {number} of {partition}"
    return f"{words} of a simulated cloud" if simulated else words
