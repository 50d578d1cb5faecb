"""Hands in memory: the same words as the real ones, for hosts that answer, are silent, die, or are others by now."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sim_support import Sim, fault, make_keys, make_sim, make_spec

from orchestrator.hosts import EndedBy, Failure, HostAddress, HostOutcome, JobPhase
from orchestrator.remote.host_operations import HostOperations
from orchestrator.remote.marks import mark_name
from orchestrator.remote.tree import Tree
from orchestrator.simulator.hands import PATIENCE, SimulatedHands
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, FaultKind

JOB = "c91f02aa-1-a1"
BOTH = [0, 1]


def no_env(_: HostAddress) -> bytes:
    return b""


def begun(sim: Sim, program: Program | None = None, job: str = JOB) -> SimulatedHands:
    """Two hosts on which a job has just begun."""
    if program is not None:
        sim.cloud.set_program("*", program)
    hands = sim.launch()
    assert all(outcome.ok for outcome in hands.start_job(job, b"true", no_env, BOTH))
    return hands


def phases(hands: SimulatedHands, job: str = JOB) -> list[JobPhase]:
    return [state.phase for state in hands.read_job(job).jobs]


def followed(hands: SimulatedHands, **options: object) -> tuple[dict[int, bytes], tuple[HostOutcome, ...]]:
    logs: dict[int, bytes] = {}

    def sink(host: HostAddress, block: bytes) -> None:
        logs[host.rank] = logs.get(host.rank, b"") + block

    arguments = {"offsets": {}, "ranks": BOTH, **options}
    outcomes = hands.follow_job(JOB, sink, **arguments)  # type: ignore[arg-type]  # options of follow
    return logs, outcomes


def test_serves_the_whole_protocol() -> None:
    hands: HostOperations = make_sim().launch()
    assert [host.rank for host in hands.hosts] == BOTH
    hands.close()


def test_job_runs_until_its_program_ends_and_counts_steps() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=20.0, step_seconds=2.0, exit_code=3, last_words="bye"))
    sim.clock.advance(10.5)
    (first, _) = hands.read_job(JOB).jobs
    assert (first.phase, first.exit_code, first.step, first.doing) == (JobPhase.RUNNING, None, 5, "training")
    assert first.beat_age == pytest.approx(1.0)
    assert first.last_line == "step 5"
    sim.clock.advance(10)
    (last, _) = hands.read_job(JOB).jobs
    assert (last.phase, last.exit_code, last.last_line) == (JobPhase.FINISHED, 3, "bye")
    assert phases(hands, "another-job") == [JobPhase.ABSENT] * 2


def test_exit_code_and_length_may_depend_on_attempt_and_rank() -> None:
    program = Program(seconds=10.0, exits={"1/1": 7, "2/*": 0}, ends={"1/0": 30.0})
    sim = make_sim()
    hands = begun(sim, program)
    sim.clock.advance(11)
    jobs = hands.read_job(JOB).jobs
    assert [(job.phase, job.exit_code) for job in jobs] == [(JobPhase.RUNNING, None), (JobPhase.FINISHED, 7)]
    hands.start_job("c91f02aa-1-a2", b"", no_env, BOTH)
    sim.clock.advance(11)
    assert [job.exit_code for job in hands.read_job("c91f02aa-1-a2").jobs] == [0, 0]


def test_follow_gives_the_whole_log_and_the_end_of_every_host() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=20.0, exits={"*/1": 139}, last_words="the end"))
    ended: list[int] = []
    logs, outcomes = followed(hands, on_end=lambda outcome: ended.append(outcome.rank))
    assert logs[0].decode().splitlines() == ["rank 0 begins", *(f"step {n}" for n in range(1, 21)), "the end"]
    assert [(outcome.exit_code, outcome.signal) for outcome in outcomes] == [(0, None), (None, "SEGV")]
    assert ended == BOTH
    assert len(logs[1]) == hands.read_job(JOB).jobs[1].log_bytes


def test_follow_goes_on_at_the_byte_where_it_was() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=20.0))
    whole, _ = followed(hands)
    rest, _ = followed(hands, offsets={0: 20})
    assert rest == {0: whole[0][20:], 1: whole[1]}


def test_follow_ends_when_it_is_requested_to() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=None))
    stop = threading.Event()
    began = sim.clock.now()

    def sink(_: HostAddress, block: bytes) -> None:
        if b"step 30" in block:
            stop.set()

    assert hands.follow_job(JOB, sink, {}, BOTH, stop=stop) == ()
    assert sim.clock.now() - began == pytest.approx(30, abs=2)


def test_log_of_a_very_long_program_stays_short() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=1e7, step_seconds=0.5))
    sim.clock.advance(1e7)
    assert hands.read_job(JOB).jobs[0].log_bytes < 10_000


def test_killed_job_ends_with_143_and_its_log_stays() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=1000.0))
    sim.clock.advance(10)
    assert all(outcome.ok for outcome in hands.kill_job(JOB, EndedBy.LIMIT, 5.0, [1]))
    sim.clock.advance(100)
    running, killed = hands.read_job(JOB).jobs
    assert running.phase is JobPhase.RUNNING
    assert (killed.phase, killed.exit_code, killed.ended_by) == (JobPhase.FINISHED, 143, EndedBy.LIMIT)
    assert killed.step == 10
    assert all(outcome.ok for outcome in hands.kill_job("unknown", EndedBy.LIMIT, 1.0, BOTH))


def test_silent_host_is_unreachable_and_its_program_goes_on() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=100.0))
    sim.cloud.do("demo-1", Deed.SILENCE_HOST, 1, seconds=30.0)
    look = hands.read_job(JOB)
    assert [job.rank for job in look.jobs] == [0]
    assert [(outcome.rank, outcome.failure) for outcome in look.failed] == [(1, Failure.UNREACHABLE)]
    sim.clock.advance(31)
    assert phases(hands) == [JobPhase.RUNNING] * 2


def test_follow_gives_up_a_host_that_stays_away() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=100.0))
    sim.cloud.do("demo-1", Deed.SILENCE_HOST, 1, seconds=1000.0)
    at: dict[int, float] = {}
    began = sim.clock.now()
    _, outcomes = followed(hands, on_end=lambda outcome: at.__setitem__(outcome.rank, sim.clock.now() - began))
    assert [(outcome.exit_code, outcome.failure) for outcome in outcomes] == [(0, None), (None, Failure.UNREACHABLE)]
    assert PATIENCE <= at[1] <= PATIENCE + 2


def test_follow_survives_a_short_silence() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=50.0))
    sim.cloud.do("demo-1", Deed.SILENCE_HOST, 1, seconds=PATIENCE - 2)
    logs, outcomes = followed(hands)
    assert all(outcome.ok for outcome in outcomes)
    assert logs[1].count(b"step") == 50


def test_rebooted_host_has_lost_its_job_and_kept_its_files() -> None:
    sim = make_sim()
    hands = begun(sim)
    hands.write_mark("setup", "digest")
    sim.cloud.do("demo-1", Deed.REBOOT_HOST, 1)
    assert [outcome.rank for outcome in hands.read_job(JOB).failed] == [1]
    sim.clock.advance(31)
    assert phases(hands) == [JobPhase.RUNNING, JobPhase.LOST]
    assert hands.read_marks().held[1] == {"setup": "digest"}
    _, outcomes = followed(hands, ranks=[1])
    assert outcomes[0].failure is Failure.LOST


def test_impostor_is_refused_by_its_key() -> None:
    sim = make_sim()
    hands = begun(sim)
    sim.cloud.do("demo-1", Deed.IMPOSTOR_HOST, 0)
    assert [(outcome.rank, outcome.failure) for outcome in hands.read_job(JOB).failed] == [(0, Failure.IDENTITY)]
    _, outcomes = followed(hands)
    assert outcomes[0].failure is Failure.IDENTITY


def test_preempted_hosts_answer_no_more() -> None:
    sim = make_sim()
    hands = begun(sim)
    sim.provider.preempt("demo-1", 0)
    assert len(hands.read_job(JOB).failed) == 2
    assert not any(outcome.ok for outcome in hands.start_job("again", b"", no_env, BOTH))


def test_hung_program_runs_on_without_a_heartbeat() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=100.0))
    sim.clock.advance(10)
    sim.cloud.do("demo-1", Deed.HANG, 1)
    sim.clock.advance(500)
    ended, hung = hands.read_job(JOB).jobs
    assert ended.phase is JobPhase.FINISHED
    assert (hung.phase, hung.step) == (JobPhase.RUNNING, 10)
    assert hung.beat_age is not None
    assert hung.beat_age > 499
    assert b"in step 10" in hands.collect_stacks(JOB).stacks[1]


def test_program_can_be_made_to_exit() -> None:
    sim = make_sim()
    hands = begun(sim, Program(seconds=100.0))
    sim.cloud.do("demo-1", Deed.EXIT, 0, exit_code=75)
    assert [job.exit_code for job in hands.read_job(JOB).jobs] == [75, None]


def test_marks_and_trees_are_kept_by_host() -> None:
    sim = make_sim()
    hands = sim.launch()
    progress: list[tuple[int, int]] = []
    outcomes = hands.sync_tree(
        Tree(root=Path(), files=(), digest="d1", total_bytes=0),
        "~/work",
        [1],
        lambda done, total: progress.append((done, total)),
    )
    assert [(outcome.rank, outcome.ok) for outcome in outcomes] == [(1, True)]
    assert progress == [(1, 1)]
    (resource,) = sim.cloud.state.resources.values()
    assert [host.trees for host in resource.hosts] == [{}, {"~/work": "d1"}]
    hands.write_mark("setup", "s1", [0])
    hands.write_mark("workdir", "w1")
    assert hands.read_marks().held == {0: {"setup": "s1", mark_name("workdir"): "w1"}, 1: {mark_name("workdir"): "w1"}}
    assert hands.read_marks([1]).held == {1: {mark_name("workdir"): "w1"}}


@pytest.mark.parametrize(
    ("kind", "verdict", "runs"),
    [
        (FaultKind.HOST_LOST_BEFORE, "lost", JobPhase.ABSENT),
        (FaultKind.HOST_LOST_AFTER, "lost", JobPhase.RUNNING),
        (FaultKind.HOST_FAILS, "exit 1", JobPhase.ABSENT),
    ],
)
def test_step_may_break_on_one_host_before_or_after_it_acted(kind: FaultKind, verdict: str, runs: JobPhase) -> None:
    sim = make_sim(fault("host.start", kind, rank=0))
    hands = sim.launch()
    first, second = hands.start_job(JOB, b"", no_env, BOTH)
    assert (first.verdict, second.verdict) == (verdict, "exit 0")
    assert phases(hands) == [runs, JobPhase.RUNNING]
    assert all(outcome.ok for outcome in hands.start_job(JOB, b"", no_env, BOTH))
    assert phases(hands) == [JobPhase.RUNNING] * 2


def test_setup_jobs_are_short_by_default() -> None:
    sim = make_sim()
    hands = begun(sim, job="c91f02aa-1-setup-a1")
    sim.clock.advance(6)
    assert phases(hands, "c91f02aa-1-setup-a1") == [JobPhase.FINISHED] * 2


def test_work_on_hosts_takes_its_time_once_for_all() -> None:
    sim = make_sim()
    sim.provider.create(make_spec(hosts=2), make_keys(2))
    sim.clock.advance(41)
    hands = sim.hands()
    before = sim.clock.now()
    hands.run_script(b"true", BOTH)
    assert sim.clock.now() - before == pytest.approx(0.5)
