"""A limit, a cancel or a `down` that ends a program is never a success, whatever status the program returns on TERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until
from support.own_ssh import Person
from support.sshd import sshd_farm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SAVES = """
run: |
  trap 'echo saved; exit 0' TERM
  echo begun
  for i in $(seq 900); do sleep 0.2; done
"""
LIMIT = "limits: {max_hours: 0.004}"
LOCAL = f"name: mine\nresources: {{infra: 'local:2'}}\n{LIMIT}\n{SAVES}"
TPU = "infra: gcp/us-west4/us-west4-a, accelerators: v5litepod-4"
EC2 = "infra: aws/us-east-1/us-east-1a, instance_type: c7i.24xlarge"
UPTIME = float(Path("/proc/uptime").read_text().split()[0])
needs_old_boot = pytest.mark.skipif(UPTIME < 600, reason="a timer ends nothing in the first ten minutes after a boot")


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path)
    (tmp_path / "t.yaml").write_text(LOCAL)
    yield orch
    for name in ("mine", "pipe-1", "pipe-2"):
        orch("down", name)
    until("no engine is left", lambda: not orch.engines(), 40)


def run_of(orch: Orch) -> dict[str, Any]:
    """Return the record of the newest run, which outlives its cluster."""
    return dict(json.loads(orch.ok("runs", "-o", "json"))["runs"][0])


def test_a_launch_ends_as_its_limit_with_each_host(orch: Orch) -> None:
    done = orch("launch", "t.yaml", "--yes", "-o", "json")
    assert done.returncode == 124, done.stderr
    said = json.loads(done.stdout)
    assert (said["status"], said["error"]["code"], said["message"]) == (124, "limit", None)
    assert [host["ended_by"] for host in said["hosts"]] == ["limit", "limit"]
    assert "succeeded" not in done.stderr


@needs_old_boot
def test_the_hosts_keep_it_where_no_orch_was_alive(orch: Orch) -> None:
    orch.ok("launch", "t.yaml", "--detach")
    until("an engine runs the job", lambda: "begun" in orch("logs", "mine").stdout)
    for pid in orch.engines():
        os.kill(pid, signal.SIGKILL)
    until("the timer ends the program", lambda: "saved" in orch("logs", "mine").stdout, 60)
    orch("status", "mine", "--refresh")
    assert (run_of(orch)["status"], run_of(orch)["state"]) == (124, "ended")


def test_a_detached_launch_ends_as_its_limit(orch: Orch) -> None:
    orch.ok("launch", "t.yaml", "--detach")
    until("it is over", lambda: run_of(orch)["state"] == "ended")
    assert run_of(orch)["status"] == 124


def test_a_pipeline_does_not_go_on_after_a_limit(orch: Orch) -> None:
    (orch.folder / "pipe.yaml").write_text(
        f"name: pipe\n---\n{LOCAL.replace('mine', 'a')}---\n"
        "name: b\nresources: {infra: 'local:1'}\nrun: touch $HOME/stage-two\n"
    )
    done = orch("launch", "pipe.yaml", "--yes")
    assert done.returncode == 124, done.stderr
    assert "stage 2 of 2" not in done.stderr
    assert "error[limit]: pipeline 'pipe': stage 1 of 2 (a):" in done.stderr
    assert "next: orch logs pipe-1 1   shows the output of stage 1 of 2" in done.stderr
    assert "raise `limits` in the task, then launch again" in done.stderr, "the stage's own step"
    assert "limit of 0.004 hours reached" in done.stderr


def test_a_cancel_is_no_success_where_the_program_returns_0(orch: Orch) -> None:
    (orch.folder / "t.yaml").write_text(LOCAL.replace(LIMIT, ""))
    process = orch.start("launch", "t.yaml", "--yes")
    until("it runs", lambda: "begun" in orch("logs", "mine").stdout)
    orch.ok("cancel", "mine", "1")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert run_of(orch)["status"] == 130


def test_a_limit_on_own_machines(tmp_path: Path, orch: Orch) -> None:
    with sshd_farm(tmp_path / "farm", 2) as farm:
        person = Person(tmp_path, farm)
        person.make_key("id_ed25519")
        hosts = ", ".join(f"'{host.ip}:{host.port}'" for host in farm.hosts)
        (tmp_path / "t.yaml").write_text(
            "name: mine\nresources: {infra: hosts, accelerators: cpu}\nnum_nodes: 2\n"
            f"hosts: {{addresses: [{hosts}]}}\n{LIMIT}\n{SAVES}"
        )
        own = Orch(tmp_path, {"SSH_AUTH_SOCK": ""})
        done = own("launch", "t.yaml", "--yes", "--accept-host-key")
        assert done.returncode == 124, done.stderr
        assert "error[limit]" in done.stderr and done.stderr.count("ended by limit") == 2
        own("down", "mine")


@contextmanager
def simulated(folder: Path, cloud: str) -> Generator[Orch]:
    """Yield an orch whose cloud is the simulated one."""
    env: dict[str, str] = {"TMPDIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "simulate", cloud],
        stdout=subprocess.PIPE,
        text=True,
        env=Orch(folder, env).env,
        cwd=folder,
    )
    assert process.stdout is not None
    try:
        while "ORCH_HOME" not in env:
            name, _, value = process.stdout.readline().removeprefix("export ").strip().partition("=")
            env[name] = value.strip("'")
        yield Orch(folder, env)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.parametrize(
    ("resources", "limit", "more"),
    [
        (TPU, "max_cost: 0.02", ()),
        (TPU, "max_cost: 0.02", ("--detach",)),
        (TPU, "max_hours: 0.006", ()),
        (EC2, "max_cost: 0.02", ()),
        (EC2, "max_hours: 0.006", ("--detach",)),
    ],
    ids=["gcp-cost", "gcp-cost-detached", "gcp-hours", "aws-cost", "aws-hours-detached"],
)
def test_a_limit_of_money_or_time_on_rented_machines(
    tmp_path: Path, resources: str, limit: str, more: tuple[str, ...]
) -> None:
    (tmp_path / "t.yaml").write_text(f"name: mine\nresources: {{{resources}}}\nlimits: {{{limit}}}\n{SAVES}")
    with simulated(tmp_path, "aws" if resources is EC2 else "gcp") as orch:
        done = orch("launch", "t.yaml", "--yes", *more)
        if more:
            until("it is over", lambda: run_of(orch)["state"] == "ended")
        else:
            assert (done.returncode, "error[limit]" in done.stderr) == (124, True), done.stderr
        assert run_of(orch)["status"] == 124
        orch("down", "mine", "--yes")
