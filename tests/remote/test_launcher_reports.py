"""The report of a launcher is no cause, and the status of the process that failed is read from it."""

from __future__ import annotations

import base64
import gzip
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.hosts import JobPhase
from orchestrator.remote import jobs
from orchestrator.remote.error_lines import find_cause
from orchestrator.remote.fleet import Fleet, HostResult
from orchestrator.remote.launchers import LAUNCHERS, list_silent_launchers

BIN = Path(sys.executable).parent
MISSING = "print('start')\nimport not_there\n"
EXIT_3 = "import sys\nprint('step 4', flush=True)\nsys.exit(3)\n"
KILLED = "import os\nprint('step 12', flush=True)\nos.kill(os.getpid(), 9)\n"
SECOND_RANK = """
import os, pathlib, time
failed = pathlib.Path("failed")
if os.environ["RANK"] == "1":
    failed.touch()
    raise ValueError("rank one is bad")
while not failed.exists():
    time.sleep(0.01)
time.sleep(0.3)
raise ConnectionError("the peer closed the connection")
"""
SPAWN = """
import os, torch.multiprocessing as mp
def work(index):
    raise ValueError("in a child")
if __name__ == "__main__":
    mp.spawn(work, nprocs=1)
"""


def end_of(folder: Path, program: str, *words: str) -> tuple[str, int]:
    """Run a program by a launcher, which ends with status 1; return the cause and the status of the program."""
    (folder / "train.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    cause = find_cause(done.stdout, done.returncode)
    return cause.lines, cause.exit_code or done.returncode


TORCHRUN = ("torch.distributed.run", "--nproc-per-node")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "words", "cause", "status"),
    [
        (MISSING, (*TORCHRUN, "1", "train.py"), "ModuleNotFoundError: No module named 'not_there'", 1),
        (EXIT_3, (*TORCHRUN, "1", "train.py"), "step 4", 3),
        (KILLED, (*TORCHRUN, "1", "train.py"), "step 12", 137),
        (SECOND_RANK, (*TORCHRUN, "2", "--tee", "3", "train.py"), "ValueError: rank one is bad", 1),
        (EXIT_3, ("accelerate.commands.launch", "--cpu", "train.py"), "step 4", 3),
        (KILLED, ("accelerate.commands.launch", "--cpu", "train.py"), "step 12", 137),
        (SPAWN, ("train",), "ValueError: in a child", 1),
    ],
    ids=["missing", "exit", "kill", "ranks", "accelerate", "accelerate-kill", "spawn"],
)
def test_real_launchers(tmp_path: Path, program: str, words: tuple[str, ...], cause: str, status: int) -> None:
    assert end_of(tmp_path, program, *words) == (cause, status)


@pytest.mark.slow
def test_a_package_that_pip_cannot_build(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    )
    (tmp_path / "own.py").write_text('raise RuntimeError("no compiler for the kernels")\n')
    words = ("pip", "install", "--no-index", "--disable-pip-version-check", ".")
    cause, status = end_of(tmp_path, "", *words)
    assert (cause, status) == ("RuntimeError: no compiler for the kernels", 1)


