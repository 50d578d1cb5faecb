"""A task of the dialect on real local hosts: its working directory, its start file of the shell, its variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch

TASK = """
name: mine
resources: {infra: "local:2"}
workdir: ./$FOLDER
envs: {FOLDER: source, LR: "1"}
file_mounts: {~/sky_workdir/more: ./more, ~/config.txt: ./more/file}
setup: |
  echo 'export FROM_SETUP=here LR=9' >> ~/.bashrc
run: |
  cd ~/sky_workdir
  echo "SEEN $FROM_SETUP $LR $(cat program) $(cat more/file) $(cat ~/config.txt)"
  echo "INFO $SKYPILOT_CLUSTER_INFO"
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    own = Orch(tmp_path)
    for folder, name, text in (("source", "program", "code"), ("more", "file", "data")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    (tmp_path / "task.yaml").write_text(TASK)
    yield own
    own("down", "mine", "--yes")


@pytest.mark.timeout(300)
def test_setup_run_and_exec_keep_the_run_time_contract(orch: Orch) -> None:
    shown = orch.ok("launch", "task.yaml")
    assert shown.count("SEEN here 1 code data data") == 2, shown
    info = json.loads(next(line for line in shown.splitlines() if "INFO {" in line).partition("INFO ")[2])
    assert info == {"cluster_name": "mine", "cloud": "LOCAL", "region": None, "zone": None}
    said = orch.ok("exec", "mine", "--", "echo EXEC $FROM_SETUP $(cat ~/sky_workdir/program)")
    assert said.count("EXEC here code") == 2, said
