"""In a rehearsal folders stand for buckets: given ones, or marked empty ones; real buckets are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.preparation.host_inputs import build_mounts
from orchestrator.engine.rehearsal.buckets import fill_buckets, parse_bucket_folder
from orchestrator.errors import UserError
from orchestrator.slices import HostFacts
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task

COPY = "~/in: {source: 'gs://bbb/data/deep', mode: COPY}"
MOUNT = "~/out: {source: 's3://bbb/out/', mode: MOUNT}"


def task(*mounts: str) -> Task:
    text = f"run: echo\nresources: {{accelerators: v5e-4}}\nfile_mounts: {{{', '.join(mounts)}}}\n"
    return parse_task(text, file="t.yaml", env={}).only


@pytest.mark.parametrize("given", ["gs://bbb/data/deep", "gs://bbb/data/deep/", "gs://bbb/data", "gs://bbb"])
def test_a_copy_of_the_folder_stands_for_the_bucket(tmp_path: Path, given: str) -> None:
    deep = given.rstrip("/").removeprefix("gs://bbb").removeprefix("/data").removeprefix("/deep")
    folder = tmp_path / "sample" / {"gs://bbb": "data/deep", "gs://bbb/data": "deep"}.get(given, deep)
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    (note,) = fill_buckets(task(COPY, MOUNT), [parse_bucket_folder(f"{given}={tmp_path}/sample")], tmp_path / "place")
    assert (tmp_path / "place/gs/bbb/data/deep/file").read_text() == "x"
    assert note.startswith("~/out is an empty folder here, not s3://bbb/out")
    assert list((tmp_path / "place/s3/bbb/out").iterdir()) == []


def test_a_bucket_that_is_copied_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no files to copy from gs://bbb/data/deep to ~/in") as caught:
        fill_buckets(task(COPY), [], tmp_path)
    assert "--bucket-folder gs://bbb/data/deep=./FOLDER" in caught.value.next_step


@pytest.mark.parametrize(
    "text", ["gs://bbb/data", "=x", "gs://=.", "file:///b=.", "gs://bbb/../c=.", "gs://bbb=/no/such"]
)
def test_what_is_no_bucket_with_a_folder_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--bucket-folder"):
        parse_bucket_folder(text)


def test_a_folder_for_a_bucket_that_the_task_does_not_mount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not mount it"):
        fill_buckets(task(MOUNT), [parse_bucket_folder(f"s3://bbb/outer={tmp_path}")], tmp_path / "place")


def test_the_scripts_of_a_simulated_cloud_name_no_real_bucket(tmp_path: Path) -> None:
    facts = HostFacts(shares_files=True, bucket_folder=str(tmp_path))
    copied, mounted = (one.script.reveal() for one in build_mounts(task(COPY, MOUNT), facts))
    assert f"orch_path={tmp_path}/gs/bbb/data/deep" in copied and "gcloud" not in copied
    assert "ln -sfnT" in mounted and f"orch_path={tmp_path}/s3/bbb/out" in mounted and "mount-s3" not in mounted
