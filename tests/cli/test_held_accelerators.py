"""An accelerator of own machines that others hold, through the command line; a plain file replaces the device node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.own_ssh import Person
from support.sshd import Farm, sshd_farm

# The first program leaves a process behind that has the device open; the next ones start on the same machine.
TASK = """\
name: mine
resources: {{infra: hosts, accelerators: H100:1}}
hosts: {{addresses: [one]}}
envs: {{ORCH_DEV_DIR: {devices}, ORCH_FABRIC_CHECK: "0"}}
run: |
  env | grep ^ORCH_INSTALLATION=
  setsid bash -c 'exec 9<{devices}/nvidia0; exec sleep 302' >/dev/null 2>&1 &
  sleep 0.5
  echo started
"""


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with sshd_farm(tmp_path / "farm", 1) as farm:
        yield farm


@pytest.fixture
def orch(tmp_path: Path, farm: Farm) -> Iterator[Orch]:
    (farm.hosts[0].folder / "authorized_keys").write_text("")
    person = Person(tmp_path, farm)
    person.configure(f"Host one\n  HostName {farm.hosts[0].ip}\n  Port {farm.hosts[0].port}\n")
    person.make_key("id_ed25519")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    (tmp_path / "task.yaml").write_text(TASK.format(devices=tmp_path / "dev"))
    orch = Orch(tmp_path, {"SSH_AUTH_SOCK": ""})
    yield orch
    orch("down", "mine", "--yes", "--abandon")


@pytest.fixture
def colleague(tmp_path: Path, orch: Orch) -> Iterator[subprocess.Popen[bytes]]:
    del orch  # which made the device
    command = f"exec 9<{tmp_path}/dev/nvidia0; echo held; exec sleep 303"
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@pytest.mark.slow
def test_a_colleague_keeps_the_device_and_our_own_left_over_process_does_not(
    orch: Orch, farm: Farm, colleague: subprocess.Popen[bytes]
) -> None:
    assert "any other refuses the start with status 6" in orch("plan", "task.yaml").stderr
    refused = orch("launch", "task.yaml", "--yes")
    shown = refused.stdout + refused.stderr
    assert refused.returncode == 6, shown
    assert f"process {colleague.pid} (sleep 303 ) since 20" in shown
    assert "ORCH_HOLDERS_CHECK=0 in envs starts beside them" in shown
    assert "started\n" not in shown
    assert colleague.poll() is None
    beside = orch.ok("launch", "task.yaml", "--yes", "--env", "ORCH_HOLDERS_CHECK=0")
    assert "started beside others" in beside, beside
    (left,) = (pid for pid in farm.hosts[0].user_pids() if b"302" in Path(f"/proc/{pid}/cmdline").read_bytes())
    colleague.kill()
    colleague.wait()
    assert f"SIGTERM to processes that still hold the accelerator: {left}" in orch.ok("launch", "task.yaml", "--yes")
    assert left not in farm.hosts[0].user_pids()
