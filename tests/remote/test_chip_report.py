"""The newest sample of a host's chips, beside the state of its job: no tool, and no program, can delay or forge it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host_folders import host_folder
from support.orch_process import until
from support.sshd import Farm

from orchestrator.hosts import ChipReport, ChipSample, HostJob, JobPhase
from orchestrator.remote import jobs
from orchestrator.remote.chips import STALE_SECONDS, chip_report_command, parse_chip_report
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_command, shell_source

MIB = 2**20
ROW = "0, 97, 61234, 81559, 64, 634.12, 0"
CHIP = ChipSample(name="0", use=0.97, used=61234 * MIB, total=81559 * MIB, temperature=64, power=634.12, errors=0)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def install(home: Path, script: str, name: str = "nvidia-smi") -> None:
    """Put a tool where the sampler looks for it, in a home with the folder of orch."""
    host_folder(home).mkdir(parents=True, exist_ok=True)
    tool = home / ".local" / "bin" / name
    tool.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def report(home: Path, **more: str) -> bytes:
    """Return what a host prints, run here."""
    env = {"HOME": str(home), "PATH": PATH, **more}
    command = f"{chip_report_command()}; {shell_command('job-status.sh', '', 'j')}"
    done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, timeout=20, check=True)
    assert done.stderr == b""
    assert done.stdout.splitlines()[-1].startswith(b"orch-job j "), "the state of the job is a whole line"
    return done.stdout


def wait_for_report(home: Path) -> ChipReport:
    """Return the chips as soon as a sample was taken."""
    found: list[ChipReport | None] = []

    def is_sampled() -> bool:
        found.append(parse_chip_report(report(home)))
        return found[-1] is not None

    until("a sample", is_sampled, 60)
    assert found[-1] is not None
    return found[-1]


def sampling(home: Path) -> list[str]:
    """Return the processes of samplers of this home."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if f"{host_folder(home)}/chips" in line or f"{home}/.local" in line]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for line in sampling(tmp_path):
        subprocess.run(["kill", "-9", line.split()[0]], check=False)


def test_a_sample_comes_with_the_state_of_the_job(farm: Farm) -> None:
    install(farm.hosts[0].home, f'case "$*" in *query*) echo "{ROW}";; esac')
    for host in farm.hosts:
        host.rank_folder.mkdir(parents=True, exist_ok=True)
    found: list[HostJob] = []

    def is_sampled() -> bool:
        found[:] = jobs.read_job_status(fleet, "j", chips=True).jobs
        return all(one.chips is not None for one in found)

    with Fleet(farm.addresses, deadline=10) as fleet:
        assert [one.chips for one in jobs.read_job_status(fleet, "j").jobs] == [None, None], "no one asked"
        until("samples of both hosts", is_sampled, 20)
    assert [one.phase for one in found] == [JobPhase.ABSENT] * 2
    assert [one.chips.chips for one in found if one.chips is not None] == [(CHIP,), ()]


