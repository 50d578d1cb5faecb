"""A bucket that cannot be used ends a run at its first try, with status 16, the reason, and a next step that helps."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch
from support.s3 import S3Server, s3_server
from support.small_disk import small_disk

from orch_fronts.google.gcs import gcs_server
from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TINY = ("model=tiny", "seq_len=16", "batch=4", "threads=1", "steps=20")
TASK = """\
name: own
resources: {{infra: "local:{hosts}"}}
recovery: {{max_failures: 3}}
checkpoint: {{bucket: "file://{disk}/runs"}}
run: {python} {folder}/own.py
"""
# Like a loop that trains: the disk is full when its first save begins.
OWN = """\
import time
import orch_run

run = orch_run.init()
with open({ballast!r}, "wb", buffering=0) as ballast:
    try:
        while ballast.write(bytes(4096)):
            pass
    except OSError:
        pass
for step in range(1, 600):
    folder = run.new_folder()
    (folder / "numbers").write_text("1" * 9000)
    if step == 1:
        run.save(folder, step)
    time.sleep(0.05)
    run.heartbeat(step)
"""
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "256k") as folder:
        yield folder


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path)
    (tmp_path / "text.txt").write_text("a line to learn from\n" * 2000)
    yield orch
    orch("down", "--all", "--yes")


def ends_without_restart(orch: Orch, why: str, *words: str) -> dict[str, Any]:
    """Run a command whose program cannot use its bucket; return the error in its JSON."""
    done = orch(*words, "--yes", "-o", "json", timeout=200)
    assert done.returncode == Exit.NO_STORAGE, done.stdout + done.stderr
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    assert error["code"] == "no-storage" and why in error["why"], error
    assert "cannot use its bucket" in error["what"] and "fail_on_exit_codes" not in done.stdout
    assert error["next_command"].startswith("orch logs ") and "fix the bucket, then the same " in error["next_words"]
    assert json.loads(done.stdout)["attempts"] == [] and "attempt 2" not in done.stderr
    assert "Traceback" not in done.stderr or "torch/distributed/run.py" in done.stderr, "torchrun prints its own"
    return error


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_trainer_ends_on_a_disk_without_room(orch: Orch, disk: Path, hosts: int) -> None:
    why = "has no room for a checkpoint"
    data = f"data={orch.folder}/text.txt"
    ends_without_restart(orch, why, "train", f"local:{hosts}", "--bucket", f"file://{disk}/runs", *TINY, data)


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_trainer_ends_where_its_hosts_do_not_have_the_bucket(orch: Orch, hosts: int) -> None:
    with gcs_server() as gcs:
        gcs.create_bucket("runs")
        orch = replace(orch, more={"STORAGE_EMULATOR_HOST": gcs.url})
        with gcs_server() as other:
            given = f"--env=STORAGE_EMULATOR_HOST={other.url}"
            words = ("--bucket", "gs://runs", given, *TINY, f"data={orch.folder}/text.txt")
            ends_without_restart(orch, "there is no such bucket", "train", f"local:{hosts}", *words)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_bucket_that_does_not_exist_is_refused_before_anything_is_made(orch: Orch, s3: S3Server, hosts: int) -> None:
    words = ("--bucket", "s3://no-such-bucket", *TINY, f"data={orch.folder}/text.txt", "--yes")
    done = replace(orch, more=s3.environment)("train", f"local:{hosts}", *words)
    assert done.returncode == Exit.NOT_FOUND and "no-such-bucket" in done.stderr, done.stderr
    assert "job 1" not in done.stderr and "train" not in orch.ok("status")


@pytest.mark.parametrize(("start", "hosts"), [("", 1), ("", 2), (TORCHRUN, 1)])
def test_an_own_program_ends_on_a_full_disk(orch: Orch, disk: Path, start: str, hosts: int) -> None:
    python = f"{sys.executable} {start}"
    (orch.folder / "own.py").write_text(OWN.format(ballast=str(disk / "ballast")))
    (orch.folder / "own.yaml").write_text(TASK.format(hosts=hosts, disk=disk, python=python, folder=orch.folder))
    ends_without_restart(orch, "the disk is full", "launch", "own.yaml", "-c", "own")


def test_another_program_may_return_16_for_its_own_reasons(orch: Orch, disk: Path) -> None:
    python = "echo started again; exit 16 #"
    (orch.folder / "own.yaml").write_text(TASK.format(hosts=1, disk=disk, python=python, folder=orch.folder))
    done = orch("launch", "own.yaml", "-c", "own", "--yes", "-o", "json")
    assert done.returncode == 16 and json.loads(done.stdout)["error"]["code"] == "program-failed", done.stdout
    assert "3 of 3 restarts for this cause were used" in done.stdout, done.stdout
