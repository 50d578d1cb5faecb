"""A program that hangs, on two real hosts: which rank is blamed, what is kept, and what a second hang means."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.driving import Listener, fulfil, local_task

from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.recorded import open_reader
from orchestrator.exits import Exit
from orchestrator.plan.causes import EndCause
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.task.model import Checkpoint, Recovery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HANG = 4 / 60  # minutes

# $1 is the step at which this rank stops in its first attempt, $2 in every later one; it beats until then.
PROGRAM = """
last=$([ "$ORCH_ATTEMPT" = 1 ] && echo {first} || echo {later})
step=0
while [ $step -lt $last ]; do step=$((step + 1)); echo $step > "$ORCH_HEARTBEAT_FILE"; sleep 0.1; done
[ $last = 30 ] && exit 0
echo "rank $ORCH_RANK stands at $step"
sleep 600
"""


def launch(
    folder: Path, first: str, later: str, *, failures: int = 0, losses: int = 3
) -> tuple[Listener, CommandResult]:
    task = local_task(
        2,
        run=PROGRAM.format(first=first, later=later),
        recovery=Recovery(max_preemptions=losses, max_failures=failures, hang_minutes=HANG),
        checkpoint=Checkpoint(bucket=f"file://{folder}/bucket"),
    )
    listener = Listener()
    return listener, fulfil(commands.prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP), listener)


def kept(root: Path, pattern: str) -> dict[str, int]:
    """Sizes of the files of the first attempt."""
    return {path.name: path.stat().st_size for path in root.glob(f"**/attempt-0001/{pattern}")}


def test_a_rank_that_stops_before_the_others_is_named_and_the_next_attempt_succeeds(home: Path, tmp_path: Path) -> None:
    listener, ending = launch(tmp_path, first="$([ $ORCH_RANK = 1 ] && echo 5 || echo 12)", later="30")
    assert ending.status == 0, ending
    (past,) = ending.attempts
    assert (past.attempt, past.cause, past.rank, past.step) == (1, EndCause.HUNG, 1, 5)
    assert "stopped at step 5 while others reached 12" in past.why
    assert listener.steps.count("CollectStacks") == 1
    for place in (home / "state", tmp_path / "bucket"):
        stacks = kept(place, "*.stacks")
        assert set(stacks) == {"0.stacks", "1.stacks"}, place
        assert all(stacks.values()), "an empty file is useless"
        assert set(kept(place, "*.log")) == {"0.log", "1.log"}


def test_ranks_that_stop_together_are_stuck_in_a_collective_operation(home: Path, tmp_path: Path) -> None:
    _, ending = launch(tmp_path, first="7", later="30")
    assert ending.status == 0, ending
    (past,) = ending.attempts
    assert (past.cause, past.rank, past.step) == (EndCause.HUNG, None, 7)
    assert "stuck in a collective operation" in past.why


def test_the_second_hang_at_the_same_step_is_the_programs_failure(home: Path, tmp_path: Path) -> None:
    listener, ending = launch(tmp_path, first="6", later="6")
    assert ending.status in (Exit.FAILURE, Exit.TIMEOUT), ending
    assert ending.step.code == "program-failed"  # type: ignore[union-attr]  # it failed, so it is a GiveUp
    assert [past.cause for past in ending.attempts] == [EndCause.HUNG, EndCause.PROGRAM]
    assert listener.steps.count("StartJob") == 2, "it must not be tried a third time"
    with open_reader() as reader:
        record = reader.cluster("c")
        assert record is not None
        (job,) = reader.jobs(record)
    assert (job.state, job.status) == ("ended", ending.status)
