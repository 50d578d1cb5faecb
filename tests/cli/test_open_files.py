"""The limit of open files on a computer: raised for hosts, and refused before anything is created where it is hard."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.sshd import Farm, sshd_farm

pytestmark = pytest.mark.slow

HOSTS = 8
TASK = """\
name: many
resources: {{infra: hosts, accelerators: cpu}}
num_nodes: {count}
hosts: {{addresses: [{addresses}], key: {key}}}
run: |
  for number in $(seq 50); do echo "line $number of rank $ORCH_RANK"; done
"""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("many") / "farm", HOSTS) as farm:
        yield farm


@pytest.fixture
def orch(tmp_path: Path, farm: Farm) -> Iterator[Orch]:
    """An orch whose task names all hosts of the farm, and whose person's known_hosts has their keys."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    known = [f"[{host.ip}]:{host.port} {host.address.host_key}\n" for host in farm.hosts]
    (tmp_path / ".ssh" / "known_hosts").write_text("".join(known))
    addresses = ", ".join(f"'{host.ip}:{host.port}'" for host in farm.hosts)
    (tmp_path / "task.yaml").write_text(TASK.format(count=HOSTS, addresses=addresses, key=farm.identity))
    orch = Orch(tmp_path, {"SSH_AUTH_SOCK": ""})
    yield orch
    orch("down", "many", "--yes", "--abandon", timeout=170)


def limited(orch: Orch, soft: int, hard: int) -> Orch:
    return Orch(orch.folder, orch.more, ("prlimit", f"--nofile={soft}:{hard}", "--"))


def test_a_low_soft_limit_is_raised_and_no_output_is_missing(orch: Orch) -> None:
    for words in (("launch", "task.yaml", "--yes"), ("logs", "many")):
        shown = limited(orch, 24, 4096).ok(*words)
        assert all(f"line 50 of rank {rank}" in shown for rank in range(HOSTS))


@pytest.mark.parametrize("hard", [40])
def test_a_low_hard_limit_is_refused_before_anything_is_created(orch: Orch, hard: int) -> None:
    for verb in (("plan", "task.yaml"), ("launch", "task.yaml", "--yes"), ("launch", "task.yaml", "--yes", "--detach")):
        done = limited(orch, hard, hard)(*verb)
        assert done.returncode == 2, f"{verb}: {done.stdout}{done.stderr}"
        shown = " ".join((done.stdout + done.stderr).split())
        assert f"8 hosts need 96 open files, and a process on this computer may have {hard}" in shown
        assert "limits.conf" in shown and "LimitNOFILE=96" in shown
    assert orch("status", "many").returncode == 3, "nothing is on record"


def test_a_command_on_hosts_is_refused_as_a_launch_is(orch: Orch) -> None:
    orch.ok("launch", "task.yaml", "--yes")
    done = limited(orch, 60, 60)("exec", "many", "--", "echo hello")
    assert done.returncode == 2 and "8 hosts need 96 open files" in done.stderr
    assert "hello" in limited(orch, 70, 70).ok("exec", "many", "--head", "--", "echo hello")


def test_too_few_open_files_are_one_plain_error(orch: Orch) -> None:
    orch.ok("launch", "task.yaml", "--yes")
    shutil.rmtree(orch.state / "logs")  # so that hosts are asked
    for most, words in ((18, ("cp", "many:.profile", "here")), (14, ("logs", "many", "-o", "json"))):
        done = limited(orch, most, most)(*words)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
        assert f"why:  Too many open files; the limit of this process is {most}" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "open-files"
