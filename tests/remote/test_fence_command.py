"""Whose commands a host runs: the comparison that travels in front of each, with a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.host_folders import host_folder

from orchestrator.hosts import Fence
from orchestrator.remote.fence import REFUSED, guard_command, parse_epoch, parse_refusal

OURS = Fence(epoch=2, installation="aaaaaaaaaaaa", owner="ann@laptop")


def run(home: Path) -> subprocess.CompletedProcess[bytes]:
    line = f"export ORCH_HOST_NAME=host;{guard_command('echo ran', OURS)}"
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=False)


def write_owner(home: Path, line: str) -> Path:
    file = host_folder(home) / "owner"
    file.parent.mkdir(parents=True)
    file.write_text(f"{line} them@there 2026-11-25T00:00:00Z\n")
    return file


def test_a_host_without_an_owner_gets_this_one(tmp_path: Path) -> None:
    assert run(tmp_path).stdout == b"ran\n"
    assert (host_folder(tmp_path) / "owner").read_text().startswith("2 aaaaaaaaaaaa ann@laptop ")


@pytest.mark.parametrize("line", ["1 bbbbbbbbbbbb", "no-number bbbbbbbbbbbb", "1000000000 bbbbbbbbbbbb", f"{10**30} b"])
def test_a_lower_or_impossible_epoch_is_replaced(tmp_path: Path, line: str) -> None:
    file = write_owner(tmp_path, line)
    assert run(tmp_path).stdout == b"ran\n"
    assert file.read_text().startswith("2 aaaaaaaaaaaa ann@laptop ")


@pytest.mark.parametrize("epoch", [2, 3, 999_999_999])
def test_a_higher_epoch_or_the_same_of_another_installation_refuses(tmp_path: Path, epoch: int) -> None:
    file = write_owner(tmp_path, f"{epoch} bbbbbbbbbbbb")
    before = file.read_text()
    done = run(tmp_path)
    said = parse_refusal(done.returncode, done.stdout)
    assert (done.returncode, b"ran" in done.stdout, file.read_text()) == (REFUSED, False, before)
    assert "by installation bbbbbbbbbbbb (them@there)" in said and parse_epoch(said) == epoch
