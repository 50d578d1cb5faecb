"""A bucket that cannot be used: an error before the first step or at the first save, and a status without restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from support.s3 import S3Server
from support.small_disk import fill, small_disk
from trainer_ranks import Launcher, Ranks

from orch_fronts.google.gcs import gcs_server
from trainer.errors import Exit

QUICKLY = "checkpoint.retry_minutes=0.02"
SLOWLY = {"TOY_SECONDS": "0.02"}


def ends_without_restart(ranks: Ranks, why: str) -> None:
    statuses = set(ranks.wait(60))
    assert Exit.NO_STORAGE in statuses, ranks.text()
    assert statuses <= {Exit.NO_STORAGE, Exit.FAILURE}, "one rank may see first that another one has ended"
    assert why in ranks.text(0) and "does not pass by itself" in ranks.text(0), ranks.text()
    assert "changed by others" not in ranks.text() and "Traceback" not in ranks.text()


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", request.param) as folder:
        yield folder


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_bucket_that_does_not_exist_ends_the_run_before_it_trains(
    launch: Launcher, s3: S3Server, kind: str, size: int
) -> None:
    with gcs_server() as gcs:
        environment = {**s3.environment, "STORAGE_EMULATOR_HOST": gcs.url}
        ranks = launch.toy(size, "steps=3", f"checkpoint.uri={kind}://no-such-bucket/r/c", environment=environment)
        ends_without_restart(ranks, "there is no such bucket")
    assert "step 1/" not in ranks.text()


def test_a_right_that_was_just_given_is_tried_for_a_while(launch: Launcher) -> None:
    with gcs_server() as gcs:
        gcs.create_bucket("young")
        gcs.forbidden.add("young")
        environment = {"STORAGE_EMULATOR_HOST": gcs.url}
        words = ("steps=3", "checkpoint.uri=gs://young/r/checkpoints")
        ranks = launch.toy(2, *words, environment=environment)
        ranks.wait_for("a right that was just given is tried for 1")
        gcs.forbidden.discard("young")
        ranks.ok()
        gcs.forbidden.add("young")
        ranks = launch.toy(1, "steps=6", *words[1:], QUICKLY, environment=environment)
        ends_without_restart(ranks, "access is denied (AccessDenied)")


@pytest.mark.parametrize("disk", ["256k"], indirect=True)
def test_a_disk_without_room_for_a_checkpoint_is_refused_before_the_first_step(launch: Launcher, disk: Path) -> None:
    ranks = launch(1, "steps=3", f"checkpoint.uri=file://{disk}/r/checkpoints")
    ends_without_restart(ranks, "has no room for a checkpoint of 0.")
    assert "step 1/" not in ranks.text() and "free some room (df -h)" in ranks.text()
    assert not list(disk.rglob("*.tmp")), "what was reserved is released"


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("disk", ["4m"], indirect=True)
def test_a_first_save_on_a_full_disk_ends_the_run_long_before_its_end(launch: Launcher, disk: Path, size: int) -> None:
    words = ("steps=1000000", "checkpoint.every=50", f"checkpoint.uri=file://{disk}/r/checkpoints")
    ranks = launch.toy(size, *words, environment=SLOWLY)
    ranks.wait_for("step 5/")
    fill(disk)
    ends_without_restart(ranks, "the disk is full")
    assert "step 150/" not in ranks.text()


@pytest.mark.parametrize("disk", ["4m"], indirect=True)
def test_the_last_save_on_a_full_disk_is_restarted_only_when_there_is_an_earlier_one(
    launch: Launcher, disk: Path
) -> None:
    place = f"checkpoint.uri=file://{disk}/r/checkpoints"
    launch.toy(1, "steps=4", "checkpoint.every=0", place).ok()
    words = ("steps=100", "checkpoint.every=0", place)
    ranks = launch.toy(1, *words, environment=SLOWLY)
    ranks.wait_for("step 9/")
    fill(disk)
    ends_without_restart(ranks, "the disk is full")
    (disk / "ballast").unlink()
    ranks = launch.toy(1, "steps=200", "checkpoint.every=20", "checkpoint.failures=2", place, environment=SLOWLY)
    ranks.wait_for("checkpoint 20 written")
    fill(disk)
    assert ranks.wait(60) == [Exit.STORAGE], ranks.text()
    assert "training continues, and saves again soon" in ranks.text()


def test_a_bucket_that_is_deleted_before_the_first_save_ends_the_run(launch: Launcher, s3: S3Server) -> None:
    name = f"bucket-{uuid4().hex[:12]}"
    s3.create_bucket(name)
    words = ("steps=1000000", "checkpoint.every=50", f"checkpoint.uri=s3://{name}/r/checkpoints", QUICKLY)
    ranks = launch.toy(2, *words, environment={**SLOWLY, **s3.environment})
    ranks.wait_for("step 5/")
    for found in s3.client.list_objects_v2(Bucket=name)["Contents"]:
        s3.client.delete_object(Bucket=name, Key=found["Key"])
    s3.client.delete_bucket(Bucket=name)
    ends_without_restart(ranks, "there is no such bucket")
