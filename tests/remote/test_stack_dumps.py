"""Stacks of a hung program: by py-spy, by its own dump, by the kernel; bounded and harmless."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sshd import Farm, Sshd

from orchestrator.errors import UserError
from orchestrator.hosts import EndedBy, Failure, JobPhase
from orchestrator.remote import jobs, stacks
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.host_operations import SshHostOperations
from orchestrator.remote.scripts import shell_command

DOCS = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
# The lines that docs/limits.md gives to a user's own program, as they stand there.
_LINES = DOCS.read_text().partition("import faulthandler")
OFFER = _LINES[1] + _LINES[2].partition("```")[0]
STUCK = """
import threading, time
lock = threading.Lock()
lock.acquire()
def waits_for_ever():
    lock.acquire()
def other_thread_sleeps():
    time.sleep(600)
threading.Thread(target=other_thread_sleeps, daemon=True).start()
print("stuck", flush=True)
waits_for_ever()
"""


def python_job(text: str, *, interpreter: str = sys.executable) -> bytes:
    return f"#!/bin/sh\nexec {shlex.quote(interpreter)} -c {shlex.quote(text)}\n".encode()


def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def start_stuck(fleet: Fleet, job: str, text: str = STUCK, interpreter: str = sys.executable) -> None:
    program = python_job(text, interpreter=interpreter)
    assert jobs.start_job(fleet, job, program, env=lambda host: b"export ORCH_RANK=%d\n" % host.rank).ok
    until(lambda: all(host.last_line == "stuck" for host in jobs.read_job_status(fleet, job).jobs))


@pytest.fixture
def plain_python(tmp_path: Path) -> str:
    """The same interpreter by a path that has no py-spy beside it."""
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).resolve())
    return str(link)


def still_running(fleet: Fleet, job: str) -> bool:
    return all(host.phase is JobPhase.RUNNING for host in jobs.read_job_status(fleet, job).jobs)


@pytest.mark.skipif(
    not (Path(sys.executable).parent / "py-spy").exists(), reason="py-spy is not installed beside this Python"
)
def test_py_spy_in_the_environment_of_the_job_names_the_blocking_function(fleet: Fleet) -> None:
    start_stuck(fleet, "spied")
    collected, failed = stacks.collect_stacks(fleet, "spied")
    assert failed == ()
    for rank in range(3):
        assert b"waits_for_ever" in collected[rank], collected[rank]
        assert b"other_thread_sleeps" in collected[rank]
    assert still_running(fleet, "spied")
    assert jobs.kill_job(fleet, "spied", EndedBy.CANCEL, grace=1).ok


def test_a_program_that_offered_it_writes_its_own_stacks_and_continues(
    fleet: Fleet, shared_farm: Farm, plain_python: str
) -> None:
    start_stuck(fleet, "offered", OFFER + STUCK, plain_python)
    for _ in range(2):  # a second look must not end it either, nor show the first again
        collected, failed = stacks.collect_stacks(fleet, "offered")
        assert failed == ()
        assert [collected[rank].count(b"in waits_for_ever") for rank in range(3)] == [1, 1, 1], collected[0]
        assert b"other_thread_sleeps" in collected[2]
    assert still_running(fleet, "offered")
    written = (shared_farm.hosts[1].rank_folder / "jobs/offered/stacks-1.txt").read_text()
    assert written.count("in waits_for_ever") == 2
    assert jobs.kill_job(fleet, "offered", EndedBy.CANCEL, grace=1).ok


def test_a_program_that_offered_nothing_is_never_signalled(fleet: Fleet, plain_python: str) -> None:
    start_stuck(fleet, "unasked", STUCK, plain_python)
    collected, _ = stacks.collect_stacks(fleet, "unasked")
    assert b"waits in" in collected[0]
    assert b"thread" in collected[0]
    assert b"waits_for_ever" not in collected[0]
    assert still_running(fleet, "unasked")
    assert jobs.kill_job(fleet, "unasked", EndedBy.CANCEL, grace=1).ok


def test_an_offer_of_a_process_without_the_handler_is_not_believed(fleet: Fleet, plain_python: str) -> None:
    """The marker names a process on which SIGQUIT would be fatal: the look must not be what ends it."""
    marker = (
        "import os, signal; signal.signal(signal.SIGQUIT, signal.SIG_DFL)\n"
        'open(os.environ["ORCH_JOB_DIR"] + "/stacks-0.pid", "w").write(str(os.getpid()))\n'
    )
    start_stuck(fleet, "liar", marker + STUCK, plain_python)
    collected, _ = stacks.collect_stacks(fleet, "liar")
    assert b"waits in" in collected[0]
    assert still_running(fleet, "liar")
    assert jobs.kill_job(fleet, "liar", EndedBy.CANCEL, grace=1).ok


def test_an_offer_that_names_another_owners_process_has_no_effect(fleet: Fleet, shared_farm: Farm) -> None:
    """This very test process has a handler for SIGQUIT, and is not of the job."""
    import faulthandler
    import signal

    with (shared_farm.root / "mine.txt").open("w+") as mine:
        faulthandler.register(signal.SIGQUIT, file=mine)
        try:
            jobs.start_job(
                fleet, "foreign", b'#!/bin/sh\necho %d >"$ORCH_JOB_DIR/stacks-0.pid"\nsleep 72\n' % os.getpid()
            )
            until((shared_farm.hosts[2].rank_folder / "jobs/foreign/stacks-0.pid").exists)
            stacks.collect_stacks(fleet, "foreign")
            assert mine.read() == ""
        finally:
            faulthandler.unregister(signal.SIGQUIT)
    assert jobs.kill_job(fleet, "foreign", EndedBy.CANCEL, grace=1).ok


def test_only_the_process_that_offered_is_signalled(fleet: Fleet, shared_farm: Farm, plain_python: str) -> None:
    """Another one of the job has a handler for the same signal, which means something else there."""
    child = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGQUIT, lambda *_: open(os.environ['HOME'] + '/quit-seen', 'w'))\n"
        "    while True: time.sleep(0.1)\n"
    )
    start_stuck(fleet, "family", child + OFFER + STUCK, plain_python)
    collected, _ = stacks.collect_stacks(fleet, "family")
    assert collected[0].count(b"== process") >= 2
    assert b"in waits_for_ever" in collected[0]
    assert [(host.home / "quit-seen").exists() for host in shared_farm.hosts] == [False] * 3
    assert jobs.kill_job(fleet, "family", EndedBy.CANCEL, grace=1).ok


def test_one_talkative_process_does_not_crowd_out_the_others(fleet: Fleet, plain_python: str) -> None:
    deep = """
