"""orch_run: what an own program saves is complete or absent, and every rank resumes from the same step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from checkpoint_crash import server
from checkpoint_wrapped import WrappedStore
from program_crash import at_once, open_run, save_step, save_until_killed, two_ranks
from support.s3 import ENVIRONMENT, S3Server

from orch_fronts.google.gcs import GcsServer
from orchestrator.engine.operations.checkpoints import RunLocation, download_checkpoint
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import Checkpoint, find_newest_complete, list_checkpoints
from trainer.checkpoint.manifest import CorruptCheckpoint, check_file_path
from trainer.checkpoint.store import Store, open_store
from trainer.environment import Run as Origin
from trainer.environment import World
from trainer.environment import read_run as read_origin
from trainer.errors import ConfigError, StorageError, TakenOver
from trainer.program import init
from trainer.program.metrics import MetricsParts
from trainer.program.start import name_start

LIBRARY = Path(__file__).parents[2] / "trainer" / "library"
OURS = {".lock", ".orch-restored.json", ".orch-restored.lock"}


def read(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if Path(name).name not in OURS}


def content(step: int, rank: int = 0) -> dict[str, bytes]:
    return {f"deep/.weights-{rank}": bytes([step]) * 1000, f"empty-{rank}": b""}


@pytest.fixture(params=["file", "s3", "gs"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an empty place of each kind."""
    if request.param == "file":
        return f"file://{tmp_path}/bucket"
    name = f"bucket-{os.urandom(6).hex()}"
    if request.param == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        s3.create_bucket(name)
        for key, value in {**ENVIRONMENT, **s3.environment}.items():
            monkeypatch.setenv(key, value)
        return f"s3://{name}/a"
    gcs: GcsServer = request.getfixturevalue("gcs")
    gcs.create_bucket(name)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
    return f"gs://{name}/a"


def test_what_is_saved_is_restored_and_old_ones_are_pruned(place: str, tmp_path: Path) -> None:
    run = open_run(place, tmp_path, epoch=1)
    assert run.latest() is None and run.restore(tmp_path / "in") is None
    for step in (1, 2, 3):
        save_step(run, step)
    run.wait()
    later = open_run(place, tmp_path / "other", epoch=2)
    newest = later.latest()
    assert newest is not None and (newest.step, newest.meta, newest.size) == (3, {"rank": 0}, 1000)
    assert later.restore(tmp_path / "in") == 3
    assert read(tmp_path / "in") == content(3)
    assert [path.name for path in run._staging.path.iterdir()] == [".lock"], "what is uploaded is removed"
    save_step(later, 4)
    later.wait()
    assert later.restore(tmp_path / "in", "deep/*") == 4, "an earlier restore's files are replaced"
    assert read(tmp_path / "in") == {"deep/.weights-0": bytes([4]) * 1000}


def test_a_copy_is_saved_so_the_program_may_write_to_its_folder_again(tmp_path: Path) -> None:
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1)
    own = tmp_path / "own"
    own.mkdir()
    for step in (1, 2):
        (own / "state").write_text(f"step {step}")
        run.save(own, step)
        (own / "state").write_text("changed later")
    run.wait()
    assert run.restore(tmp_path / "in") == 2
    assert read(tmp_path / "in") == {"state": b"step 2"} and (own / "state").read_text() == "changed later"


def test_a_sharded_checkpoint_is_complete_only_with_the_files_of_every_rank(place: str, tmp_path: Path) -> None:
    first, second = two_ranks(place, tmp_path, 1)
    save_step(first, 5, sharded=True)
    assert second.latest() is None, "rank 1 has not saved"
    save_step(second, 5, sharded=True)
    at_once(first.wait, second.wait)
    runs = two_ranks(place, tmp_path / "later", 2)
    folders = [tmp_path / "in0", tmp_path / "in1"]
    assert at_once(*(lambda at=at: runs[at].restore(folders[at]) for at in (0, 1))) == [5, 5]
    assert read(folders[0]) == read(folders[1]) == content(5, 0) | content(5, 1)


