"""What orch keeps on a machine is closed to its other users, whatever the umask there is."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.own_ssh import Person
from support.sshd import Farm, sshd_farm

TASK = """\
name: mine
resources: {infra: hosts, accelerators: cpu}
num_nodes: 1
hosts: {addresses: [one]}
setup: umask
run: umask; touch made
"""


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with sshd_farm(tmp_path / "farm", 1) as farm:
        yield farm


@pytest.fixture
def orch(tmp_path: Path, farm: Farm) -> Iterator[Orch]:
    person, host = Person(tmp_path, farm), farm.hosts[0]
    person.make_key("id_ed25519")
    person.configure(f"Host one\n  HostName {host.ip}\n  Port {host.port}\n")
    (host.home / ".bashrc").write_text("umask 0\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").touch()
    orch = Orch(tmp_path, {"SSH_AUTH_SOCK": ""})
    yield orch
    orch("down", "mine", "--yes")


@pytest.mark.parametrize("workdir", ["", "workdir: work\n"])
def test_folder_of_orch_is_closed_and_the_users_files_have_the_users_umask(
    orch: Orch, farm: Farm, workdir: str
) -> None:
    (orch.folder / "task.yaml").write_text(TASK + workdir)
    assert "0000" in orch.ok("launch", "task.yaml", "--yes")
    home = farm.hosts[0].home
    (rank,) = (home / ".orch/hosts").iterdir()
    for folder in (home / ".orch", home / ".orch/hosts", rank, rank / "jobs", rank / "marks"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    made = home / ("orch_workdir/made" if workdir else "made")
    assert stat.S_IMODE(made.stat().st_mode) == 0o666


def test_folder_that_is_open_to_others_is_closed(orch: Orch, farm: Farm) -> None:
    folder = farm.hosts[0].home / ".orch"
    folder.mkdir()
    folder.chmod(0o777)
    (orch.folder / "task.yaml").write_text(TASK)
    orch.ok("launch", "task.yaml", "--yes")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
