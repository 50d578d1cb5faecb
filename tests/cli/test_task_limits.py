"""`orch plan` and `orch import` count bytes and documents before they compute anything of a task file."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from support.orch_process import Orch

from orchestrator.task.yaml_reader import LARGEST_BYTES

MANY = "--- {run: a}\n" * 1300
FILLED = f"envs: {{A: {'x' * 100_000}}}\nrun: a\nresources: {{infra: 'local:1'}}\n"
MOUNTS = "run: a\nresources: {infra: 'local:1'}\nfile_mounts:\n" + "".join(
    f"  data/{number}: s3://bucket/{number}\n" for number in range(1100)
)
LARGE = "run: a\nenvs:\n" + "".join(f"  NAME{number}: [a, b, c]\n" for number in range(50_000))


@pytest.mark.parametrize("words", [("plan", "task.yaml"), ("plan", "-"), ("import", "task.yaml")])
@pytest.mark.parametrize(("text", "what"), [(MANY, "more than 20 documents"), (LARGE, "larger than 256 KiB")])
def test_a_task_file_with_too_much_in_it_is_refused_at_no_cost(
    tmp_path: Path, words: tuple[str, ...], text: str, what: str
) -> None:
    assert len(LARGE) > 1 << 20
    (tmp_path / "task.yaml").write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = Orch(tmp_path)(*words, stdin=text)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2 and what in done.stderr, done.stderr
    assert used.ru_utime - before.ru_utime < 4.0, "12 s before"


def test_a_file_without_end_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").symlink_to("/dev/zero")
    done = Orch(tmp_path)("plan", "task.yaml")
    assert done.returncode == 2 and "larger than 256 KiB" in done.stderr, done.stderr


def test_a_text_up_to_the_limit_is_planned(tmp_path: Path) -> None:
    head = "resources: {infra: 'local:1'}\nrun: |\n  echo "
    (tmp_path / "task.yaml").write_text(head + "a" * (LARGEST_BYTES - len(head)))
    assert "local:1" in Orch(tmp_path).ok("plan", "task.yaml")


@pytest.mark.parametrize("words", [("plan", "task.yaml"), ("import", "task.yaml")])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{FILLED}workdir: '{'${A}' * 38_000}'\n", "more than 4,096 characters"),
        (f"{FILLED}file_mounts: {{data: 's3://{'$A/' * 38_000}'}}\n", "more than 4,096 characters"),
        (MOUNTS, "1100 entries of `file_mounts` are too many"),
    ],
    ids=["workdir", "mount", "mounts"],
)
def test_what_would_grow_beyond_the_file_is_refused_before_it_is_made(
    tmp_path: Path, words: tuple[str, ...], text: str, what: str
) -> None:
    (tmp_path / "task.yaml").write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = Orch(tmp_path)(*words)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2 and what in done.stderr, done.stderr
    assert used.ru_utime - before.ru_utime < 4.0, "30 s and 4 GB before"