import threading, time
def deeper_and_deeper_into_the_recursion(left):
    time.sleep(600) if left == 0 else deeper_and_deeper_into_the_recursion(left - 1)
for _ in range(60):
    threading.Thread(target=deeper_and_deeper_into_the_recursion, args=(90,), daemon=True).start()
print("stuck", flush=True)
time.sleep(600)
"""
    start_stuck(fleet, "deep", OFFER + deep, plain_python)
    collected, _ = stacks.collect_stacks(fleet, "deep")
    assert 30_000 < len(collected[0]) < 40_000
    assert jobs.kill_job(fleet, "deep", EndedBy.CANCEL, grace=1).ok


def test_a_stopped_process_costs_no_more_than_its_time(fleet: Fleet, plain_python: str) -> None:
    stop_itself = OFFER + "print('stuck', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    start_stuck(fleet, "halted", stop_itself, plain_python)
    began = time.monotonic()
    collected, failed = stacks.collect_stacks(fleet, "halted")
    assert failed == ()
    assert b"state T (stopped)" in collected[0]
    assert time.monotonic() - began < 15
    assert jobs.kill_job(fleet, "halted", EndedBy.CANCEL, grace=0.5).ok


def test_the_answer_of_one_host_is_bounded(fleet: Fleet) -> None:
    names = b"".join(b"(exec -a %s sleep 73) &\n" % (b"x" * 4000) for _ in range(30))
    crowd = b"for i in $(seq 1 600); do sleep 73 & done\n"
    jobs.start_job(fleet, "many", b"#!/bin/bash\n" + names + crowd + b"echo stuck\nwait\n", ranks=[0])
    until(lambda: jobs.read_job_status(fleet, "many", ranks=[0]).jobs[0].last_line == "stuck")
    began = time.monotonic()
    collected, failed = stacks.collect_stacks(fleet, "many", ranks=[0], timeout=60)
    assert (list(collected), failed) == ([0], ())
    assert len(collected[0]) <= stacks.MAX_BYTES
    assert collected[0].count(b"== process") > 100
    assert time.monotonic() - began < 60
    few = fleet.run(shell_command("job-stacks.sh", "many", "20", "5000"), ranks=[0], timeout=60)
    assert len(few.hosts[0].output) == 5000
    assert jobs.kill_job(fleet, "many", EndedBy.CANCEL, grace=1).ok


def test_an_unknown_and_a_finished_job_are_reported(fleet: Fleet) -> None:
    assert b"never started" in stacks.collect_stacks(fleet, "missing")[0][0]
    jobs.start_job(fleet, "over", b"#!/bin/sh\n")
    until(lambda: jobs.read_job_status(fleet, "over").jobs[0].phase is JobPhase.FINISHED)
    assert b"no process of the job is left" in stacks.collect_stacks(fleet, "over")[0][0]
    with pytest.raises(UserError):
        stacks.collect_stacks(fleet, "../up")


def test_operations_report_the_hosts_that_answer_and_those_that_do_not(farm: Farm) -> None:
    hands = SshHostOperations(farm.addresses)
    try:
        assert all(
            outcome.ok for outcome in hands.start_job("held", b"#!/bin/sh\nsleep 74\n", lambda host: b"", [0, 1])
        )
        dead: Sshd = farm.hosts[1]
        dead.kill()
        look = hands.collect_stacks("held")
        assert list(look.stacks) == [0]
        assert b"sleep 74" in look.stacks[0]
        assert [(outcome.rank, outcome.failure) for outcome in look.failed] == [(1, Failure.REFUSED)]
    finally:
        hands.close()
