"""Buckets on hosts: which are copied, which are mounted, and which are refused with the reason."""

from __future__ import annotations

import pytest

from orchestrator.engine.wish import mounts
from orchestrator.errors import UserError
from orchestrator.spec.parse import parse_task
from orchestrator.spec.task import Task


def task(mount: str, infra: str = "gcp", accelerators: str = "v5e-8") -> Task:
    text = f"resources: {{infra: {infra}, accelerators: {accelerators}}}\nfile_mounts: {{~/data: {mount}}}\nrun: x"
    return parse_task(text, file="t.yaml", env={}).only


def script(mount: str, infra: str = "gcp") -> str:
    (wanted,) = mounts(task(mount, infra))
    return wanted.script.reveal()


def test_a_storage_object_of_google_is_mounted_unless_copy_is_asked_for() -> None:
    assert "gcsfuse" in script("{source: gs://b/x}")
    assert "gcsfuse" in script("{name: b, store: gcs, mode: mount}")
    assert "gcsfuse" not in script("{source: gs://b/x, mode: COPY}")
    assert "gcsfuse" not in script("gs://b/x")


def test_only_rented_hosts_get_programs_installed() -> None:
    assert "orch_install=yes" in script("{source: gs://b/x}", "gcp")
    assert "orch_install=no" in script("{source: gs://b/x}", "local")


@pytest.mark.parametrize(
    ("mount", "why", "step"),
    [
        ("{source: s3://b/x}", "gs:// buckets only", "write mode: COPY"),
        ("{source: file:///x}", "gs:// buckets only", "write mode: COPY"),
        ("{source: gs://b/x, mode: MOUNT_CACHED}", "a host that is lost takes them along", "write mode: MOUNT"),
        ("{source: s3://b/x, mode: MOUNT_CACHED}", "a host that is lost takes them along", "write mode: COPY"),
    ],
)
def test_what_no_host_mounts_is_refused_with_the_reason(mount: str, why: str, step: str) -> None:
    with pytest.raises(UserError) as caught:
        mounts(task(mount))
    assert why in caught.value.why
    assert caught.value.next_step.startswith(step)
