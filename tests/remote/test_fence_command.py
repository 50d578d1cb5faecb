"""The guard of commands on a host: the comparison that travels in front of each, with real shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.host_folders import host_folder

from orchestrator.hosts import Failure, Fence
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.fence import REFUSED, guard_command, guard_output, parse_epoch, parse_refusal
from orchestrator.remote.host_folder import FORMAT

OURS = Fence(epoch=2, installation="aaaaaaaaaaaa", owner="ann@laptop")
OWN_MACHINE = Fence(epoch=0, installation="", owner="")
SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=shell)) for shell in ("dash", "bash")
]


def run(home: Path, fence: Fence = OURS, shell: str = "sh") -> subprocess.CompletedProcess[bytes]:
    return run_line(home, guard_command("echo ran", fence), shell)


def run_line(
    home: Path, line: str, shell: str = "sh", path: str = "/usr/bin:/bin"
) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which(shell) or shell
    environment = {"HOME": str(home), "PATH": path}
    command = [program, "-c", f"export ORCH_HOST_NAME=host;{line.replace('/bin/sh', program)}"]
    return subprocess.run(command, env=environment, capture_output=True, check=False)


def refusal(done: subprocess.CompletedProcess[bytes]) -> HostFailure:
    found = parse_refusal(done.returncode, done.stdout)
    assert found is not None, done
    return found


def write(home: Path, name: str, content: str) -> Path:
    file = host_folder(home) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def write_owner(home: Path, line: str) -> Path:
    write(home, "format", f"{FORMAT}\n")
    return write(home, "owner", f"{line} them@there 2026-11-25T00:00:00Z\n")


def contents(home: Path) -> dict[str, str]:
    return {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_host_without_a_folder_gets_one_of_this_version_and_owner(tmp_path: Path, shell: str) -> None:
    done = run(tmp_path, shell=shell)
    assert (done.stdout, done.stderr) == (b"ran\n", b"")
    assert (host_folder(tmp_path) / "owner").read_text().startswith("2 aaaaaaaaaaaa ann@laptop ")
    assert (host_folder(tmp_path) / "format").read_text() == f"{FORMAT}\n"


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
    said = refusal(done)
    assert (done.returncode, b"ran" in done.stdout, file.read_text()) == (REFUSED, False, before)
    assert said.failure is Failure.TAKEN_OVER
    assert "by installation bbbbbbbbbbbb (them@there)" in said.detail and parse_epoch(said.detail) == epoch


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("fence", [OURS, OWN_MACHINE], ids=["rented", "own"])
@pytest.mark.parametrize("version", [FORMAT + 1, FORMAT + 10, 0])
def test_a_folder_of_another_version_refuses_and_stays_as_it_is(
    tmp_path: Path, shell: str, fence: Fence, version: int
) -> None:
    run(tmp_path, fence)
    write(tmp_path, "format", f"{version}\n")
    before = contents(tmp_path)
    done = run(tmp_path, fence, shell)
    said = refusal(done)
    assert (done.returncode, b"ran" in done.stdout, done.stderr) == (REFUSED, False, b"")
    assert said.failure is Failure.OTHER_VERSION and f"and this orch uses version {FORMAT}" in said.detail
    assert ("of an orch before version 1" if not version else f"has version {version}") in said.detail
    assert ("upgrade orch: " in said.remedy) == (version > FORMAT)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("fence", [OURS, OWN_MACHINE], ids=["rented", "own"])
@pytest.mark.parametrize("name", ["jobs/1-a1/job", "owner"])
def test_a_folder_without_a_version_that_has_jobs_or_an_owner_refuses(
    tmp_path: Path, shell: str, fence: Fence, name: str
) -> None:
    write(tmp_path, name, "2 aaaaaaaaaaaa ann@laptop 2026-11-25T00:00:00Z\n")
    before = contents(tmp_path)
    done = run(tmp_path, fence, shell)
    assert b"ran" not in done.stdout and "of an orch before version 1" in refusal(done).detail
    assert contents(tmp_path) == before


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("content", ["no-number\n", f"{10**30}\n"])
def test_a_version_that_is_no_number_of_ours_refuses(tmp_path: Path, shell: str, content: str) -> None:
    write(tmp_path, "format", content)
    assert refusal(run(tmp_path, shell=shell)).failure is Failure.OTHER_VERSION


@pytest.mark.parametrize("shell", SHELLS)
def test_an_empty_folder_gets_this_version(tmp_path: Path, shell: str) -> None:
    (host_folder(tmp_path) / "jobs").mkdir(parents=True)
    write(tmp_path, "owner", "")  # left by a command that was killed
    assert run(tmp_path, OWN_MACHINE, shell).stdout == b"ran\n"
    assert (host_folder(tmp_path) / "format").read_text() == f"{FORMAT}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_an_own_machine_gets_a_version_and_no_owner(tmp_path: Path, shell: str) -> None:
    assert run(tmp_path, OWN_MACHINE, shell).stdout == b"ran\n"
    assert (host_folder(tmp_path) / "format").read_text() == f"{FORMAT}\n"
    assert not (host_folder(tmp_path) / "owner").exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("fence", [OURS, OWN_MACHINE], ids=["rented", "own"])
def test_the_usual_comparison_runs_builtins_alone(tmp_path: Path, shell: str, fence: Fence) -> None:
    run(tmp_path, fence)
    done = run_line(tmp_path, guard_command("echo ran", fence), shell, path="/nowhere")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_whose_output_is_a_programs_is_refused_silently(tmp_path: Path, shell: str) -> None:
    write_owner(tmp_path, "3 bbbbbbbbbbbb")
    assert run_line(tmp_path, guard_output("echo ran", OURS), shell).stdout == b"ran\n", "it compares no owner"
    write(tmp_path, "format", f"{FORMAT + 1}\n")
    done = run_line(tmp_path, guard_output("echo ran", OURS), shell)
    assert (done.returncode, done.stdout) == (REFUSED, b"")
