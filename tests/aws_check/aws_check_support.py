"""A pretend account behind its guard, whose policies, quotas and answers change from test to test."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from support.zones import EVERY_TYPE

from orch_fronts.aws.calls import ACCOUNT, AwsAnswer, AwsCall, AwsRefusal, Front, Need
from orch_fronts.aws.codec import codec_of
from orch_fronts.aws.grants import USER, Grants
from orch_fronts.aws.guard import Guard
from orch_fronts.aws.pricing import PricingFront
from orch_fronts.aws.query import answer, members
from orch_fronts.aws.roles import Roles
from orch_fronts.aws.s3 import S3Server, s3_server
from orch_fronts.aws.server import AwsServer
from orch_fronts.aws.services import S3Front, account_fronts, admit_to_buckets
from orchestrator.options import list_options
from orchestrator.providers.aws.check import region
from orchestrator.providers.aws.check_asked import Caller
from orchestrator.providers.aws.check_policy import ORCH, document
from orchestrator.providers.aws.options import AwsOptions
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.checks import Ask, Check, Finding, run_checks
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Held, Scenario, Zone

REGION, ZONE, OTHER = "us-east-1", "us-east-1a", "us-east-1b"
INSTALLATION = "0123456789ab"
P, P5_SPOT, P4_SPOT, TRN = "L-417A185B", "L-C4BD4855", "L-7212CCBC", "L-2C3B7624"
TRN_SPOT, ADDRESSES = "L-6B0D517C", "L-0263D0A3"
QUOTAS = {P: 768, P5_SPOT: 192, P4_SPOT: 64, TRN: 256, TRN_SPOT: 0, ADDRESSES: 5}
GOOD = Grants(quotas=QUOTAS)
RESERVED = Held(name="cr-0123456789abcdef0", zone=ZONE, accelerator="p5.48xlarge", amount=2)
SCENARIO = Scenario(
    zones=(Zone(ZONE, REGION), Zone(OTHER, REGION), Zone("us-east-2a", "us-east-2")),
    durations=Durations(jitter=0.0),
    reservations=(RESERVED,),
    pools=EVERY_TYPE,
)
Answer = Callable[[AwsCall], AwsAnswer]


@dataclass
class Account:
    """quotas: values by their codes. answers: instead of a service's own, by (service, operation)."""

    server: AwsServer
    guard: Guard
    buckets: S3Server
    clock: ManualClock
    state: Path
    quotas: dict[str, float]
    answers: dict[tuple[str, str], Answer]
    session: AwsSession = field(init=False)

    def __post_init__(self) -> None:
        self.session = AwsSession("", self.server.url, tries=1)

    def reset(self) -> None:
        """As it was made."""
        self.grant(GOOD)
        self.quotas |= QUOTAS
        self.answers.clear()
        self.server.requests.clear()
        self.guard.asked.clear()

    def grant(self, grants: Grants) -> None:
        Guard.__init__(self.guard, grants)

    def client(self, service: str) -> Any:
        return boto3.client(
            service, REGION, endpoint_url=self.server.url, aws_access_key_id="k", aws_secret_access_key="s"
        )

    def ask(self, accelerator: str = "H100:8", nodes: int = 2, arn: str = USER, **given: Any) -> dict[str, Finding]:
        """What `orch check aws` finds, from the region on, by the names of the checks.

        given: fields of Ask and of AwsOptions.
        """
        known = {one.name for one in list_options(AwsOptions) if one.spec.where == "settings"}
        settings = {name: given.pop(name) for name in list(given) if name in known}
        asked = Ask(
            state=given.pop("state", self.state),
            accelerator=accelerator,
            nodes=nodes,
            options=AwsOptions(**settings),
            **{"region": REGION, "installation": INSTALLATION} | given,
        )
        first = Check("region", partial(region, asked, self.session, Caller(ACCOUNT, arn)))
        return {one.check: one for one in run_checks([first], _quiet)}


def _quiet(running: Sequence[str], done: int, total: int) -> None:
    del running, done, total


@contextmanager
def pretend_account(state: Path) -> Generator[Account]:
    clock, answers = ManualClock(), dict[tuple[str, str], Answer]()
    quotas: dict[str, float] = {**QUOTAS}
    access, guard = InMemory(SCENARIO, clock), Guard(replace(GOOD, quotas=quotas))
    with s3_server(admit=admit_to_buckets(guard)) as buckets:
        buckets.create_bucket("runs")
        roles = Roles()
        server = AwsServer(access, guard=guard, roles=roles)
        fronts = {"ec2": server.ec2, **account_fronts(access, guard, roles), "s3": S3Front(buckets.url)}
        fronts |= {"pricing": PricingFront(access)}
        server._fronts = {name: Instead(front, answers) for name, front in fronts.items()}  # they stand before its own
        with server:
            yield Account(server, guard, buckets, clock, state, quotas, answers)


class Instead:
    """Stands before a service, and gives some answers in its place."""

    def __init__(self, front: Front, answers: Mapping[tuple[str, str], Answer]) -> None:
        self._front = front
        self._answers = answers

    def needs(self, call: AwsCall) -> Sequence[Need]:
        needs = getattr(self._front, "needs", None)
        return needs(call) if needs else (Need(action=f"{call.service}:{call.operation}"),)

    def handle(self, call: AwsCall) -> AwsAnswer:
        other = self._answers.get((call.service, call.operation))
        return other(call) if other else self._front.handle(call)


def refusing(code: str, words: str = "no", http: int = 400) -> Answer:
    def refuse(call: AwsCall) -> AwsAnswer:
        raise AwsRefusal(code, words, http)

    return refuse


def saying(**fields: Any) -> Answer:
    """An answer of EC2's."""
    return lambda call: AwsAnswer(body=codec_of("ec2").encode(call.operation, fields))


def saying_iam(**fields: Any) -> Answer:
    return lambda call: answer(call, fields)


def roles(policies: Mapping[str, Mapping[str, Any]], own: Guard) -> Answer:
    """IAM's simulation for roles with these policies, by their names; of everybody else by the caller's own."""

    def simulate(call: AwsCall) -> AwsAnswer:
        source = str(call.params["PolicySourceArn"])
        policy = policies.get(source.rpartition("/")[2])
        guard = own if policy is None else Guard(replace(GOOD, policies=(policy,)))
        return answer(call, {"EvaluationResults": list(_weighed(call, guard)), "IsTruncated": False})

    return simulate


def _weighed(call: AwsCall, guard: Guard) -> Generator[dict[str, str]]:
    keys, values = (
        {name.split(".")[2]: str(value) for name, value in call.params.items() if name.endswith(ending)}
        for ending in (".ContextKeyName", ".ContextKeyValues.member.1")
    )
    context = {keys[number]: values[number] for number in keys}
    for action in members(call.params, "ActionNames"):
        for resource in members(call.params, "ResourceArns"):
            decision = guard.decide(Need(action=action, resource=resource, context=context), REGION)
            yield {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": decision}


def without(*actions: str, grants: Grants = GOOD) -> Grants:
    """The documented policy with these taken out of it."""
    denied = {"Effect": "Deny", "Action": list(actions), "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [*document(ORCH)["Statement"], denied]}
    return replace(grants, policies=(policy,))
