"""Copies for later attempts: the same files whatever happens to the originals, and no incomplete copies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.small_disk import small_disk

from orchestrator.engine.state.snapshots import drop_unused_snapshots, is_snapshot, keep_snapshot
from orchestrator.errors import StorageError
from orchestrator.paths import Paths
from orchestrator.remote.tree import read_snapshot, read_tree


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
    (root / "link").symlink_to("word.txt")
    return root


def folders(where: Paths) -> list[str]:
    root = where.state / "snapshots"
    return sorted(path.name for path in root.iterdir()) if root.exists() else []


def test_a_copy_has_the_digest_of_the_original_and_keeps_it_when_that_changes(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    copy = keep_snapshot(where, tree)
    assert is_snapshot(where, str(copy))
    assert not is_snapshot(where, str(work))
    (work / "word.txt").write_text("second")
    assert read_snapshot(copy).digest == tree.digest
    assert os.access(copy / "run.sh", os.X_OK)
    assert (copy / "link").readlink() == Path("word.txt")
    assert (copy / "word.txt").read_text() == "first"


def test_the_same_content_is_kept_once_and_deleted_when_unused(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    assert keep_snapshot(where, tree) == keep_snapshot(where, tree)
    assert folders(where) == [tree.digest]
    drop_unused_snapshots(where, [tree.digest], older=0)
    assert folders(where) == [tree.digest]
    drop_unused_snapshots(where, [])
    assert folders(where) == [tree.digest], "its launch may not be on record yet"
    os.utime(where.state / "snapshots" / tree.digest, (1.0, 1.0))
    keep_snapshot(where, tree)  # wanted once more
    drop_unused_snapshots(where, [])
    assert folders(where) == [tree.digest]
    drop_unused_snapshots(where, [], older=0)
    assert folders(where) == []


def test_a_single_file_is_kept_under_its_name(where: Paths, work: Path) -> None:
    tree = read_tree(work / "run.sh")
    copy = keep_snapshot(where, tree)
    assert copy.name == "run.sh"
    assert os.access(copy, os.X_OK)
    assert read_snapshot(copy).digest == tree.digest


def test_a_file_edited_during_the_copy_is_an_error_and_leaves_no_copy(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    (work / "word.txt").write_text("second")  # after it was hashed, before it is copied
    with pytest.raises(StorageError, match="changed while"):
        keep_snapshot(where, tree)
    assert folders(where) == []


def test_a_file_deleted_during_the_copy_is_an_error_and_leaves_no_copy(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    (work / "word.txt").unlink()
    with pytest.raises(StorageError) as caught:
        keep_snapshot(where, tree)
    assert "word.txt" in caught.value.why
    assert len(caught.value.lines()) <= 5
    assert folders(where) == []


def test_a_full_disk_is_an_error_with_a_next_step_and_leaves_no_copy(tmp_path: Path, work: Path) -> None:
    (work / "large").write_bytes(b"x" * (3 << 20))
    tree = read_tree(work)
    with small_disk(tmp_path / "disk", "2m") as disk:
        with pytest.raises(StorageError) as caught:
            keep_snapshot(Paths(disk), tree)
        assert caught.value.why == f"it has 3 MB, and {disk}/snapshots has 2 MB left"
        assert ".orchignore" in caught.value.next_step
        assert list((disk / "snapshots").iterdir()) == []
        (work / "large").unlink()
        smaller = read_tree(work)
        assert read_snapshot(keep_snapshot(Paths(disk), smaller)).digest == smaller.digest


def test_a_folder_with_one_file_and_that_file_are_both_kept(where: Paths, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/f").write_text("x")
    folder, file = read_tree(tmp_path / "one"), read_tree(tmp_path / "one/f")
    assert folder.digest == file.digest
    copies = [keep_snapshot(where, tree) for tree in (folder, file, folder, file)]
    assert [copy.is_dir() for copy in copies] == [True, False] * 2
    assert folders(where) == [folder.digest]


def test_an_interrupted_copy_is_ignored_and_deleted_by_the_next_cleanup(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    half = where.state / "snapshots" / f".{tree.digest[:16]}-1-abcd"
    half.mkdir(parents=True)
    os.utime(half, (1.0, 1.0))  # of a command that was killed long ago
    assert read_snapshot(keep_snapshot(where, tree)).digest == tree.digest
    drop_unused_snapshots(where, [tree.digest])
    assert folders(where) == [tree.digest]


def test_a_copy_in_progress_is_not_deleted(where: Paths) -> None:
    fresh = where.state / "snapshots" / f".0123456789abcdef-{os.getpid()}-abcd"
    fresh.mkdir(parents=True)
    drop_unused_snapshots(where, [])
    assert fresh.exists()


@pytest.mark.slow
def test_fifty_thousand_small_files_are_copied(tmp_path: Path) -> None:
    root = tmp_path / "many"
    for number in range(50):
        folder = root / f"d{number}"
        folder.mkdir(parents=True)
        for name in range(1000):
            (folder / str(name)).touch()
    (tmp_path / "state").mkdir()
    copy = keep_snapshot(Paths(tmp_path / "state"), read_tree(root))
    assert sum(1 for path in copy.rglob("*") if path.is_file()) == 50_000


def test_a_file_that_grew_after_the_plan_is_kept_as_it_was(where: Paths, work: Path) -> None:
    log = work / "launch.log"
    log.write_text("planned\n")
    tree = read_tree(work)
    with log.open("a") as more:
        more.write("later\n")
    copy = keep_snapshot(where, tree)
    assert (copy / "launch.log").read_text() == "planned\n"


def test_the_edited_file_is_named(where: Paths, work: Path) -> None:
    tree = read_tree(work)
    (work / "word.txt").write_text("second")
    with pytest.raises(StorageError, match=r"word\.txt changed while"):
        keep_snapshot(where, tree)
