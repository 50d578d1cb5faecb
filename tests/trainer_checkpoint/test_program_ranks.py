"""orch_run: several ranks restore at the same time, failures of one reach the others, and nothing is lost unseen."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from program_crash import at_once, open_run, save_step, two_ranks

import trainer.program.start
from trainer.checkpoint.file_lock import hold_lock
from trainer.checkpoint.folder_store import open_folder
from trainer.checkpoint.manifest import StepFolder
from trainer.checkpoint.store import Buffer
from trainer.errors import ConfigError, StorageError
from trainer.program.files import list_files
from trainer.program.run import Run
from trainer.program.start import Choice


def failure_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def save_sharded(runs: list[Run], *steps: int) -> None:
    for step in steps:
        for run in runs:
            save_step(run, step, sharded=True)
        at_once(*(run.wait for run in runs))


def damage(bucket: Path, step: int, part: str) -> None:
    path = bucket / "run/checkpoints" / StepFolder(step, 1, 1).name / part
    path.write_bytes(b"\0" * path.stat().st_size)


def test_ranks_read_a_checkpoint_while_rank_0_verifies_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    save_sharded(runs, 1)
    assert runs[0].saver is not None
    store = runs[0].saver._store
    read_by_rank_1 = threading.Event()
    read_into = type(store).read_into

    def wait_for_rank_1(store_: object, path: str, offset: int, target: memoryview) -> None:
        if store_ is store:
            assert read_by_rank_1.wait(30), "rank 1 waits until rank 0 has read all"
        read_into(store, path, offset, target)

    monkeypatch.setattr(type(store), "read_into", wait_for_rank_1)

    def follow() -> int | None:
        threading.Thread(target=wait_until_there, args=[tmp_path / "in1/deep/.weights-1", read_by_rank_1]).start()
        return runs[1].restore(tmp_path / "in1", "*1")

    assert at_once(lambda: runs[0].restore(tmp_path / "in0", "*0"), follow) == [1, 1]
    assert list_files(tmp_path / "in1") == ["deep/.weights-1", "empty-1"]


def wait_until_there(path: Path, there: threading.Event) -> None:
    until = time.monotonic() + 30
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    if path.exists():
        there.set()


@pytest.mark.parametrize("shared", [True, False])
def test_ranks_follow_rank_0_past_a_damaged_checkpoint(tmp_path: Path, shared: bool) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    save_sharded(runs, 1, 2)
    damage(tmp_path / "bucket", 2, "part-00000-000.file")  # which rank 1 does not read
    places = [tmp_path / "in", tmp_path / ("in" if shared else "in1")]
    assert at_once(lambda: runs[0].restore(places[0], "*0"), lambda: runs[1].restore(places[1], "*1")) == [1, 1]
    for rank, place in enumerate(places):
        assert (place / f"deep/.weights-{rank}").read_bytes() == bytes([1]) * 1000


def test_a_failure_of_rank_0_reaches_the_other_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    save_sharded(runs, 1)
    (tmp_path / "in0").mkdir()
    (tmp_path / "in0/mine").touch()
    monkeypatch.chdir(tmp_path / "in0")
    first, second = at_once(
        lambda: failure_of(lambda: runs[0].restore(tmp_path / "in0")),
        lambda: failure_of(lambda: runs[1].restore(tmp_path / "in1")),
    )
    assert isinstance(first, ConfigError)
    assert (
        isinstance(second, StorageError) and "rank 0 restores nothing" in str(second) and "holds files" in str(second)
    )
    assert at_once(lambda: runs[0].restore(tmp_path / "in"), lambda: runs[1].restore(tmp_path / "in1")) == [1, 1]


def test_a_rank_waits_as_long_as_rank_0_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer.program.start, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(trainer.program.start, "_QUIET_SECONDS", 0.1)
    signs = iter(range(3))
    began = time.monotonic()
    with pytest.raises(StorageError, match="in vain"):
        trainer.program.start.wait_for(
            lambda: None, "rank 0", lambda _: None, read_sign=lambda: next(signs, "stands still")
        )
    assert time.monotonic() - began > 4 * 0.3


def test_a_restore_waits_for_a_save_of_all_ranks(tmp_path: Path) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    for run in runs:
        save_step(run, 7, sharded=True)
    assert at_once(*(lambda at=at: runs[at].restore(tmp_path / f"in{at}") for at in (0, 1))) == [7, 7]


class _Defective:
    """A folder whose writes fail by an error that no bucket has."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def put(self, path: str, data: Buffer) -> None:
        raise RuntimeError("a defect of the library")


