"""Files that members send for their launches: compared, bounded, and each member's own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_site import EMPTY, Reply, Served, pack, record_run, serve
from support.orch_process import Orch

from orchestrator.engine.state.sent_trees import MemberTrees, TreeLimits
from orchestrator.errors import UserError
from orchestrator.paths import Paths, load_paths
from orchestrator.remote.tree import read_snapshot
from orchestrator.store.store import Store
from orchestrator.task.sent_tree import SentTree, find_sent_digests, parse_sent_tree

OCTETS = "application/octet-stream"
FILES = {"a.txt": b"A\n", "sub/b.txt": b"B\n"}


def digest_of(folder: Path, files: dict[str, bytes]) -> str:
    """Return the digest of files, as who sends them finds it."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    found = read_snapshot(folder).digest
    shutil.rmtree(folder)
    return found


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
    assert refused.document["trees"] == [f"orch-tree:{digest}/content"]
    assert send(site, tokens["eve"], digest, pack(FILES)).status == 403, "a viewer sends nothing"
    assert send(site, tokens["ada"], digest, pack(FILES)).status == 201
    assert [has(site, tokens[one], digest) for one in ("ada", "bob", "eve")] == [200, 404, 403]
    assert order(site, tokens["bob"], digest).status == 409, "the digest alone gives no one the files"
    assert order(site, tokens["ada"], digest).status == 202
    assert send(site, tokens["bob"], digest, pack(FILES)).status == 201, "who has the files may send them"
    kept = site.orch.state / "snapshots" / digest
    assert (kept / "content/sub/b.txt").read_bytes() == b"B\n" and kept.stat().st_mode & 0o77 == 0
    assert not list((site.orch.state / "service" / "received").iterdir()), "nothing is left of what was received"


def test_a_task_text_with_a_path_is_refused_as_before(team: tuple[Served, dict[str, str], str]) -> None:
    site, tokens, digest = team
    headers: dict[str, Any] = {"content_type": "application/json", "authorization": f"Bearer {tokens['ada']}"}
    for path in ("/etc", f"orch-tree:{digest}/../content", f"orch-tree:{digest}", f"./orch-tree:{digest}/content"):
        task = json.dumps({"workdir": path, "resources": {"infra": "local:1"}, "run": "true"})
        body = json.dumps({"verb": "launch", "task": task}).encode()
        answer = site.ask("/v1/plans", method="POST", body=body, **headers)
        assert answer.status == 400 and "path of a computer" in answer.text, path
    task = json.dumps({"workdir": f"orch-tree:{digest}/content", "resources": {"infra": "local:1"}, "run": "true"})
    answer = site.ask("/v1/plans", method="POST", body=json.dumps({"verb": "launch", "task": task}).encode(), **headers)
    assert answer.status == 400 and "does not describe" in answer.text


def linked(target: str) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        tar.addfile(entry)
    return archive.getvalue()


@pytest.mark.parametrize(
    "body",
    [
        lambda: pack({"a.txt": b"other\n"}),
        lambda: b"no archive",
        lambda: pack(FILES)[:-20],
        lambda: b"",
        lambda: pack({"../a.txt": b"A\n"}),
        lambda: linked("../../../etc/passwd"),
    ],
)
def test_what_is_not_the_announced_files_is_not_kept(
    team: tuple[Served, dict[str, str], str], body: Callable[[], bytes]
) -> None:
    site, tokens, _ = team
    digest = "0" * 64
    answer = send(site, tokens["ada"], digest, body())
    assert (answer.status, answer.document["exit_status"]) == (400, 2), answer.text
    assert has(site, tokens["ada"], digest) == 404 and not (site.orch.state / "snapshots" / digest).exists()


