"""The next step of a run: no resume without a checkpoint, and none before a program is fixed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import sample_run

from orchestrator.hosts import JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Contact, HostView, Observed
from orchestrator.plan.ways_back import resume_or_launch, step_after_failure, step_after_loss
from orchestrator.values import Text

LOGS = "orch logs demo 1"
BACK = "orch resume demo"
RUN = replace(sample_run(2), cluster="demo", checkpoint_uri=Text.of("gs://b/run/checkpoints"))


def seen(saved: bool | None, step: int | None = None) -> Observed:
    host = HostView(rank=0, internal_ip=Text.of("10.0.0.1"), contact=Contact.OK, job=JobPhase.FINISHED, step=step)
    return Observed(now=0.0, hosts=(host,), saved=saved)


@pytest.mark.parametrize(
    ("saved", "step", "cause", "expected"),
    [
        (False, None, EndCause.PROGRAM, NextStep(LOGS, "shows its output; fix it, then the same launch")),
        (False, 5, EndCause.PROGRAM, NextStep(LOGS, "shows its output; fix it, then the same launch")),
        (False, 5, EndCause.HUNG, NextStep(
            LOGS, "shows its output; no checkpoint was saved: the same launch starts from the beginning")),
        (True, 5, EndCause.PROGRAM, NextStep(BACK, "resumes from the newest checkpoint")),
        (True, None, EndCause.PROGRAM, NextStep(
            BACK, "resumes from the newest checkpoint; fix the program first: it failed before its first step")),
        (True, None, EndCause.PREEMPTED, NextStep(BACK, "resumes from the newest checkpoint")),
        (None, 5, EndCause.PROGRAM, NextStep(BACK, "resumes from the newest checkpoint, where the bucket has one")),
    ],
)  # fmt: skip
def test_the_bucket_decides_between_resume_and_launch(
    saved: bool | None, step: int | None, cause: EndCause, expected: NextStep
) -> None:
    assert step_after_failure(RUN, seen(saved, step), cause) == expected


def test_without_a_bucket_a_faulty_program_is_fixed_and_launched_again() -> None:
    desired = replace(RUN, checkpoint_uri=None)
    step = step_after_failure(desired, seen(None), EndCause.PROGRAM)
    assert step == NextStep(LOGS, "shows its output; fix it, then the same launch")
    command = step_after_failure(replace(desired, create=False), seen(None), EndCause.PROGRAM)
    assert command.words.endswith("then the same command")


def test_a_known_remedy_is_on_a_line_of_its_own() -> None:
    saved = step_after_failure(RUN, seen(True, 5), EndCause.PROGRAM, "free space on /scratch")
    assert saved == NextStep(BACK, "resumes from the newest checkpoint; before it:\nfree space on /scratch")
    unsaved = step_after_failure(RUN, seen(False), EndCause.PROGRAM, "free space on /scratch")
    assert unsaved == NextStep(LOGS, "shows its output\nfree space on /scratch; then the same launch")


@pytest.mark.parametrize(("saved", "proposed"), [(True, True), (None, True), (False, False)])
def test_no_loss_proposes_a_resume_without_a_checkpoint(saved: bool | None, proposed: bool) -> None:
    for step in (step_after_loss(RUN, seen(saved)), resume_or_launch("demo", saved)):
        assert ("orch resume" in str(step)) is proposed
