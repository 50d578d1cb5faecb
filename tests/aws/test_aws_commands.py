"""Parameters as the words of the aws command: names against botocore's, unknowns and secrets inside JSON."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from aws_cases import KNOWN, candidate, hostile, spec
from botocore import xform_name
from botocore.session import get_session

from orchestrator.plan.bash_quoting import Variables, bash_word
from orchestrator.providers.aws import unknowns
from orchestrator.providers.aws.commands import command, kebab
from orchestrator.providers.aws.parameters import as_json
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.values import MASK, Secret, Text, Unknown


def words(operation: str, parameters: dict[str, Any], **where: str) -> list[str]:
    return [word.preview() for word in command("ec2", operation, parameters, region="eu-west-1", **where)]


@pytest.mark.parametrize("service", ["ec2", "ssm", "service-quotas"])
def test_names_are_those_of_the_aws_command(service: str) -> None:
    model = get_session().get_service_model(service)
    names = set(model.operation_names)
    for operation in ("RunInstances", "AuthorizeSecurityGroupIngress", "PurchaseCapacityBlock", "GetParameter"):
        if operation in names:
            shape = model.operation_model(operation).input_shape
            assert shape is not None
            names |= set(shape.members)
    different = sorted(name for name in names if kebab(name) != xform_name(name, "-"))
    # Operations and parameters that no request of ours has.
    assert set(different) <= set(model.operation_names), different
    ours = {one.method for one in PLANNER.create_request(spec()).in_order}
    assert not ours & set(different)


def test_each_kind_of_value_has_its_form() -> None:
    given = {"GroupIds": ["a", "b"], "DryRun": True, "AllowReassociation": False, "Size": 3, "Filters": [{"Name": "n"}]}
    assert words("DescribeThings", given, profile="p") == [
        *("aws", "ec2", "describe-things", "--region", "eu-west-1", "--profile", "p", "--group-ids", "a", "b"),
        *("--dry-run", "--no-allow-reassociation", "--size", "3", "--filters", '[{"Name":"n"}]'),
    ]


def test_two_counts_are_one_word() -> None:
    assert words("RunInstances", {"MinCount": 2, "MaxCount": 2})[-2:] == ["--count", "2"]
    assert words("RunInstances", {"MinCount": 1, "MaxCount": 3})[-2:] == ["--count", "1:3"]


def test_user_data_comes_from_a_file() -> None:
    last = command("ec2", "RunInstances", {"UserData": Text.of(Secret("k", "private"))}, region="r")[-1]
    assert last == Text.of("file://", unknowns.USER_DATA_FILE)


def test_unknowns_and_secrets_stay_what_they_are_inside_json() -> None:
    inside = as_json(
        {"a": [Text.of('x"', unknowns.GROUP, "\\y")], "b": Text.of(Secret("s", "hush")), "c": 1, "d": None}
    )
    assert unknowns.GROUP in inside.parts
    assert "hush" not in inside.preview()
    assert MASK in inside.preview()
    told = json.loads(inside.fill({unknowns.GROUP: "sg-1"}).reveal())
    assert told == {"a": ['x"sg-1\\y'], "b": "hush", "c": 1, "d": None}


def test_bash_puts_known_values_into_the_json() -> None:
    variables = Variables()
    line = bash_word(as_json({"it's": Text.of("$(id)", unknowns.GROUP)}), variables)
    name = variables.name_of(unknowns.GROUP)
    script = f"{name}=sg-1; printf %s {line}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"it's": "$(id)sg-1"}


def test_unknowns_have_names_of_their_own_in_a_script() -> None:
    variables = Variables()
    every = [*KNOWN, unknowns.USER_DATA, unknowns.USER_DATA_FILE]
    names = [variables.name_of(one) for one in every]
    assert len(set(names)) == len(every)
    assert not any(name.endswith("_") for name in names), "cut short, two would differ by an underline"


def test_no_command_names_a_file_of_the_users_by_a_label() -> None:
    """awscli 1 reads a whole word that begins with file:// from there."""
    for request in PLANNER.create_request(hostile()).in_order:
        named = [word for word in request.command if word.preview().startswith(("file:", "fileb:", "http"))]
        assert named in ([], [Text.of("file://", unknowns.USER_DATA_FILE)])


def test_hostile_profile_and_token_stay_words() -> None:
    line = command("ec2", "X", {"ClientToken": Text.of(Unknown("id"), "-$(id)")}, region="r", profile="a b")
    variables = Variables()
    text = " ".join(bash_word(word, variables) for word in line)
    script = f"UNKNOWN_ID='x y'; printf '%s|' {text}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "aws|ec2|x|--region|r|--profile|a b|--client-token|x y-$(id)|"


def test_every_command_says_region_and_profile() -> None:
    for request in PLANNER.create_request(spec(candidate(profile="dev"))).in_order:
        shown = [word.preview() for word in request.command]
        assert shown[3:7] == ["--region", "us-east-1", "--profile", "dev"]
