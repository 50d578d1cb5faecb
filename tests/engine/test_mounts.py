"""Buckets on hosts: which are copied, which are mounted, and which are refused with the reason."""

from __future__ import annotations

import pytest

from orchestrator.engine.preparation.host_inputs import build_mounts
from orchestrator.slices import HostFacts
from orchestrator.task.errors import TaskError
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task


def task(mount: str, infra: str = "gcp", accelerators: str = "v5e-8") -> Task:
    text = f"resources: {{infra: {infra}, accelerators: {accelerators}}}\nfile_mounts: {{~/data: {mount}}}\nrun: x"
    return parse_task(text, file="t.yaml", env={}).only


def script(mount: str, infra: str = "gcp") -> str:
    (mount_spec,) = build_mounts(task(mount, infra), HostFacts())
    return mount_spec.script.reveal()


def test_an_s3_source_is_mounted_as_the_task_says() -> None:
    mounted = script("{source: s3://bbb/x, read_only: true}")
    assert "mount-s3" in mounted and "--read-only" in mounted
    writable = script("{source: s3://bbb/x}")
    assert "--allow-overwrite --allow-delete" in writable and "--read-only" not in writable
    assert "mount-s3" not in script("{source: s3://bbb/x, mode: COPY}")


def test_local_disks_are_mounted_before_what_uses_them() -> None:
    disks, data = build_mounts(task("{source: s3://bbb/x, read_only: true}"), HostFacts(scratch="/opt/dlami/nvme"))
    assert (disks.label, disks.destination) == ("scratch", "/opt/dlami/nvme")
    assert "/opt/dlami/nvme" in data.script.reveal()
    (only,) = build_mounts(task("{source: gs://bbb/x}", "local"), HostFacts(scratch="/mine"))
    assert only.label == "~/data", "the disks of a machine that is not rented are left alone"


def test_a_gs_source_is_mounted_unless_copy_is_requested() -> None:
    assert "gcsfuse" in script("{source: gs://bbb/x}")
    assert "gcsfuse" in script("{name: bbb, store: gcs, mode: mount}")
    assert "gcsfuse" not in script("{source: gs://bbb/x, mode: COPY}")
    assert "gcsfuse" not in script("gs://bbb/x")


def test_only_rented_hosts_get_programs_installed() -> None:
    assert "orch_install=yes" in script("{source: gs://bbb/x}", "gcp")
    assert "orch_install=no" in script("{source: gs://bbb/x}", "local")


@pytest.mark.parametrize(
    ("mount", "why", "step"),
    [
        ("{source: file:///x}", "gs:// buckets with gcsfuse and s3:// buckets", "write mode: COPY"),
        ("{source: gs://bbb/x, mode: MOUNT_CACHED}", "so a lost host loses them", "write mode: MOUNT"),
        ("{source: s3://bbb/x, mode: MOUNT_CACHED}", "so a lost host loses them", "write mode: MOUNT"),
    ],
)
def test_sources_that_no_host_can_mount_are_refused_with_the_reason(mount: str, why: str, step: str) -> None:
    with pytest.raises(TaskError) as caught:
        task(mount)
    assert why in caught.value.why
    assert caught.value.next_step.startswith(step)
