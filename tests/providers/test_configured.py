"""Which clouds have to be asked: what environment and configuration files say, without a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.providers.aws import configured as aws
from orchestrator.providers.google import configured as google
from orchestrator.providers.registry import list_rented_providers

CONFIG = """
[default]
region = us-east-1
[profile work]
sso_session = company
sso_account_id = 111122223333
[profile robot]
role_arn = arn:aws:iam::111122223333:role/robot
source_profile = work
[profile empty]
region = eu-west-1
[sso-session company]
sso_start_url = https://example.awsapps.com/start
"""
KEYS = "[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = x\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ENDPOINT_URL", "ORCH_GCP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_configuration_without_credentials_counts_as_none(home: Path) -> None:
    write(home / ".aws" / "config", "[default]\nregion = us-east-1\n")
    assert aws.find_credentials({}, home) == ""
    assert aws.usual_profile({}, home) is None


def test_profiles_with_credentials_are_listed(home: Path) -> None:
    write(home / ".aws" / "config", CONFIG)
    assert aws.list_profiles({}, home) == ("robot", "work")
    assert aws.usual_profile({}, home) is None
    assert aws.usual_profile({"AWS_PROFILE": "work"}, home) == "work"
    write(home / ".aws" / "credentials", KEYS)
    assert aws.list_profiles({}, home) == ("default", "robot", "work")
    assert aws.usual_profile({}, home) == "default"
    assert aws.usual_profile({"AWS_ACCESS_KEY_ID": "AKIA"}, home) == ""


def test_a_file_that_cannot_be_read_may_have_credentials(home: Path) -> None:
    write(home / ".aws" / "credentials", "no section\n")
    assert "has credentials" in aws.find_credentials({}, home)


def test_files_elsewhere_are_read(home: Path) -> None:
    write(home / "keys", KEYS)
    assert aws.find_credentials({"AWS_SHARED_CREDENTIALS_FILE": str(home / "keys")}, home)
    write(home / "account.json", "{}")
    assert google.find_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(home / "account.json")}, home)
    assert not google.find_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(home / "absent.json")}, home)


def test_the_projects_of_gcloud_are_listed(home: Path) -> None:
    folder = home / ".config" / "gcloud"
    write(folder / "configurations" / "config_default", "[core]\nproject = one\n")
    write(folder / "configurations" / "config_other", "[core]\naccount = me\nproject = two\n")
    write(folder / "configurations" / "config_bare", "[compute]\nzone = us-west4-a\n")
    assert google.list_projects({}, home) == ("one", "two")
    assert google.list_projects({"ORCH_GCP_ENDPOINT": "http://127.0.0.1:9"}, home) == ()
    assert google.find_credentials({}, home) == ""
    write(folder / "application_default_credentials.json", "{}")
    assert google.find_credentials({}, home)


def test_a_cloud_is_included_by_its_records_its_folder_or_its_credentials(home: Path) -> None:
    state = home / "state"

    def included(*recorded: str) -> list[str]:
        return [one.provider for one in list_rented_providers(state, recorded, {}, home) if one.included]

    assert included() == ["local"]
    assert included("gcp") == ["local", "gcp"]
    (state / "google-compute").mkdir(parents=True)
    write(home / ".aws" / "credentials", KEYS)
    assert included() == ["local", "gcp", "aws"]
    reasons = {one.provider: one.why for one in list_rented_providers(state, (), {}, home)}
    assert reasons["gcp"] == "used from here" and reasons["aws"].endswith("has credentials")
