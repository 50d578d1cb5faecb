"""Ranks that are killed, stopped, frozen or stuck: the others end soon, each with its own error, and none hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainer_ranks import REPOSITORY, SMALL, Launcher, Ranks, free_port

SLOWLY = {"TOY_SECONDS": "0.02"}


def started(launch: Launcher, size: int, *words: str, **more: str) -> Ranks:
    """A run without an end, some steps in."""
    ranks = launch.toy(size, "steps=1000000", *words, environment={**SLOWLY, **more})
    ranks.wait_for("step 5/")
    return ranks


@pytest.mark.promise("P35")
@pytest.mark.parametrize("victim", [0, 2])
def test_killed_rank_ends_the_others_within_seconds_and_is_named(launch: Launcher, victim: int) -> None:
    ranks = started(launch, 4)
    begun = time.monotonic()
    ranks.signal(victim, signal.SIGKILL)
    statuses = ranks.wait(timeout=15)
    assert time.monotonic() - begun < 6
    assert statuses == [-9 if rank == victim else 1 for rank in range(4)]
    for rank in set(range(4)) - {victim}:
        assert f"error[peer]: rank {rank} lost rank {victim}: it has left" in ranks.text(rank)
        assert "Traceback" not in ranks.text(rank)


@pytest.mark.promise("P35")
def test_rank_stuck_in_its_own_code_ends_when_another_is_killed(launch: Launcher) -> None:
    # Its main thread never comes back to where it could notice.
    ranks = launch.toy(4, "steps=1000000", environment={**SLOWLY, "TOY_HANG": "1:3"})
    ranks.wait_for("step 3/")
    ranks.signal(2, signal.SIGKILL)
    assert ranks.wait(timeout=15) == [1, 1, -9, 1]
    assert "error[peer]: rank 1 lost rank 2: it has left" in ranks.text(1)


@pytest.mark.promise("P35")
@pytest.mark.slow
def test_a_killed_process_of_jax_ends_the_other_with_1_long_before_jax_would_abort(
    tmp_path: Path, corpus: Path
) -> None:
    meet = {"ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": f"127.0.0.1:{free_port()}"}
    words = [*SMALL, f"data={corpus}", "engine=jax", "steps=1000000", "metrics.file="]
    logs = [tmp_path / f"rank{rank}.log" for rank in (0, 1)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            environment = {**os.environ, **meet, "ORCH_RANK": str(rank)}
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "trainer", *words],
                        cwd=REPOSITORY,
                        env=environment,
                        stdout=out,
                        stderr=out,
                    )
                )
        limit = time.monotonic() + 150
        while "step 5/" not in logs[0].read_text():
            assert processes[0].poll() is None, logs[0].read_text()
            assert time.monotonic() < limit
            time.sleep(0.05)
        processes[1].kill()
        assert processes[0].wait(15) == 1
        assert "lost rank 1: it has left" in logs[0].read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.promise("P35")
def test_frozen_rank_is_given_up_after_the_timeout_and_named(launch: Launcher) -> None:
    ranks = started(launch, 4, "dist.timeout=1")
    ranks.signal(1, signal.SIGSTOP)
    for rank in (0, 2, 3):
        ranks.processes[rank].join(20)
        assert ranks.processes[rank].exitcode == 1
        assert f"rank {rank} lost rank 1: rank 1 did not answer (limit 1 s)" in ranks.text(rank)


@pytest.mark.promise("P35")
def test_rank_that_starts_late_is_awaited_longer_than_within_a_step(launch: Launcher, tmp_path: Path) -> None:
    place = f"checkpoint.uri={tmp_path}/c"
    launch.toy(1, "steps=1", place).ok()
    slow = {"TOY_STARTS_SLOWLY": "1:1.2"}  # its engine, and what it restores
    ranks = launch.toy(2, "steps=2", place, "dist.timeout=1", environment=slow).ok()
    assert list(ranks.losses()) == [2]


@pytest.mark.promise("P35")
@pytest.mark.slow
def test_failure_of_every_rank_is_reported_by_each_also_by_one_that_still_writes(launch: Launcher) -> None:
    ranks = started(launch, 2, TOY_BREAKS="40")
    lines = ranks.folder / "metrics.jsonl"
    lines.rename(ranks.folder / "before.jsonl")
    os.mkfifo(lines)  # whoever opens it to write waits for a reader
    ranks.processes[1].join(20)
    time.sleep(2)  # more than the others are given when a rank has left
    assert ranks.processes[0].is_alive(), ranks.text()
    reader = os.open(lines, os.O_RDONLY | os.O_NONBLOCK)
    assert ranks.wait(timeout=15) == [1, 1]
    os.close(reader)
    for rank in (0, 1):
        assert "error[failure]: loss nan" in ranks.text(rank)
        assert "lost rank" not in ranks.text(rank)


@pytest.mark.promise("P34")
def test_sigterm_to_one_rank_saves_and_all_exit_75_also_when_one_is_killed_while_leaving(
    launch: Launcher, tmp_path: Path
) -> None:
    # Rank 1 takes longer than a rank is given when another is lost before all is saved.
    ranks = started(launch, 4, f"checkpoint.uri={tmp_path}/c", TOY_LEAVES_SLOWLY="1:2,2:20")
    ranks.signal(1, signal.SIGTERM)
    ranks.wait_for("checkpoint saved")
    ranks.signal(2, signal.SIGKILL)
    assert ranks.wait(timeout=15) == [75, 75, -9, 75], ranks.text()
    assert "note: while leaving: rank 0 lost rank 2" in ranks.text(0)


@pytest.mark.promise("P34")
def test_second_sigterm_ends_immediately_and_after_the_save_it_still_exits_75(launch: Launcher, tmp_path: Path) -> None:
    slow = launch.toy(1, "steps=100", f"checkpoint.uri={tmp_path}/c", environment={"TOY_SECONDS": "5"})
    slow.wait_for("toy engine")
    time.sleep(0.5)
    slow.signal(0, signal.SIGTERM)
    time.sleep(0.2)
    slow.signal(0, signal.SIGTERM)
    assert slow.wait(timeout=4) == [143]
    saved = started(launch, 1, f"checkpoint.uri={tmp_path}/d", TOY_LEAVES_SLOWLY="0:20")
    saved.signal(0, signal.SIGTERM)
    saved.wait_for("checkpoint saved")
    saved.signal(0, signal.SIGTERM)
    assert saved.wait(timeout=10) == [75]


@pytest.mark.promise("P34")
def test_numbers_that_are_read_seldom_still_stop_all_ranks_at_one_step(launch: Launcher, tmp_path: Path) -> None:
    seldom = {"TOY_READ_EVERY": "1000", "TOY_SECONDS": "0.1"}
    ranks = launch.toy(
        2,
        "steps=1000000",
        "log_every=1000000",
        "checkpoint.every=0",
        f"checkpoint.uri={tmp_path}/c",
        environment=seldom,
    )
    ranks.wait_for("step 1/")
    time.sleep(1)
    begun = time.monotonic()
    ranks.signal(1, signal.SIGTERM)
    # 1000 steps would be 100 s: after the first looks all have agreed on what 2 s hold.
    assert ranks.wait(timeout=30) == [75, 75]
    assert time.monotonic() - begun < 5


@pytest.mark.promise("P35")
def test_missing_rank_is_an_error_that_names_the_coordinator(launch: Launcher) -> None:
    ranks = launch.toy(1, "dist.join_timeout=1", environment={"ORCH_NUM_HOSTS": "2"})
    assert ranks.wait() == [1]
    assert "rank 0 of 2 could not meet the others at 127.0.0.1:" in ranks.text()
    assert "rank 1 did not come" in ranks.text()
    assert "Traceback" not in ranks.text()


@pytest.mark.promise("P36")
@pytest.mark.parametrize(
    ("odd", "status", "words"),
    [
        (("steps=4",), 2, "rank 1 has steps=4, rank 0 has steps=3"),
        (("data={one_file}",), 3, "rank 1 reads another corpus than rank 0 (total_tokens"),
        (("TOY_PROGRAM=other",), 2, "rank 1 would run another step (other) than rank 0 (toy)"),
    ],
)
def test_rank_set_up_for_another_run_stops_all_at_the_start(
    launch: Launcher, tmp_path: Path, corpus: Path, odd: tuple[str, ...], status: int, words: str
) -> None:
    one_file = tmp_path / "part0.txt"
    one_file.write_text((corpus / "part0.txt").read_text())
    meet = {"ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": f"127.0.0.1:{free_port()}"}
    settings = [word.format(one_file=one_file) for word in odd if not word.startswith("TOY_")]
    variables = dict(word.split("=") for word in odd if word.startswith("TOY_"))
    one = launch.toy(1, "steps=3", environment={**meet, "ORCH_RANK": "0"})
    two = launch.toy(1, "steps=3", *settings, environment={**meet, **variables, "ORCH_RANK": "1"})
    assert (one.wait(), two.wait()) == ([status], [status])
    assert words in one.text()
    assert words in two.text()


@pytest.mark.promise("P35")
def test_a_hang_ends_with_the_stacks_of_all_threads(launch: Launcher, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    ranks = launch.toy(2, "steps=1000000", "dist.watchdog=1", environment={"TOY_HANG": "1:5", "ORCH_JOB_DIR": str(job)})
    assert ranks.wait(timeout=30) == [1, 1]
    assert "no progress in 1 s" in ranks.text(1)
    assert "in stand_still" in ranks.text(1)
    assert "in stand_still" in (job / "stacks-1.txt").read_text()


@pytest.mark.promise("P35")
def test_extended_deadline_is_no_hang_and_what_follows_is() -> None:
    code = (
        "import time\n"
        "from trainer.config import CheckpointConfig, Config, DistConfig\n"
        "from trainer.console import Console\n"
        "from trainer.environment import Run, World\n"
        "from trainer.liveness import Liveness\n"
        "config = Config(dist=DistConfig(watchdog=0.3), checkpoint=CheckpointConfig(timeout=2))\n"
        "with Liveness(config, Run(), World(), Console(World())) as liveness:\n"
        "    time.sleep(0.6)\n"  # the start has its own time
        "    liveness.report_step(1)\n"
        "    with liveness.extend_for_save(2, wait=False):\n"
        "        time.sleep(0.6)\n"
        "    print('alive', flush=True)\n"
        "    time.sleep(20)\n"
    )
    done = run_python(code)
    assert (done.returncode, done.stdout) == (1, "alive\n")
    assert "(step 3)" in done.stderr


@pytest.mark.promise("P34")
def test_rank_that_cannot_leave_after_the_run_ends_with_the_status_of_the_run() -> None:
    code = (
        "import time\nfrom trainer.errors import Exit\nfrom trainer.watchdog import Watchdog\n"
        "with Watchdog(60) as dog:\n"
        "    dog.beat(1)\n"
        "    dog.expect_exit(Exit.STOPPED, 0.2)\n"
        "    time.sleep(20)\n"
    )
    done = run_python(code)
    assert done.returncode == 75
    assert "cannot leave" in done.stderr


@pytest.mark.promise("P35")
def test_thread_that_never_releases_the_interpreter_is_ended_too() -> None:
    code = (
        "import ctypes\nfrom trainer.watchdog import Watchdog\n"
        "with Watchdog(0.2, second_timer=0.3) as dog:\n"
        "    dog.beat(1)\n"
        "    ctypes.PyDLL(None).sleep(20)\n"  # holds the lock all the while
    )
    done = run_python(code)
    assert done.returncode == 1
    assert "Timeout (" in done.stderr


def test_watchdog_does_not_act_on_a_run_that_ended() -> None:
    code = (
        "import time\nfrom trainer.watchdog import Watchdog\n"
        "with Watchdog(0.2, second_timer=0.1) as dog:\n"
        "    dog.beat(1)\n"
        "time.sleep(0.6)\n"
    )
    assert run_python(code).returncode == 0


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert time.monotonic() - begun < 15
    return done


def ask(job: Path, name: str, steps: int) -> None:
    request = job / ".request"
    request.write_text(json.dumps({"id": name, "steps": steps}))
    request.replace(job / "profile-request.json")


def wait_for(path: Path, seconds: float = 15) -> dict[str, object]:
    limit = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < limit, f"no {path}"
        time.sleep(0.02)
    content: dict[str, object] = json.loads(path.read_text())
    return content


@pytest.mark.promise("P41")
def test_profile_is_recorded_on_demand_by_every_rank_while_the_run_continues(launch: Launcher, tmp_path: Path) -> None:
    ranks = started(launch, 2, ORCH_JOB_DIR=str(tmp_path))
    for name, steps in (("first", 5), ("second", 3)):
        ask(tmp_path, name, steps)
        for rank in (0, 1):
            answer = wait_for(tmp_path / "profiles" / name / f"done-{rank}.json")
            assert (answer["id"], answer["rank"], answer["steps"], answer["files"]) == (
                name,
                rank,
                steps,
                ["trace.json"],
            )
            assert (tmp_path / "profiles" / name / f"rank-{rank}" / "trace.json").exists()
    ask(tmp_path, "../outside", 3)
    ranks.wait_for("is no valid profile request: id '../outside'")
    ask(tmp_path, "first", 3)
    done = (tmp_path / "profiles/first/done-0.json").stat().st_mtime_ns
    time.sleep(1.2)
    assert (tmp_path / "profiles/first/done-0.json").stat().st_mtime_ns == done, "an answered request is not done again"
    ranks.signal(0, signal.SIGTERM)
    assert ranks.wait() == [143, 143]


@pytest.mark.promise("P41")
def test_failing_profiler_is_an_answer_and_the_run_continues(launch: Launcher, tmp_path: Path) -> None:
    ask(tmp_path, "p", 3)
    ranks = launch.toy(1, "steps=30", environment={"ORCH_JOB_DIR": str(tmp_path), "TOY_PROFILE": "broken"}).ok()
    assert wait_for(tmp_path / "profiles/p/failed-0.json")["why"] == "RuntimeError: no profiler here"
    assert "note: rank 0 recorded no profile" in ranks.text()


def test_profile_longer_than_the_run_counts_the_steps_that_were_made(launch: Launcher, tmp_path: Path) -> None:
    ask(tmp_path, "p", 500)
    launch.toy(1, "steps=10", environment={"ORCH_JOB_DIR": str(tmp_path)}).ok()
    assert wait_for(tmp_path / "profiles/p/done-0.json")["steps"] == 10


def test_notes_are_reported_once_with_the_ranks_that_have_them(launch: Launcher) -> None:
    ranks = launch.toy(2, "steps=1", environment={"TOY_NOTES": "1"}).ok()
    notes = [line for line in ranks.text().splitlines() if line.startswith("note: ")]
    assert notes == ["note: a toy", "note: rank 0: place 0", "note: rank 1: place 1"]


@pytest.mark.promise("P32")
def test_any_number_of_ranks_at_any_time_gives_the_same_bits(launch: Launcher, tmp_path: Path) -> None:
    """Run with 2 ranks, then 4, then 1, the first two stopped by SIGTERM: one curve, as if uninterrupted."""
    words = ("steps=150", "checkpoint.every=1000")
    straight = launch.toy(1, *words).ok().losses()
    place, merged = f"checkpoint.uri={tmp_path}/c", dict[int, str]()
    for attempt, size in enumerate((2, 4, 1), start=1):
        ranks = launch.toy(size, *words, place, environment={"ORCH_ATTEMPT": str(attempt), "TOY_SECONDS": "0.005"})
        if size > 1:
            ranks.wait_for(f"step {len(merged) + 10}/150")
            ranks.signal(size - 1, signal.SIGTERM)
            assert ranks.wait() == [75] * size, ranks.text()
        else:
            ranks.ok()
        assert all(line["compute_s"] >= 0.005 for line in ranks.metrics())
        reported = ranks.losses()
        assert min(reported) == len(merged) + 1
        merged |= reported
    assert merged == straight


def test_ranks_that_do_not_divide_the_batch_are_refused_with_the_nearest_ones(launch: Launcher) -> None:
    ranks = launch.toy(3, "steps=1", environment={"ORCH_LOCAL_RANKS_PER_MACHINE": str(os.cpu_count())})
    assert ranks.wait() == [2, 2, 2]
    assert "use batch=6 or 9" in ranks.text(0)
