"""Slices that are made, observed and ended as an assumed role: who signs each call, and what a refusal says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from ec2_account import Ec2
from support.aws_cloud import ONE_CARD, aws_candidate

from orch_fronts.aws.calls import AwsCall
from orch_fronts.aws.roles import Roles
from orchestrator.cloud_identities.role import name_caller, trust_statement
from orchestrator.errors import CredentialsError, OtherAccountError, UserError
from orchestrator.providers.aws import blocks, choices
from orchestrator.providers.aws.principal import Principal
from orchestrator.slices import Candidate, SliceState

VISION, SPEECH = "arn:aws:iam::111111111111:role/vision", "arn:aws:iam::222222222222:role/teams/speech"


@pytest.fixture
def roles(ec2: Ec2) -> Iterator[Roles]:
    found = ec2.server.roles
    found.trusting.update({VISION: "for-vision", SPEECH: ""})
    yield found
    found.trusting.clear()
    found.given.clear()
    found.seconds = 0


def as_vision(external_id: str = "for-vision", **details: str) -> Candidate:
    return aws_candidate(ONE_CARD, role_arn=VISION, external_id=external_id, **details)


def signed_by(roles: Roles, call: AwsCall) -> str:
    found = roles.find(call.headers.get("authorization", ""))
    return found.role if found is not None else ""


def test_every_call_of_a_slice_is_signed_by_its_role(ec2: Ec2, roles: Roles) -> None:
    provider = ec2.provider().for_caller(name_caller("inst-1", "ada"))
    ec2.create(ec2.spec(as_vision()), provider)
    assert ec2.settled().state is SliceState.READY
    ec2.provider().end("c-1")
    assert ec2.settled().state is SliceState.ABSENT
    by_role = {call.operation: signed_by(roles, call) for call in ec2.server.requests}
    assert by_role.pop("AssumeRole") == ""
    assert {"RunInstances", "DescribeInstances", "TerminateInstances"} <= set(by_role)
    assert set(by_role.values()) == {VISION}
    assert {one.session for one in roles.given.values()} == {"orch-inst-1-ada", "orch"}


def test_the_account_is_that_of_the_role_and_another_one_is_refused(ec2: Ec2, roles: Roles) -> None:
    provider = ec2.provider()
    assert provider.account(aws_candidate()) == "aws:123456789012@loopback"
    assert provider.account(as_vision()) == "aws:111111111111@loopback"
    provider.within("aws:111111111111@loopback", as_vision())
    with pytest.raises(OtherAccountError, match="belong to AWS account 123456789012") as caught:
        provider.within("aws:123456789012@loopback", as_vision())
    assert f"as {VISION}" in caught.value.why


def test_a_machine_of_the_server_itself_stays_its_own_when_a_role_is_set(ec2: Ec2, roles: Roles) -> None:
    ec2.create(ec2.spec())
    ec2.create(ec2.spec(as_vision(), "t-2", "c-2"))
    ec2.server.requests.clear()
    provider = ec2.provider().within("aws:123456789012@loopback", aws_candidate())
    assert provider.observe("c-1", "t-1").state is SliceState.CREATING
    assert {signed_by(roles, call) for call in ec2.server.requests} == {""}
    ec2.server.requests.clear()
    ec2.provider().within("aws:111111111111@loopback", as_vision()).observe("c-2", "t-2")
    assert {signed_by(roles, call) for call in ec2.server.requests if call.operation != "AssumeRole"} == {VISION}


def test_two_roles_in_one_process_are_never_mixed(ec2: Ec2, roles: Roles) -> None:
    provider = ec2.provider()
    wanted = {f"c-{number}": SPEECH if number % 2 else VISION for number in range(1, 9)}

    def make(name: str) -> None:
        role = wanted[name]
        one = as_vision() if role == VISION else aws_candidate(ONE_CARD, role_arn=SPEECH)
        provider.create(ec2.spec(one, f"t-{name}", name), ec2.keys_for(1))
        provider.observe(name, f"t-{name}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, wanted))
    made = {}
    for call in ec2.server.requests:
        if call.operation == "RunInstances":
            tags = [value for key, value in call.params.items() if ".Tag." in key and key.endswith(".Value")]
            made[next(name for name in wanted if name in tags)] = signed_by(roles, call)
    assert made == wanted
    unsigned = {call.operation for call in ec2.server.requests if not signed_by(roles, call)}
    assert unsigned == {"AssumeRole"}


def test_keys_that_end_soon_are_renewed_before_each_call(ec2: Ec2, roles: Roles) -> None:
    roles.seconds = 60
    ec2.create(ec2.spec(as_vision()))
    assert ec2.settled().state is SliceState.READY
    assert len(roles.given) > 3


def test_a_refusal_says_which_role_who_asked_and_what_its_trust_policy_lacks(ec2: Ec2, roles: Roles) -> None:
    for external_id in ("", "another"):
        with pytest.raises(CredentialsError) as caught:
            ec2.create(ec2.spec(as_vision(external_id)))
        lines = caught.value.lines()
        assert len(lines) <= 5
        assert f"the role {VISION} cannot be assumed" in lines[0]
        assert "User: arn:aws:iam::123456789012:user/orch is not authorized to perform: sts:AssumeRole" in lines[1]
        statement = json.loads(caught.value.next_step.splitlines()[0].partition(": ")[2])
        assert statement["Principal"] == {"AWS": "arn:aws:iam::123456789012:user/orch"}
        assert ("Condition" in statement) == bool(external_id)
    assert ec2.left() == {}


def test_a_role_that_stops_trusting_is_unclear_and_never_absent(ec2: Ec2, roles: Roles) -> None:
    ec2.create(ec2.spec(as_vision()))
    roles.trusting.clear()
    view = ec2.provider().observe("c-1", "t-1")
    assert view.state is SliceState.UNCLEAR
    assert VISION in view.reason


def test_the_trust_of_an_assumed_role_names_the_role_and_not_its_session() -> None:
    statement = json.loads(trust_statement("arn:aws:sts::123456789012:assumed-role/server/i-0123", ""))
    assert statement["Principal"]["AWS"] == "arn:aws:iam::123456789012:role/server"


def test_names_of_sessions_fit_what_sts_takes() -> None:
    assert name_caller("a1b2", "Ada Lovelace/ops") == "orch-a1b2-Ada_Lovelace_ops"
    assert len(name_caller("x" * 40, "y" * 80)) == 64
    assert name_caller("", "") == "orch"


@pytest.mark.parametrize("profile", ["", "dev", "a as b"])
@pytest.mark.parametrize("external_id", ["", "x:/y=1"])
@pytest.mark.parametrize("role_arn", ["", VISION, SPEECH])
def test_the_text_of_a_principal_is_read_back(profile: str, role_arn: str, external_id: str) -> None:
    one = Principal(profile=profile, role_arn=role_arn, external_id=external_id if role_arn else "")
    assert Principal.parse(str(one)) == one


def test_capacity_blocks_are_bought_as_the_role_of_the_project(monkeypatch: pytest.MonkeyPatch, ec2: Ec2) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ec2.server.url)
    place = blocks.name_place((("profile", ""), ("role_arn", SPEECH)))
    assert blocks.open_session(place).principal == Principal(role_arn=SPEECH)
    assert blocks.open_session("").principal == Principal()


def test_session_manager_is_refused_with_a_role() -> None:
    with pytest.raises(UserError, match="a role is assumed"):
        choices.read(as_vision(access="ssm", instance_profile="hosts"))
    for wrong in ("arn:aws:iam::1:role/x", "vision", f"{VISION} with more"):
        with pytest.raises(UserError, match="role_arn is"):
            choices.read(aws_candidate(ONE_CARD, role_arn=wrong))


def test_what_others_find_of_a_role_is_taken_over_as_that_role(ec2: Ec2, roles: Roles) -> None:
    ec2.create(ec2.spec(as_vision()))
    ec2.settled()
    place = ec2.provider().place_as((("role_arn", VISION), ("external_id", "for-vision")))
    bound = ec2.provider(ec2.state / "other").at(place)
    (found,) = bound.owned("")
    recovered = bound.describe_owned(found)
    assert recovered.candidate.detail("role_arn") == VISION
    assert recovered.candidate.detail("external_id") == "for-vision"
    assert bound.place_account() == "aws:111111111111@loopback"
