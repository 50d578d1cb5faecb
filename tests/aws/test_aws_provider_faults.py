"""What each refusal of EC2 means to us, as the client library brings it over a socket, and how often a call is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.server import AwsServer
from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    CredentialsError,
    NotFoundError,
    OrchError,
    QuotaError,
    RefusedError,
    UserError,
)
from orchestrator.providers.aws import quotas
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.faults import action_of, by_code, explain
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario
from orchestrator.slices import OnDemand, Spot

# facts of November 2026: what karpenter, ParallelCluster, SkyPilot and dstack make of them.
CODES = {
    CapacityError: (
        "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity", "UnfulfillableCapacity", "Unsupported", "SpotMaxPriceTooLow",
        "InsufficientFreeAddressesInSubnet", "ReservationCapacityExceeded",
    ),
    QuotaError: (
        "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "AddressLimitExceeded",
        "NewThingLimitExceeded",
    ),
    AccessError: ("UnauthorizedOperation", "AccessDeniedException"),
    CredentialsError: ("AuthFailure", "ExpiredToken", "InvalidClientTokenId", "SignatureDoesNotMatch"),
    UserError: ("InvalidParameterValue", "InvalidParameterCombination", "InvalidParameter", "MissingParameter",
                "InvalidSubnetID.NotFound", "InvalidCapacityReservationId.NotFound"),
    ConflictError: ("InvalidGroup.Duplicate", "InvalidPlacementGroup.Duplicate"),
    CloudError: ("RequestLimitExceeded", "ServiceUnavailable", "Unavailable", "InternalError",
                 "IdempotentParameterMismatch", "DependencyViolation"),
    RefusedError: ("OptInRequired", "InvalidAMIID.NotFound", "IncorrectInstanceState", "NeverHeardOf"),
}  # fmt: skip
ONE_OF_EACH = [(kind, code) for kind, codes in CODES.items() for code in codes]
SERVER_SIDE = {"InsufficientInstanceCapacity": 500, "InternalError": 500, "RequestLimitExceeded": 503}
UNAVAILABLE = {"Unavailable": 503, "ServiceUnavailable": 503}
DENIED = (
    "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/x is not authorized to"
    " perform: iam:PassRole on resource: arn:aws:iam::123456789012:role/hosts because no identity-based policy allows"
    " the iam:PassRole action. Encoded authorization failure message: AAAA-bbbb"
)


@dataclass
class Refusing:
    """Says the same to every call, the first `times`; then that there is nothing."""

    refusal: AwsRefusal = field(default_factory=lambda: AwsRefusal("", ""))
    times: int = 1000
    asked: list[str] = field(default_factory=list[str])

    def handle(self, call: AwsCall) -> AwsAnswer:
        self.asked.append(call.operation)
        if len(self.asked) <= self.times:
            raise self.refusal
        return AwsAnswer(body=b"<Response><requestId>x</requestId></Response>")


@dataclass
class Shop:
    front: Refusing
    calls: Calls
    slept: list[float]


@pytest.fixture(scope="module")
def served() -> Iterator[Shop]:
    front, slept = Refusing(), list[float]()
    with AwsServer(InMemory(Scenario(), ManualClock()), fronts={"ec2": front}) as server:
        yield Shop(front, Calls(AwsSession(endpoint=server.url, tries=2), "us-east-1", slept.append), slept)


@pytest.fixture
def shop(served: Shop) -> Shop:
    served.front.asked, served.front.times = [], 1000
    served.slept.clear()
    return served


def refused(shop: Shop, code: str, words: str = "words of AWS", http: int = 400) -> Answer:
    """What a RunInstances meets."""
    shop.front.refusal = AwsRefusal(code, words, http)
    with pytest.raises(Refused) as caught:
        shop.calls.change("RunInstances", {"MinCount": 1, "MaxCount": 1})
    return caught.value.answer


@pytest.mark.parametrize(("kind", "code"), ONE_OF_EACH, ids=[code for _, code in ONE_OF_EACH])
def test_a_refusal_is_an_error_of_its_class_and_sent_once(shop: Shop, kind: type[OrchError], code: str) -> None:
    answer = refused(shop, code, http={**SERVER_SIDE, **UNAVAILABLE}.get(code, 400))
    error = explain("create", "c-1", answer)
    assert type(error) is kind
    assert code in error.why
    assert "words of AWS" in error.why
    assert error.next_step
    assert len(shop.front.asked) == (4 if code == "RequestLimitExceeded" else 1)


@pytest.mark.parametrize(
    ("code", "http", "may"),
    [
        ("InsufficientInstanceCapacity", 500, False),
        ("RequestLimitExceeded", 503, False),
        ("InternalError", 500, True),
        ("Unavailable", 503, True),
        ("NeverHeardOf", 500, True),
        ("NeverHeardOf", 400, False),
    ],
)
def test_whether_a_refused_call_may_have_acted(code: str, http: int, may: bool) -> None:
    assert by_code(code, http).may_have_acted is may


def test_what_was_throttled_is_asked_again_with_pauses(shop: Shop) -> None:
    shop.front.refusal, shop.front.times = AwsRefusal("RequestLimitExceeded", "slowly", 503), 2
    assert shop.calls.change("TerminateInstances", {"InstanceIds": ["i-0123456789abcdef0"]})
    assert shop.front.asked == ["TerminateInstances"] * 3
    assert len(shop.slept) == 2
    assert 0 < shop.slept[0] <= 1 < 2 * shop.slept[1]


def test_a_read_is_repeated_by_the_library_and_a_change_is_not(shop: Shop) -> None:
    shop.front.refusal = AwsRefusal("InternalError", "try later", 500)
    with pytest.raises(Refused):
        shop.calls.read("ec2", "DescribeInstances", {})
    assert shop.front.asked == ["DescribeInstances"] * 2
    shop.front.asked.clear()
    assert refused(shop, "InternalError", http=500).kind is Kind.UNAVAILABLE
    assert shop.front.asked == ["RunInstances"]


def test_no_answer_is_no_refusal(shop: Shop) -> None:
    nobody = Calls(AwsSession(endpoint="http://127.0.0.1:9", tries=1), "us-east-1")
    with pytest.raises(Refused) as caught:
        nobody.change("RunInstances", {"MinCount": 1, "MaxCount": 1})
    assert caught.value.answer.kind is Kind.NO_ANSWER
    error = explain("create", "c-1", caught.value.answer)
    assert type(error) is CloudError
    assert "not known whether it acted" in error.why


def test_parameters_that_the_library_refuses_are_never_sent(shop: Shop) -> None:
    with pytest.raises(Refused) as caught:
        shop.calls.change("RunInstances", {"MinCount": "many"})
    assert caught.value.answer.kind is Kind.INVALID
    assert shop.front.asked == []


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (DENIED, "iam:PassRole"),
        ("You are not authorized to perform this operation.", "ec2:RunInstances"),
    ],
)
def test_the_missing_permission_is_named(shop: Shop, words: str, action: str) -> None:
    answer = refused(shop, "UnauthorizedOperation", words, 403)
    assert action_of(answer) == action
    error = explain("create", "c-1", answer)
    assert action in error.why
    assert "AAAA-bbbb" not in error.why
    assert "docs/iam" in error.next_step


def test_what_is_not_there_is_told_apart_by_what_was_asked() -> None:
    answer = Answer(kind=Kind.NOT_FOUND, code="InvalidInstanceID.NotFound", words="no such thing")
    assert isinstance(explain("create", "c-1", answer), UserError)
    assert isinstance(explain("stop", "c-1", answer), NotFoundError)


@pytest.mark.parametrize(
    ("instance_type", "market", "code", "needs"),
    [
        ("p5.48xlarge", OnDemand(), "L-417A185B", 768),
        ("p5en.48xlarge", Spot(), "L-C4BD4855", 768),
        ("p4d.24xlarge", Spot(), "L-7212CCBC", 384),
        ("trn1.32xlarge", OnDemand(), "L-2C3B7624", 512),
        ("trn2.48xlarge", Spot(), "L-6B0D517C", 768),
        ("g6.xlarge", OnDemand(), "L-DB2E81BA", 16),
        ("g4dn.12xlarge", Spot(), "L-3819A6DF", 192),
        ("c7i.large", OnDemand(), "L-1216C47A", 8),
        ("t3.medium", OnDemand(), "L-1216C47A", 8),
        ("m7i.48xlarge", Spot(), "L-34B43A08", 768),
        ("r7i.large", OnDemand(), "L-1216C47A", 1000),  # not in the table: how many vCPUs it has is not known
    ],
)
def test_a_spent_quota_is_named_with_the_command_that_asks_for_more(
    instance_type: str, market: OnDemand | Spot, code: str, needs: int
) -> None:
    said = quotas.advice("VcpuLimitExceeded", instance_type, 4, market, "us-east-1", "work")
    assert f"--quota-code {code} --desired-value {needs} --region us-east-1 --profile work" in said
    error = explain("create", "c-1", Answer(kind=Kind.QUOTA, code="VcpuLimitExceeded", words="no"), said)
    assert error.next_step == said


@pytest.mark.parametrize(("words", "asked"), [("current vCPU limit of 1247 allows", 1247 + 768), ("no limit", 768)])
def test_a_quota_request_is_never_below_the_limit_that_the_answer_names(words: str, asked: int) -> None:
    said = quotas.advice("VcpuLimitExceeded", "p5.48xlarge", 4, OnDemand(), "us-east-1", words=words)
    assert f"--desired-value {asked} " in said
    assert quotas.advice("InstanceLimitExceeded", "p5.48xlarge", 4, OnDemand(), "us-east-1", words=words) == ""


def test_the_quota_of_addresses_is_another_one() -> None:
    assert "L-0263D0A3" in quotas.advice("AddressLimitExceeded", "p5.48xlarge", 2, OnDemand(), "us-east-1")
    assert quotas.advice("PendingVerification", "p5.48xlarge", 2, OnDemand(), "us-east-1") == ""
