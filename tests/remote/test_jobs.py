"""Detached jobs on real hosts: claimed once, alive without us, followed without loss, ended without a trace."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.hosts import EndedBy, Failure, HostAddress, JobPhase
from orchestrator.remote import jobs
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_source
from tests.support.host_folders import write_claim
from tests.support.sshd import Farm, Sshd


class Logs:
    """A sink that keeps every host's bytes."""

    def __init__(self) -> None:
        self._parts: dict[int, list[bytes]] = defaultdict(list)

    def __call__(self, host: HostAddress, block: bytes) -> None:
        self._parts[host.rank].append(block)

    def of(self, rank: int) -> bytes:
        return b"".join(self._parts[rank])


def phases(fleet: Fleet, job: str) -> list[JobPhase]:
    return [host.phase for host in jobs.read_job_status(fleet, job).jobs]


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def folder(host: Sshd, job: str) -> Path:
    return host.rank_folder / "jobs" / job


def test_a_job_runs_detached_with_its_environment_and_leaves_its_exit_code(fleet: Fleet, shared_farm: Farm) -> None:
    started = jobs.start_job(
        fleet,
        "env",
        b'#!/bin/bash\necho "it is $SECRET in $PWD as $ORCH_JOB"\nexit 3\n',
        env=lambda host: b"export SECRET='hidden $(id) %d'\n" % host.rank,
    )
    assert started.ok, started.failed
    logs = Logs()
    result = jobs.follow_job(fleet, "env", logs)
    for rank, host in enumerate(shared_farm.hosts):
        assert logs.of(rank) == f"it is hidden $(id) {rank} in {host.home} as env\n".encode()
        assert result.hosts[rank].offset == len(logs.of(rank))
        assert not (folder(host, "env") / "env").exists()
        assert (folder(host, "env").stat().st_mode & 0o777) == 0o700
    assert [host.outcome.exit_code if host.outcome else None for host in result.hosts] == [3, 3, 3]
    assert phases(fleet, "env") == [JobPhase.FINISHED] * 3


def test_a_host_measures_for_how_long_a_job_runs(fleet: Fleet) -> None:
    assert jobs.start_job(fleet, "measured", b"#!/bin/sh\nsleep 2\n").ok
    time.sleep(0.5)
    running = [job.ran for job in jobs.read_job_status(fleet, "measured").jobs]
    assert all(seconds is not None and 0 <= seconds < 2 for seconds in running), running
    jobs.follow_job(fleet, "measured", Logs())
    time.sleep(1)
    for _ in range(2):
        ended = [job.ran for job in jobs.read_job_status(fleet, "measured").jobs]
        assert all(seconds is not None and 2 <= seconds < 8 for seconds in ended), ended
    late = jobs.follow_job(fleet, "measured", Logs())  # its own time has nothing to do with that of the job
    assert all(host.outcome is not None and 2 <= host.outcome.seconds < 8 for host in late.hosts), late
    assert [job.ran for job in jobs.read_job_status(fleet, "never").jobs] == [None] * 3


def test_a_second_start_of_the_same_job_does_nothing_and_succeeds(fleet: Fleet) -> None:
    for number in range(3):
        assert jobs.start_job(fleet, "once", b"#!/bin/sh\necho run %d\n" % number).ok
    logs = Logs()
    jobs.follow_job(fleet, "once", logs)
    assert [logs.of(rank) for rank in range(3)] == [b"run 0\n"] * 3