@pytest.mark.slow
def test_a_job_under_torchrun_ends_with_the_status_of_its_process(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(EXIT_3)
    script = f"#!/bin/sh\n{BIN}/torchrun --nproc-per-node 1 {tmp_path}/train.py || exit $?\n"
    jobs.start_job(fleet, "torchrun", script.encode(), ranks=[0])
    limit = time.monotonic() + 200
    while (state := jobs.read_job_status(fleet, "torchrun", ranks=[0]).jobs[0]).phase is JobPhase.RUNNING:
        assert time.monotonic() < limit
        time.sleep(0.5)
    assert (state.exit_code, state.last_line) == (3, "step 4")


def test_the_end_of_a_failed_log_is_sent_once(fleet: Fleet) -> None:
    """Each look at a job that failed has its cause, and only the first one has the log."""
    script = b"#!/bin/sh\nhead -c 40000 /dev/urandom | od\necho fatal: no data\nexit 4\n"
    assert jobs.start_job(fleet, "failed", script, ranks=[0, 1]).ok
    limit = time.monotonic() + 60
    status = jobs.read_job_status(fleet, "failed")
    while any(job.phase is JobPhase.RUNNING for job in status.jobs):
        assert time.monotonic() < limit
        status = jobs.read_job_status(fleet, "failed")
    again = jobs.read_job_status(fleet, "failed")
    for found in (status, again):
        assert [(job.exit_code, job.last_line) for job in found.jobs[:2]] == [(4, "fatal: no data")] * 2
    assert max(len(host.output) for host in again.result.hosts) < 500
    assert max(len(host.output) for host in status.result.hosts) > 5000


def test_a_host_names_no_cause_for_another(fleet: Fleet) -> None:
    """A text is kept by its sum only if it has that sum."""
    tail = base64.b64encode(gzip.compress(b"fatal: of another\n")).decode()
    line = f"orch-tail j {'0' * 32} {tail}\norch-job j finished 4 9 - - - - last\n"
    outcome = jobs.read_job_status(fleet, "none").result.hosts[0].outcome
    known: dict[str, bytes] = {}
    assert jobs.parse_job_states(HostResult(outcome, line.encode()), known)[0][1].last_line == "fatal: of another"
    assert known == {}


NAME = "NameError: name 'x' is not defined"
RAISED = (
    "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\nNameError: name 'x' is not defined\n"
)
INDENTED = "\n".join(f"      {line}" for line in RAISED.splitlines())
# Lines of public records, each read at the address of its row in launchers.py in November 2026.
DEEPSPEED = """[2023-04-14 13:11:27,879] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 13266
[2023-04-14 13:11:27,885] [ERROR] [launch.py:434:sigkill_handler] ['main.py'] exits with return code = {}
"""
RULE = "-" * 74
PRIMARY = f"""{RULE}
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{RULE}
"""
MPI_EXIT = f"""{PRIMARY}{RULE}
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[56671,1],1]
  Exit code:    {{}}
{RULE}
"""
MPI_SIGNAL = f"""{PRIMARY}{RULE}
mpirun noticed that process rank 0 with PID 0 on node node7 exited on signal 9 (Killed).
{RULE}
"""
# Of gloo in torch 2.13, as the other process had ended.
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:11931. Check the logs."
LOST_PEER = f'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n{CLOSED}\n'
LIGHTNING = """[rank: 1] Child process with PID 9487 terminated with code {}. Forcefully terminating all other processes
run.sh: line 1:  2504 Killed                  python train.py
"""
RAY = """ray.exceptions.RayTaskError(NameError): ray::_Inner.train() (pid=2876, ip=10.0.2.31, repr=TorchTrainer)
  File "train.py", line 7, in train_loop
NameError: name 'x' is not defined

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "train.py", line 99, in <module>
    result = trainer.fit()
ray.train.base_trainer.TrainingFailedError: The Ray Train run failed.
"""
# Printed by Ray 2.60 as a worker of Ray Train called sys.exit(3); the newest lines are those that its log repeats.
RAY_TRAIN = """(RayTrainWorker pid=9) Reporting training result 1: TrainingReport(metrics={'loss': 1.05})
(RayTrainWorker pid=9) Error in training function:
(RayTrainWorker pid=9) Traceback (most recent call last):
(RayTrainWorker pid=9)   File "/a/train.py", line 85, in train_func
(RayTrainWorker pid=9)     sys.exit(3)
(RayTrainWorker pid=9) SystemExit: 3
(RayTrainWorker pid=9)
(TrainController pid=5) [FailurePolicy] RAISE
(TrainController pid=5)   Source: worker group
(TrainController pid=5)   Error count: 1 (max allowed: 0)
(TrainController pid=5) Error: Training failed due to worker errors:
(TrainController pid=5) [Rank 1 Error Snippet]:
(TrainController pid=5) ray.train.WorkerGroupError: Training failed due to worker errors:
(TrainController pid=5) [Rank 1 Error Snippet]:
(TrainController pid=5)
Traceback (most recent call last):
  File "/a/train.py", line 105, in train_linear
    result = trainer.fit()
  File "/b/ray/train/v2/api/data_parallel_trainer.py", line 195, in fit
    raise result.error
ray.train.WorkerGroupError: Training failed due to worker errors:
[Rank 1 Error Snippet]:
Traceback (most recent call last):
  File "/a/train.py", line 85, in train_func
    sys.exit(3)
SystemExit: 3

(RayTrainWorker pid=8) Reporting training result 3: TrainingReport(metrics={'loss': 1.05})
(TrainController pid=5) Traceback (most recent call last):\x1b[32m [repeated 2x across cluster]\x1b[0m
(TrainController pid=5)   File "/a/train.py", line 85, in train_func\x1b[32m [repeated 2x across cluster]\x1b[0m
(TrainController pid=5)     sys.exit(3)\x1b[32m [repeated 2x across cluster] (Ray deduplicates logs.)\x1b[0m
(TrainController pid=5) SystemExit: 3\x1b[32m [repeated 2x across cluster]\x1b[0m
"""
# The same where Ray left out the worker's own lines, which its controller had printed before, and warned of an actor.
RAY_TRAIN_ONCE = (
    "(TrainController pid=5) [2026-12-01 12:41:14,172 E 5 7] core_worker.cc:2465: Actor with class name: 'Watcher' has "
    "arguments in the object store, and the actor restart will fail.\n"
    + RAY_TRAIN[
        RAY_TRAIN.index("(TrainController pid=5) [FailurePolicy]") : RAY_TRAIN.index("(TrainController pid=5) Trace")
    ]
    + "(RayTrainWorker pid=9) Error in training function:\n(RayTrainWorker pid=9)\n"
)
# As it shows a long error (train/v2/_internal/execution/worker_group/poll.py).
RAY_CUT = (
    '  File...\n... (Output truncated. See individual worker logs for full details) ...\nain.py", line 5\n    s()\n'
)
# `ray symmetric-run` at its end, and `ray stop` without a terminal.
RAY_STOP = """=======================
2026-12-01 01:20:00,000\tSUCC scripts.py:1503 -- \x1b[32mStopped all 9 Ray processes.\x1b[39m
Stopped all 9 Ray processes.
Command failed with return code 1
"""
UV = f"""  \u00d7 Failed to build `kernels @ file:///kernels`
  ├─▶ The build backend returned an error
  ╰─▶ Call to `setuptools.build_meta.build_editable` failed (exit status: 1)

      [stderr]
{INDENTED}

      hint: This usually indicates a problem with the package or the build environment.
"""
PIP = f"""  error: subprocess-exited-with-error

  \u00d7 python setup.py egg_info did not run successfully.
  │ exit code: 1
  ╰─> [4 lines of output]
{INDENTED}
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed

\u00d7 Encountered error while generating package metadata.
╰─> See above for output.

note: This is an issue with the package mentioned above, not pip.
hint: See above for details.
"""


@pytest.mark.parametrize(
    ("printed", "ended_with", "cause", "status"),
    [
        (RAISED + DEEPSPEED.format(1), 1, NAME, 1),
        ("step 4\n" + DEEPSPEED.format(3), 3, "step 4", 3),
        ("step 4\n" + DEEPSPEED.format(-9), 247, "step 4", 137),  # exit(-9)
        (RAISED + MPI_EXIT.format(1), 1, NAME, 1),
        ("step 4\n" + MPI_EXIT.format(17), 17, "step 4", 17),
        ("step 4\n" + MPI_SIGNAL, 137, "step 4", 137),
        (RAISED + LIGHTNING.format(1), 137, NAME, 1),
        ("step 4\n" + LIGHTNING.format(4), 137, "step 4", 4),
        ("step 4\n" + LIGHTNING.format(-9), 137, "step 4", 137),
        (f"step 4\n{LOST_PEER}{MPI_EXIT.format(3)}", 3, f"step 4 | {CLOSED}", 3),
        (f"{LOST_PEER}{RAISED}{MPI_EXIT.format(1)}", 1, NAME, 1),
        (RAY, 1, NAME, None),
        (RAY_TRAIN, 1, "SystemExit: 3", 3),
        (f"{RAY_TRAIN}{RAY_STOP}", 1, "SystemExit: 3", 3),
        (RAY_TRAIN.replace("    sys.exit(3)\nSystemExit", f"{RAY_CUT}SystemExit"), 1, "SystemExit: 3", 3),
        (RAY_TRAIN_ONCE, 1, "SystemExit: 3", 3),
        (f"{RAY_TRAIN}evaluating\n", 1, "SystemExit: 3", None),
        (RAY_TRAIN.replace("SystemExit: 3", "SystemExit: no data"), 1, "SystemExit: no data", None),
        (UV, 1, NAME, None),
        (PIP, 1, NAME, None),
    ],
)
def test_reports_of_public_records(printed: str, ended_with: int, cause: str, status: int | None) -> None:
    found = find_cause(printed.encode(), ended_with)
    assert (found.lines, found.exit_code) == (cause, status)


@pytest.mark.parametrize(
    ("printed", "lost"),
    [
        (f"step 4\n{LOST_PEER}", True),
        (f"step 4\n{LOST_PEER}{DEEPSPEED.format(1)}", True),
        (f"step 4\n{LOST_PEER}{DEEPSPEED.format(3)}", False),  # of another process of the same host
        (f"{RAISED}{LOST_PEER}", False),
        ("step 4\n", False),
    ],
)
def test_a_program_that_only_misses_another_one_is_marked(printed: str, lost: bool) -> None:
    assert find_cause(printed.encode(), 1).lost_peer is lost


def test_only_a_report_at_the_end_that_fits_the_status_names_it() -> None:
    """A script may go on after a launcher, or end with its own status."""
    report = "step 4\n" + DEEPSPEED.format(3)
    assert find_cause(report.encode(), 1).exit_code == 3
    assert find_cause(report.encode(), 5).exit_code is None
    assert find_cause(f"{report}evaluating\n".encode(), 1).exit_code is None


def test_each_row_says_what_it_is() -> None:
    for row in LAUNCHERS:
        assert row.source.startswith("https://") or (Path(__file__).parents[2] / row.source).is_file(), row.name
        assert bool(row.own) == bool(row.end), row.name
    assert list_silent_launchers("pip install ray\nray job submit -- python train.py") == ("Ray",)
    assert list_silent_launchers("torchrun --nproc-per-node 8 array.py") == ()
