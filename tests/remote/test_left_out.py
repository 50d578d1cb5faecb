"""What of a folder is not sent, by reason, and what of it a program names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from orchestrator.engine.preparation.tree_notes import TreeNotes, describe_trees
from orchestrator.remote.left_out import list_left_out
from orchestrator.remote.tree import read_tree
from orchestrator.task.parse import parse_task

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 12345\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository as nanoGPT's: prepared data that git ignores, an environment, output, and what tools make again."""
    files = {
        ".gitignore": "*.bin\n.venv/\nout*/\n__pycache__/\n",
        ".orchignore": "notes/\n*.mp4\n",
        "train.py": "open(os.path.join(data_dir, 'train.bin'))\n",
        "pkg/run.py": "",
        "data/sc/prepare.py": "",
        "data/sc/train.bin": "x" * 3000,
        "data/sc/val.bin": "x" * 10,
        "raw/a.bin": "x",
        "raw/b/c.bin": "x",
        ".venv/pyvenv.cfg": "home = /usr/bin\n",
        "out/ckpt.pt": "x",
        "__pycache__/train.pyc": "x",
        "notes/today": "xx",
        "clip.mp4": "x",
    }
    root = tmp_path / "repository"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def describe(root: Path, monkeypatch: pytest.MonkeyPatch, **fields: object) -> TreeNotes:
    monkeypatch.chdir(root)
    text = json.dumps({"workdir": ".", "resources": {"infra": "local"}, **fields})
    task = parse_task(text, file="task.yaml", env={}).only
    mounts = {mount.target: read_tree(Path(mount.source), whole=True) for mount in task.file_mounts}
    return describe_trees(task, {"workdir": read_tree(root), **mounts})


def test_each_file_and_folder_is_listed_once_with_its_reason(repository: Path) -> None:
    found = {one.path: (one.reason, one.files, one.size) for one in list_left_out(read_tree(repository))}
    assert found == {
        ".venv/": ("git ignores", 1, 16),
        "data/sc/train.bin": ("git ignores", 1, 3000),
        "data/sc/val.bin": ("git ignores", 1, 10),
        "out/": ("git ignores", 1, 1),
        "raw/": ("git ignores", 2, 2),
        "notes/": (".orchignore excludes", 1, 2),
        "clip.mp4": (".orchignore excludes", 1, 1),
    }


def test_a_repository_within_the_folder_leaves_its_ignored_files_out(repository: Path) -> None:
    """A submodule, too: git lists the files of each repository by itself."""
    inner = repository / "vendor/lib"
    (inner / "build").mkdir(parents=True)
    for name, text in {".gitignore": "build/\n", "lib.py": "", "build/lib.so": "xxx"}.items():
        (inner / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(inner)], check=True)
    found = {one.path: (one.reason, one.files, one.size) for one in list_left_out(read_tree(repository))}
    assert found["vendor/lib/build/"] == ("git ignores", 1, 3) and len(found) == 8


def test_outside_git_and_in_a_folder_that_git_ignores_only_orchignore_counts(repository: Path) -> None:
    inner = repository / "out"
    (inner / ".orchignore").write_text("ckpt.pt\n")
    assert [one.path for one in list_left_out(read_tree(inner))] == ["ckpt.pt"]
    assert list_left_out(read_tree(repository / "train.py")) == ()


def test_the_notes_count_by_reason_and_name_the_largest(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe(repository, monkeypatch, run="true").notes == (
        (
            "the workdir is sent without what git ignores: 6 files, 3.0 KiB (data/sc/train.bin 2.9 KiB, .venv/ 16 B, "
            "data/sc/val.bin 10 B and 2 more)"
        ),
        "the workdir is sent without what .orchignore excludes: 2 files, 3 B (notes/ 2 B, clip.mp4 1 B)",
    )


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ("python train.py", ["train.py names data/sc/train.bin"]),
        ("cd data/sc && cat val.bin", ["run names data/sc/val.bin"]),
        ("python -m pkg.run --data ./raw/b", ["run names raw/"]),
        (". .venv/bin/activate", ["run names .venv/"]),
        ("python x.py --out_dir=out/ > out/log; ls | tee -a out/log", []),
        ("cat gs://bucket/raw/b /raw/b ~/raw/b other/raw/b", []),
        ("echo raw out notes clip", []),
    ],
)
def test_what_the_program_names_is_doubted(
    repository: Path, monkeypatch: pytest.MonkeyPatch, run: str, named: list[str]
) -> None:
    doubts = describe(repository, monkeypatch, run=run).doubts
    assert [doubt.partition(", which")[0] for doubt in doubts] == named


def test_a_doubt_says_how_to_send_it(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubts = describe(repository, monkeypatch, setup=". .venv/bin/activate", run="python train.py").doubts
    assert doubts == (
        (
            "setup names .venv/, which is not sent, for git ignores it; make it in setup, for an environment works on "
            "its own computer alone"
        ),
        (
            "train.py names data/sc/train.bin, which is not sent, for git ignores it; to send it: "
            "file_mounts: {~/sky_workdir/data/sc: data/sc}"
        ),
    )
    mounts = {"~/sky_workdir/data/sc": "data/sc"}
    mounted = describe(repository, monkeypatch, file_mounts=mounts, run="python train.py")
    assert mounted.doubts == () and "train.bin" not in str(mounted.notes)


def test_links_that_lead_nowhere_and_pointers_are_noted(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "hosts").symlink_to("/etc/hosts")
    (repository / "up").symlink_to("../elsewhere")
    (repository / "weights").symlink_to("data/sc/train.bin")
    (repository / "gone").symlink_to("no-such-file")
    (repository / "fine").symlink_to("data/sc")
    (repository / "model.safetensors").write_text(POINTER)
    (repository / "about-lfs.md").write_text(POINTER + "x" * 2000)
    assert describe(repository, monkeypatch, run="true").notes[2:] == (
        "links of workdir that lead out of it may lead nowhere on the hosts: hosts, up",
        "links of workdir lead to what is not sent, or does not exist: gone, weights",
        "Git LFS has not fetched the content of 1 file of workdir: model.safetensors; git lfs pull does",
    )


def test_a_folder_with_very_many_files_is_counted_to_a_bound(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.remote.left_out._COUNTED", 3)
    (repository / "raw/d.bin").write_text("x")
    assert sum(one.files for one in list_left_out(read_tree(repository)) if one.path.endswith("/")) <= 4
    monkeypatch.setattr("orchestrator.remote.left_out._COUNTED", 100)
    monkeypatch.setattr("orchestrator.remote.left_out._COUNTED_EACH", 2)
    notes = describe(repository, monkeypatch, run="true").notes
    assert "git ignores: at least 6 files" in notes[0] and "excludes: 2 files" in notes[1]
