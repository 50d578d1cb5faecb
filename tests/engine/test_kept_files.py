"""A launch sends the files that it was given, whatever becomes of them while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.driving import Listener, fulfil, local_task
from support.kept_copies import list_kept, read_kept
from support.slice_names import slice_name
from support.small_disk import small_disk

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.trees import read_trees
from orchestrator.engine.state.file_objects import record_path
from orchestrator.engine.state.kept_files import drop_stale_trees
from orchestrator.errors import StorageError, UserError
from orchestrator.exits import Exit
from orchestrator.paths import load_paths
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.registry import open_provider
from orchestrator.remote.tree import read_tree
from orchestrator.task.model import FileMount, Recovery, Task

KEEP = TeardownPolicy.KEEP
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "word").write_text("launched")
    return folder


def when(condition: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    """Do it in a thread as soon as the condition holds, within a minute."""

    def wait() -> None:
        until = time.monotonic() + 60
        while not condition() and time.monotonic() < until:
            time.sleep(0.05)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def edit(work: Path) -> None:
    (work / "word").write_text("edited")
    (work / "new").write_text("new")


def task_of(work: Path, marks: Path) -> Task:
    run = f'echo "$ORCH_ATTEMPT $(cat word) $(ls)" >> {marks}; [ "$ORCH_ATTEMPT" = 2 ] || sleep 300'
    return local_task(2, workdir=str(work), run=run, recovery=Recovery(max_preemptions=1))


def test_a_host_that_replaces_a_lost_one_gets_the_files_of_the_launch(home: Path, tmp_path: Path, work: Path) -> None:
    marks = tmp_path / "marks"

    def edit_and_preempt() -> None:
        edit(work)
        open_provider("local", home / "state").preempt(slice_name("c"), 1)  # type: ignore[attr-defined]  # local hosts

    thread = when(lambda: marks.exists() and marks.read_text().count("\n") == 2, edit_and_preempt)
    ending = fulfil(commands.prepare_launch(task_of(work, marks), cluster="c", after=KEEP))
    thread.join()
    assert ending.status == Exit.OK
    assert sorted(marks.read_text().splitlines()) == ["1 launched word"] * 2 + ["2 launched word"] * 2


def test_files_edited_while_machines_are_made_are_sent_as_planned(home: Path, tmp_path: Path, work: Path) -> None:
    single = tmp_path / "single"
    single.write_text("launched")
    mount = FileMount(target="~/single", source=str(single))
    task = local_task(1, workdir=str(work), file_mounts=(mount,), run="cat word ~/single; ls")
    ready = commands.prepare_launch(task, cluster="c", after=KEEP)

    class Editing(Listener):
        def starting(self, action: object) -> None:
            if type(action).__name__ == "CreateSlice":
                edit(work)
                single.unlink()

    listener = Editing()
    assert drive_cluster(ready, listener).status == Exit.OK
    assert listener.outputs == {0: b"launchedlaunchedword\n"}


def test_a_watch_continues_with_the_files_of_the_launch(home: Path, tmp_path: Path, work: Path) -> None:
    marks = tmp_path / "marks"
    ready = commands.prepare_launch(task_of(work, marks), cluster="c", after=KEEP)

    class Killed(Listener):
        def starting(self, action: object) -> None:
            if type(action).__name__ == "SyncTree":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive_cluster(ready, Killed())
    edit(work)
    thread = when(
        lambda: marks.exists() and marks.read_text().count("\n") == 2,
        lambda: open_provider("local", home / "state").preempt(slice_name("c"), 1),  # type: ignore[attr-defined]  # local hosts
    )
    ending = fulfil(commands.prepare_watch("c", None))
    thread.join()
    assert ending.status == Exit.OK
    assert sorted(marks.read_text().splitlines()) == ["1 launched word"] * 2 + ["2 launched word"] * 2


def test_the_same_command_again_takes_the_edited_files(home: Path, tmp_path: Path, work: Path) -> None:
    marks = tmp_path / "marks"
    task = local_task(1, workdir=str(work), run=f"cat word >> {marks}")

    class Killed(Listener):
        def starting(self, action: object) -> None:
            if type(action).__name__ == "SyncTree":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive_cluster(commands.prepare_launch(task, cluster="c", after=KEEP), Killed())
    edit(work)
    assert fulfil(commands.prepare_launch(task, cluster="c", after=KEEP)).status == Exit.OK
    assert marks.read_text() == "edited"


def test_a_full_disk_is_an_error_before_a_machine_is_made(
    home: Path, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "large").write_bytes(b"x" * (3 << 20))
    with small_disk(tmp_path / "disk", "2m") as disk:
        monkeypatch.setenv("ORCH_HOME", str(disk / "home"))
        listener = Listener()
        task = local_task(1, workdir=str(work), run="true")
        with pytest.raises(StorageError) as caught:
            fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener)
        assert not listener.steps
        assert f"{work} cannot be kept for later attempts" in str(caught.value)
        assert "it has 3 MB" in caught.value.why
        (work / "large").unlink()
        assert fulfil(commands.prepare_launch(task, cluster="c", after=KEEP)).status == Exit.OK
        fulfil(commands.prepare_down("c"))


def test_copies_are_deleted_a_day_after_no_job_needs_them(home: Path, tmp_path: Path, work: Path) -> None:
    marks = tmp_path / "marks"
    drive_cluster(commands.prepare_launch(task_of(work, marks), cluster="c", after=KEEP), Listener(), follow=False)
    edit(work)
    fulfil(commands.prepare_launch(local_task(1, workdir=str(work), run="true"), cluster="d", after=KEEP))
    where = load_paths()
    drop_stale_trees()
    assert len(list_kept(where)) == 2
    for digest in list_kept(where):
        os.utime(record_path(where, digest), (1.0, 1.0))
    drop_stale_trees()
    (kept,) = list_kept(where)
    assert read_kept(where, kept) == {"word": b"launched"}
    indexes = list((home / "state" / "file-index").iterdir())
    assert indexes
    for index in indexes:
        os.utime(index, (1.0, 1.0))
    drop_stale_trees()
    assert not list((home / "state" / "file-index").iterdir())


def test_copies_have_a_limit_and_the_one_used_longest_ago_goes_first(
    home: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_FILES_KEEP_BYTES", "100000")
    task = local_task(1, workdir=str(work), run="true")
    where = load_paths()
    known: list[str] = []
    for number in range(3):
        (work / "large").write_bytes(os.urandom(40_000))
        fulfil(commands.prepare_launch(task, cluster="c", after=KEEP))
        (new,) = (digest for digest in list_kept(where) if digest not in known)
        os.utime(record_path(where, new), (number, number))
        known.append(new)
    assert set(list_kept(where)) == set(known[1:])
    drive_cluster(
        commands.prepare_launch(local_task(1, workdir=str(work), run="sleep 60"), cluster="d", after=KEEP),
        Listener(),
        follow=False,
    )
    (work / "large").write_bytes(os.urandom(70_000))
    with pytest.raises(UserError, match="cannot be kept for later attempts") as caught:
        fulfil(commands.prepare_launch(task, cluster="c", after=KEEP))
    assert "other jobs need" in caught.value.why
    assert set(list_kept(where)) == set(known[1:]), "nothing is deleted in vain"
    (work / "large").write_bytes(os.urandom(50_000))
    fulfil(commands.prepare_launch(task, cluster="c", after=KEEP))
    assert known[2] in list_kept(where) and known[1] not in list_kept(where)


def test_files_above_the_limit_are_refused_with_their_largest_parts(
    home: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_FILES_KEEP_BYTES", "1000000")
    for name, size in {"a/x": 300_000, "a/y": 500_000, "b": 400_000, "c": 100_000, "d": 1}.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_bytes(bytes(size))
    listener = Listener()
    ready = commands.prepare_launch(local_task(1, workdir=str(work), run="true"), cluster="c", after=KEEP)
    assert ready.refused is not None and "too large to be sent" in ready.refused.what, "the plan says it"
    with pytest.raises(UserError, match="too large to be sent") as caught:
        fulfil(ready, listener)
    assert caught.value.why == "the largest parts: a 0.8 MB, b 0.4 MB, c 0.1 MB"
    assert "files.keep_bytes" in str(caught.value) and not listener.steps


def test_a_second_launch_reads_no_file_that_is_the_same(home: Path, tmp_path: Path) -> None:
    work = tmp_path / "many"
    (work / "deep").mkdir(parents=True)
    for number in range(5):
        (work / "deep" / f"{number}").write_bytes(os.urandom(5000))
    (work / "pointer").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    time.sleep(2.1)  # a file that was changed just now may change again unnoticed
    task = local_task(1, workdir=str(work), run="true")
    assert len(list_read_files(work)) == 6
    fulfil(commands.prepare_launch(task, cluster="c", after=KEEP))
    assert list_read_files(work) == []
    changed = work / "deep" / "3"
    times = changed.stat()
    changed.write_bytes(os.urandom(5000))  # of the same size
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert list_read_files(work) == ["deep/3"]
    _, (tree,) = read_trees(task)
    assert tree == read_tree(work)
    assert [file.path for file in tree.files if file.pointer] == ["pointer"]


def list_read_files(work: Path) -> list[str]:
    """Return the files that another process opens when it plans a launch of this folder."""
    program = f"""
import sys
from support.driving import local_task
from orchestrator.engine.preparation.trees import read_trees

def note(event, words):
    if event == "open" and str(words[0]).startswith({str(work)!r}):
        print(words[0])

sys.addaudithook(note)
read_trees(local_task(1, workdir={str(work)!r}, run="true"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=TESTS)
    read = {str(Path(line).relative_to(work)) for line in done.stdout.splitlines()}
    return sorted(read - {".", "deep", ".orchignore"})