def test_parallel_starts_from_many_threads_run_the_job_once(fleet: Fleet) -> None:
    threads = [
        threading.Thread(target=jobs.start_job, args=(fleet, "race", b"#!/bin/sh\necho ran\nsleep 0.2\n"))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs = Logs()
    assert jobs.follow_job(fleet, "race", logs).ok
    assert [logs.of(rank) for rank in range(3)] == [b"ran\n"] * 3


def leave_unlaunched(place: Path) -> None:
    """Write what a wrapper leaves that was killed after it had claimed its job: a claim of a process that is gone."""
    for name in ("env", "log"):
        (place / name).touch()
    (place / "claim").mkdir()
    (place / "claim" / "1").write_text("machine boot/1 1 1\n")


def test_killed_between_claim_and_launch_the_next_start_launches_it(fleet: Fleet, shared_farm: Farm) -> None:
    for host in shared_farm.hosts:
        place = folder(host, "halfway")
        place.mkdir(parents=True)
        (place / "run.sh").write_text("#!/bin/sh\necho launched\n")
        (place / "run.sh").chmod(0o700)
        leave_unlaunched(place)
    assert phases(fleet, "halfway") == [JobPhase.ABSENT] * 3
    assert jobs.start_job(fleet, "halfway", b"#!/bin/sh\necho another\n").ok
    logs = Logs()
    assert jobs.follow_job(fleet, "halfway", logs).ok
    assert logs.of(0) == b"launched\n"


def test_a_broken_transfer_claims_nothing(fleet: Fleet, shared_farm: Farm) -> None:
    """The script says how many bytes must come; fewer are a failure with words, and no folder."""
    from orchestrator.remote.scripts import shell_command

    command = shell_command("job-start.sh", "short", "100", "0", shell_source("job-wrap.sh"))
    result = fleet.run(command, stdin=b"#!/bin/sh\n", timeout=60)
    assert {host.outcome.exit_code for host in result.hosts} == {1}
    assert "incomplete" in result.hosts[0].outcome.last_line
    assert not folder(shared_farm.hosts[0], "short").exists()
    assert list((shared_farm.hosts[0].rank_folder / "jobs").glob(".new*")) == []


def test_a_job_survives_the_client_and_another_client_follows_it(fleet: Fleet, shared_farm: Farm) -> None:
    assert jobs.start_job(fleet, "survive", b"#!/bin/sh\nfor i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done\n").ok
    fleet.close()
    logs = Logs()
    with Fleet(shared_farm.addresses) as other:
        assert jobs.read_job_status(other, "survive").jobs[0].phase is JobPhase.RUNNING
        assert jobs.follow_job(other, "survive", logs).ok
    assert logs.of(1) == b"1\n2\n3\n4\n5\n6\n"


def test_following_from_an_offset_gives_the_rest(fleet: Fleet) -> None:
    jobs.start_job(fleet, "offset", b"#!/bin/sh\nprintf 0123456789\n")
    logs = Logs()
    jobs.follow_job(fleet, "offset", logs)
    again = Logs()
    result = jobs.follow_job(fleet, "offset", again, offsets={0: 4, 1: 10})
    assert [again.of(rank) for rank in range(3)] == [b"456789", b"", b"0123456789"]
    assert result.offsets == {0: 10, 1: 10, 2: 10}


def test_following_can_be_stopped_while_the_job_continues(fleet: Fleet) -> None:
    jobs.start_job(fleet, "long", b"#!/bin/sh\necho begun\nexec sleep 75\n")
    stop = threading.Event()
    logs = Logs()
    threading.Timer(0.5, stop.set).start()
    result = jobs.follow_job(fleet, "long", logs, stop=stop)
    assert [host.outcome for host in result.hosts] == [None] * 3
    assert [host.offset for host in result.hosts] == [6] * 3
    assert phases(fleet, "long") == [JobPhase.RUNNING] * 3
    assert jobs.kill_job(fleet, "long", EndedBy.CANCEL).ok
    assert [job.exit_code for job in jobs.read_job_status(fleet, "long").jobs] == [143] * 3


def test_a_lost_connection_is_taken_up_at_the_byte_where_it_broke(farm: Farm) -> None:
    script = b"#!/bin/bash\nfor i in $(seq 1 400); do echo line $i; sleep 0.005; done\n"
    with Fleet(farm.addresses, deadline=5) as fleet:
        jobs.start_job(fleet, "cut", script)
        logs = Logs()
        breaks = 0

        def sink(host: HostAddress, block: bytes) -> None:
            nonlocal breaks
            logs(host, block)
            if host.rank == 1 and breaks < 3 and logs.of(1).count(b"\n") > 80 * (breaks + 1):
                breaks += 1
                connections = set(farm.hosts[1].pids()) - set(farm.hosts[1].user_pids())
                assert farm.hosts[1].process is not None
                for pid in connections - {farm.hosts[1].process.pid}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        result = jobs.follow_job(fleet, "cut", sink)
    whole = b"".join(b"line %d\n" % number for number in range(1, 401))
    assert breaks == 3
    assert logs.of(1) == whole
    assert logs.of(0) == whole
    assert result.ok, result


def test_a_host_that_dies_midway_is_distinguished_from_a_program_that_fails(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=3) as fleet:
        jobs.start_job(fleet, "die", b"#!/bin/sh\necho up\nsleep 1.5\nexit 9\n")
        threading.Timer(0.5, farm.hosts[1].kill).start()
        result = jobs.follow_job(fleet, "die", Logs(), patience=2.0)
    ends = [host.outcome for host in result.hosts]
    assert ends[0] is not None
    assert ends[1] is not None
    assert (ends[0].exit_code, ends[0].failure) == (9, None)
    assert (ends[1].exit_code, ends[1].failure) == (None, Failure.LOST)
    assert "nothing listens" in ends[1].detail


def test_a_host_that_was_started_again_reports_its_job_lost(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=5) as fleet:
        jobs.start_job(fleet, "reboot", b"#!/bin/sh\nsleep 60\n")
        farm.hosts[1].kill()
        farm.hosts[1].start()
        assert phases(fleet, "reboot") == [JobPhase.RUNNING, JobPhase.LOST]
        result = jobs.follow_job(fleet, "reboot", Logs(), ranks=[1])
        assert jobs.start_job(fleet, "reboot", b"#!/bin/sh\necho again\n").ok  # known already: not run again
        assert phases(fleet, "reboot") == [JobPhase.RUNNING, JobPhase.LOST]
        assert jobs.kill_job(fleet, "reboot", EndedBy.CANCEL, grace=1).ok
    assert result.hosts[0].outcome is not None
    assert result.hosts[0].outcome.failure is Failure.LOST
    assert "no exit status" in result.hosts[0].outcome.detail


def test_a_frozen_host_ends_the_following_with_its_name(farm: Farm) -> None:
    with Fleet(farm.addresses, deadline=2) as fleet:
        jobs.start_job(fleet, "freeze", b"#!/bin/sh\nsleep 60\n", ranks=[1])
        threading.Timer(0.5, farm.hosts[1].freeze).start()
        began = time.monotonic()
        result = jobs.follow_job(fleet, "freeze", Logs(), ranks=[1], patience=1.0)
        took = time.monotonic() - began
    farm.hosts[1].thaw()
    assert result.hosts[0].outcome is not None
    assert result.hosts[0].outcome.failure is Failure.FROZEN
    assert took < 5 * 2


def test_the_signal_that_ended_a_program_is_named(fleet: Fleet) -> None:
    jobs.start_job(fleet, "segv", b"#!/bin/bash\nkill -SEGV $$\n")
    result = jobs.follow_job(fleet, "segv", Logs())
    assert [host.outcome.signal if host.outcome else None for host in result.hosts] == ["SEGV"] * 3
    assert [job.exit_code for job in jobs.read_job_status(fleet, "segv").jobs] == [139] * 3


def test_a_script_without_a_first_line_runs_under_sh(fleet: Fleet) -> None:
    jobs.start_job(fleet, "plain", b"echo plain; exit 2")
    logs = Logs()
    result = jobs.follow_job(fleet, "plain", logs)
    assert logs.of(0) == b"plain\n"
    assert result.hosts[0].outcome is not None
    assert result.hosts[0].outcome.exit_code == 2


def test_a_broken_environment_file_fails_the_job_with_words(fleet: Fleet) -> None:
    jobs.start_job(fleet, "badenv", b"#!/bin/sh\necho never\n", env=lambda host: b"export X='unclosed\n")
    logs = Logs()
    result = jobs.follow_job(fleet, "badenv", logs)
    assert not result.ok
    assert b"never" not in logs.of(0)
    assert b"env" in logs.of(0)


def test_kill_reaches_who_ignores_term_who_left_the_group_and_who_dropped_the_mark(
    fleet: Fleet, shared_farm: Farm
) -> None:
    script = b"""#!/bin/bash
trap '' TERM
setsid sleep 81 &
env -u ORCH_JOB_DIR sleep 82 &
(trap '' TERM; while :; do sleep 0.1; done) &
echo ready
while :; do sleep 0.1; done
"""
    jobs.start_job(fleet, "stubborn", script)
    wait_for(lambda: all(job.last_line == "ready" for job in jobs.read_job_status(fleet, "stubborn").jobs))
    began = time.monotonic()
    result = jobs.kill_job(fleet, "stubborn", EndedBy.CANCEL, grace=0.5)
    assert result.ok, result.failed
    assert time.monotonic() - began < 15
    wait_for(lambda: not any(host.user_pids() for host in shared_farm.hosts))  # what notes the log's size ends after it
    assert [job.exit_code for job in jobs.read_job_status(fleet, "stubborn").jobs] == [137] * 3


def test_kill_lets_a_program_save_and_choose_its_exit_code(fleet: Fleet) -> None:
    jobs.start_job(
        fleet,
        "save",
        b"#!/bin/bash\ntrap 'sleep 0.3; echo saved; exit 75' TERM\necho ready\nwhile :; do sleep 0.05; done\n",
    )
    wait_for(lambda: all(job.last_line == "ready" for job in jobs.read_job_status(fleet, "save").jobs))
    assert jobs.kill_job(fleet, "save", EndedBy.CANCEL, grace=10).ok
    assert [(job.exit_code, job.last_line) for job in jobs.read_job_status(fleet, "save").jobs] == [(75, "saved")] * 3


def test_kill_of_an_unknown_or_finished_job_succeeds_and_ends_what_it_left_behind(
    fleet: Fleet, shared_farm: Farm
) -> None:
    assert jobs.kill_job(fleet, "unknown", EndedBy.CANCEL).ok
    jobs.start_job(fleet, "leaves", b"#!/bin/sh\nsetsid sleep 83 &\nexit 0\n")
    wait_for(lambda: phases(fleet, "leaves") == [JobPhase.FINISHED] * 3)
    assert any(host.user_pids() for host in shared_farm.hosts)
    assert jobs.kill_job(fleet, "leaves", EndedBy.CANCEL, grace=1).ok
    wait_for(lambda: not any(host.user_pids() for host in shared_farm.hosts))
    assert [job.exit_code for job in jobs.read_job_status(fleet, "leaves").jobs] == [0] * 3


def test_kill_touches_only_its_own_job(fleet: Fleet) -> None:
    jobs.start_job(fleet, "a", b"#!/bin/sh\nexec sleep 84\n")
    jobs.start_job(fleet, "a.b", b"#!/bin/sh\nexec sleep 84\n")
    assert jobs.kill_job(fleet, "a", EndedBy.CANCEL, grace=1).ok
    assert phases(fleet, "a.b") == [JobPhase.RUNNING] * 3
    assert jobs.kill_job(fleet, "a.b", EndedBy.CANCEL, grace=1).ok


def test_a_job_killed_before_its_launch_is_never_launched(fleet: Fleet, shared_farm: Farm) -> None:
    place = folder(shared_farm.hosts[0], "early")
    place.mkdir(parents=True)
    (place / "run.sh").write_text("#!/bin/sh\ntouch $HOME/launched-early\n")
    (place / "run.sh").chmod(0o700)
    leave_unlaunched(place)
    assert jobs.kill_job(fleet, "early", EndedBy.CANCEL, ranks=[0]).ok
    assert jobs.start_job(fleet, "early", b"#!/bin/sh\n", ranks=[0]).ok
    assert jobs.read_job_status(fleet, "early", ranks=[0]).jobs[0].exit_code == 143
    assert not (shared_farm.hosts[0].home / "launched-early").exists()


def test_nothing_of_a_job_stays_when_its_wrapper_is_killed_and_its_folder_deleted(
    fleet: Fleet, shared_farm: Farm
) -> None:
    assert jobs.start_job(fleet, "swept", b"#!/bin/sh\nexec sleep 85\n", ranks=[0]).ok
    place = folder(shared_farm.hosts[0], "swept")
    facts = dict(line.split("=") for line in (place / "job").read_text().splitlines())
    of_wrapper = [int(pid) for pid in subprocess.check_output(["pgrep", "-s", facts["wrapper"]], text=True).split()]
    assert len(of_wrapper) >= 2, "the wrapper, and what records the size of the log"
    shutil.rmtree(place)
    time.sleep(5.5)  # until the size is recorded again, in a folder that no longer exists
    os.kill(int(facts["wrapper"]), signal.SIGKILL)
    os.killpg(int(facts["group"]), signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in of_wrapper), 8)


