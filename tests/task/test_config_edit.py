"""One key is set; what else a person wrote stays, byte for byte."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.task.config import parse_config
from orchestrator.task.config_edit import set_config_value
from orchestrator.task.errors import ConfigError

MINE = """# mine
[checkpoint]
bucket = "s3://old" # the old one

[gcp]   # Google
project = "p"
"""


def test_a_key_that_is_there_is_replaced_and_one_that_is_not_is_added_to_its_section() -> None:
    changed = set_config_value(MINE, "c", "checkpoint.bucket", "s3://new")
    assert changed == MINE.replace('bucket = "s3://old" # the old one', 'bucket = "s3://new"')
    added = set_config_value(MINE, "c", "gcp.vpc_name", "theirs")
    assert added == MINE + 'vpc_name = "theirs"\n'
    more = f'{MINE}\n[aws]\nprofile = "work"\n'
    between = set_config_value(more, "c", "gcp.vpc_name", "theirs")
    assert between == more.replace('project = "p"\n', 'project = "p"\nvpc_name = "theirs"\n')


def test_a_section_and_a_file_that_are_not_there_are_made() -> None:
    assert set_config_value("", "c", "aws.profile", "work") == '[aws]\nprofile = "work"\n'
    assert set_config_value(MINE, "c", "aws.subnets", "a, b") == MINE + '\n[aws]\nsubnets = ["a", "b"]\n'
    assert "use_spot = true" in set_config_value("", "c", "resources.use_spot", "yes")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("aws.instance_profil", "x", "did you mean `aws.instance_profile`"),
        ("limits.max_hours", "many", "must be a number above 0"),
        ("resources.use_spot", "perhaps", "must be true or false"),
        ("checkpoint.bucket", "mine", "`mine` is not a bucket address"),
        ("checkpoint.bucket", "/mnt/runs", "`/mnt/runs` is not a bucket address"),
        ("limits.max_hours", "90000", "`limits.max_hours` cannot be 90000"),
        ("gcp.access", "outside", "`config.gcp.access` cannot be `outside`"),
        ("resources.infra", "gpc", "did you mean `gcp`"),
    ],
)
def test_what_cannot_be_is_refused_as_in_the_file(key: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_config_value(MINE, "c", key, value)
    assert said in str(caught.value)
    assert f"orch config set {'aws.instance_profile' if 'profil' in key else key} VALUE" in caught.value.next_step
    assert len(caught.value.why) < 100


def test_as_whom_clouds_are_called_is_checked_as_for_a_project() -> None:
    for key, value in (("gcp.impersonate", "foo"), ("aws.role_arn", "admin"), ("aws.external_id", "x")):
        with pytest.raises(UserError, match=value):
            set_config_value(MINE, "c", key, value)
    mail = "orch@p.iam.gserviceaccount.com"
    assert mail in set_config_value(MINE, "c", "gcp.impersonate", mail)


@pytest.mark.parametrize(
    "odd", ['aws.profile = "a"\n', 'aws = {profile = "a"}\n', '[aws]\nsubnets = [\n  "a",\n]\n', "[aws\n"]
)
def test_a_file_that_is_not_understood_is_left_alone(odd: str) -> None:
    with pytest.raises(ConfigError):
        set_config_value(odd, "c", "aws.subnets", "b")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=20).filter(str.strip))
def test_any_text_comes_back_as_it_was(words: str) -> None:
    new = set_config_value(MINE, "c", "aws.profile", words)
    assert tomllib.loads(new)["aws"]["profile"] == words
    assert parse_config(new, "c", {}).text("checkpoint.bucket") == "s3://old"