def test_only_a_program_sends_content_of_a_limited_size(team: tuple[Served, dict[str, str], str]) -> None:
    site, tokens, digest = team
    mine: dict[str, Any] = {"authorization": f"Bearer {tokens['ada']}", "content_type": OCTETS}
    _, answer = site.open(f"/v1/blobs/{digest}", method="PUT", content_length=str(1 << 40), **mine)
    assert (answer.status, json.load(answer)["code"]) == (413, "too-large")
    assert send(site, tokens["ada"], digest, pack(FILES), content_type="text/plain").status == 400
    assert send(site, tokens["ada"], "x" * 64, pack(FILES)).status == 400
    assert send(site, tokens["ada"], digest, pack(FILES), "?name=..").status == 400
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
    for folder in (where.state / "snapshots").iterdir():
        shutil.rmtree(folder)  # as the engine does with unused ones
    keep({"e": b"e"})


def test_a_file_and_a_folder_with_it_have_one_digest_and_are_two_trees(where: Paths, tmp_path: Path) -> None:
    mine = MemberTrees(where=where, member="ada")
    digest = digest_of(tmp_path / "files", {"a b$.txt": b"A\n"})
    file, folder = SentTree(digest=digest, name="a b$.txt"), SentTree(digest=digest)
    # What stands beside the announced file is not kept: it would be another member's folder.
    mine.keep(file, write(tmp_path / "sent", pack({"a b$.txt": b"A\n", "content/evil": b"E\n"})))
    assert mine.find_missing([file, folder]) == (folder,)
    mine.keep(folder, write(tmp_path / "sent", pack({"a b$.txt": b"A\n"})))
    assert mine.find_missing([file, folder]) == ()
    kept = where.state / "snapshots" / digest
    assert sorted(str(one.relative_to(kept)) for one in kept.rglob("*")) == ["a b$.txt", "content", "content/a b$.txt"]


def test_small_files_reach_engines_on_other_computers(where: Paths, tmp_path: Path) -> None:
    from orchestrator.engine.state.sent_trees import find_snapshot

    tree = SentTree(digest=digest_of(tmp_path / "files", FILES))
    MemberTrees(where=where, member="ada").keep(tree, write(tmp_path / "sent", pack({**FILES})))
    shutil.rmtree(where.state / "snapshots")
    assert (find_snapshot(tree, "workdir") / "sub/b.txt").read_bytes() == b"B\n"


def test_files_that_a_run_may_need_again_outlive_those_that_are_unused(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    needed, unused = (SentTree(digest=digest_of(tmp_path / "files", {name: b""})) for name in ("needed", "unused"))
    with Store(orch.state / "orch.db") as store:
        record_run(store, "one", "one-run", task=json.dumps({"workdir": str(needed), "run": "true"}))
    for tree in (needed, unused):
        folder = orch.state / "snapshots" / tree.digest
        (folder / tree.name).mkdir(parents=True)
        os.utime(folder, (1e9, 1e9))
    orch.ok("serve", "--engine-only", "--until-idle")
    assert [one.name for one in (orch.state / "snapshots").iterdir()] == [needed.digest]


@given(st.text(st.characters(blacklist_characters="/\0", codec="utf-8"), min_size=1, max_size=40))
def test_a_name_in_a_task_is_read_as_it_was_written(name: str) -> None:
    tree = SentTree(digest=hashlib.sha256(name.encode()).hexdigest(), name=name)
    found = parse_sent_tree(str(tree))
    assert found == (None if name in (".", "..") else tree)
    assert find_sent_digests(f"x {tree} y") == {tree.digest} and "$" not in str(tree)


@pytest.mark.parametrize(
    "path",
    ["", "proj", f"orch-tree:{EMPTY}", f"orch-tree:{EMPTY}/", f"orch-tree:{EMPTY}/a/b", f"orch-tree:{EMPTY}/a%2Fb",
     f"orch-tree:{EMPTY}/..", f"orch-tree:{EMPTY}/%2E%2E", f"orch-tree:{EMPTY}/%61", f"orch-tree:{EMPTY}/a\n",
     f"orch-tree:{EMPTY[1:]}/a", f"orch-tree:{EMPTY.upper()}/a", f"orch-tree:{EMPTY}/%00"],
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
