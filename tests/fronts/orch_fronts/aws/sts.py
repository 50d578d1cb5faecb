"""STS: who calls (STS API reference, GetCallerIdentity, read November 2026)."""

from __future__ import annotations

from orch_fronts.aws.asking import ask
from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.query import answer
from orchestrator.simulator.access import Access


class StsFront:
    def __init__(self, access: Access) -> None:
        self._access = access

    def handle(self, call: AwsCall) -> AwsAnswer:
        if call.operation != "GetCallerIdentity":
            raise AwsRefusal("InvalidAction", f"Could not find operation {call.operation} for version 2011-06-15")
        with self._access.open() as cloud:
            account = cloud.scenario.account
        ask(self._access, call, account)
        arn = f"arn:aws:iam::{account}:user/orch"
        return answer(call, {"Arn": arn, "UserId": "AIDAORCHSIMULATED", "Account": account})
