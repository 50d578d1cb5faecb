"""A run in a bucket that another computer drives: refused, taken over, and left when it is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.driving import Listener, fulfil, local_task

from orchestrator.engine.loop import epoch as holding
from orchestrator.engine.loop.epoch import RunHold
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.limits import build_budgets
from orchestrator.engine.preparation.record_review import RecordReview
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import ConflictError
from orchestrator.exits import Exit
from orchestrator.next_step import NextStep
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.storage import epochs
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import put_task
from orchestrator.store.records import JobRecord
from orchestrator.task.model import Checkpoint, Task, Train
from trainer.errors import Exit as TrainerExit

RUN = "theirs-1"
KEEP = TeardownPolicy.KEEP
THEIRS = JobRecord(
    cluster_uid="b", id=1, kind="launch", run_id=RUN, digest="", task="", bucket="x", attempt=1, started=True,
    opened_at=0, state="running", status=None, code="", what="", why="", next_step=NextStep(), created=0.0, ended=None,
    ranks=None, after_end="keep",
)  # fmt: skip


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket with the task of a run; beats and looks are short."""
    monkeypatch.setattr(epochs, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(holding, "LOOK_SECONDS", 3)
    made = Bucket.open(f"file://{tmp_path}/bucket")
    put_task(made, RUN, task(made).to_json().encode())
    return made


@pytest.fixture
def theirs(bucket: Bucket) -> Iterator[RunHold]:
    """The hold of another computer that drives the run."""
    hold = RunHold(bucket, "their-installation", THEIRS, 0)
    assert hold.claim(4)
    yield hold
    hold.close()


def task(bucket: Bucket, run: str = 'echo "epoch $ORCH_EPOCH of attempt $ORCH_ATTEMPT"') -> Task:
    return local_task(1, run=run, checkpoint=Checkpoint(bucket=bucket.uri))


def agree(_: RecordReview) -> None:
    """Agree to the record of the other computer."""


def held(bucket: Bucket) -> dict[str, object]:
    found: dict[str, object] = json.loads(bucket.get(f"{RUN}/epoch.json"))
    return found


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_run_that_another_computer_drives_is_refused_before_anything_is_recorded(
    home: Path, bucket: Bucket, theirs: RunHold
) -> None:
    with pytest.raises(ConflictError) as caught:
        fulfil(prepare_resume(RUN, bucket=bucket.uri, after=KEEP, consent=agree))
    words = "\n".join(caught.value.lines())
    assert f"run {RUN} is driven by " in words and "since 20" in words and "(orch their-in)" in words
    assert f"orch resume {RUN} --bucket {bucket.uri} --take-over" in words
    assert len(caught.value.lines()) <= 5 and caught.value.exit_status == Exit.CONFLICT == 6
    with open_reader() as reader:
        assert [job for cluster in reader.clusters() for job in reader.jobs(cluster)] == []
    assert theirs.taken_over == "" and held(bucket)["epoch"] == 1


def test_a_take_over_raises_the_epoch_and_the_other_one_notices(
    home: Path, bucket: Bucket, theirs: RunHold, listener: Listener
) -> None:
    ending = fulfil(prepare_resume(RUN, bucket=bucket.uri, after=KEEP, consent=agree, take_over=True), listener)
    assert ending.status == Exit.OK
    assert listener.outputs[0] == b"epoch 2 of attempt 5\n", "attempts continue from theirs"
    wait_for(lambda: theirs.taken_over)
    assert f"run {RUN} was taken over by " in theirs.taken_over and theirs.taken_over.endswith("(epoch 2)")
    assert not theirs.claim(5)
    assert held(bucket)["ended"], "a driver that ended leaves a mark"


def test_a_run_whose_driver_was_killed_is_resumed_after_a_look(
    home: Path, bucket: Bucket, theirs: RunHold, listener: Listener
) -> None:
    theirs.close()
    time.sleep(0.5)
    began = time.monotonic()
    assert fulfil(prepare_resume(RUN, bucket=bucket.uri, after=KEEP, consent=agree), listener).status == Exit.OK
    assert time.monotonic() - began >= holding.LOOK_SECONDS
    began = time.monotonic()
    assert fulfil(prepare_resume(RUN, after=KEEP, force=True)).status == Exit.OK
    assert held(bucket)["epoch"] == 3
    assert time.monotonic() - began < holding.LOOK_SECONDS, "after a driver that ended, there is no look"


def test_a_driver_that_lost_its_run_stops_the_program_and_starts_it_no_more(home: Path, bucket: Bucket) -> None:
    ready = commands.prepare_launch(task(bucket, run="sleep 300"), cluster="c", after=KEEP)
    run_id = ""

    class Taker(Listener):
        def waiting(self, wait: object, seconds: float) -> None:
            nonlocal run_id
            with open_reader() as reader:
                record = reader.cluster("c")
                job = reader.jobs(record)[-1] if record is not None and reader.jobs(record) else None
            if job is None or not job.started or run_id:
                return
            run_id = job.run_id
            now = epochs.read_claim(bucket, run_id)
            assert epochs.write_claim(bucket, run_id, epochs.make_epoch(now, 9, "b", "laptop", "b/1"), now)

    ending = fulfil(ready, Taker())
    assert ending.status == Exit.CONFLICT
    assert ending.step.what.startswith(f"run {run_id} was taken over by laptop (orch b) at ")
    with open_reader() as reader:
        record = reader.cluster("c")
        assert record is not None
        job = reader.jobs(record)[-1]
    assert (job.state, job.status, job.attempt) == ("ended", 6, 1), "it was not restarted"
    again = epochs.read_claim(bucket, run_id).epoch
    assert again is not None and again.host == "laptop" and not again.ended


def test_the_status_of_a_trainer_that_was_taken_over_is_no_reason_to_restart() -> None:
    assert TrainerExit.TAKEN_OVER == Exit.CONFLICT  # one number, defined on both sides
    assert build_budgets(local_task(1, train=Train())).final == (TrainerExit.TAKEN_OVER, TrainerExit.NO_STORAGE)
    assert build_budgets(local_task(1, run="true")).final == ()
