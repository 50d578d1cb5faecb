"""The base of `scripts/test --changed`: lines of tests/green.toml, digests of trees, and paths that changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from green import CHANGED, KEPT, NAME, Green  # noqa: E402  # a script, and no part of a package


@pytest.fixture
def checkout(tmp_path: Path) -> Green:
    """A repository with one commit."""
    root = tmp_path / "checkout"
    (root / "tests").mkdir(parents=True)
    git(root, "init", "-q")
    git(root, "config", "user.name", "Ann")
    git(root, "config", "user.email", "ann@example.org")
    (root / ".gitignore").write_text("*.log\n")
    (root / "code.py").write_text("".join(f"line = {number}\n" for number in range(20)))
    commit(root, "first")
    return Green(root)


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path, subject: str) -> str:
    git(root, "add", "--all")
    git(root, "commit", "-q", "--allow-empty", "-m", subject)
    return git(root, "rev-parse", "HEAD")


def digest(green: Green) -> str:
    return green.digest(green.tree())


def test_without_a_line_there_is_no_base(checkout: Green) -> None:
    assert checkout.base() == ""


def test_the_digest_leaves_out_the_lines_and_nothing_else(checkout: Green) -> None:
    before = digest(checkout)
    checkout.record(before, CHANGED)
    assert digest(checkout) == before
    commit(checkout.root, "a line")
    assert digest(checkout) == before == checkout.digest("HEAD")
    for name in ("code.py", "new.py", "tests/test_new.py"):
        file = checkout.root / name
        old = file.read_text() if file.exists() else None
        file.write_text("changed\n")
        assert digest(checkout) != before, name
        file.write_text(old) if old is not None else file.unlink()
    (checkout.root / "ignored.log").write_text("")
    assert digest(checkout) == before


def test_the_files_as_they_lie_there_are_read_without_touching_the_index(checkout: Green) -> None:
    (checkout.root / "code.py").write_text("changed\n")
    (checkout.root / "new.py").write_text("new\n")
    status = git(checkout.root, "status", "--porcelain")
    assert sorted(checkout.changed_paths("HEAD")) == ["code.py", "new.py"]
    assert git(checkout.root, "status", "--porcelain") == status


def test_the_base_is_the_newest_ancestor_with_another_tree_that_was_green(checkout: Green) -> None:
    first = git(checkout.root, "rev-parse", "HEAD")
    checkout.record(digest(checkout), CHANGED)
    assert checkout.base() == "", "the tree itself is no base"
    (checkout.root / "a.py").write_text("")
    second = commit(checkout.root, "second")
    assert checkout.base() == first
    checkout.record(digest(checkout), CHANGED)
    assert checkout.base() == first
    (checkout.root / "b.py").write_text("")
    commit(checkout.root, "third")
    assert checkout.base() == second
    assert checkout.changed_paths(checkout.base()) == ["b.py"]
    checkout.record(digest(checkout), "cli")
    (checkout.root / "c.py").write_text("")
    assert checkout.base() == second, "a part alone is no base"


def test_a_tree_of_another_branch_is_no_base(checkout: Green) -> None:
    git(checkout.root, "checkout", "-q", "-b", "other")
    (checkout.root / "other.py").write_text("")
    commit(checkout.root, "other")
    checkout.record(digest(checkout), CHANGED)
    lines = (checkout.root / NAME).read_text()
    git(checkout.root, "checkout", "-q", "-")
    (checkout.root / NAME).write_text(lines)
    (checkout.root / "own.py").write_text("")
    assert checkout.base() == ""


def test_of_a_renamed_file_both_paths_changed(checkout: Green) -> None:
    (checkout.root / "code.py").rename(checkout.root / "moved.py")
    (checkout.root / "moved.py").write_text((checkout.root / "moved.py").read_text() + "more = 1\n")
    assert checkout.changed_paths("HEAD") == ["code.py", "moved.py"]


def test_a_deleted_file_changed(checkout: Green) -> None:
    (checkout.root / "code.py").unlink()
    assert checkout.changed_paths("HEAD") == ["code.py"]


def test_the_line_of_a_whole_set_replaces_those_of_its_parts_and_old_lines_go(checkout: Green) -> None:
    for part in ("cli", "engine", "cli"):
        checkout.record("a" * 64, part)
    assert checkout.sets_of("a" * 64) == {"cli", "engine"} and len(checkout.lines()) == 2
    checkout.record("a" * 64, CHANGED)
    assert checkout.sets_of("a" * 64) == {CHANGED}
    for number in range(KEPT + 5):
        checkout.record(f"{number:064}", CHANGED)
    assert len(checkout.lines()) == KEPT and checkout.lines()[-1].tree == f"{KEPT + 4:064}"


def test_the_lines_of_this_checkout_can_be_read() -> None:
    assert all(len(line.tree) == 64 and line.set for line in Green(ROOT).lines())
