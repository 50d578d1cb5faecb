"""orch_run: a bucket that cannot be used ends a program immediately, and not after a day without one checkpoint."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from program_crash import open_run, save_step
from support.s3 import S3Server
from support.small_disk import fill, small_disk

from orch_fronts.google.gcs import gcs_server
from trainer.errors import AccessDenied, Exit, LastingStorageError, StorageError
from trainer.program import init


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "1m") as folder:
        yield folder


def test_a_first_save_on_a_full_disk_is_raised_by_the_next_call(disk: Path, tmp_path: Path) -> None:
    run = open_run(f"file://{disk}", tmp_path, epoch=1)
    ballast = fill(disk)
    save_step(run, 1)
    assert run.saver is not None
    run.saver.drain()
    for call in (lambda: run.heartbeat(2), run.new_folder, run.wait):
        with pytest.raises(LastingStorageError, match="the disk is full: free some room"):
            call()
    ballast.unlink()
    again = open_run(f"file://{disk}", tmp_path, epoch=2)
    save_step(again, 1)
    again.wait()
    fill(disk)
    save_step(again, 2)
    assert again.saver is not None
    again.saver.drain()
    again.heartbeat(3)  # the first one is there: training continues, as before


@pytest.mark.parametrize("options", ["remount,ro"])
def test_a_disk_that_is_read_only_is_an_error_of_init(disk: Path, tmp_path: Path, options: str) -> None:
    subprocess.run(["mount", "-o", options, str(disk)], check=True)
    with pytest.raises(LastingStorageError, match="Read-only file system") as caught:
        open_run(f"file://{disk}", tmp_path, epoch=1)
    assert caught.value.exit_status == Exit.NO_STORAGE


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_missing_bucket_is_an_error_of_init(
    kind: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gcs_server() as gcs:
        for key, value in {**s3.environment, "STORAGE_EMULATOR_HOST": gcs.url}.items():
            monkeypatch.setenv(key, value)
        with pytest.raises(StorageError, match="there is no such bucket: make it, or name another one"):
            open_run(f"{kind}://no-such-bucket", tmp_path, epoch=1)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(StorageError, match="there is no such bucket"):
            init(f"{kind}://no-such-bucket/r/checkpoints", environ={})  # without orch, it claims the epoch itself


def test_denied_and_wrong_credentials_have_errors_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.checkpoint.claim._YOUNG_SECONDS", 0.1)
    with gcs_server(token="right") as gcs:
        gcs.create_bucket("closed")
        gcs.forbidden.add("closed")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "right")
        with pytest.raises(AccessDenied, match=r"access is denied \(AccessDenied\): give these credentials the right"):
            open_run("gs://closed", tmp_path, epoch=1)
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "wrong")
        with pytest.raises(LastingStorageError, match="the credentials are wrong"):
            open_run("gs://closed", tmp_path, epoch=1)
