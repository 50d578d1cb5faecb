"""Files that stay behind: the plan counts them, and a launch whose program names one asks on a terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.terminal import on_terminal

WARNING = "warning: train.sh names data.bin, which is not sent, for git ignores it"


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    """An orch in a repository whose program reads a file that git ignores."""
    own = Orch(tmp_path)
    (tmp_path / ".gitignore").write_text("data.bin\ngiven/\norch/\n.ssh/\n")
    (tmp_path / "data.bin").write_text("the data\n")
    (tmp_path / "train.sh").write_text("cat data.bin || cat given/data.bin\n")
    (tmp_path / "task.yaml").write_text("name: mine\nworkdir: .\nresources: {infra: local}\nrun: |\n  bash train.sh\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    yield own
    own("down", "mine", "--yes")


def test_a_plan_says_it_and_asks_nothing(orch: Orch) -> None:
    done = orch("plan", "task.yaml")
    assert done.returncode == 0 and WARNING in done.stderr
    assert "note: the workdir is sent without what git ignores: 1 file, 9 B (data.bin 9 B)" in done.stderr


def test_on_a_terminal_it_asks_and_no_does_nothing(orch: Orch, tmp_path: Path) -> None:
    with on_terminal(orch.command("launch", "task.yaml"), env=orch.env, cwd=tmp_path) as terminal:
        assert WARNING in " ".join(terminal.expect(r"start it without them\?").split())
        terminal.type("n")
        assert terminal.finish() == 1
    assert "not agreed to" in terminal.seen and "mine" not in orch.ok("status")


def test_without_a_terminal_it_says_so_and_starts(orch: Orch) -> None:
    done = orch("launch", "task.yaml")
    assert done.returncode == 1 and WARNING in done.stderr and "data.bin: No such file" in done.stderr


def test_a_command_with_a_workdir_says_it_and_asks_nothing(orch: Orch, tmp_path: Path) -> None:
    orch.ok("launch", "true", "-c", "mine", "--infra", "local")
    note, largest = "the workdir is sent without what git ignores: ", "data.bin 9 B"  # and orch's own state
    named = "train.sh names data.bin, which is not sent, for git ignores it"
    command = ("exec", "mine", "--workdir", ".", "--", "bash train.sh")
    planned = orch(*command[:4], "--dry-run", *command[4:])
    assert planned.returncode == 0 and all(f"note: {words}" in planned.stderr for words in (note, named))
    with on_terminal(orch.command(*command), env=orch.env, cwd=tmp_path) as terminal:
        assert terminal.finish() == 1
    seen = " ".join(terminal.seen.split())
    assert note in seen and largest in seen and named in seen and "data.bin: No such file" in seen
    assert "is sent without" not in orch("exec", "mine", "--", "true").stderr


def test_a_folder_in_file_mounts_is_sent_whole(orch: Orch, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    for name in ("data.bin", "big.mp4"):
        (tmp_path / "given" / name).write_text("mounted data\n")
    (tmp_path / "given" / ".orchignore").write_text("*.mp4\n")
    with (tmp_path / "task.yaml").open("a") as task:
        task.write("  ls given\nfile_mounts: {~/sky_workdir/given: given}\n")
    done = orch("launch", "task.yaml", "--yes")
    assert done.returncode == 0, done.stderr
    assert "mounted data" in done.stdout and "big.mp4" not in done.stdout
