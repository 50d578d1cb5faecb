"""Files of the workdir with names of modules: the bundled trainer imports none of them, own programs as usual."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch

NAMES = ("trainer", "random", "json", "torch", "numpy", "sitecustomize")
TRAIN = """\
name: train
workdir: {workdir}
resources: {{infra: "local:1"}}
envs: {{PYTHONPATH: ":/opt/nothing:."}}
train: {{args: {{model: tiny, steps: 2, batch: 2, seq_len: 32, data: python-stdlib}}}}
"""
OWN = """\
name: own
workdir: {workdir}
resources: {{infra: "local:1"}}
run: |
  python3 -c 'import random'
  echo "safe=${{PYTHONSAFEPATH-unset}}"
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    work = tmp_path / "work"
    work.mkdir()
    for name in NAMES:
        (work / f"{name}.py").write_text(f"import os\nos.write(2, b'imported {name} of the workdir\\n')\n")
    orch = Orch(tmp_path)
    yield orch
    for name in ("train", "own"):
        orch("down", name, "--yes")


@pytest.mark.slow
def test_the_trainer_imports_nothing_of_the_workdir(orch: Orch, tmp_path: Path) -> None:
    """Neither by the working folder nor by an empty or relative entry of PYTHONPATH, which means that folder."""
    (tmp_path / "task.yaml").write_text(TRAIN.format(workdir=tmp_path / "work"))
    done = orch("launch", "task.yaml", "--yes", timeout=400)
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    assert "of the workdir" not in shown


@pytest.mark.slow
def test_an_own_program_imports_as_by_itself_and_the_list_of_devices_does_not(orch: Orch, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(OWN.format(workdir=tmp_path / "work"))
    shown = orch.ok("launch", "task.yaml", "--yes", timeout=200)
    assert "imported random of the workdir" in shown
    assert "safe=unset" in shown
    done = orch("exec", "own", "--devices", "--yes", timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of the workdir" not in done.stdout + done.stderr
