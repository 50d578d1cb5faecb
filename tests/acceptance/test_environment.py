"""A run has the user's accounts and settings of its cloud, and nothing else of the user's."""

from __future__ import annotations

from pathlib import Path

from orchestrator.acceptance.environment import list_account_names, list_secret_values, make_environment
from orchestrator.drivers import get_driver
from orchestrator.task.config import parse_config

CONFIG = """
[gcp]
project = "mine-12345"
internal_ips = true
[aws]
profile = "work"
subnets = ["a", "b"]
[limits]
max_hours = 0.1
[team]
project = "phd"
"""


def test_settings_of_the_cloud_are_taken_and_all_others_are_not() -> None:
    environ = {
        "PATH": "/bin", "GOOGLE_APPLICATION_CREDENTIALS": "/key", "ORCH_GCP_ENDPOINT": "http://127.0.0.1:1",
        "ORCH_GCP_VPC_NAME": "net", "ORCH_STORE": "postgresql://x", "ORCH_PROJECT": "p", "ORCH_HOME": "/theirs",
        "ORCH_CONFIG": "/c", "ORCH_CHECKPOINT_BUCKET": "gs://theirs", "ORCH_LIMITS_MAX_HOURS": "1",
    }  # fmt: skip
    env = make_environment("gcp", Path("/new"), environ, parse_config(CONFIG, "c.toml", environ))
    assert env == {
        "PATH": "/bin", "GOOGLE_APPLICATION_CREDENTIALS": "/key", "ORCH_GCP_ENDPOINT": "http://127.0.0.1:1",
        "ORCH_GCP_VPC_NAME": "net", "ORCH_GCP_PROJECT": "mine-12345", "ORCH_GCP_INTERNAL_IPS": "true",
        "ORCH_HOME": "/new",
    }  # fmt: skip
    assert parse_config("", "", env).flag("gcp.internal_ips")
    env = make_environment("aws", Path("/new"), {}, parse_config(CONFIG, "c.toml", {}))
    assert parse_config("", "", env).texts("aws.subnets") == ("a", "b") and env["ORCH_AWS_PROFILE"] == "work"


def test_names_of_accounts_and_secrets_are_known_for_the_mask() -> None:
    env = {"ORCH_GCP_PROJECT": "mine-12345", "GOOGLE_CLOUD_PROJECT": "other-1", "AWS_SECRET_ACCESS_KEY": "k", "A": "b"}
    assert list_account_names(get_driver("gcp"), env) == ("mine-12345", "other-1")
    assert list_account_names(get_driver("aws"), {"AWS_PROFILE": "work", "A": "b"}) == ("work",)
    assert list_secret_values(env) == ("k",)
