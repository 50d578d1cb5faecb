"""STS: who calls, and as whom (STS API reference, GetCallerIdentity and AssumeRole, read November 2026)."""

from __future__ import annotations

from collections.abc import Sequence

from orch_fronts.aws.asking import ask
from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal, Need
from orch_fronts.aws.query import answer
from orch_fronts.aws.roles import Roles
from orchestrator.simulator.access import Access


class StsFront:
    def __init__(self, access: Access, roles: Roles | None = None) -> None:
        self._access = access
        self.roles = roles or Roles()

    def needs(self, call: AwsCall) -> Sequence[Need]:
        resource = str(call.params.get("RoleArn", "*")) if call.operation == "AssumeRole" else "*"
        return (Need(action=f"sts:{call.operation}", resource=resource),)

    def handle(self, call: AwsCall) -> AwsAnswer:
        if call.operation not in ("GetCallerIdentity", "AssumeRole"):
            raise AwsRefusal("InvalidAction", f"Could not find operation {call.operation} for version 2011-06-15")
        with self._access.open() as cloud:
            account = cloud.scenario.account
        ask(self._access, call, account)
        return self._assume(call) if call.operation == "AssumeRole" else self._name_caller(call, account)

    def _name_caller(self, call: AwsCall, account: str) -> AwsAnswer:
        found = self.roles.find(call.headers.get("authorization", ""))
        if found is not None:
            identity = f"AROAORCHSIMULATED:{found.session}"
            return answer(call, {"Arn": found.arn, "UserId": identity, "Account": found.account})
        arn = f"arn:aws:iam::{account}:user/orch"
        return answer(call, {"Arn": arn, "UserId": "AIDAORCHSIMULATED", "Account": account})

    def _assume(self, call: AwsCall) -> AwsAnswer:
        made = self.roles.assume(call)
        keys = {
            "AccessKeyId": made.key,
            "SecretAccessKey": made.secret,
            "SessionToken": made.token,
            "Expiration": made.ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        user = {"AssumedRoleId": f"AROAORCHSIMULATED:{made.session}", "Arn": made.arn}
        return answer(call, {"Credentials": keys, "AssumedRoleUser": user})
