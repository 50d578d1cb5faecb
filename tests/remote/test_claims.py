"""Claims of what only one process may do (templates/remote/claim.sh), on real hosts that have one home folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import until
from support.shared_home import missing_for_shared_home, shared_home
from support.sshd import Farm

from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.remote import jobs
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_source, shell_text_command
from orchestrator.render.scripts import SetupInputs, render_setup

MISSING = missing_for_shared_home()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"hosts need own namespaces: {MISSING}")

# Its venv module and its pip write who called them; pip ends when the file `go` is there.
PYTHON = """#!/bin/sh
case "$*" in
*venv*) for folder; do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python" ;;
*pip*) echo "$ORCH_RANK" >>"$HOME/installs"; until [ -e "$HOME/go" ]; do sleep 0.1; done ;;
esac
"""


@pytest.fixture(params=["own machine ids", "one machine id"])
def farm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Farm]:
    with shared_home(tmp_path / "farm", 2, one_machine_id=request.param == "one machine id") as farm:
        yield farm


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Farm]:
    with shared_home(tmp_path / "farm", 2) as farm:
        yield farm


def run(fleet: Fleet, text: str, *ranks: int) -> list[str]:
    line = shell_text_command(f"{shell_source('claim.sh')}\n{shell_source('share.sh')}\n{text}")
    result = fleet.run(line, ranks=ranks or None, timeout=60)
    assert result.ok, result
    return [host.output.decode() for host in result.hosts]


def test_of_many_processes_of_two_hosts_one_gets_the_claim(farm: Farm) -> None:
    wait = (
        'until [ "$(wc -l <"$HOME/tried")" = 16 ]; do sleep 0.1; done'  # the one that has it lives until all have tried
    )
    take = f'orch_take_claim "$HOME/c" && echo got; echo >>"$HOME/tried"; {wait}'
    (farm.hosts[0].home / "take").write_text(f"{shell_source('claim.sh')}\n{take}\n")
    with Fleet(farm.addresses) as fleet:
        many = 'for n in 1 2 3 4 5 6 7 8; do /bin/sh "$HOME/take" & done; wait'
        assert "".join(run(fleet, many)).count("got") == 1


def test_claim_of_another_host_is_held_while_its_time_moves_whatever_its_process_id_is_here(farm: Farm) -> None:
    hold = 'orch_share "$HOME/c" it; echo $$; echo "$orch_claim" >"$HOME/held"; sleep 300'
    with Fleet(farm.addresses) as fleet:
        jobs.start_job(
            fleet,
            "hold",
            f"#!/bin/sh\n{shell_source('claim.sh')}\n{shell_source('share.sh')}\n{hold}\n".encode(),
            ranks=[0],
        )
        until("it is held", (farm.hosts[0].home / "held").exists, 20)
        assert run(fleet, 'orch_take_claim "$HOME/c" && echo got; true', 1) == [""]
        farm.hosts[0].kill()
        assert run(fleet, 'orch_take_claim "$HOME/c" && echo got; true', 1) == [""], "a dead host may be a slow one"
        time.sleep(3)
        assert run(fleet, 'ORCH_CLAIM_SECONDS=2; orch_take_claim "$HOME/c" && echo got', 1) == ["got\n"]


def test_claim_of_a_dead_process_is_stale_also_when_another_has_its_number(farm: Farm) -> None:
    with Fleet(farm.addresses) as fleet:
        assert run(fleet, 'orch_take_claim "$HOME/c" && echo got', 0) == ["got\n"]
        assert run(fleet, 'orch_take_claim "$HOME/c" && echo got', 0) == ["got\n"], "its process has ended"
        live = 'orch_find_boot; mkdir -p "$HOME/d"; echo "m $orch_boot $$ %s" >"$HOME/d/1"; '
        live += 'orch_take_claim "$HOME/d" && echo got; true'
        assert run(fleet, live % "1", 0) == ["got\n"], "the process with this number began at another time"
        started = '$(cut -d " " -f 22 /proc/$$/stat)'
        assert run(fleet, f'rm -rf "$HOME/d"; {live % started}', 0) == [""]


def test_claim_of_a_process_that_was_killed_as_it_made_it_does_not_block_one_with_its_number(two: Farm) -> None:
    killed = 'mkdir -p "$HOME/c"; orch_find_boot; echo "m $orch_boot $$ 1" >"$HOME/c/1"; '
    killed += 'ln "$HOME/c/1" "$HOME/c/.new-${ORCH_HOST_DIR##*/}.$$"; orch_take_claim "$HOME/c" && echo got'
    with Fleet(two.addresses) as fleet:
        assert run(fleet, killed, 0) == ["got\n"], "it had not removed the other link"


def test_claim_with_a_time_far_ahead_is_not_held_for_ever(two: Farm) -> None:
    ahead = 'mkdir -p "$HOME/c"; echo "m other/1 7 1" >"$HOME/c/1"; touch -d "{0}" "$HOME/c/1"; '
    take = ahead + 'orch_take_claim "$HOME/c" && echo got; true'
    with Fleet(two.addresses) as fleet:
        assert run(fleet, take.format("+2 days"), 0) == ["got\n"], "the clock was set back"
        assert run(fleet, f'rm -r "$HOME/c"; {take.format("+60 seconds")}', 0) == [""], "as times on NFS may be"


def test_claim_that_cannot_be_read_is_held_while_its_time_moves(two: Farm) -> None:
    take = 'orch_take_claim "$HOME/c" 2>/dev/null && echo got; true'
    with Fleet(two.addresses) as fleet:
        assert run(fleet, f'mkdir -p "$HOME/c/1"; {take}', 0) == [""], "a folder cannot be read, by root neither"
        assert run(fleet, f'touch -d "-10 minutes" "$HOME/c/1"; {take}', 0) == ["got\n"]


@pytest.mark.parametrize("name", ["08", "9223372036854775807"])
def test_file_with_an_impossible_number_is_no_claim(two: Farm, name: str) -> None:
    with Fleet(two.addresses) as fleet:
        assert run(fleet, f'mkdir -p "$HOME/c"; : >"$HOME/c/{name}"; orch_take_claim "$HOME/c" && echo got', 0) == [
            "got\n"
        ]


@pytest.mark.parametrize("end", ["go", "host dies", "process dies"])
def test_environment_of_one_home_is_made_by_one_host_and_the_other_waits_or_takes_over(two: Farm, end: str) -> None:
    farm = two
    home = farm.hosts[0].home
    (home / "bin").mkdir()
    python = home / "bin" / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    script = render_setup(SetupInputs(backend="cpu", packages=("tiny",), user_setup='echo "set up $ORCH_RANK"'))
    assert script is not None
    env = f'export PATH="{home}/bin:$PATH" ORCH_CLAIM_SECONDS=14 ORCH_RANK='
    logs: dict[int, bytearray] = {0: bytearray(), 1: bytearray()}
    with Fleet(farm.addresses) as fleet:
        jobs.start_job(fleet, "setup", script.encode(), env=lambda host: f"{env}{host.rank}\n".encode())
        until("one installs", (home / "installs").exists, 30)
        (first,) = (home / "installs").read_text().split()
        other = 1 - int(first)
        time.sleep(16)
        assert (home / "installs").read_text().split() == [first], "its time moves, so it is held"
        if end == "host dies":
            farm.hosts[int(first)].kill()
        elif end == "process dies":
            assert jobs.kill_job(fleet, "setup", EndedBy.CANCEL, grace=0.1, ranks=[int(first)]).ok
        if end != "go":
            until("the other takes over", lambda: len((home / "installs").read_text().split()) == 2, 40)
        (home / "go").touch()
        ended = jobs.follow_job(fleet, "setup", lambda host, block: logs[host.rank].extend(block), ranks=[other])
        assert ended.ok, bytes(logs[other])
    assert b"waiting: another host" in logs[other] and f"set up {other}".encode() in logs[other]
    installs = (home / "installs").read_text().split()
    assert installs == ([first] if end == "go" else [first, str(other)])


def test_jobs_of_one_home_and_name_are_of_their_rank_alone(farm: Farm) -> None:
    with Fleet(farm.addresses) as fleet:
        script = b'#!/bin/sh\necho "$ORCH_JOB_DIR"\nsleep 300\n'
        assert jobs.start_job(fleet, "one", script, ranks=[0]).ok
        phases = [job.phase for job in jobs.read_job_status(fleet, "one").jobs]
        assert phases == [JobPhase.RUNNING, JobPhase.ABSENT]
        assert jobs.start_job(fleet, "one", script).ok
        assert jobs.kill_job(fleet, "one", EndedBy.CANCEL, grace=1, ranks=[0]).ok
        phases = [job.phase for job in jobs.read_job_status(fleet, "one").jobs]
        assert phases == [JobPhase.FINISHED, JobPhase.RUNNING]
        farm.hosts[1].kill()
        farm.hosts[1].start()
    with Fleet(farm.addresses) as fleet:
        phases = [job.phase for job in jobs.read_job_status(fleet, "one").jobs]
        assert phases == [JobPhase.FINISHED, JobPhase.LOST], "its process id is of another boot"
