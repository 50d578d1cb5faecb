"""The services around EC2, behind one guard, as fronts of an AwsServer."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal, Front, Need
from orch_fronts.aws.guard import Guard
from orch_fronts.aws.iam import IamFront
from orch_fronts.aws.pricing import PricingFront
from orch_fronts.aws.quotas import QuotasFront
from orch_fronts.aws.roles import Roles
from orch_fronts.aws.ssm import SsmFront
from orch_fronts.aws.sts import StsFront
from orch_fronts.buckets import Refusal
from orchestrator.simulator.access import Access

if TYPE_CHECKING:
    from orch_fronts.aws.s3 import Admit

_SECONDS = 60.0  # for one answer of the buckets
_OF_ONE_STEP = frozenset({"connection", "content-length", "expect"})  # headers that are not passed on


def account_fronts(access: Access, guard: Guard, roles: Roles | None = None) -> Mapping[str, Front]:
    """By their names in a signature."""
    with access.open() as cloud:
        scenario = cloud.scenario
    return {
        "iam": IamFront(guard, access),
        "pricing": PricingFront(access),
        "servicequotas": QuotasFront(scenario, guard.grants.quotas, access),
        "ssm": SsmFront(access),
        "sts": StsFront(access, roles),
    }


def admit_to_buckets(guard: Guard) -> Admit:
    """The same guard at the door of an S3Server."""

    def admit(action: str, resource: str, context: Mapping[str, str]) -> None:
        try:
            guard.check("s3", Need(action=action, resource=resource, context=context), "")
        except AwsRefusal as refusal:
            raise Refusal(refusal.http, refusal.code, refusal.words) from refusal

    return admit


class S3Front:
    """Passes on to an S3Server, for clients that know one endpoint for all services. That server has its own guard."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def needs(self, call: AwsCall) -> Sequence[Need]:
        del call
        return ()

    def handle(self, call: AwsCall) -> AwsAnswer:
        headers = {name: value for name, value in call.headers.items() if name not in _OF_ONE_STEP}
        target = f"{call.path}?{urlencode(call.query)}" if call.query else call.path
        body = call.body if "content-length" in call.headers else None
        connection = http.client.HTTPConnection(self._address, timeout=_SECONDS)
        try:
            connection.request(call.method, target, body, headers)
            answer = connection.getresponse()
            told = {name: value for name, value in answer.getheaders() if name.lower() not in ("server", "date")}
            return AwsAnswer(
                status=answer.status, body=answer.read(), kind=told.pop("Content-Type", "application/xml"), headers=told
            )
        except (OSError, http.client.HTTPException) as error:
            raise AwsRefusal("ServiceUnavailable", str(error), 503, answered=False) from error
        finally:
            connection.close()
