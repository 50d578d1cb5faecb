"""Copies for later attempts: the same files whatever happens to the originals, each content once, none incomplete."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.kept_copies import list_kept, list_objects, list_staged, read_kept
from support.small_disk import small_disk

from orchestrator.engine.state.file_objects import adding, count_kept_bytes, objects_folder, record_path
from orchestrator.engine.state.kept_trees import drop_unused_trees, is_kept, keep_tree, load_kept_tree
from orchestrator.errors import StorageError
from orchestrator.paths import Paths
from orchestrator.remote.tree import object_path, read_tree


@pytest.fixture(params=["plain", "with a space", "with 'quote\" and $sign"])
def where(tmp_path: Path, request: pytest.FixtureRequest) -> Paths:
    root = tmp_path / str(request.param) / "state"
    root.mkdir(parents=True)
    return Paths(root)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "word.txt").write_text("first")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "deep" / "er" / "name with 'quote").write_text("x")
    (root / os.fsdecode(b"no text \xff")).write_text("y")
    (root / "link").symlink_to("word.txt")
    (root / "out").symlink_to("../../elsewhere")
    return root


def count_bytes(where: Paths) -> int:
    """Return the bytes of the kept contents, as the disk has them."""
    return sum(path.stat().st_size for path in objects_folder(where).glob("*/*"))


def test_a_copy_is_that_of_the_original_and_stays_when_that_changes(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    keep_tree(where, tree)
    (work / "word.txt").write_text("second")
    expected = replace(tree, root=record_path(where, tree.digest), objects=objects_folder(where))
    assert load_kept_tree(where, tree.digest) == expected
    kept = read_kept(where, tree.digest)
    assert (kept["word.txt"], kept["link"], kept["out"]) == (b"first", b"word.txt", b"../../elsewhere")
    assert all(path.stat().st_mode & 0o777 == 0o400 for path in objects_folder(where).glob("*/*"))


def test_a_changed_file_costs_its_own_bytes_alone(where: Paths, work: Path) -> None:
    (work / "large").write_bytes(os.urandom(100_000))
    (work / "the same").write_bytes((work / "large").read_bytes())
    keep_tree(where, first := read_tree(work))
    before, at = count_bytes(where), {path: path.stat().st_ino for path in objects_folder(where).glob("*/*")}
    assert count_kept_bytes(where) == before < 101_000 < first.total_bytes
    (work / "word.txt").write_text("a second one")
    keep_tree(where, second := read_tree(work))
    assert count_bytes(where) == count_kept_bytes(where) == before + len("a second one")
    assert all(path.stat().st_ino == inode for path, inode in at.items())
    assert read_kept(where, first.digest)["word.txt"] == b"first"
    assert read_kept(where, second.digest)["word.txt"] == b"a second one"
    drop_unused_trees(where, [second.digest], older=0)
    assert list_kept(where) == [second.digest]
    assert list_objects(where) == {file.sha256 for file in second.files if file.link is None}
    assert count_bytes(where) == count_kept_bytes(where)


def test_the_same_content_is_kept_once_and_deleted_when_unused(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    for _ in range(2):
        keep_tree(where, tree)
    assert list_kept(where) == [tree.digest]
    drop_unused_trees(where, [tree.digest], older=0)
    assert list_kept(where) == [tree.digest]
    drop_unused_trees(where, [])
    assert list_kept(where) == [tree.digest], "its launch may not be on record yet"
    os.utime(record_path(where, tree.digest), (1.0, 1.0))
    keep_tree(where, tree)  # used once more
    drop_unused_trees(where, [])
    assert list_kept(where) == [tree.digest]
    drop_unused_trees(where, [], older=0)
    assert list_kept(where) == [] and list_objects(where) == set() and count_kept_bytes(where) == 0


def test_a_folder_with_one_file_and_that_file_are_two_trees(where: Paths, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/f").write_text("x")
    folder, file = read_tree(tmp_path / "one"), read_tree(tmp_path / "one/f")
    for tree in (folder, file):
        keep_tree(where, tree)
    kept = [load_kept_tree(where, tree.digest) for tree in (folder, file)]
    assert [tree is not None and (tree.is_file, tree.files) for tree in kept] == [
        (False, file.files),
        (True, file.files),
    ]
    assert len(list_objects(where)) == 1


def test_a_file_edited_during_the_copy_is_an_error_and_leaves_no_copy(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    (work / "word.txt").write_text("second")  # after it was hashed, before it is copied
    with pytest.raises(StorageError, match=r"word\.txt changed while"):
        keep_tree(where, tree)
    assert list_kept(where) == [] and list_objects(where) == set() and list_staged(where) == []


def test_a_file_deleted_during_the_copy_is_an_error_and_leaves_no_copy(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    (work / "word.txt").unlink()
    with pytest.raises(StorageError) as caught:
        keep_tree(where, tree)
    assert "word.txt" in caught.value.why
    assert len(caught.value.lines()) <= 5
    assert list_kept(where) == [] and list_objects(where) == set()


def test_a_full_disk_is_an_error_with_a_next_step_and_leaves_no_copy(tmp_path: Path, work: Path) -> None:
    (work / "large").write_bytes(b"x" * (3 << 20))
    tree = read_tree(work)
    with small_disk(tmp_path / "disk", "2m") as disk:
        with pytest.raises(StorageError) as caught:
            keep_tree(Paths(disk), tree)
        assert caught.value.why == f"it has 3 MB, and {disk}/files has 2 MB left"
        assert ".orchignore" in caught.value.next_step
        assert list_objects(Paths(disk)) == set()
        (work / "large").unlink()
        smaller = read_tree(work)
        keep_tree(Paths(disk), smaller)
        assert read_kept(Paths(disk), smaller.digest)["word.txt"] == b"first"


def test_a_file_that_grew_after_the_plan_is_kept_as_it_was(where: Paths, work: Path) -> None:
    log = work / "launch.log"
    log.write_text("planned\n")
    tree = read_tree(work)
    with log.open("a") as more:
        more.write("later\n")
    keep_tree(where, tree)
    assert read_kept(where, tree.digest)["launch.log"] == b"planned\n"


def test_a_content_that_a_power_failure_cut_is_copied_again(where: Paths, work: Path) -> None:
    keep_tree(where, tree := read_tree(work))
    (file,) = (file for file in tree.files if file.path == "word.txt")
    place = object_path(objects_folder(where), file.sha256)
    place.chmod(0o600)
    place.write_bytes(b"")
    (work / "more").write_text("more")
    keep_tree(where, more := read_tree(work))
    assert read_kept(where, more.digest)["word.txt"] == b"first"


def test_who_claims_another_size_takes_nothing_from_others(where: Paths) -> None:
    """A member may know the digest of a content that another one sends at the same time."""
    content = b"the content of someone else"
    sha256 = hashlib.sha256(content).hexdigest()
    blocks = iter([content, b"\0" * 1000])

    def read_false(_size: int) -> bytes:
        with adding(where) as others:  # in the middle of it
            left = iter([content])
            assert others.has(sha256, len(content)) or others.add(sha256, len(content), lambda _size: next(left, b""))
        return next(blocks, b"")

    with adding(where) as objects:
        assert not objects.add(sha256, 10_000, read_false)
        assert (objects_folder(where) / sha256[:2] / sha256).read_bytes() == content


def test_a_damaged_record_is_no_record(where: Paths, work: Path) -> None:
    keep_tree(where, tree := read_tree(work))
    whole = record_path(where, tree.digest).read_text()
    for damaged in ("", "{}", "[]", whole[:-9], whole.replace("word.txt", "wort.txt"), "[" * 100_000):
        record_path(where, tree.digest).write_text(damaged)
        assert load_kept_tree(where, tree.digest) is None
        keep_tree(where, tree)
        assert read_kept(where, tree.digest)["word.txt"] == b"first"


def test_nothing_is_deleted_while_a_launch_copies(where: Paths, work: Path) -> None:
    keep_tree(where, old := read_tree(work))
    with adding(where) as objects:
        assert objects.has(old.files[0].sha256, old.files[0].size)
        drop_unused_trees(where, [], older=0)
        assert is_kept(where, old.digest)
    drop_unused_trees(where, [], older=0)
    assert list_objects(where) == set()


_CALLS = {"open", "write", "close", "rename", "replace", "unlink", "mkdir", "rmdir", "utime", "flock", "lstat"}


def killed_at(point: int, action: Callable[[], object]) -> bool:
    """Do it in a process that is killed after its nth call of the system; return whether it got there."""
    child = os.fork()
    if not child:
        seen = 0

        def count(_frame: object, event: str, called: object) -> None:
            nonlocal seen
            if event == "c_return" and getattr(called, "__name__", "") in _CALLS:
                seen += 1
                if seen > point:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_kill_at_any_point_leaves_kept_trees_complete(tmp_path: Path, work: Path) -> None:
    where = Paths(tmp_path / "state")
    where.state.mkdir()
    kept = read_tree(work)
    (work / "word.txt").write_text("second")
    (work / "new").write_text("new")
    other = read_tree(work)
    before = {file.sha256 for file in kept.files if file.link is None} - {
        file.sha256 for file in other.files if file.path == "word.txt"
    }
    (work / "word.txt").write_text("first")
    keep_tree(where, kept)
    (work / "word.txt").write_text("second")
    actions = {
        "a launch": lambda: keep_tree(where, other),
        "a deletion": lambda: drop_unused_trees(where, [kept.digest], older=0),
    }
    for name, action in actions.items():
        point = 0
        while killed_at(point, action):
            assert read_kept(where, kept.digest)["word.txt"] == b"first", (name, point)
            if is_kept(where, other.digest):
                assert read_kept(where, other.digest)["word.txt"] == b"second", (name, point)
            keep_tree(where, other)
            assert read_kept(where, other.digest)["new"] == b"new", (name, point)
            if name == "a launch":
                drop_unused_trees(where, [kept.digest], older=0)
                assert list_objects(where) == before and list_staged(where) == [], (name, point)
                assert count_kept_bytes(where) == count_bytes(where)
            point += 1
        assert point > 10, name
    assert list_kept(where) == [kept.digest]
    assert list_objects(where) == before and list_staged(where) == []
    drop_unused_trees(where, [kept.digest], older=0)


def test_launches_beside_deletions_find_what_they_kept(tmp_path: Path) -> None:
    where = Paths(tmp_path / "state")
    where.state.mkdir()
    until = time.monotonic() + 1.5

    def launch(name: str) -> None:
        work = tmp_path / name
        work.mkdir()
        for number in range(20):
            (work / f"{number}").write_text(f"{number}")
        count = 0
        while time.monotonic() < until:
            count += 1
            (work / "count").write_text(f"{name} {count}")
            keep_tree(where, tree := read_tree(work))
            assert len(read_kept(where, tree.digest)) == 21
            os.utime(record_path(where, tree.digest), (1.0, 1.0))  # it is not needed any more
        assert count > 3

    def delete() -> None:
        while time.monotonic() < until:
            drop_unused_trees(where, [], older=5)

    children: list[int] = []
    for action in (lambda: launch("a"), lambda: launch("b"), delete, delete):
        if not (child := os.fork()):
            status = 1
            try:
                action()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    drop_unused_trees(where, [], older=5)
    assert list_objects(where) == set() and list_staged(where) == []


@pytest.mark.slow
def test_fifty_thousand_small_files_are_copied(tmp_path: Path) -> None:
    root = tmp_path / "many"
    for number in range(50):
        folder = root / f"d{number}"
        folder.mkdir(parents=True)
        for name in range(1000):
            (folder / str(name)).write_text(f"{number} {name}")
    (tmp_path / "state").mkdir()
    keep_tree(Paths(tmp_path / "state"), read_tree(root))
    assert len(list_objects(Paths(tmp_path / "state"))) == 50_000
