"""Machines on EC2 that could not open the task's bucket are not rented; the plan of them is shown all the same."""

from __future__ import annotations

import pytest

from orchestrator.engine.bucket_access import without_credentials
from orchestrator.errors import AccessError
from orchestrator.slices import HostFacts
from orchestrator.spec.parse import parse_task
from orchestrator.spec.task import Task

MINE = "checkpoint: {bucket: s3://mine/runs}"


def task(more: str, resources: str = "{accelerators: 'H100:8'}") -> Task:
    return parse_task(f"run: echo\nresources: {resources}\n{more}\n", file="t.yaml", env={}).only


@pytest.mark.parametrize("more", [MINE, "file_mounts: {/data: s3://mine/data}"])
def test_a_bucket_without_an_instance_profile_is_refused(more: str) -> None:
    refused = without_credentials(task(more), HostFacts())
    assert isinstance(refused, AccessError)
    assert "s3://mine" in refused.what
    assert refused.next_step.startswith("orch config set aws.instance_profile NAME")


@pytest.mark.parametrize(
    "fine",
    [
        task(f"{MINE}\nconfig: {{aws: {{instance_profile: trainer}}}}"),
        task(f"{MINE}\nenvs: {{AWS_PROFILE: mine}}"),
        task(f"{MINE}\nsecrets: {{AWS_ACCESS_KEY_ID: a}}"),
        task("checkpoint: {bucket: 'gs://mine/runs'}"),
        task(""),
        task(MINE, "{accelerators: v5e-8}"),
        task(MINE, "{infra: local}"),
    ],
)
def test_what_needs_none_or_has_some_is_not(fine: Task) -> None:
    assert without_credentials(fine, HostFacts()) is None


def test_what_the_provider_gives_its_hosts_counts() -> None:
    assert without_credentials(task(MINE), HostFacts(env=(("AWS_ACCESS_KEY_ID", "a"),))) is None
