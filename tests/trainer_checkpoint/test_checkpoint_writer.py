"""Writing checkpoints: complete or absent, whenever the writer is killed, and every failure is reported."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from checkpoint_crash import CONFIG, endless_saves, engine_at, server, write, write_until_killed, writer_for
from checkpoint_toy import ToyEngine, as_world, data_of, folder_of, manifest_of, save
from checkpoint_wrapped import WrappedStore
from support.s3 import ENVIRONMENT, S3Server

from trainer.checkpoint import pointer, reader
from trainer.checkpoint.layout import part_name
from trainer.checkpoint.manifest import LATEST, Latest
from trainer.checkpoint.regions import open_contents
from trainer.checkpoint.session import Checkpoints
from trainer.checkpoint.store import ObjectEntry, Store, open_store
from trainer.checkpoint.writer import CheckpointWriter, RetentionPolicy, RunInfo
from trainer.environment import Run, World
from trainer.errors import StorageError
from trainer.shape.box import Box, TensorRegion
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam
from trainer.team import Team

ALONE = SingleProcessTeam(World())


def newest_step(store: Store, reasons: list[str] | None = None) -> int | None:
    """The step that a resume takes; its tensors must be those of that step."""
    found = reader.find_newest_checkpoint(store, ALONE, (reasons if reasons is not None else []).append)
    if found is None:
        return None
    engine = ToyEngine(CONFIG, Mesh())
    engine.load(open_contents(store, found.manifest).read_pieces({piece.name: [piece] for piece in engine.needed()}))
    engine.check(found.manifest.step)
    return found.manifest.step


@pytest.mark.promise("P16")
def test_killed_at_any_moment_of_a_checkpoint_leaves_the_old_or_the_new_one_complete(tmp_path: Path) -> None:
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
            step = int(path.parent.name[5:13])
            if step > latest.step:
                continue
            found = reader.find_newest_checkpoint(store, ALONE, lambda _: None, up_to=step)
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


def test_killed_at_random_moments_the_previous_checkpoint_is_used(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    write(store, 1)
    newest, delays = 1, random.Random(7)  # only when to kill
    for attempt in range(2, 8):
        process = server().Process(target=endless_saves, args=(store.uri, newest + 1, attempt))
        process.start()
        seen = newest + 1
        deadline = time.monotonic() + 30
        while (latest := pointer.read_latest(store)) is None or latest.step < seen:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(delays.uniform(0, 0.03))
        process.kill()
        process.join(20)
        found = newest_step(store)
        assert found is not None
        assert found >= seen
        newest = found
    write(store, newest + 1, attempt=8)
    before, last = sorted(store.list_folders())  # one complete save removes the leftovers of killed writers
    assert last == folder_of(newest + 1, 8, 8)
    # A writer that was killed between its manifest and the pointer has left a complete one more.
    assert before in (folder_of(newest, 7, 7), folder_of(newest + 1, 7, 7))


def test_a_failed_upload_is_raised_and_leaves_no_manifest(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    (tmp_path / "c" / folder_of(5) / part_name(0, 0) / "in the way").mkdir(parents=True)
    writer = writer_for(store)
    writer.save(engine_at(5), data_of(5))
    with pytest.raises(StorageError, match="checkpoint 5 was not written by rank 0"):
        writer.wait_until_written()
    assert newest_step(store) is None
    assert pointer.read_latest(store) is None


def test_the_next_save_or_check_raises_what_failed_in_the_background(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    (tmp_path / "c" / folder_of(5)).write_text("in the way")
    writer = writer_for(store)
    writer.save(engine_at(5), data_of(5))
    with pytest.raises(StorageError, match="checkpoint 5"):
        writer.save(engine_at(6), data_of(6))


def test_one_rank_that_cannot_write_fails_the_checkpoint_on_all(tmp_path: Path) -> None:
    place = tmp_path / "c"
    (place / folder_of(5) / part_name(1, 0) / "in the way").mkdir(parents=True)

    def rank(team: Team) -> str:
        session = Checkpoints.open(
            CONFIG, Run(run_id="run", attempt=1, checkpoint_uri=str(place)), team, lambda _: None
        )
        with pytest.raises(StorageError) as caught:
            session.save(ToyEngine(CONFIG, Mesh(fsdp=2), team.world.rank, 2, 5), data_of(5), wait=True)
        return str(caught.value)

    messages = as_world(2, rank)
    assert messages[0] == messages[1]
    assert messages[0].startswith("checkpoint 5 was not written by rank 1: ")
    assert not (place / manifest_of(5)).exists()


class _Forgetful(ToyEngine):
    """An engine with a fault: no process writes the last norm."""

    def written(self) -> list[TensorRegion]:
        return [piece for piece in super().written() if piece.name != "model/norm.weight"]


def test_a_checkpoint_with_missing_values_is_not_written(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    writer = writer_for(store)
    writer.save(_Forgetful(CONFIG, Mesh(), steps=5), data_of(5))
    with pytest.raises(StorageError, match="checkpoint 5 was not written: its parts hold"):
        writer.wait_until_written()
    assert not (tmp_path / "c" / manifest_of(5)).exists()


def test_a_checkpoint_without_the_values_of_a_stage_is_not_written(tmp_path: Path) -> None:
    """Only the last stage of a pipeline has the norm, so rank 0 alone could not miss it."""
    place = f"file://{tmp_path}/c"

    def rank(team: Team) -> None:
        writer = CheckpointWriter(
            open_store(place, create=True), team.side_channel(20), RunInfo("run", 1, {}), RetentionPolicy(2)
        )
        mesh = Mesh(pipeline=2)
        engine = _Forgetful(CONFIG, mesh, team.world.rank, team.world.size, 5)
        assert ("model/norm.weight" in {piece.name for piece in engine.needed()}) == (team.world.rank == 1)
        writer.save(engine, data_of(5))
        with pytest.raises(StorageError, match="checkpoint 5 was not written: its parts hold"):
            writer.wait_until_written()

    as_world(2, rank)
    assert not (tmp_path / "c" / manifest_of(5)).exists()


def test_the_saved_values_are_those_of_the_moment_of_saving(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    writer, engine = writer_for(store), engine_at(5)
    writer.save(engine, data_of(5))
    engine.steps = 6  # training continues while the thread writes
    writer.wait_until_written()
    assert newest_step(store) == 5


def test_an_attempt_that_is_out_of_date_does_not_touch_a_newer_ones_checkpoint(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    write(store, 3, attempt=2)
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    with pytest.raises(StorageError, match="another start of this run has taken it over: epoch 2; this is epoch 1"):
        write(store, 3, attempt=1)
    after = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before, "what it wrote lies in its own folder"


def test_older_checkpoints_are_pruned_down_to_keep_and_its_multiples(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    for step in range(1, 8):
        write(store, step, keep=RetentionPolicy(2, every=3))
    assert sorted(store.list_folders()) == [folder_of(step) for step in (3, 6, 7)]


def test_a_save_behind_latest_is_kept_with_the_one_it_came_from(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    for step in (2, 4, 6, 8):
        write(store, step, keep=RetentionPolicy(9))
    write(store, 3, attempt=2, keep=RetentionPolicy(1))
    assert sorted(store.list_folders()) == sorted([*map(folder_of, (2, 4, 6, 8)), folder_of(3, 2, 2)])


def test_corrupt_pointer_is_replaced_by_the_next_save(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    write(store, 1)
    (tmp_path / "c" / LATEST).write_text("{")
    write(store, 2)
    assert pointer.read_latest(store) == Latest(2, manifest_of(2), 1)


@pytest.mark.promise("P34")
def test_rank_lost_after_the_manifest_does_not_undo_the_checkpoint(tmp_path: Path) -> None:
    place, lines = f"file://{tmp_path}/c", list[str]()

    def rank(team: Team) -> None:
        side = team.side_channel(20)
        if not team.world.is_first:
            side.gather("")
            side.gather([[], {}, "", False, "no tensors"])
            side.gather({})
            side.close()
            return
        writer = CheckpointWriter(
            open_store(place, create=True), side, RunInfo("run", 1, {}), RetentionPolicy(2), lines.append
        )
        writer.save(engine_at(5), data_of(5))
        writer.wait_until_written()

    as_world(2, rank)
    assert lines[0].startswith("note: checkpoint 5 is complete, but then: rank 0 lost rank 1")
    assert newest_step(open_store(place)) == 5


class _Vanishing(WrappedStore):
    """A store in which another attempt prunes a checkpoint right after it was listed."""

    def __init__(self, inner: Store, step: int) -> None:
        super().__init__(inner)
        self._step = step

    def list_objects(self, prefix: str) -> list[ObjectEntry]:
        found = super().list_objects(prefix)
        if prefix == folder_of(self._step):
            self.delete([entry.path for entry in found])
        return found


def test_checkpoint_pruned_while_it_is_examined_is_skipped(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    write(store, 1)
    write(store, 2)
    reasons: list[str] = []
    assert newest_step(_Vanishing(store, 2), reasons) == 1
    assert reasons[0].startswith("skipped checkpoint 2: ")


@pytest.mark.promise("P16")
@pytest.mark.parametrize(
    "harm", ["flip", "cut", "remove part", "remove manifest", "cut manifest", "swap parts", "flip the other rank's"]
)
def test_any_damage_makes_the_previous_checkpoint_be_used_and_is_reported(tmp_path: Path, harm: str) -> None:
    place = tmp_path / "c"
    save(str(place), CONFIG, Mesh(fsdp=2), 2, 1, 2)
    store = open_store(f"file://{place}")
    part = place / folder_of(2) / part_name(1 if "other" in harm else 0, 0)
    manifest = place / manifest_of(2)
    if "flip" in harm:
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
        part.write_bytes((place / folder_of(1) / part_name(0, 0)).read_bytes())
    reasons: list[str] = []
    assert newest_step(store, reasons) == 1
    assert len(reasons) == 1
    assert reasons[0].startswith("skipped checkpoint 2: ")


def test_checkpoints_in_s3_are_written_and_read_in_ranges(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    s3.create_bucket("checkpoints-of-tests")
    store = open_store("s3://checkpoints-of-tests/run/checkpoints", environ=s3.environment)
    for step in (1, 2, 3):
        write(store, step)
    assert newest_step(store) == 3
    keys = [o["Key"] for o in s3.client.list_objects_v2(Bucket="checkpoints-of-tests")["Contents"]]
    assert f"run/checkpoints/{manifest_of(3)}" in keys
    assert not any(folder_of(1) in key for key in keys)
    found = reader.find_newest_checkpoint(store, ALONE, lambda _: None)
    assert found is not None
    contents = open_contents(store, found.manifest)
    name, tensor = next((n, t) for n, t in contents.tensors.items() if len(t.shape) == 2)
    middle = TensorRegion(name, tensor.shape, Box((3, 5), (7, 9)))
    values = dict(contents.read_pieces({name: [middle]}))[middle]
    np.testing.assert_array_equal(values, contents.read_tensor(name)[3:10, 5:14])


def test_unreadable_bucket_never_leads_to_an_older_checkpoint(s3: S3Server) -> None:
    store = open_store("s3://never-made/run/checkpoints", environ=s3.environment)
    with pytest.raises(StorageError):
        newest_step(store)


FULL_DISK = """
import sys
from pathlib import Path
from checkpoint_crash import engine_at, writer_for, write
from checkpoint_toy import data_of
from trainer.checkpoint.pointer import read_latest
from trainer.checkpoint.store import open_store
from trainer.checkpoint.writer import RetentionPolicy
from trainer.errors import StorageError
store = open_store(f"file://{sys.argv[1]}/c", create=True)
for step in (1, 2, 3):
    write(store, step, keep=RetentionPolicy(3))
