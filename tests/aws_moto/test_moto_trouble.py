"""Trouble on moto: lost answers, lists that lag, refusals, lost records, and machines of another account."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from moto_account import CPU, INSTALLATION, MotoAccount, S
from moto_proxy import LOST
from support.aws_cloud import EFA, aws_candidate

from orchestrator.errors import (
    CapacityError,
    CloudError,
    OrchError,
    OtherAccountError,
    QuotaError,
    RefusedError,
    UserError,
)
from orchestrator.slices import Candidate

PAIR = aws_candidate(CPU, hosts=2)
EFA_PAIR = aws_candidate(EFA, hosts=2)


MADE = (
    "CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress", "CreatePlacementGroup",
    "AllocateAddress", "RunInstances", "AssociateAddress",
)  # fmt: skip
REMOVED = ("TerminateInstances", "ReleaseAddress", "DeleteSecurityGroup", "DeletePlacementGroup")


def repeated(command: Callable[[], Any]) -> Any:
    """Repeat what ends with "not known whether it acted", as a person does."""
    for _ in range(len(MADE) + len(REMOVED)):
        with suppress(CloudError):
            return command()
    raise AssertionError("no command was answered")


def absent(account: MotoAccount) -> bool:
    while (view := account.settled()).state is S.UNCLEAR:
        account.provider().end("c-1")
    return view.state is S.ABSENT


def instances(account: MotoAccount) -> list[str]:
    return account.left().get("instances", [])


def test_a_lost_answer_makes_no_second_machines(account: MotoAccount) -> None:
    account.proxy.lose("RunInstances")
    spec = account.spec(PAIR)
    keys = account.create(spec)
    account.create(spec, keys)
    assert account.settled().state is S.READY
    assert len(instances(account)) == 2
    assert account.proxy.seen.count("RunInstances") == 1, "the instances of the token were found"


def test_a_lost_answer_of_machines_that_are_not_shown_yet_makes_no_second_ones(account: MotoAccount) -> None:
    spec = account.spec(PAIR)
    account.proxy.lose("RunInstances")
    account.proxy.hidden = True
    keys = account.keys(2)
    with pytest.raises(CloudError, match="not known whether it acted"):
        account.create(spec, keys)
    account.create(spec, keys)
    account.proxy.hidden = False
    assert account.proxy.seen.count("RunInstances") == 2
    assert ("RunInstances", "moto has no client tokens") in account.proxy.own
    assert len(instances(account)) == 2
    view = account.settled()
    assert len(set(account.run(view, "pwd"))) == 2


def test_every_answer_is_lost_once_and_nothing_is_made_twice_or_left(account: MotoAccount) -> None:
    for operation in (*MADE, *REMOVED):
        account.proxy.lose(operation)
    spec, keys = account.spec(EFA_PAIR), account.keys(2)
    repeated(lambda: account.create(spec, keys))
    view = account.settled()
    assert view.state is S.READY
    assert len(set(account.run(view, "pwd"))) == 2
    counts = {kind: len(names) for kind, names in account.left().items()}
    assert counts == {"instances": 2, "groups": 1, "volumes": 2, "placements": 1, "addresses": 2}
    repeated(lambda: account.provider().end("c-1"))
    assert repeated(lambda: absent(account)), "the end was not finished"
    assert account.left() == {}
    assert {operation for operation, reason in account.proxy.own if reason == LOST} == {*MADE, *REMOVED}


def test_a_create_from_a_second_computer_has_the_keys_that_ec2_holds(account: MotoAccount) -> None:
    spec = account.spec(PAIR)
    first = account.create(spec)
    other = account.provider("elsewhere")
    account.create(spec, account.keys(2), other)
    view = account.settled(provider=other)
    assert [host.host_key for host in view.hosts] == list(first.host_public)
    assert len(set(account.run(view, "pwd"))) == 2
    assert len(instances(account)) == 2


def test_the_token_of_machines_that_have_ended_makes_no_new_ones(account: MotoAccount) -> None:
    spec = account.spec()
    keys = account.create(spec)
    account.settled()
    account.provider().end("c-1")
    assert account.settled().state is S.ABSENT
    account.proxy.hidden = True  # EC2 shows instances that have ended for about an hour
    with pytest.raises(CloudError, match="IdempotentInstanceTerminated") as caught:
        account.create(spec, keys, account.provider("elsewhere"))
    account.proxy.hidden = False
    assert caught.value.next_step.startswith("orch down")
    account.provider("elsewhere").end("c-1")
    assert account.left() == {}


@pytest.mark.parametrize(
    ("candidate", "words", "error"),
    [
        (aws_candidate(CPU, image="ami-0123456789abcdef0"), "InvalidAMIID.NotFound", RefusedError),
        (aws_candidate(CPU, subnet="subnet-0123456789abcdef0"), "InvalidSubnetID.NotFound", UserError),
        (replace(PAIR, details=(("instance_profile", "nobody"),)), "nobody", UserError),
        (aws_candidate("p9.48xlarge", hosts=2), "does not offer p9.48xlarge", CapacityError),
    ],
    ids=["image", "subnet", "instance profile", "instance type"],
)
def test_what_moto_refuses_leaves_nothing(
    account: MotoAccount, candidate: Candidate, words: str, error: type[OrchError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moto.settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION", True)
    with pytest.raises(error, match=words) as caught:
        account.create(account.spec(candidate))
    assert type(caught.value) is error
    assert account.left() == {}
    assert account.provider().finish("c-1").state is S.ABSENT


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("InsufficientInstanceCapacity", 500, CapacityError), ("VcpuLimitExceeded", 400, QuotaError)],
)
def test_machines_that_are_not_available_leave_nothing(
    account: MotoAccount, code: str, status: int, error: type[OrchError]
) -> None:
    account.proxy.refuse("RunInstances", code, "We currently do not have sufficient capacity.", status)
    with pytest.raises(error, match=code):
        account.create(account.spec(EFA_PAIR))
    assert account.left() == {}
    account.create(account.spec(EFA_PAIR, "t-2", "c-2"))
    assert account.settled("c-2").state is S.READY


def test_a_slice_without_a_record_is_listed_and_ended(account: MotoAccount) -> None:
    account.create(account.spec(PAIR))
    assert account.settled().state is S.READY
    other = account.provider("elsewhere")
    (found,) = other.owned(INSTALLATION)
    assert (found.name, found.intent, found.state, found.where) == ("c-1", "t-1", S.READY, "aws/us-east-1/us-east-1a")
    assert other.owned("another") == ()
    other.end("c-1", "t-1")
    assert other.finish("c-1", "t-1").state is S.FAILED, "its groups were left, and are deleted now"
    assert other.finish("c-1", "t-1").state is S.ABSENT
    assert other.owned(INSTALLATION) == ()
    assert account.left() == {}


def test_machines_of_another_account_are_not_taken_for_absent(
    account: MotoAccount, make_account: Callable[[], MotoAccount]
) -> None:
    account.create(account.spec())
    assert account.settled().state is S.READY
    belongs = account.provider().account(aws_candidate(CPU))
    assert belongs == f"aws:{account.number}@loopback"
    shutil.copytree(account.folder / "state", account.folder / "copied")
    other = make_account()
    provider = other.provider("copied")
    with pytest.raises(OtherAccountError, match=account.number):
        provider.within(belongs, aws_candidate(CPU))
    assert provider.owned(INSTALLATION) == ()
    assert account.provider().finish("c-1").state is S.READY