def test_an_error_of_any_kind_in_the_background_reaches_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1)
    assert run.saver is not None
    run.saver._store = _Defective(run.saver._store)  # type: ignore[assignment]  # a store by its methods
    save_step(run, 1)
    with pytest.raises(StorageError, match="saving checkpoint 1 failed: RuntimeError: a defect"):
        run.wait()
    with pytest.raises(StorageError, match="RuntimeError"):
        run.new_folder()
    assert "checkpoint 1 was not written" in capsys.readouterr().err


def test_a_shard_of_another_form_is_named(tmp_path: Path) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    folder = tmp_path / "bucket/run/checkpoints" / StepFolder(3, 1, 1).name
    folder.mkdir(parents=True)
    (folder / "shard-00001.json").write_text('{"parts": []}')
    save_step(runs[0], 3, sharded=True)
    with pytest.raises(StorageError, match=r"shard-00001.json cannot be read: 'shard'"):
        runs[0].wait()


def test_a_folder_that_cannot_be_listed_is_no_new_run(tmp_path: Path) -> None:
    (tmp_path / "bucket/a/b").mkdir(parents=True)
    (tmp_path / "bucket/a/b/file").touch()
    store = open_folder(tmp_path / "bucket", create=False, retry_seconds=1)
    assert [entry.path for entry in store.list_objects("")] == ["a/b/file"] and store.list_objects("absent") == []
    loop = tmp_path / "bucket/loop"
    loop.symlink_to(loop)
    with pytest.raises(StorageError, match="cannot be listed"):
        store.list_objects("loop")


def test_a_lock_that_a_stopped_process_holds_is_reported_and_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.checkpoint.file_lock._QUIET_SECONDS", 0.05)
    path, lines = tmp_path / "lock", []
    held = f"held for 0 s by process {os.getpid()}"
    with hold_lock(path, seconds=1), pytest.raises(StorageError, match=held):  # noqa: SIM117  # the last one raises
        with hold_lock(path, seconds=0.2, report=lines.append):
            pass
    assert len(lines) == 1 and f"process {os.getpid()}" in lines[0]
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is free again


def test_a_rank_removes_its_own_shard_of_a_step_that_is_not_resumed(tmp_path: Path) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    save_step(runs[1], 5, sharded=True)
    runs[1].wait()
    shard = tmp_path / "bucket/run/checkpoints" / StepFolder(5, 1, 1).name / "shard-00001.json"
    assert shard.exists() and runs[1].saver is not None
    runs[1].saver.forget_shards(4)  # after rank 0 has listed what was there
    assert not shard.exists()


def test_a_rank_that_waited_for_a_shared_folder_leaves_what_rank_0_restored_there(tmp_path: Path) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    save_sharded(runs, 1, 2)
    older, newer = (StepFolder(step, 1, 1).name for step in (1, 2))
    first, second = runs[0]._restorer, runs[1]._restorer
    assert first is not None and second is not None
    first.agreement.choose(0, Choice(folder=older, is_final=True))  # while rank 1 waited for the folder
    _, refusal = second._read_choice(Choice(folder=newer, is_final=False), tmp_path / "in", "*", 0)
    assert refusal and [path.name for path in (tmp_path / "in").iterdir()] == [".orch-restored.lock"]
    manifest, refusal = second._read_choice(Choice(folder=older, is_final=True), tmp_path / "in", "*", 0)
    assert manifest is not None and manifest.step == 1 and not refusal