def test_a_shard_of_an_earlier_start_of_the_same_attempt_does_not_count(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/bucket"
    _, lost = two_ranks(place, tmp_path, 1)
    save_step(lost, 5, sharded=True)
    lost.wait()
    assert list((tmp_path / "bucket/run/checkpoints").glob("step-00000005-*/shard-00001.json"))
    two_ranks(place, tmp_path, 1)  # the same attempt, started again by its own script
    assert not list((tmp_path / "bucket/run/checkpoints").glob("step-00000005-*/shard-00001.json"))


def test_an_older_attempt_that_is_alive_publishes_nothing(place: str, tmp_path: Path) -> None:
    older = open_run(place, tmp_path / "older", epoch=1)
    save_step(older, 1)
    older.wait()
    newer = open_run(place, tmp_path / "newer", epoch=2)
    assert newer.restore(tmp_path / "in") == 1
    save_step(older, 2)
    with pytest.raises(TakenOver, match="epoch 2; this is epoch 1"):
        older.wait()
    with pytest.raises(TakenOver):
        save_step(older, 3)
    newest = newer.latest()
    assert newest is not None and newest.step == 1
    with pytest.raises(TakenOver):
        open_run(place, tmp_path / "third", epoch=1)


@pytest.mark.slow
def test_a_kill_at_any_request_of_a_save_leaves_the_one_before_or_the_whole_one(tmp_path: Path) -> None:
    context, seen = server(), set[int | None]()
    moment = 0
    for moment in range(100):
        place, home = f"file://{tmp_path}/{moment}", tmp_path / f"home{moment}"
        before = open_run(place, home, epoch=1)
        save_step(before, 1)
        before.wait()
        process = context.Process(target=save_until_killed, args=(place, str(home), 2, moment))
        process.start()
        process.join(60)
        run = open_run(place, home, epoch=3)
        step = run.restore(tmp_path / f"in{moment}")
        assert step in (1, 2)
        assert read(tmp_path / f"in{moment}") == content(step), f"killed at request {moment}"
        seen.add(step)
        save_step(run, 3)
        run.wait()
        assert run.restore(tmp_path / f"in{moment}") == 3, "and it saves further steps"
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert seen == {1, 2} and moment > 5


def test_a_damaged_checkpoint_is_passed_over_by_every_rank(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/bucket"
    run = open_run(place, tmp_path, epoch=1)
    for step in (1, 2):
        save_step(run, step)
    run.wait()
    (part,) = (tmp_path / "bucket/run/checkpoints").glob("step-00000002-*/part-00000-000.file")
    part.write_bytes(b"\0" * 1000)
    runs = two_ranks(place, tmp_path / "later", 2)
    folders = [tmp_path / "in0", tmp_path / "in1"]
    # Rank 0 alone has a pattern that would not see the damage.
    answers = at_once(lambda: runs[0].restore(folders[0], "empty*"), lambda: runs[1].restore(folders[1]))
    assert answers == [1, 1] and read(folders[1]) == content(1)
    newest = runs[0].latest()
    assert newest is not None and newest.step == 1, "`latest` moved back"


def test_orch_lists_and_pulls_it_with_its_own_file_names(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/bucket"
    run = open_run(place, tmp_path, epoch=1)
    for step in (1, 2):
        save_step(run, step)
    run.wait()
    bucket = Bucket.open(place)
    assert [one.step for one in list_checkpoints(bucket, "run", "checksums") if isinstance(one, Checkpoint)] == [2, 1]
    newest = find_newest_complete(bucket, "run").checkpoint
    assert newest is not None and (newest.step, newest.size) == (2, 1000)
    pulled = download_checkpoint(RunLocation(bucket, "run"), tmp_path / "pulled", None, lambda _: None)
    found = read(pulled.folder)
    del found["manifest.json"]
    assert found == content(2) and pulled.fetched == 1000
    assert download_checkpoint(RunLocation(bucket, "run"), tmp_path / "pulled", None, lambda _: None).fetched == 0


@pytest.mark.parametrize("path", ["../a", "a/../b", "/a", "a//b", "a\\b", "a\nb", "", ".", "..", "manifest.json", "a/"])
def test_a_manifest_leads_no_download_out_of_its_folder(path: str) -> None:
    with pytest.raises(CorruptCheckpoint):
        check_file_path(path)


@pytest.mark.parametrize("path", [".metadata", "a/.b/c", "..a", "a..", "a b/ü", "a/manifest.json"])
def test_other_names_are_kept(path: str) -> None:
    assert check_file_path(path) == path


def test_what_cannot_be_saved_is_refused_before_the_program_goes_on(tmp_path: Path) -> None:
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1)
    folder = tmp_path / "own"
    with pytest.raises(ConfigError, match="no such folder"):
        run.save(folder, 1)
    folder.mkdir()
    with pytest.raises(ConfigError, match="empty"):
        run.save(folder, 1)
    (folder / "state").touch()
    with pytest.raises(ConfigError, match="JSON"):
        run.save(folder, 1, {"loss": float("nan")})
    with pytest.raises(ConfigError, match="from 1"):
        run.save(folder, 0)
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="link to a folder"):
        run.save(folder, 1)


def test_three_failed_saves_in_a_row_end_the_program(tmp_path: Path) -> None:
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1)
    save_step(run, 1)
    run.wait()
    for _ in range(3):
        save_step(run, 1)  # that step is there already
    with pytest.raises(StorageError, match="is there already"):
        run.wait()
    with pytest.raises(StorageError, match="is there already"):
        save_step(run, 2)


