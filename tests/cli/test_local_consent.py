"""A task file that names no machine runs on this computer, as its user: only after consent."""

from __future__ import annotations

import getpass
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch

TASK = "name: mine\nrun: echo ran >> {marks}\nfile_mounts: {{{target}: {source}}}\n"


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    """A separate orch with a task file that names no machine and writes outside of its host's home."""
    own = Orch(tmp_path)
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("given")
    text = TASK.format(marks=tmp_path / "marks", target=tmp_path / "outside", source=tmp_path / "given")
    (tmp_path / "task.yaml").write_text(text)
    yield own
    own("down", "mine", "two-1", "two-2", "--yes")


def untouched(folder: Path) -> bool:
    return not (folder / "marks").exists() and not (folder / "outside").exists()


def answer(orch: Orch, *words: str, with_: bytes) -> tuple[int, str]:
    """Run a command on a terminal and answer its first question."""
    main, side = pty.openpty()
    command = [sys.executable, "-m", "orchestrator", *words]
    process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=orch.env, cwd=orch.folder)
    os.close(side)
    seen = b""
    try:
        while b"[y/N]" not in seen:
            seen += os.read(main, 4096)
        os.write(main, with_)
        while True:
            seen += os.read(main, 4096)
    except OSError:  # Linux reports the end of a terminal as EIO
        pass
    finally:
        os.close(main)
    return process.wait(120), " ".join(seen.decode().split())


def test_without_a_terminal_it_is_refused_and_nothing_is_done(orch: Orch, tmp_path: Path) -> None:
    for more in ((), ("--detach",), ("-o", "json")):
        done = orch("launch", "task.yaml", *more)
        assert done.returncode == 2, done.stderr
        error = done.stdout + done.stderr
        assert "this task would run on this computer" in error and "--infra local or --yes" in error
        assert getpass.getuser() in error and str(tmp_path / "outside") in error
    assert untouched(tmp_path) and not (orch.state / "orch.db").exists()


def test_a_pipeline_without_machines_is_refused_too(orch: Orch, tmp_path: Path) -> None:
    task = (tmp_path / "task.yaml").read_text().replace("name: mine", "name: one")
    (tmp_path / "two.yaml").write_text(f"name: two\n---\nname: rented\nresources: {{infra: local}}\n---\n{task}")
    done = orch("launch", "two.yaml")
    assert done.returncode == 2 and "would run on this computer" in done.stderr
    assert untouched(tmp_path)


def test_on_a_terminal_it_asks_and_no_does_nothing(orch: Orch, tmp_path: Path) -> None:
    status, shown = answer(orch, "launch", "task.yaml", with_=b"n\n")
    assert status == 1 and "not agreed to" in shown and "nothing was done" in shown
    assert f"as user {getpass.getuser()}" in shown and "run it on this computer?" in shown
    assert f"write outside the hosts' home folders: {tmp_path / 'outside'}" in shown
    assert untouched(tmp_path)


def test_on_a_terminal_yes_runs_it(orch: Orch, tmp_path: Path) -> None:
    status, shown = answer(orch, "launch", "task.yaml", with_=b"y\n")
    assert status == 0, shown
    assert (tmp_path / "marks").read_text() == "ran\n" and (tmp_path / "outside" / "file").read_text() == "given"


@pytest.mark.parametrize("words", [("--infra", "local"), ("--yes",)])
def test_a_flag_agrees(orch: Orch, tmp_path: Path, words: tuple[str, ...]) -> None:
    orch.ok("launch", "task.yaml", *words)
    assert (tmp_path / "marks").read_text() == "ran\n"


def test_the_file_and_the_configuration_agree(orch: Orch, tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    text = path.read_text()
    path.write_text(text + "resources: {infra: local}\n")
    orch.ok("launch", "task.yaml")
    path.write_text(text)
    orch.ok("config", "set", "resources.infra", "local")
    orch.ok("launch", "task.yaml")
    assert (tmp_path / "marks").read_text() == "ran\nran\n"


def test_a_preview_says_it_and_asks_nothing(orch: Orch, tmp_path: Path) -> None:
    note = "note: no machine is requested, so the task runs on this computer"
    assert note in orch("plan", "task.yaml").stderr
    assert note in orch("launch", "task.yaml", "--dry-run").stderr
    assert note not in orch("plan", "task.yaml", "--infra", "local").stderr
