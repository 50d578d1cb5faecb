"""Writing checkpoints: whole or not at all, whenever the writer dies, and every failure is seen."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from support.s3 import ENVIRONMENT, S3Server
from trainer_crash import state_of, tensors_of, write, write_until_killed, writer_for
from trainer_ranks import Launcher, server

from trainer.checkpoint import pointer, reader
from trainer.checkpoint.layout import manifest_path, part_name, step_folder
from trainer.checkpoint.store import Store, open_store
from trainer.distributed import Team
from trainer.environment import World
from trainer.errors import StorageError

ALONE = Team(World(), None, 10)


def newest_step(store: Store, reasons: list[str] | None = None) -> int | None:
    """The step that a resume takes; its tensors must be those of that step."""
    found = reader.newest(store, ALONE, (reasons if reasons is not None else []).append)
    if found is None:
        return None
    loaded = {name: tensor for part in found.tensors() for name, tensor in part.items()}
    expected = tensors_of(found.manifest.step, found.manifest.attempt)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
    return found.manifest.step


@pytest.mark.promise("P16")
def test_killed_at_any_moment_of_a_checkpoint_leaves_the_old_or_the_new_one_whole(tmp_path: Path) -> None:
    moments, outcomes = 0, set[int | None]()
    while True:
        store = open_store(f"file://{tmp_path}/{moments}", create=True)
        for step in (1, 2):
            write(store, step)
        process = server().Process(target=write_until_killed, args=(store.uri, 3, moments, 1))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        outcome = newest_step(store)
        latest = pointer.read_latest(store)
        assert outcome in (2, 3)
        assert latest is not None
        assert latest.step in (2, outcome), "the pointer never names what is not there"
        for path in Path(tmp_path, str(moments)).glob("*/manifest.json"):
            step = int(path.parent.name[5:])
            found = reader.newest(store, ALONE, lambda _: None, up_to=step)
            assert found is not None
            assert found.manifest.step == step, "a manifest never outlives a part"
        outcomes.add(outcome)
        write(store, 4, attempt=2)
        assert newest_step(store) == 4
        if process.exitcode == 0:
            break
        moments += 1
    assert moments >= 12, "every request of a checkpoint was met"
    assert outcomes == {2, 3}


def test_killed_while_replacing_a_step_never_mixes_old_and_new_parts(tmp_path: Path) -> None:
    moment = 0
    while True:
        store = open_store(f"file://{tmp_path}/{moment}", create=True)
        write(store, 1)
        write(store, 2)
        process = server().Process(target=write_until_killed, args=(store.uri, 2, moment, 2))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        assert newest_step(store) in (1, 2)
        if process.exitcode == 0:
            break
        moment += 1
    assert moment >= 8


def test_killed_runs_go_on_from_a_whole_checkpoint(launch: Launcher, tmp_path: Path) -> None:
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    begun = 0
    for attempt in (1, 2, 3):
        ranks = launch(2, "steps=100000", place, "checkpoint.every=1", environment={"ORCH_ATTEMPT": str(attempt)})
        ranks.wait_for(f"checkpoint {begun + 4} written")
        for rank in (0, 1):
            ranks.signal(rank, signal.SIGKILL)
        ranks.wait()
        steps = sorted(ranks.losses())
        assert steps[0] == begun + 1 or begun == 0
        store = open_store(f"{tmp_path}/run/checkpoints")
        found = reader.newest(store, ALONE, lambda _: None)
        assert found is not None
        assert found.manifest.step >= begun + 4
        begun = found.manifest.step


def test_a_failed_upload_is_raised_and_leaves_no_manifest(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    (tmp_path / "c" / step_folder(5) / part_name(0, 1) / "in the way").mkdir(parents=True)
    writer = writer_for(store)
    writer.save(state_of(5), tensors_of(5))
    with pytest.raises(StorageError, match="checkpoint 5 was not written by rank 0"):
        writer.wait()
    assert newest_step(store) is None
    assert pointer.read_latest(store) is None


def test_the_next_save_or_check_raises_what_failed_in_the_background(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    (tmp_path / "c" / step_folder(5)).write_text("in the way")
    writer = writer_for(store)
    writer.save(state_of(5), tensors_of(5))
    with pytest.raises(StorageError, match="checkpoint 5"):
        writer.save(state_of(6), tensors_of(6))


def test_an_attempt_that_is_out_of_date_does_not_touch_a_newer_ones_checkpoint(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    write(store, 3, attempt=2)
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    with pytest.raises(StorageError, match="attempt 2 of this run has written step 3"):
        write(store, 3, attempt=1)
    assert before == {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}


def test_older_checkpoints_are_pruned_down_to_keep(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    for step in range(1, 6):
        write(store, step)
    assert sorted(store.folders()) == [step_folder(4), step_folder(5)]


@pytest.mark.promise("P16")
@pytest.mark.parametrize("harm", ["flip", "cut", "remove part", "remove manifest", "cut manifest", "swap parts"])
def test_whatever_is_harmed_the_one_before_is_taken_and_the_reason_is_told(tmp_path: Path, harm: str) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    write(store, 1)
    write(store, 2)
    part = tmp_path / "c" / step_folder(2) / part_name(0, 1)
    manifest = tmp_path / "c" / manifest_path(2)
    if harm == "flip":
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 4
        part.write_bytes(data)
    elif harm == "cut":
        part.write_bytes(part.read_bytes()[:-5])
    elif harm == "remove part":
        part.unlink()
    elif harm == "remove manifest":
        manifest.unlink()
    elif harm == "cut manifest":
        manifest.write_bytes(manifest.read_bytes()[:40])
    else:
        part.write_bytes((tmp_path / "c" / step_folder(1) / part_name(0, 1)).read_bytes())
    reasons: list[str] = []
    assert newest_step(store, reasons) == 1
    assert len(reasons) == 1
    assert reasons[0].startswith("skipped checkpoint 2: ")


def test_checkpoints_in_s3_are_written_and_found(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    s3.create_bucket("checkpoints-of-tests")
    store = open_store("s3://checkpoints-of-tests/run/checkpoints", environ=s3.environment)
    for step in (1, 2, 3):
        write(store, step)
    assert newest_step(store) == 3
    keys = [o["Key"] for o in s3.client.list_objects_v2(Bucket="checkpoints-of-tests")["Contents"]]
    assert f"run/checkpoints/{manifest_path(3)}" in keys
    assert not any(step_folder(1) in key for key in keys)


def test_a_bucket_that_cannot_be_read_is_no_reason_to_take_an_older_checkpoint(s3: S3Server) -> None:
    store = open_store("s3://never-made/run/checkpoints", environ=s3.environment)
    with pytest.raises(StorageError):
        newest_step(store)


def test_a_run_in_s3_resumes_from_it(launch: Launcher, s3: S3Server) -> None:
    s3.create_bucket("runs-of-tests")
    environment = {**s3.environment, "ORCH_CHECKPOINT_URI": "s3://runs-of-tests/r1/checkpoints"}
    launch(2, "steps=4", environment=environment).ok()
    resumed = launch(1, "steps=6", environment={**environment, "ORCH_ATTEMPT": "2"}).ok()
    assert sorted(resumed.losses()) == [5, 6]
    keys = {o["Key"] for o in s3.client.list_objects_v2(Bucket="runs-of-tests", Prefix="r1/")["Contents"]}
    assert {"r1/environment.json", "r1/environment-0002.json", "r1/checkpoints/latest.json"} <= keys
    assert any(key.startswith("r1/metrics/attempt-0002/part-") for key in keys)
