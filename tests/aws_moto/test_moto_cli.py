"""A person's commands on moto, a third party's EC2: every call a real process, the host a real sshd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from moto_account import MotoAccount
from support.orch_process import Orch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

TASK = """\
name: tiny
resources:
  instance_type: p5.4xlarge
  infra: aws/us-east-1/us-east-1a
run: |
  echo "$ORCH_RANK of $ORCH_NUM_HOSTS" > result
  echo done
"""


@pytest.fixture
def orch(account: MotoAccount, tmp_path: Path) -> Orch:
    none = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    (tmp_path / "task.yaml").write_text(TASK)
    return Orch(tmp_path, {**account.env, **none})


def test_a_task_runs_on_a_machine_of_moto_from_launch_to_down(orch: Orch, account: MotoAccount) -> None:
    launched = orch("launch", "task.yaml", "-c", "tiny", "--yes", timeout=240)
    assert launched.returncode == 0, launched.stderr
    assert "done" in launched.stdout + launched.stderr
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert (found["name"], found["machines"]["zone"]) == ("tiny", "us-east-1a")
    assert orch.ok("exec", "tiny", "--no-prefix", "--", "echo", "here") == "here\n"
    assert len(account.left()["instances"]) == 1
    orch.ok("down", "tiny")
    assert json.loads(orch.ok("status", "-o", "json"))["clusters"] == []
    assert account.left() == {}
