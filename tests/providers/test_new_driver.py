"""A new cloud of plain machines is a folder and one line of the table: no other file of the product is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
import sys
from orchestrator import drivers
drivers._MODULES["acme"] = "acme"  # the one line
sys.path.insert(0, sys.argv.pop(1))
from orchestrator.__main__ import main
sys.exit(main())
"""
TASK = """
run: nvidia-smi
num_nodes: 2
resources:
  infra: acmecloud/fra
  instance_type: acme-big
  image_id: plain
  accelerator_args: {cooling: water, hours: 5}
  labels: {team: one}
config: {acme: {tenant: mine, open_port: false, networks: [a, b]}}
"""


def orch(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    env = os.environ | {"ORCH_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    program = [sys.executable, "-c", PROGRAM, str(HERE), *arguments]
    found = subprocess.run(program, env=env, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


def launch(tmp_path: Path, task: str, *arguments: str) -> tuple[int, str]:
    file = tmp_path / "task.yaml"
    file.write_text(task)
    return orch(tmp_path, "launch", str(file), "--dry-run", *arguments)


def test_a_task_is_planned_on_a_new_cloud(tmp_path: Path) -> None:
    status, shown = launch(tmp_path, TASK, "-v")
    assert status == 0, shown
    assert "acme-big: 2 hosts x 4 chips, on demand, acme/fra/fra1" in shown
    assert "$5.00" in shown, "two machines at the price of its table"
    assert "acme/fra/fra2" in shown
    assert "Acme is tried in 2 zones" in shown
    assert '"tenant": "mine"' in shown, "the option reaches the request"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("acmecloud/fra", "acme/frankfurt", "is not a region of acme"),
        ("acme-big", "acme-bigger", "acme-bigger"),
        ("cooling: water", "cooling: oil", "`resources.accelerator_args.cooling`"),
        ("cooling: water", "topology: 2x2", "`accelerator_args.topology` has no meaning for acme-big"),
        ("hours: 5", "hours: 500", "from 1 to 100 hours"),
        ("image_id: plain", "image_id: PLAIN", "images have lower-case names"),
        ("team: one", "team: one, b: c", "acme has room for 1 beside those of orch"),
        ("tenant: mine", "tenants: mine", "did you mean `tenant`"),
        ("num_nodes: 2", "num_nodes: 2", ""),
        ("labels: {team: one}", "use_spot: true", "Acme has no spot machines"),
    ],
)
def test_what_is_wrong_there_is_explained(tmp_path: Path, old: str, new: str, said: str) -> None:
    status, shown = launch(tmp_path, TASK.replace(old, new))
    assert said in shown
    assert (status == 0) == (not said)


def test_other_commands_know_it(tmp_path: Path) -> None:
    assert "acme-big" in orch(tmp_path, "accelerators")[1]
    assert "--tenant NAME" in orch(tmp_path, "check", "--help")[1]
    assert "acme/REGION/ZONE" in orch(tmp_path, "launch", "--help")[1]