size = sum(path.stat().st_size for path in Path(sys.argv[1]).glob("c/*/part-*")) // 3
Path(sys.argv[1], "filler").write_bytes(bytes(size // 2))
writer = writer_for(store, keep=RetentionPolicy(3))
for step in (4, 5, 6):
    writer.save(engine_at(step), data_of(step))
    try:
        writer.wait_until_written()
    except StorageError as error:
        assert "the disk is full: free some room (df -h)" in str(error), error
        assert "checkpoint.keep=1" in str(error), error
        break
else:
    sys.exit("the disk was never full")
latest = read_latest(store)
assert latest is not None and latest.step == step - 1, latest
write(store, step + 1, keep=RetentionPolicy(1))
assert read_latest(store).step == step + 1
left = sorted(path.name for path in Path(sys.argv[1], "c").iterdir() if path.is_dir())
assert [int(name[5:13]) for name in left] == [step + 1], left
print("out of it")
"""


def test_a_full_disk_is_reported_and_keep_1_gets_out_of_it(tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("needs unshare(1) and the right to make a mount namespace, for a small disk")
    size = sum(path.stat().st_size for path in _one_checkpoint(tmp_path / "sample"))
    disk = tmp_path / "disk"
    disk.mkdir()
    # Room for three and a half: three are kept, and the fourth would be written before the oldest is removed.
    script = 'mount -t tmpfs -o size="$4" none "$1" && exec "$2" -c "$3" "$1"'
    argv = ["unshare", "-rm", "sh", "-c", script, "sh", str(disk), sys.executable, FULL_DISK, str(4 * size)]
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100, env=env)
    assert done.stdout.endswith("out of it\n"), done.stdout + done.stderr


def _one_checkpoint(folder: Path) -> list[Path]:
    write(open_store(f"file://{folder}", create=True), 1)
    return list(folder.glob("*/part-*"))
