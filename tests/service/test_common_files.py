"""Files that members send to one of several servers: each one has them, whatever happens to the first."""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.kept_copies import list_kept, read_kept
from support.orch_process import Orch, until
from support.postgres import PostgresServer, postgres_server
from support.service_site import pack, serve

from orchestrator.engine.state.sent_trees import MemberTrees, TreeLimits
from orchestrator.engine.state.shared_trees import INLINE_BYTES, drop_unused_blobs, fetch_trees
from orchestrator.errors import NotFoundError, StorageError, UserError
from orchestrator.paths import load_paths
from orchestrator.remote.tree import read_tree
from orchestrator.store.store import Store
from orchestrator.task.sent_tree import SentTree

LARGE = {"large": random.Random(1).randbytes(2 * INLINE_BYTES)}  # it cannot be packed smaller
SMALL = {"small": b"S\n"}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def name_of(folder: Path, files: dict[str, bytes]) -> SentTree:
    """Return the name of files in a task, as who sends them finds it."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    found = read_tree(folder).digest
    shutil.rmtree(folder)
    return SentTree(digest=found)


class Servers:
    """Several computers with servers of one store, which have nothing but that and a folder in common."""

    def __init__(self, folder: Path, store: str, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.common = (folder / "common").as_uri()
        (folder / "common").mkdir()
        self._patch = patch
        patch.setenv("ORCH_STORE", store)

    def on(self, name: str, member: str = "ada", common: str | None = None, **limits: int) -> MemberTrees:
        """Return what a member has sent, as one of the computers sees it."""
        self._patch.setenv("ORCH_HOME", str(self.folder / name))
        shared = self.common if common is None else common
        return MemberTrees(where=load_paths(), member=member, limits=TreeLimits(**limits), common=shared)

    def send(self, trees: MemberTrees, files: dict[str, bytes]) -> SentTree:
        tree = name_of(self.folder / "files", files)
        (self.folder / "archive").write_bytes(pack(files))
        trees.keep(tree, self.folder / "archive")
        return tree


@pytest.fixture
def servers(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Servers:
    return Servers(tmp_path, postgres.new_store(), monkeypatch)


@pytest.mark.parametrize("files", [LARGE, SMALL], ids=["large", "small"])
def test_another_server_has_them_when_the_first_is_lost(servers: Servers, files: dict[str, bytes]) -> None:
    tree = servers.send(servers.on("a"), files)
    shutil.rmtree(servers.folder / "a")
    assert servers.on("b").find_missing([tree]) == ()
    fetch_trees({"workdir": tree.digest})
    assert read_kept(load_paths(), tree.digest) == files
    assert servers.on("b", "bob").find_missing([tree]) == (tree,), "the digest alone gives no one the files"


def test_without_a_common_bucket_large_ones_stay_where_they_are(servers: Servers) -> None:
    tree = servers.send(servers.on("a", common=""), LARGE)
    assert servers.on("a", common="").has(tree) and not servers.on("b", common="").has(tree)
    with pytest.raises(NotFoundError, match="are not here"):
        fetch_trees({"workdir": tree.digest})


def test_what_a_member_sent_anywhere_is_bounded_together(servers: Servers) -> None:
    servers.send(servers.on("a"), LARGE)
    with pytest.raises(UserError, match="too many files"):
        servers.send(servers.on("b", member_trees=1), SMALL)
    with pytest.raises(UserError, match="too large"):
        servers.send(servers.on("b", member_bytes=2 * INLINE_BYTES + 2 * 4096), {"more": b"x" * 5000})
    servers.send(servers.on("b", "bob", member_trees=1), SMALL)


def test_unused_ones_are_dropped_everywhere_and_can_be_sent_again(servers: Servers) -> None:
    tree = servers.send(servers.on("a"), LARGE)
    with Store(os.environ["ORCH_STORE"]) as store:
        drop_unused_blobs(store, [], older=-1.0)
    kept = [one for one in (servers.folder / "common").rglob("*") if one.is_file()]
    assert [one.parent.parent.name for one in kept] == ["sent"], "the note is left, which counts no more"
    for name in ("a", "b"):
        assert servers.on(name).find_missing([tree]) == (tree,)
    assert servers.send(servers.on("a", member_trees=1), LARGE) == tree
    assert servers.on("b").has(tree)


def test_a_note_or_a_tree_that_is_damaged_gives_nothing(servers: Servers) -> None:
    tree = servers.send(servers.on("a"), LARGE)
    (archive,) = (servers.folder / "common" / "trees").iterdir()
    archive.write_bytes(archive.read_bytes()[:-20])
    assert servers.on("b").has(tree)
    with pytest.raises(StorageError, match="cannot be fetched"):
        fetch_trees({"workdir": tree.digest})
    assert list_kept(load_paths()) == []
    for note in (servers.folder / "common" / "sent").rglob("*.json"):
        note.write_text("{")
    servers.send(replace(servers.on("b"), limits=TreeLimits(member_trees=1)), SMALL)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_launch_whose_server_is_killed_is_driven_by_another_one(postgres: PostgresServer, tmp_path: Path) -> None:
    store, common = postgres.new_store(), (tmp_path / "common").as_uri()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (Orch(tmp_path / name, {"ORCH_STORE": store}) for name in ("first", "second"))
    token = first.ok("token", "create", "ada", "--member", "ada", "--role", "member").strip()
    headers: dict[str, Any] = {"authorization": f"Bearer {token}"}
    name = str(name_of(tmp_path / "files", LARGE))
    task = {"name": "mine", "workdir": name, "resources": {"infra": "local:1"}, "run": "wc -c < large"}
    body: dict[str, Any] = {"verb": "launch", "task": json.dumps(task), "trees": {name: {"files": 1, "bytes": 4}}}
    with serve(first, "--files", common, "--allow", "infra:local") as site:
        digest = name.partition(":")[2]
        sent = site.ask(
            f"/v1/blobs/{digest}", method="PUT", body=pack(LARGE), content_type="application/octet-stream", **headers
        )
        assert sent.status == 201, sent.text
        site.process.kill()
    shutil.rmtree(first.state / "files")
    with serve(second, "--files", common, "--allow", "infra:local", page_only=False) as site:
        headers["content_type"] = "application/json"
        plan = site.ask("/v1/plans", method="POST", body=json.dumps(body).encode(), **headers)
        body["plan"] = plan.document["plan"]
        made = site.ask(
            "/v1/orders", method="POST", body=json.dumps(body).encode(), idempotency_key=uuid.uuid4().hex, **headers
        )
        assert made.status == 202, made.text

        def runs() -> Any:
            return site.ask("/v1/runs").document["runs"]

        until("the run has ended", lambda: bool(runs()) and runs()[0]["state"] == "ended", 120)
        assert [run["result"] for run in runs()] == ["succeeded"], runs()
        second.ok("down", "mine", "--yes", "--force")