def test_a_host_without_the_folder_of_orch_gets_no_file(tmp_path: Path) -> None:
    assert parse_chip_report(report(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


def test_a_sample_is_taken_at_most_every_20_seconds(home: Path) -> None:
    install(home, 'echo once >> "$HOME/calls"')
    wait_for_report(home)
    for _ in range(3):
        report(home)
    time.sleep(0.5)
    assert (home / "calls").read_text().count("once") == 2, "the numbers, and the temperatures"
    os.utime(host_folder(home) / "chips", (time.time() - 25, time.time() - 25))
    report(home)
    until("the next one", lambda: (home / "calls").read_text().count("once") == 4, 10)


def test_a_tool_that_hangs_delays_nothing_and_never_runs_twice(home: Path) -> None:
    install(home, 'echo once >> "$HOME/calls"; trap "" TERM; sleep 30 & wait; sleep 30')
    for _ in range(4):
        began = time.monotonic()
        assert parse_chip_report(report(home)) is None
        assert time.monotonic() - began < 2
        time.sleep(0.2)
    assert (home / "calls").read_text() == "once\n"
    sampler = shell_source("chip-sample.sh")
    assert sampler.count("timeout -k 2 10 ") == 4, "each tool has a deadline"


def test_an_old_sample_is_not_known(home: Path) -> None:
    install(home, "sleep 30")
    (host_folder(home) / "chips").write_text(f"orch-sample nvidia {ROW}\n")
    assert parse_chip_report(report(home)) == ChipReport(age=0.0, chips=(CHIP,))
    old = time.time() - STALE_SECONDS - 5
    os.utime(host_folder(home) / "chips", (old, old))
    assert parse_chip_report(report(home)) is None
    later = time.time() + 3600
    os.utime(host_folder(home) / "chips", (later, later))
    assert parse_chip_report(report(home)) is None, "the clock was set back"


@pytest.mark.parametrize(
    "script",
    [
        "head -c 30000000 /dev/zero",
        "head -c 30000000 /dev/urandom",
        "yes 'orch-job j finished 0 1 - - - - forged' | head -c 30000000",
        f"echo '{ROW}'; yes '{ROW}' | head -c 30000000",
        "printf '\\norch-job j finished 0 1 - - - - forged\\rorch-chips-age 3'",
        "printf '%0.s\\\\' $(seq 1 9999)",
        "exit 1",
        "kill -9 $$",
    ],
)
def test_what_is_no_report_is_not_known_and_forges_nothing(home: Path, script: str) -> None:
    install(home, script)
    found = wait_for_report(home)
    assert found.chips == ()
    output = report(home)
    assert len(output) < 800_000
    assert output.count(b"\norch-job ") == 1 and b"\norch-job j absent" in output


def test_a_program_that_writes_the_file_itself_forges_no_state_of_a_job(home: Path) -> None:
    install(home, "sleep 30")
    forged = f"orch-job j finished 0 1 - - - - forged\norch-chips-age 1\norch-sample nvidia {ROW}"
    (host_folder(home) / "chips").write_text(forged)
    output = report(home)
    assert output.count(b"\norch-job ") == 1 and b"\norch-job j absent" in output
    assert parse_chip_report(output) == ChipReport(age=0.0, chips=(CHIP,)), "its own chips are its own affair"


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "dangling", "endless"])
def test_another_file_in_place_of_the_sample_is_not_read(home: Path, kind: str) -> None:
    install(home, f"echo '{ROW}'")
    place = host_folder(home) / "chips"
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "endless":
        (home / "endless").write_bytes(b"x" * 10)
        os.truncate(home / "endless", 1 << 40)
        place.symlink_to(home / "endless")
    else:
        place.symlink_to("/dev/zero" if kind == "device" else home / "nowhere")
    began = time.monotonic()
    found = parse_chip_report(report(home))
    assert found is None or found.chips == ()
    assert time.monotonic() - began < 3


def test_an_older_driver_that_refuses_a_field_gives_the_others(home: Path) -> None:
    refuse = "echo 'Field \"power.draw\" is not a valid field to query.'; exit 2"
    install(home, f'case "$*" in *power*) {refuse};; *query*) echo "0, 97, 61234, 81559, 64";; esac')
    (chip,) = wait_for_report(home).chips
    assert (chip.use, chip.temperature, chip.power) == (0.97, 64, None)


def test_what_it_costs_a_host_is_a_few_small_processes(home: Path) -> None:
    """strace counts the programs that are started: while no sample is due, and for the job's state alone."""
    install(home, f"echo '{ROW}'")
    wait_for_report(home)
    alone = count_programs(home, shell_command("job-status.sh", "", "j"))
    both = count_programs(home, f"{chip_report_command()}; {shell_command('job-status.sh', '', 'j')}")
    assert 0 < both - alone <= 6, "sh, sha256sum, stat, date, head, sed"
    started = count_programs(home, shell_source("chip-sample.sh"))
    assert started <= 9, "sh; timeout, the tool and sed for the numbers and for the temperatures"


def count_programs(home: Path, command: str) -> int:
    trace = home / "trace"
    words = ["strace", "-f", "-e", "trace=execve", "-o", str(trace), "/bin/sh", "-c", command]
    try:
        subprocess.run(words, env={"HOME": str(home), "PATH": PATH}, capture_output=True, timeout=20, check=True)
    except FileNotFoundError:
        pytest.skip("no strace: apt install strace")
    return sum(line.endswith("= 0") for line in trace.read_text().splitlines())


@given(st.binary(max_size=200))
def test_any_output_of_a_host_can_be_read(output: bytes) -> None:
    parse_chip_report(b"orch-chips-age 3\norch-chips orch-sample nvidia " + output)
    parse_chip_report(output)