def test_several_jobs_are_read_in_one_round_trip(fleet: Fleet) -> None:
    jobs.start_job(fleet, "one", b"#!/bin/sh\necho first line\necho last line\n")
    wait_for(lambda: phases(fleet, "one") == [JobPhase.FINISHED] * 3)
    one, two = jobs.read_job_statuses(fleet, ["one", "never-started"])
    assert (one.job, two.job) == ("one", "never-started")
    assert [(job.rank, job.exit_code, job.last_line, job.log_bytes) for job in one.jobs] == [
        (rank, 0, "last line", 21) for rank in range(3)
    ]
    assert [job.phase for job in two.jobs] == [JobPhase.ABSENT] * 3


def test_a_host_that_cannot_answer_is_in_the_result_and_not_in_the_states(farm: Farm) -> None:
    farm.hosts[0].kill()
    with Fleet(farm.addresses, deadline=2) as fleet:
        answer = jobs.read_job_status(fleet, "any")
    assert [job.rank for job in answer.jobs] == [1]
    assert [outcome.failure for outcome in answer.result.failed] == [Failure.REFUSED]


def test_a_last_line_with_anything_in_it_breaks_no_status(fleet: Fleet) -> None:
    jobs.start_job(
        fleet, "odd", b"#!/bin/bash\nprintf 'orch-job odd absent - 0 \\\\ \\x1b[31m 50%%\\r60%% $(id) \\xff\\n'\n"
    )
    wait_for(lambda: phases(fleet, "odd") == [JobPhase.FINISHED] * 3)
    state = jobs.read_job_status(fleet, "odd").jobs[0]
    assert state.phase is JobPhase.FINISHED
    assert state.last_line.startswith("60% $(id)")