def test_without_a_bucket_under_orch_nothing_is_saved_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = init(environ={"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "1", "ORCH_SCRATCH": str(tmp_path)})
    assert not run.save("nowhere", 1) and run.restore("nowhere") is None and run.latest() is None
    assert "the task names no bucket" in capsys.readouterr().err
    save_step(run, 1)
    assert not read(tmp_path), "the files of each save would fill the disk"


def test_a_rank_whose_files_do_not_count_keeps_none(tmp_path: Path) -> None:
    _, second = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    save_step(second, 1)
    assert not read(tmp_path / "saves")


def test_ranks_that_restore_other_files_into_one_folder_leave_each_other_theirs(tmp_path: Path) -> None:
    place, shared = f"file://{tmp_path}/bucket", tmp_path / "in"
    for step in (1, 2):
        first, second = two_ranks(place, tmp_path / f"writers{step}", step)
        save_step(first, step, sharded=True)
        save_step(second, step, sharded=True)
        at_once(first.wait, second.wait)
        one, other = two_ranks(place, tmp_path / f"readers{step}", step)
        answers = at_once(partial(one.restore, shared, "*-0"), partial(other.restore, shared, "*-1"))
        assert answers == [step, step] and read(shared) == content(step, 0) | content(step, 1)


def test_ranks_on_several_hosts_agree_where_the_program_saves_elsewhere(tmp_path: Path) -> None:
    place, own = f"file://{tmp_path}/bucket", f"file://{tmp_path}/own/checkpoints"
    first, second = at_once(
        *(lambda rank=rank: open_run(place, tmp_path, epoch=7, rank=rank, world=2, uri=own) for rank in (0, 1))
    )
    save_step(first, 5, sharded=True)
    save_step(second, 5, sharded=True)
    at_once(first.wait, second.wait)
    assert list((tmp_path / "own/checkpoints").glob("step-00000005-e0001-*/manifest.json")), "an epoch of that folder"


def test_a_step_is_saved_once_in_a_start_by_each_rank(tmp_path: Path) -> None:
    first, second = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    for _ in range(2):
        save_step(second, 5, sharded=True)  # rank 0 has not published the first
    with pytest.raises(StorageError, match="is there already"):
        second.wait()
    save_step(first, 5, sharded=True)
    first.wait()
    assert first.restore(tmp_path / "in") == 5


def test_a_checkpoint_of_a_newer_orch_is_not_passed_over(tmp_path: Path) -> None:
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1)
    for step in (1, 2):
        save_step(run, step)
    run.wait()
    (manifest,) = (tmp_path / "bucket/run/checkpoints").glob("step-00000002-*/manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 4}))
    with pytest.raises(StorageError, match="has format 4"):
        run.restore(tmp_path / "in")


class SlowStore(WrappedStore):
    """A bucket whose first new object takes until `close` is called."""

    def __init__(self, inner: Store, begun: threading.Event, end: threading.Event) -> None:
        super().__init__(inner)
        self._begun, self._end = begun, end

    def create(self, path: str, data: bytes) -> bool:
        self._begun.set()
        self._end.wait(60)
        return super().create(path, data)


def test_numbers_of_the_last_steps_are_written_although_a_part_is_under_way(tmp_path: Path) -> None:
    begun, end = threading.Event(), threading.Event()
    parts = MetricsParts(SlowStore(open_store(f"file://{tmp_path}/run", create=True), begun, end), Origin(), print)
    parts.write(1, {"loss": 1.0})
    parts._wake.set()
    assert begun.wait(60)
    parts.write(2, {"loss": 0.5})
    closing = threading.Thread(target=parts.close)
    closing.start()
    while not parts._ended:
        closing.join(0.01)
    end.set()
    closing.join(60)
    lines = [path.read_text() for path in sorted((tmp_path / "run/metrics/attempt-0001").iterdir())]
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


def test_several_hosts_without_orch_need_a_number_of_their_start() -> None:
    origin = read_origin({})
    with pytest.raises(ConfigError, match="ORCH_EPOCH"):
        name_start(origin, World(size=4, local_size=2), {})
    assert "restart 1" in name_start(origin, World(size=2, local_size=2), {"TORCHELASTIC_RESTART_COUNT": "1"})


def test_heartbeats_numbers_and_a_stop_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HEARTBEAT_FILE", str(tmp_path / "beat"))
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=3)
    assert json.loads((tmp_path / "beat").read_text())["phase"] == "starting"
    run.heartbeat(7, {"loss": 0.5, "tokens_per_s": float("inf")})
    beat = json.loads((tmp_path / "beat").read_text())
    assert (beat["step"], beat["phase"]) == (7, "training")
    assert not run.should_stop()
    assert run._stop is not None
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.should_stop()
    finally:
        run._stop.__exit__(None, None, None)
    run.close()
    (part,) = (tmp_path / "bucket/run/metrics/attempt-0003").iterdir()
    record = json.loads(part.read_text())
    assert (record["step"], record["loss"], record["tokens_per_s"], record["attempt"]) == (7, 0.5, None, 3)


PROGRAM = """
import multiprocessing
import sys
sys.modules.update(numpy=None, obstore=None, torch=None)  # importing one of them fails
import orch_run
run = orch_run.init()
step = run.restore("restored") or 0
folder = run.new_folder()
worker = multiprocessing.get_context("fork").Process(target=int)  # as those of a DataLoader
worker.start()
worker.join()
(folder / "state").write_text(str(step))
run.save(folder, step + 1)
print("step", step)
"""


def test_a_program_with_its_own_trainer_module_needs_no_other_package_and_no_orch(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("raise SystemExit('the wrong trainer')")
    (tmp_path / "train.py").write_text(PROGRAM)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(LIBRARY)}
    for step in (0, 1):
        done = subprocess.run(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"step {step}\n"), done.stderr
    assert (tmp_path / "orch-run/checkpoints/latest.json").is_file()
