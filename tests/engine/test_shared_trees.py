"""What a job sends is found by its digest: in the store, or in a bucket, which may hold anything."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from support.hostile_bucket import BODIES
from support.kept_copies import list_kept, list_objects, list_staged, read_kept

from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.shared_trees import drop_unused_blobs, fetch_trees, publish_tree
from orchestrator.errors import OrchError
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.tree import Tree, read_tree


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ORCH_STORE", raising=False)
    return load_paths()


def share(where: Paths, tree: Tree, bucket: str) -> str:
    with open_store(where, real_services(where)) as store:
        return publish_tree(store, tree, bucket, store.project)


def make_work(folder: Path, size: int = 10) -> Tree:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/name with 'quote").write_bytes(os.urandom(size))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "deep/link").symlink_to("../run.sh")
    (folder / "deep/out").symlink_to("/elsewhere")
    return read_tree(folder)


@pytest.mark.parametrize("size", [10, 2 << 20])
def test_a_tree_is_fetched_where_the_launching_computer_is_lost(where: Paths, tmp_path: Path, size: int) -> None:
    tree = make_work(tmp_path / "work", size)
    assert share(where, tree, f"file://{tmp_path}/bucket") == ""
    assert (tmp_path / "bucket").exists() == (size > 1 << 20)
    fetch_trees({"workdir": tree.digest})
    kept = read_kept(where, tree.digest)
    assert len(kept["deep/name with 'quote"]) == size
    assert (kept["run.sh"], kept["deep/link"], kept["deep/out"]) == (b"#!/bin/sh\n", b"../run.sh", b"/elsewhere")
    assert list_kept(where) == [tree.digest] and list_staged(where) == []


def test_what_a_hostile_bucket_holds_is_never_kept(where: Paths, tmp_path: Path) -> None:
    tree = make_work(tmp_path / "work", 2 << 20)
    share(where, tree, f"file://{tmp_path}/bucket")
    (archive,) = (tmp_path / "bucket/trees").iterdir()
    other = make_work(tmp_path / "other", 2 << 20)
    share(where, other, f"file://{tmp_path}/bucket")
    (foreign,) = (one for one in (tmp_path / "bucket/trees").iterdir() if one != archive)
    whole = archive.read_bytes()
    line, _, rest = gzip.decompress(whole).partition(b"\n")
    record = json.loads(rest[: int(line.split()[2])])
    record["files"][0][4] = record["files"][1][4]
    lying = json.dumps(record).encode()
    for body in (
        *BODIES.values(),
        foreign.read_bytes(),
        whole[: len(whole) // 2],
        whole + whole,
        whole[:-9] + b"x" * 9,
        gzip.compress(line.replace(b"tree 1", b"tree 2") + b"\n" + rest),
        gzip.compress(line + b"\n" + rest + b"more"),
        gzip.compress(line + b"\n" + rest[:-1]),
        gzip.compress(line + b"\n" + rest[:-1] + b"x"),
        gzip.compress(b"orch-tree 1 999999999\n" + rest),
        gzip.compress(f"orch-tree 1 {len(lying)}\n".encode() + lying + rest[int(line.split()[2]) :]),
    ):
        archive.write_bytes(body)
        with pytest.raises(OrchError) as caught:
            fetch_trees({"workdir": tree.digest})
        assert len(caught.value.lines()) <= 5
        assert not where.state.joinpath("files").exists() or (list_kept(where) == [] and list_objects(where) == set())
    archive.write_bytes(whole)
    fetch_trees({"workdir": tree.digest})


def test_what_no_other_computer_could_fetch_is_only_here(where: Paths, tmp_path: Path) -> None:
    tree = make_work(tmp_path / "work", 2 << 20)
    assert "more than the store takes" in share(where, tree, "")
    with pytest.raises(OrchError) as caught:
        fetch_trees({"workdir": tree.digest})
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
    assert not list((tmp_path / "bucket").rglob("*.gz"))
