"""The files of a folder: what git would send, less .orchignore."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.remote.tree import Tree, list_manifest, read_tree
from orchestrator.remote.tree_record import parse_record, write_record


def fill(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def git(root: Path, *arguments: str) -> None:
    config = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(root), *config, *arguments], check=True, capture_output=True)


def names(tree: Tree) -> list[str]:
    return [file.path for file in tree.files]


def test_in_git_the_tracked_and_the_untracked_that_are_not_ignored_are_sent(tmp_path: Path) -> None:
    root = fill(
        tmp_path / "repo",
        {"a.py": "a", "sub/b.py": "b", "new.py": "n", ".gitignore": "*.log\nvenv/\n", "x.log": "x", "venv/lib": "v"},
    )
    git(root, "init")
    git(root, "add", "a.py", "sub", ".gitignore")
    fill(root, {"forced.log": "f", "gone.py": "g"})
    git(root, "add", "-f", "forced.log", "gone.py")
    (root / "gone.py").unlink()
    assert names(read_tree(root)) == [".gitignore", "a.py", "forced.log", "new.py", "sub/b.py"]
    assert names(read_tree(root / "sub")) == ["b.py"]


def test_orchignore_takes_away_more_in_git_and_outside(tmp_path: Path) -> None:
    files = {"keep.py": "", "data/big.bin": "", "data/deep/x": "", "notes.txt": "", ".orchignore": "data/\n*.txt\n"}
    plain = fill(tmp_path / "plain", files)
    repo = fill(tmp_path / "repo", files)
    git(repo, "init")
    git(repo, "add", ".")
    assert names(read_tree(plain)) == names(read_tree(repo)) == [".orchignore", "keep.py"]


def test_outside_git_everything_but_git_folders_is_sent(tmp_path: Path) -> None:
    root = fill(tmp_path / "plain", {"a": "1", "b/c": "2", ".hidden": "3"})
    (root / "empty").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(root / "socket"))
    os.mkfifo(root / "pipe")
    assert names(read_tree(root)) == [".hidden", "a", "b/c"]
    listener.close()


def test_submodules_and_nested_repositories_are_sent_with_their_own_rules(tmp_path: Path) -> None:
    lib = fill(tmp_path / "lib", {"lib.py": "", ".gitignore": "build\n"})
    git(lib, "init")
    git(lib, "add", ".")
    git(lib, "commit", "-m", "x")
    root = fill(tmp_path / "repo", {"main.py": ""})
    git(root, "init")
    git(root, "add", ".")
    git(root, "submodule", "add", str(lib), "vendor/lib")
    fill(root, {"vendor/lib/build": "ignored", "vendor/lib/extra.py": "", "nested/n.py": ""})
    git(root / "nested", "init")
    assert names(read_tree(root)) == [
        ".gitmodules",
        "main.py",
        "nested/n.py",
        "vendor/lib/.gitignore",
        "vendor/lib/extra.py",
        "vendor/lib/lib.py",
    ]


def test_a_folder_that_git_ignores_is_sent_when_it_is_named(tmp_path: Path) -> None:
    root = fill(tmp_path / "repo", {".gitignore": "out/\n", "out/result.txt": "r"})
    git(root, "init")
    git(root, "add", ".")
    assert names(read_tree(root / "out")) == ["result.txt"]
    (root / "empty").mkdir()
    assert names(read_tree(root / "empty")) == []


def test_links_stay_links_and_modes_are_kept(tmp_path: Path) -> None:
    root = fill(tmp_path / "plain", {"run.sh": "x", "d/f": "y"})
    (root / "run.sh").chmod(0o700)
    (root / "to-file").symlink_to("run.sh")
    (root / "to-folder").symlink_to("d")
    (root / "to-nothing").symlink_to("/no/such")
    tree = {file.path: file for file in read_tree(root).files}
    assert {path: file.link for path, file in tree.items() if file.link} == {
        "to-file": "run.sh",
        "to-folder": "d",
        "to-nothing": "/no/such",
    }
    assert (tree["run.sh"].mode, tree["d/f"].mode) == (0o700, 0o644)
    assert tree["d/f"].sha256 == hashlib.sha256(b"y").hexdigest()


def folders(tree: Tree) -> list[str]:
    return [folder.path for folder in tree.folders]


def test_empty_folders_are_sent_in_git_and_outside_unless_they_are_ignored(tmp_path: Path) -> None:
    files = {"a.py": "", "sub/deep/b.py": "", "new/c.py": "", "pyc/x.pyc": "", ".gitignore": "*.pyc\nbuild/\n"}
    plain, repo = (fill(tmp_path / name, files | {".orchignore": "data/\n"}) for name in ("plain", "repo"))
    for root in (plain, repo):
        for name in ("out", "sub/empty/er", "new/logs", "data/x", "build", "new/build"):
            (root / name).mkdir(parents=True)
    git(repo, "init")
    git(repo, "add", "a.py", "sub", ".gitignore", ".orchignore")
    (repo / "nested").mkdir()
    git(repo / "nested", "init")
    sent = ["new", "new/logs", "out", "sub", "sub/deep", "sub/empty", "sub/empty/er"]
    assert folders(read_tree(repo)) == sent
    assert folders(read_tree(plain)) == sorted([*sent, "build", "new/build", "pyc"])
    assert folders(read_tree(repo, whole=True)) == sorted([*sent, "build", "nested", "new/build", "pyc"])


def test_modes_times_and_folders_are_in_the_record_of_a_tree(tmp_path: Path) -> None:
    root = fill(tmp_path / "plain", {"a": "1", "private/b": "2", os.fsdecode(b"\xff"): "3"})
    (root / "private").chmod(0o500)
    (root / "a").chmod(0o640)
    (root / "link").symlink_to("/elsewhere")
    os.utime(root / "a", (5, 1_000_000_000.7))
    os.utime(root / "private/b", (5, -5))
    tree = read_tree(root)
    assert [(folder.path, folder.mode) for folder in tree.folders] == [("private", 0o700)], "it can be written"
    again = parse_record(write_record(tree).encode(), tree.digest, root)
    assert again == tree
    times = {file.path: file.mtime for file in again.files}
    assert (times["a"], times["private/b"]) == (1_000_000_000, 0)


def test_the_digest_follows_content_mode_and_name_only(tmp_path: Path) -> None:
    root = fill(tmp_path / "plain", {"a": "1", "b": "2"})
    first = read_tree(root).digest
    os.utime(root / "a", (1, 1))
    assert read_tree(root).digest == first
    seen = {first}
    (root / "a").write_text("changed")
    seen.add(read_tree(root).digest)
    (root / "b").chmod(0o755)
    seen.add(read_tree(root).digest)
    (root / "b").rename(root / "c")
    seen.add(read_tree(root).digest)
    (root / "d").symlink_to("c")
    seen.add(read_tree(root).digest)
    (root / "empty").mkdir()
    seen.add(read_tree(root).digest)
    (root / "empty").chmod(0o700)
    seen.add(read_tree(root).digest)
    (root / "c").chmod(0o600)
    seen.add(read_tree(root).digest)
    assert len(seen) == 8


def test_the_digest_is_that_of_the_manifest_a_host_keeps(tmp_path: Path) -> None:
    root = fill(tmp_path / "plain", {"a": "1", "b c\nd": "2"})
    (root / "link").symlink_to("a")
    tree = read_tree(root)
    assert hashlib.sha256(list_manifest(tree)).hexdigest() == tree.digest
    assert read_tree(root / "a").digest != read_tree(fill(tmp_path / "alone", {"a": "1"})).digest


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        read_tree(tmp_path / "nowhere")
    root = fill(tmp_path / "plain", {"ok": "1"})
    (root / ".orchignore").mkdir()
    with pytest.raises(UserError, match=r"\.orchignore"):
        read_tree(root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    root = fill(tmp_path / "plain", {"ok": "1", "secret": "2"})
    (root / "secret").chmod(0)
    with pytest.raises(UserError, match="secret"):
        read_tree(root)


def test_a_file_that_vanishes_between_list_and_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fill(tmp_path / "plain", {"ok": "1", "vanishing": "2"})
    usual = os.lstat

    def lstat(path: str) -> os.stat_result:
        status = usual(path)
        if str(path).endswith("vanishing"):
            Path(path).unlink()
        return status

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(UserError, match="vanishing"):
        read_tree(root)


def test_git_that_refuses_to_list_is_an_error_with_its_message(tmp_path: Path) -> None:
    root = fill(tmp_path / "repo", {"a": "1", ".git": "gitdir: /no/such/place\n"})
    with pytest.raises(UserError, match="not a git repository"):
        read_tree(root)


NAME = st.text(alphabet=st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(
    st.dictionaries(
        NAME.filter(lambda name: name not in (".", "..", ".git", ".orchignore")), st.binary(max_size=50), max_size=6
    )
)
@settings(max_examples=40, deadline=None)
def test_any_name_a_file_can_have_is_listed_in_git_and_outside(files: dict[str, bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in files.items():
            (root / name).write_bytes(content)
        files = {path.name: path.read_bytes() for path in root.iterdir()}
        outside = read_tree(root)
        git(root, "init")
        inside = read_tree(root)
        ignored = {name for name in files if name == ".gitignore"}
        assert {file.path: file.size for file in outside.files} == {name: len(text) for name, text in files.items()}
        if not ignored:
            assert inside.files == outside.files
