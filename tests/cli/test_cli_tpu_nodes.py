"""`orch launch` and `orch plan` of a task for TPU Nodes: shown rewritten, saved only with --write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OLD = "resources:\n  accelerators: v2-8\n  accelerator_args: {tpu_vm: false}  # gone\nrun: x\n"
NEW = "resources:\n  accelerators: v2-8\nrun: x\n"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "old.yaml"
    path.write_text(OLD)
    path.chmod(0o640)
    return path


@pytest.mark.parametrize("verb", [("plan",), ("launch", "--dry-run"), ("launch", "--yes")])
def test_it_is_refused_shown_rewritten_and_not_saved(
    orch: Callable[..., Any], task: Path, verb: tuple[str, ...]
) -> None:
    said = orch(*verb, str(task))
    assert said.status == 2
    assert "-  accelerator_args: {tpu_vm: false}  # gone\n" in said.out
    assert f"error[tpu-node]: {task}:3" in said.err
    assert "25 April 2025" in said.err
    assert task.read_text() == OLD
    assert [path.name for path in task.parent.glob("old*")] == ["old.yaml"]


def test_write_saves_it_keeps_the_old_one_and_does_nothing_else(orch: Callable[..., Any], task: Path) -> None:
    said = orch("launch", str(task), "--write", "--yes")
    assert said.status == 0, said.err
    assert task.read_text() == NEW
    assert task.stat().st_mode & 0o777 == 0o640
    assert (task.parent / "old.yaml.bak").read_text() == OLD
    assert sorted(path.name for path in task.parent.glob("old*")) == ["old.yaml", "old.yaml.bak"]
    assert f"next: orch plan {task}" in said.err
    assert not (task.parent / "orch" / "state" / "orch.db").exists()


def test_a_copy_that_is_there_is_never_overwritten(orch: Callable[..., Any], task: Path) -> None:
    kept = task.parent / "old.yaml.bak"
    kept.write_text("precious")
    said = orch("plan", str(task), "--write")
    assert said.status == 2
    assert "will not overwrite" in said.err
    assert (kept.read_text(), task.read_text()) == ("precious", OLD)


def test_a_link_stays_a_link(orch: Callable[..., Any], task: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(task)
    assert orch("plan", str(link), "--write").status == 0
    assert link.readlink() == task
    assert task.read_text() == NEW


def test_json_output_stays_json(orch: Callable[..., Any], task: Path) -> None:
    said = orch("plan", str(task), "-o", "json")
    assert said.status == 2
    assert "accelerator_args" not in said.out
    if said.out:
        json.loads(said.out)
    assert "-  accelerator_args" in said.err


def test_write_without_a_tpu_node_reports_that_there_is_nothing_to_save(
    orch: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "new.yaml"
    path.write_text("resources: {infra: local}\nrun: x\n")
    said = orch("launch", str(path), "--write")
    assert said.status == 2
    assert "--write has nothing to save" in said.err
    assert path.read_text() == "resources: {infra: local}\nrun: x\n"


def test_what_cannot_be_rewritten_is_refused_without_a_way_to_save(orch: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "alias.yaml"
    text = "x: &a {tpu_vm: false}\nresources: {accelerators: v3-8, accelerator_args: *a}\nrun: x\n"
    path.write_text(text)
    said = orch("plan", str(path), "--write")
    assert said.status == 2
    assert "remove tpu_vm" in said.err
    assert path.read_text() == text


def test_import_names_its_own_command(orch: Callable[..., Any], task: Path) -> None:
    said = orch("import", str(task))
    assert said.status == 2 and f"next: orch import {task} --write   saves it" in said.err
    assert orch("import", str(task), "--write").status == 0
    assert task.read_text() == NEW


def test_import_says_what_to_do_next(orch: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "sky.yaml"
    file.write_text("api_server_access: true\nsecrets: {KEY: null}\nenvs: {A: null}\nrun: x\n")
    changed = orch("import", str(file))
    assert changed.status == 0 and f"next: orch import {file} --write   saves it" in changed.err
    assert orch("import", str(file), "--write").status == 0
    same = orch("import", str(file))
    assert f"next: orch plan {file} --env A=VALUE --secret KEY" in same.err, same.err
