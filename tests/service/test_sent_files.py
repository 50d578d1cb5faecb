"""Files that members send for their launches: compared, bounded, and each member's own."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.kept_copies import list_kept, lose_kept, read_kept
from support.orch_process import Orch
from support.service_site import EMPTY, Reply, Served, pack, record_run, serve, write_files

from orchestrator.engine.state.file_objects import objects_folder, record_path
from orchestrator.engine.state.kept_trees import drop_unused_trees, keep_tree
from orchestrator.engine.state.sent_trees import MemberTrees, TreeLimits
from orchestrator.engine.state.shared_trees import fetch_trees
from orchestrator.errors import UserError
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.tree import TreeFile, make_tree, read_tree
from orchestrator.remote.tree_record import write_record
from orchestrator.store.store import Store
from orchestrator.task.sent_tree import SentTree, find_sent_digests, parse_sent_tree

OCTETS = "application/octet-stream"
EMPTY_FILE = hashlib.sha256().hexdigest()
FILES = {"a.txt": b"A\n", "sub/b.txt": b"B\n"}


def digest_of(folder: Path, files: dict[str, bytes]) -> str:
    """Return the digest of files, as who sends them finds it."""
    folder.mkdir()
    found = read_tree(write_files(folder, files)).digest
    shutil.rmtree(folder)
    return found


def test_files_of_which_one_was_lost_are_sent_again(tmp_path: Path) -> None:
    where = Paths(tmp_path / "state")
    tree = read_tree(write_files(tmp_path / "files", FILES))
    sent = parse_sent_tree(f"orch-tree:{tree.digest}")
    assert sent is not None
    trees, archive = MemberTrees(where=where, member="ada"), tmp_path / "archive"
    archive.write_bytes(pack(FILES))
    for damage in (lambda path: path.unlink(), lambda path: (path.chmod(0o600), path.write_bytes(b""))):
        trees.keep(sent, archive)
        assert trees.has(sent)
        content = next(path for path in objects_folder(where).rglob("*") if path.is_file() and path.stat().st_size)
        damage(content)
        assert trees.find_missing([sent]) == (sent,)
        trees.keep(sent, archive)
        assert trees.has(sent) and read_kept(where, tree.digest) == FILES


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str], str]]:
    """A service without an engine, tokens of two members and a viewer, and the digest of FILES."""
    folder = tmp_path_factory.mktemp("team")
    orch = Orch(folder)
    roles = {"ada": "member", "bob": "member", "eve": "viewer"}
    tokens = {
        name: orch.ok("token", "create", name, "--member", name, "--role", role).strip() for name, role in roles.items()
    }
    with serve(orch, "--allow", "infra:local") as served:
        yield served, tokens, digest_of(folder / "files", FILES)


def send(site: Served, token: str, digest: str, body: bytes, query: str = "", **more: str) -> Reply:
    headers: dict[str, Any] = {"content_type": OCTETS, "authorization": f"Bearer {token}"} | more
    return site.ask(f"/v1/blobs/{digest}{query}", method="PUT", body=body, **headers)


def has(site: Served, token: str, digest: str) -> int:
    path, mine = f"/v1/blobs/{digest}", f"Bearer {token}"
    answers = {site.ask(path, method=method, authorization=mine).status for method in ("GET", "HEAD")}
    (status,) = answers
    return status


def order(site: Served, token: str, digest: str) -> Reply:
    name = str(SentTree(digest=digest))
    task = json.dumps({"name": "mine", "workdir": name, "resources": {"infra": "local:1"}, "run": "true"})
    body: dict[str, Any] = {"verb": "launch", "task": task, "trees": {name: {"files": 2, "bytes": 4}}}
    headers: dict[str, Any] = {"content_type": "application/json", "authorization": f"Bearer {token}"}
    plan = site.ask("/v1/plans", method="POST", body=json.dumps(body).encode(), **headers)
    assert plan.status == 200, plan.text
    body["plan"] = plan.document["plan"]
    return site.ask(
        "/v1/orders", method="POST", body=json.dumps(body).encode(), idempotency_key=uuid.uuid4().hex, **headers
    )


def test_a_member_names_only_what_they_have_sent(team: tuple[Served, dict[str, str], str]) -> None:
    site, tokens, digest = team
    assert [has(site, tokens[one], digest) for one in ("ada", "bob", "eve")] == [404, 404, 403]
    refused = order(site, tokens["ada"], digest)
    assert (refused.status, refused.document["code"], refused.document["exit_status"]) == (409, "files-missing", 6)
    assert refused.document["trees"] == [f"orch-tree:{digest}"]
    assert send(site, tokens["eve"], digest, pack(FILES)).status == 403, "a viewer sends nothing"
    assert send(site, tokens["ada"], digest, pack(FILES)).status == 201
    assert [has(site, tokens[one], digest) for one in ("ada", "bob", "eve")] == [200, 404, 403]
    assert order(site, tokens["bob"], digest).status == 409, "the digest alone gives no one the files"
    assert order(site, tokens["ada"], digest).status == 202
    assert send(site, tokens["bob"], digest, pack(FILES)).status == 201, "who has the files may send them"
    assert read_kept(Paths(site.orch.state), digest) == FILES
    assert not list((site.orch.state / "service" / "received").iterdir()), "nothing is left of what was received"


def test_a_task_text_with_a_path_is_refused_as_before(team: tuple[Served, dict[str, str], str]) -> None:
    site, tokens, digest = team
    headers: dict[str, Any] = {"content_type": "application/json", "authorization": f"Bearer {tokens['ada']}"}
    for path in ("/etc", f"orch-tree:{digest}/../content", f"orch-tree:{digest[1:]}", f"./orch-tree:{digest}"):
        task = json.dumps({"workdir": path, "resources": {"infra": "local:1"}, "run": "true"})
        body = json.dumps({"verb": "launch", "task": task}).encode()
        answer = site.ask("/v1/plans", method="POST", body=body, **headers)
        assert answer.status == 400 and "path of a computer" in answer.text, path
    task = json.dumps({"workdir": f"orch-tree:{digest}", "resources": {"infra": "local:1"}, "run": "true"})
    answer = site.ask("/v1/plans", method="POST", body=json.dumps({"verb": "launch", "task": task}).encode(), **headers)
    assert answer.status == 400 and "does not describe" in answer.text


def lie(path: str) -> bytes:
    """Return an archive whose record has another path, which its digest does not say."""
    record = write_record(make_tree(Path(), [TreeFile(path=path, size=0, mode=0o644, sha256=EMPTY_FILE)])).encode()
    return gzip.compress(f"orch-tree 1 {len(record)}\n".encode() + record)


@pytest.mark.parametrize(
    "body",
    [
        lambda: pack({"a.txt": b"other\n"}),
        lambda: b"no archive",
        lambda: pack(FILES)[:-20],
        lambda: b"",
        lambda: lie("../a.txt"),
    ],
)
def test_what_is_not_the_announced_files_is_not_kept(
    team: tuple[Served, dict[str, str], str], body: Callable[[], bytes]
) -> None:
    site, tokens, _ = team
    digest = "0" * 64
    answer = send(site, tokens["ada"], digest, body())
    assert (answer.status, answer.document["exit_status"]) == (400, 2), answer.text
    assert has(site, tokens["ada"], digest) == 404 and digest not in list_kept(Paths(site.orch.state))


def test_only_a_program_sends_content_of_a_limited_size(team: tuple[Served, dict[str, str], str]) -> None:
    site, tokens, digest = team
    mine: dict[str, Any] = {"authorization": f"Bearer {tokens['ada']}", "content_type": OCTETS}
    _, answer = site.open(f"/v1/blobs/{digest}", method="PUT", content_length=str(1 << 40), **mine)
    assert (answer.status, json.load(answer)["code"]) == (413, "too-large")
    assert send(site, tokens["ada"], digest, pack(FILES), content_type="text/plain").status == 400
    assert send(site, tokens["ada"], "x" * 64, pack(FILES)).status == 400
    assert send(site, tokens["ada"], digest, pack(FILES), "?name=content").status == 400
    assert send(site, tokens["ada"], digest, pack(FILES), authorization="").status == 401
    headers: dict[str, Any] = {"content_type": OCTETS, "cookie": site.sign_in(), "sec_fetch_site": "same-origin"}
    session = site.ask(f"/v1/blobs/{digest}", method="PUT", signed=False, body=pack(FILES), **headers)
    assert session.status == 403, "a page of a browser sends none"


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    return load_paths()


def write(folder: Path, body: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "archive").write_bytes(body)
    return folder / "archive"


def test_the_files_of_a_member_are_bounded(where: Paths, tmp_path: Path) -> None:
    limits = TreeLimits(tree_bytes=1000, tree_files=5, member_bytes=10 * 4096, member_trees=3)
    mine = MemberTrees(where=where, member="ada", limits=limits)

    def keep(files: dict[str, bytes], trees: MemberTrees = mine) -> None:
        tree = SentTree(digest=digest_of(tmp_path / "files", files))
        trees.keep(tree, write(tmp_path / "sent", pack(files)))

    with pytest.raises(UserError, match="too large"):
        keep({"zeros": b"\0" * 1001})  # packed it is small
    with pytest.raises(UserError, match="too many files"):
        keep({f"{number}": b"" for number in range(6)})
    keep({"a": b"a" * 900})
    with pytest.raises(UserError, match="too many files"):  # of a byte each, but of two blocks on the disk
        keep({f"{number}": b"b" for number in range(5)}, replace(mine, limits=replace(limits, member_bytes=6 * 4096)))
    keep({"c": b"c"})
    keep({"d": b"d"})
    with pytest.raises(UserError, match="too many files"):
        keep({"e": b"e"})
    keep({"e": b"e"}, MemberTrees(where=where, member="bob", limits=limits))
    drop_unused_trees(where, [], older=0)  # as the engine does
    keep({"e": b"e"})


def test_who_has_only_a_digest_and_a_record_gets_no_files(where: Paths, tmp_path: Path) -> None:
    MemberTrees(where=where, member="ada").keep(
        tree := SentTree(digest=digest_of(tmp_path / "files", FILES)), write(tmp_path / "sent", pack(FILES))
    )
    line, _, rest = gzip.decompress(pack(FILES)).partition(b"\n")
    bare = gzip.compress(line + b"\n" + rest[: int(line.split()[2])])
    bob = MemberTrees(where=where, member="bob")
    with pytest.raises(UserError, match="not what was announced"):
        bob.keep(tree, write(tmp_path / "sent", bare))
    assert not bob.has(tree) and read_kept(where, tree.digest) == FILES


@pytest.mark.parametrize("path", ["../a", "/a", "a//b", "a/../b", ".", "", "a/", "x" * 5000])
def test_no_path_leaves_the_folder(where: Paths, tmp_path: Path, path: str) -> None:
    tree = make_tree(Path(), [TreeFile(path=path, size=0, mode=0o644, sha256=EMPTY_FILE)])
    with pytest.raises(UserError, match="not what was announced"):
        MemberTrees(where=where, member="ada").keep(SentTree(digest=tree.digest), write(tmp_path / "sent", lie(path)))


def test_small_files_reach_engines_on_other_computers(where: Paths, tmp_path: Path) -> None:
    tree = SentTree(digest=digest_of(tmp_path / "files", FILES))
    MemberTrees(where=where, member="ada").keep(tree, write(tmp_path / "sent", pack({**FILES})))
    lose_kept(where)
    fetch_trees({"workdir": tree.digest})
    assert read_kept(where, tree.digest) == FILES


def test_files_that_a_run_may_need_again_outlive_those_that_are_unused(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    where = Paths(orch.state)
    trees = [read_tree(write_files(tmp_path / name, {name: b""})) for name in ("needed", "unused")]
    for tree in trees:
        keep_tree(where, tree)
        os.utime(record_path(where, tree.digest), (1e9, 1e9))
    needed = SentTree(digest=trees[0].digest)
    with Store(orch.state / "orch.db") as store:
        record_run(store, "one", "one-run", task=json.dumps({"workdir": str(needed), "run": "true"}))
    orch.ok("serve", "--engine-only", "--until-idle")
    assert list_kept(where) == [needed.digest]


def test_a_name_in_a_task_is_read_as_it_was_written() -> None:
    tree = SentTree(digest=EMPTY)
    assert parse_sent_tree(str(tree)) == tree
    assert find_sent_digests(f"x {tree} y") == {tree.digest}


@pytest.mark.parametrize(
    "path",
    ["", "proj", f"orch-tree:{EMPTY}/", f"orch-tree:{EMPTY}/content", f"orch-tree:{EMPTY}\n", f"orch-tree:{EMPTY[1:]}",
     f"orch-tree:{EMPTY.upper()}", f"./orch-tree:{EMPTY}"],
)  # fmt: skip
def test_a_path_is_no_name_of_sent_files(path: str) -> None:
    assert parse_sent_tree(path) is None


def test_a_launch_through_the_service_says_what_is_not_sent_and_sends_a_mount_whole(
    team: tuple[Served, dict[str, str], str], tmp_path: Path
) -> None:
    site, tokens, _ = team
    (tmp_path / "given").mkdir()
    for name in ("data.bin", "given/data.bin"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("data.bin\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    task = {"name": "mine", "workdir": ".", "resources": {"infra": "local:1"}, "run": "cat data.bin"}
    (tmp_path / "task.yaml").write_text(json.dumps({**task, "file_mounts": {"~/given": "given"}}))
    member = Orch(tmp_path, {"ORCH_SERVER": f"http://127.0.0.1:{site.port}", "ORCH_TOKEN": tokens["ada"]})
    planned = member("launch", "task.yaml", "--dry-run", "-o", "json")
    assert planned.returncode == 0, planned.stderr
    assert "warning: run names data.bin, which is not sent, for git ignores it" in planned.stderr
    assert "the workdir is sent without what git ignores: 1 file" in planned.stderr
    sent = {step["label"]: step["files"] for step in json.loads(planned.stdout)["steps"] if step["do"] == "sync_tree"}
    assert sent == {"workdir": 2, "~/given": 1}, planned.stdout
