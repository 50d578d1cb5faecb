"""The digest by which the same command finds its unfinished job, also after an upgrade."""

from __future__ import annotations

import pytest
from test_task_json import FULL, HOSTS

from orchestrator.engine.preparation.host_inputs import job_digest
from orchestrator.task.parse import parse_task

SMALL = "name: small\nresources: {infra: 'local:2', autostop: true}\nrun: 'true'\n"
# As orch computed them before fields at their defaults were left out (November 2026).
RECORDED = [
    (FULL, "493863bc0877840ced321fc6ceae1bb5bcbc54d86af6464f4ea0ce197c0fbe01"),
    (HOSTS, "ca77d0f32e447d0c46a25c5fd138ce31705b54433a8abb8ccf5f384bdfbcf538"),
    (SMALL, "d36575e811f09a298da565074384f06d5d38f581a9c98aec9b113b6c831f2601"),
]


def compute_digest(text: str) -> str:
    return job_digest("c", "launch", parse_task(text, file="t", env={}).only, ())


@pytest.mark.parametrize(("text", "digest"), RECORDED, ids=["full", "hosts", "small"])
def test_a_digest_is_that_of_earlier_versions(text: str, digest: str) -> None:
    assert compute_digest(text) == digest


def test_a_field_with_another_value_changes_the_digest() -> None:
    assert compute_digest(f"{SMALL}recovery: {{max_failures: 0}}\n") == compute_digest(SMALL)
    assert compute_digest(f"{SMALL}recovery: {{max_failures: 1}}\n") != compute_digest(SMALL)
