"""What a job sends is found by its digest: in the store, or in a bucket, which may hold anything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.hostile_bucket import BODIES

from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.shared_snapshots import drop_unused_blobs, fetch_snapshots, share_snapshot
from orchestrator.errors import OrchError
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.tree import Tree, read_snapshot, read_tree


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ORCH_STORE", raising=False)
    return load_paths()


def share(where: Paths, tree: Tree, bucket: str) -> tuple[str, str]:
    with open_store(where, real_services(where)) as store:
        return share_snapshot(store, where, tree, bucket)


def make_work(folder: Path, size: int = 10) -> Tree:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/name with 'quote").write_bytes(os.urandom(size))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "deep/link").symlink_to("../run.sh")
    return read_tree(folder)


@pytest.mark.parametrize("size", [10, 2 << 20])
def test_a_tree_is_fetched_where_the_launching_computer_is_lost(where: Paths, tmp_path: Path, size: int) -> None:
    tree = make_work(tmp_path / "work", size)
    bucket = f"file://{tmp_path}/bucket"
    path, problem = share(where, tree, bucket)
    assert problem == ""
    assert (tmp_path / "bucket").exists() == (size > 1 << 20)
    shutil.rmtree(where.state / "snapshots")
    found = Path(fetch_snapshots({"workdir": path})["workdir"])
    assert read_snapshot(found).digest == tree.digest
    assert found.is_relative_to(where.state / "snapshots")
    assert os.access(found / "run.sh", os.X_OK)
    assert [one.name for one in (where.state / "snapshots").iterdir()] == [tree.digest]


def test_a_single_file_keeps_its_name(where: Paths, tmp_path: Path) -> None:
    make_work(tmp_path / "work")
    tree = read_tree(tmp_path / "work/run.sh")
    path, _ = share(where, tree, "")
    shutil.rmtree(where.state / "snapshots")
    found = Path(fetch_snapshots({"f": path})["f"])
    assert (found.name, found.read_text()) == ("run.sh", "#!/bin/sh\n")


def test_what_a_hostile_bucket_holds_never_becomes_a_snapshot(where: Paths, tmp_path: Path) -> None:
    tree = make_work(tmp_path / "work", 2 << 20)
    path, _ = share(where, tree, f"file://{tmp_path}/bucket")
    (archive,) = (tmp_path / "bucket/snapshots").glob("*.tar.gz")
    shutil.rmtree(where.state / "snapshots")
    other = make_work(tmp_path / "other", 2 << 20)
    share(where, other, f"file://{tmp_path}/bucket")
    (foreign,) = (one for one in (tmp_path / "bucket/snapshots").glob("*.tar.gz") if one != archive)
    shutil.rmtree(where.state / "snapshots")
    whole = archive.read_bytes()
    for body in (
        *BODIES.values(),
        foreign.read_bytes(),
        whole[: len(whole) // 2],
        whole + whole,
        whole[:-9] + b"x" * 9,
    ):
        archive.write_bytes(body)
        try:
            found = Path(fetch_snapshots({"workdir": path})["workdir"])
        except OrchError as error:
            assert len(error.lines()) <= 5
            assert list((where.state / "snapshots").iterdir()) == []
        else:  # only what is behind the end of the archive may differ
            assert read_snapshot(found).digest == tree.digest
            shutil.rmtree(where.state / "snapshots")


def test_what_no_other_computer_could_fetch_is_only_here(where: Paths, tmp_path: Path) -> None:
    tree = make_work(tmp_path / "work", 2 << 20)
    path, _ = share(where, tree, "")
    assert fetch_snapshots({"workdir": path})["workdir"].startswith(str(where.state))
    shutil.rmtree(where.state / "snapshots")
    with pytest.raises(OrchError) as caught:
        fetch_snapshots({"workdir": path})
    assert "only the computer that launched the job has them" in caught.value.why


def test_unused_contents_are_dropped_from_the_store_and_the_bucket(where: Paths, tmp_path: Path) -> None:
    tree = make_work(tmp_path / "work", 2 << 20)
    share(where, tree, f"file://{tmp_path}/bucket")
    with open_store(where, real_services(where)) as store:
        drop_unused_blobs(store, set())
        drop_unused_blobs(store, {tree.digest}, older=-1)
        assert store.find_blob(tree.digest) is not None
        drop_unused_blobs(store, set(), older=-1)
        assert store.find_blob(tree.digest) is None
    assert not list((tmp_path / "bucket").rglob("*.tar.gz"))
