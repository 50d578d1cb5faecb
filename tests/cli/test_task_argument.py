"""Tasks that a user types first: one command, standard input, files of variables, and a task file for exec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch

TASK = """\
resources: {infra: "local:2"}
envs: {A: "1", B: two}
secrets: {HIDDEN: null}
setup: echo setting up
run: echo "SEEN $A $B $C ${#HIDDEN}"
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    own = Orch(tmp_path)
    (tmp_path / "task.yaml").write_text(TASK)
    (tmp_path / "a.env").write_text("# mine\nexport C='from a file'\nA=9\n")
    (tmp_path / "s.env").write_text("HIDDEN=Pa55word\n")
    yield own
    own("down", "one", "--yes")


@pytest.mark.timeout(300)
def test_a_command_standard_input_and_exec_with_a_task_file(orch: Orch) -> None:
    said = orch.ok("launch", "-c", "one", "--infra", "local:2", "echo INLINE $((1+1)) $C", "--env-file", "a.env")
    assert said.count("INLINE 2 from a file") == 2, said
    done = orch("exec", "one", "task.yaml", "--env", "A=8", "--env-file", "a.env", "--secret-file", "s.env")
    assert done.stdout.count("SEEN 8 two from a file 8") == 2, done
    assert "exec does not use `setup` of task.yaml" in done.stderr and "setting up" not in done.stdout
    assert "Pa55word" not in str(done)
    text = TASK.replace("two", "three")
    said = orch.ok("launch", "-", "-c", "one", "--secret-file", "s.env", "--yes", stdin=text)
    assert said.count("SEEN 1 three  8") == 2, said


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["launch", "none.yaml"], 3, "there is no task file `none.yaml`"),
        (["launch", "./none"], 3, "there is no task file `./none`"),
        (["exec", "one", "none.yaml"], 3, "there is no task file `none.yaml`"),
        (["launch", "task.yaml", "task.yaml"], 2, "2 task files are given"),
        (["launch", "script"], 2, "`script` is a script, not a task file"),
        (["plan", "  "], 2, "the command is empty"),
        (["plan", "task.yaml", "--env-file", "none.env"], 3, "there is no file `none.env`"),
        (["plan", "task.yaml", "--secret-file", "task.yaml"], 2, "task.yaml:1: this line is not NAME=VALUE"),
    ],
)
def test_what_is_no_task_is_refused(orch: Orch, tmp_path: Path, arguments: list[str], status: int, what: str) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    found = orch(*arguments)
    assert (found.returncode, what in found.stderr) == (status, True), found.stderr


def test_a_command_in_a_plan_is_the_run_of_a_task_without_a_workdir(orch: Orch) -> None:
    said = orch.ok("plan", "--infra", "local", "-v", "--", "python", "train.py", "--name", "two words")
    assert "python train.py --name 'two words'" in said
    assert "copy" not in said


def test_import_shows_the_change_and_every_problem(orch: Orch, tmp_path: Path) -> None:
    lines = "".join(f"key{number}: 1\n" for number in range(12))
    (tmp_path / "sky.yaml").write_text(f"resources: {{infra: azure, accelerators: A100:8}}\nrun: x\n{lines}")
    found = orch("import", "sky.yaml")
    assert found.returncode == 2
    assert "+resources: {accelerators: A100:8}" in found.stdout
    assert [f"sky.yaml:{number}:1: unknown key" in found.stderr for number in range(3, 15)] == [True] * 12
    assert "and 5 more: orch import sky.yaml" in orch("plan", "sky.yaml").stderr
    (tmp_path / "sky.yaml").write_text("resources: {infra: azure, accelerators: A100:8}\nrun: x\n")
    assert orch("import", "sky.yaml", "--write").returncode == 0
    assert (tmp_path / "sky.yaml").read_text() == "resources: {accelerators: A100:8}\nrun: x\n"
    assert "runs as it is" in orch("import", "sky.yaml").stderr