@pytest.mark.parametrize("name", ["", "../up", "a b", "a/b", ".hidden", "x" * 129, "a\nb"])
def test_a_job_name_that_could_leave_its_folder_is_refused(fleet: Fleet, name: str) -> None:
    with pytest.raises(UserError):
        jobs.start_job(fleet, name, b"")


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=15, deadline=None)
def test_any_secret_reaches_the_job_unchanged(value: str) -> None:
    """The wrapper's own reading of the file, run here with the same sh."""
    import shlex
    import tempfile

    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "env").write_bytes(f"export VALUE={shlex.quote(value)}\n".encode())
        (Path(home) / "run.sh").write_text('#!/bin/sh\nprintf %s "$VALUE"\n')
        (Path(home) / "run.sh").chmod(0o700)
        (Path(home) / "log").touch()
        subprocess.run(
            ["/bin/sh", "-c", shell_source("job-wrap.sh"), "orch", "job", home],
            check=True,
            env={"HOME": home, "PATH": os.environ["PATH"]},
        )
        assert (Path(home) / "log").read_bytes().decode() == value
        assert (Path(home) / "rc").read_text().strip() == "0"


@given(st.integers(min_value=0, max_value=255))
def test_a_signal_is_named_exactly_for_the_statuses_that_a_shell_gives_to_signals(code: int) -> None:
    name = jobs.signal_name(code)
    if name is not None:
        assert 128 + getattr(signal, f"SIG{name}") == code
    else:
        assert code <= 128 or code - 128 not in {int(number) for number in signal.Signals}


@pytest.mark.parametrize("why", ["a file in its place", "another process"])
def test_a_job_that_cannot_be_claimed_is_not_waited_for_without_end(fleet: Fleet, shared_farm: Farm, why: str) -> None:
    job, host = f"unclaimed-{len(why)}", shared_farm.hosts[0]
    claim = folder(host, job) / "claim"
    folder(host, job).mkdir(parents=True)
    for name in ("run.sh", "env", "log"):
        (folder(host, job) / name).touch(0o700)
    if why == "another process":
        write_claim(claim)
    else:
        claim.touch()
    (result,) = jobs.start_job(fleet, job, b"#!/bin/sh\n", ranks=[0]).outcomes
    assert result.exit_code == 1 and "the job cannot be claimed: " in result.last_line, result
    assert ("another process holds" if claim.is_dir() else "claim") in result.last_line
    waiting = f"orch {job} ".encode()
    assert not [pid for pid in host.user_pids() if waiting in read_words(pid)], "no process waits for it any more"


def read_words(pid: int) -> bytes:
    with contextlib.suppress(OSError):  # it has ended
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
    return b""
