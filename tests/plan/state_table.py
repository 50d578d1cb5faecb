"""The state table of decide() as data: observed states and answers.

Each row is a test (test_decide_table.py), and the rows together are docs/state-table.md:
    python tests/plan/state_table.py > docs/state-table.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from plan_samples import CLEAR, FACTS, candidate, sample_run

from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan.actions import (
    ArmTimer,
    CollectStacks,
    Conclude,
    EndAttempt,
    EndSlice,
    FetchMount,
    ForgetSlice,
    NextAttempt,
    RunSetup,
    StartJob,
    StopJob,
    SyncTree,
)
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide import decide
from orchestrator.plan.desired import Budgets, Cancel, Desired, Down, JobSpec, Limits, SetupSpec, Start, Stop, TimerSpec
from orchestrator.plan.observed import (
    ActionFailure,
    ActionSuccess,
    Contact,
    EndedAttempt,
    HostView,
    Intent,
    IntentState,
    Observed,
    Outcome,
    encode_evidence,
)
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.repeated import identify_action
from orchestrator.plan.steps import Done, GiveUp, Step, Wait
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import CapacityBlock, Owned, SliceState
from orchestrator.values import Secret, Text

NOW = 1_000_000.0
LONG_AGO = NOW - 86_400.0
SECRET = Text.of(Secret("HF_TOKEN", CLEAR))

RUN = sample_run(
    2,
    budgets=Budgets(preemptions=2, failures=1, fail_on=(42,), hang_deadline=600.0, capacity_wait=3600.0),
    teardown=TeardownPolicy.KEEP,
)
POOR = replace(RUN, budgets=Budgets())
RESTARTED = replace(RUN, budgets=replace(RUN.budgets, restart_on=(3,)))
EXEC = replace(RUN, create=False)
DOWN_AFTER = replace(RUN, teardown=TeardownPolicy.DOWN)
TWO_HOURS = replace(RUN, limits=Limits(hours=2.0))
TIMED = replace(RUN, timer=TimerSpec("t1", Text.of("#!/bin/bash\n")))
PLACES = RUN.candidates
TOO_DEAR = Outcome(status=14, code="budget", what="the budget does not allow this slice")

IN_BLOCK = candidate(2, market=CapacityBlock("cr-1"))
BLOCK = replace(RUN, candidates=(IN_BLOCK,))
ANY_OF = replace(RUN, candidates=(IN_BLOCK, *PLACES))

HELD = (("workdir", "d1"), ("/data", "d2"))


@dataclass(frozen=True)
class Row:
    part: str
    seen: str
    desired: Desired
    observed: Observed
    answer: str


def intent(state: IntentState = IntentState.ACCEPTED, generation: int = 1, **changes: object) -> Intent:
    base = Intent(generation=generation, name=f"demo-{generation}", candidate=PLACES[0], state=state, since=NOW - 10)
    return replace(base, **changes)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def seen(*intents: Intent, state: SliceState = SliceState.UNCLEAR, **changes: object) -> Observed:
    base = Observed(now=NOW, intents=intents, slice_state=state, healthy_at=NOW - 10)
    return replace(base, **changes)  # type: ignore[arg-type]  # as above


def ready(*hosts: HostView, **changes: object) -> Observed:
    return seen(intent(), state=SliceState.READY, hosts=hosts or (host(0), host(1)), **changes)


def host(rank: int, **changes: object) -> HostView:
    base = HostView(
        rank=rank, internal_ip=Text.of(f"10.0.0.{rank}"), contact=Contact.OK, trees=HELD, setup="abcdef0123"
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # as above


def running(rank: int) -> HostView:
    return host(rank, job=JobPhase.RUNNING)


def ended(rank: int, code: int, ended_by: EndedBy | None = None) -> HostView:
    return host(rank, job=JobPhase.FINISHED, exit_code=code, ended_by=ended_by)


def lost(rank: int) -> HostView:
    return host(rank, job=JobPhase.LOST)


def silent(rank: int) -> HostView:
    return host(rank, contact=Contact.DOWN)


def newer(rank: int) -> HostView:
    return host(rank, contact=Contact.OTHER_VERSION)


def trouble(times: int = 1, *, is_lost: bool = False, final: bool = False, step: str = "SyncTree") -> ActionFailure:
    return ActionFailure(
        action=step,
        connection_lost=is_lost,
        what="it failed",
        why="because",
        code="some-code",
        status=7,
        times=times,
        next_step=NextStep(words="do this"),
        final=final,
    )


def moving(rank: int, step: int, age: float) -> HostView:
    return host(rank, job=JobPhase.RUNNING, step=step, beat_age=age)


def judged(cause: EndCause, attempt: int = 1, step: int | None = None, *, ago: float = 10.0) -> EndedAttempt:
    return EndedAttempt(
        attempt=attempt,
        cause=cause,
        why="the verdict",
        generation=None,
        at=NOW - ago,
        exit_code=None,
        rank=None,
        evidence=encode_evidence(step),
    )


def on_block(*hosts: HostView, left: float = 600.0, **changes: object) -> Observed:
    """Machines of a capacity block, `left` seconds before the provider begins to take them; the program is started."""
    base = seen(
        ON_BLOCK, state=SliceState.READY, hosts=hosts or (host(0), host(1)), slice_ends=NOW + left, started=True
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # as above


DELETED = intent(IntentState.DELETED, cause=EndCause.PREEMPTED, why="taken")
REFUSED = intent(IntentState.REFUSED, cause=EndCause.REFUSED, why="none left")
CHARGED = (EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="taken", generation=1),)
TWICE = (*CHARGED, EndedAttempt(attempt=2, cause=EndCause.PREEMPTED, why="taken", generation=2))
HUNG = (moving(0, 7, 601.0), moving(1, 7, 601.0))
UP_FOR_TWO_HOURS = intent(billed_from=NOW - 7200.0)
OWNED = intent(candidate=candidate(2, market=Owned()))
ON_BLOCK, WAITED = intent(candidate=IN_BLOCK), intent(candidate=IN_BLOCK, since=LONG_AGO)
OVER = intent(IntentState.DELETED, candidate=IN_BLOCK, cause=EndCause.EXPIRED, why="over")
EXPIRED = (EndedAttempt(attempt=1, cause=EndCause.EXPIRED, why="over", generation=1, at=NOW - 5),)
LEFT = intent(IntentState.DELETED, cause=EndCause.GROWN, why="larger ones")
MOVED = (EndedAttempt(attempt=1, cause=EndCause.GROWN, why="larger ones", generation=1, at=NOW - 5),)
OTHER = Outcome(status=11, code="other-account", what="they belong to another account")
WELL = Outcome(status=0, code="ok", what="it succeeded")
BADLY = Outcome(status=3, code="program-failed", what="it failed")
SS = SliceState
IS = IntentState

Line: TypeAlias = tuple[str, Desired, Observed, str]  # what is seen in words, the sample_run, what is seen, the answer

SLICE: tuple[Line, ...] = (
    (
        "credentials of another account",
        RUN,
        seen(intent(), state=SS.ABSENT, refusal=OTHER),
        "GiveUp other-account",
    ),
    ("nothing at all", RUN, seen(), "CreateSlice demo-1"),
    ("nothing, and the command may not create (exec)", EXEC, seen(), "Conclude not-found"),
    ("intent planned (a crash before or after the create)", RUN, seen(intent(IS.PLANNED)), "CreateSlice demo-1"),
    ("planned under another name", RUN, seen(intent(IS.PLANNED, name="demo")), "CreateSlice demo"),
    (
        "planned, and the create failed three times",
        RUN,
        seen(intent(IS.PLANNED), failure=trouble(3)),
        "EndSlice broken",
    ),
    ("the first place refused, another is left", RUN, seen(REFUSED), "CreateSlice demo-2"),
    (
        "a budget does not allow any place",
        RUN,
        seen(over_budget=tuple((one, TOO_DEAR) for one in PLACES)),
        "Conclude budget",
    ),
    (
        "one place refused, a budget does not allow the others",
        RUN,
        seen(REFUSED, over_budget=tuple((one, TOO_DEAR) for one in PLACES[1:])),
        "Conclude capacity",
    ),
    (
        "every place refused",
        RUN,
        seen(REFUSED, intent(IS.REFUSED, 2, candidate=PLACES[1], cause=EndCause.REFUSED)),
        "Conclude capacity",
    ),
    (
        "every place refused, after a loss, and there is time to wait",
        RUN,
        seen(
            DELETED,
            intent(IS.REFUSED, 2, cause=EndCause.REFUSED, since=NOW - 1),
            intent(IS.REFUSED, 3, candidate=PLACES[1], cause=EndCause.REFUSED, since=NOW),
            ended=CHARGED,
            attempt=2,
        ),
        "Wait pause",
    ),
    (
        "the same, and the pause of one of them is over",
        RUN,
        seen(
            DELETED,
            intent(IS.REFUSED, 2, cause=EndCause.REFUSED, since=NOW - 10),
            intent(IS.REFUSED, 3, candidate=PLACES[1], cause=EndCause.REFUSED, since=NOW),
            ended=CHARGED,
            attempt=2,
        ),
        "CreateSlice demo-4",
    ),
    (
        "the same, for an hour",
        RUN,
        seen(
            DELETED,
            intent(IS.REFUSED, 2, cause=EndCause.REFUSED, since=NOW - 3600),
            intent(IS.REFUSED, 3, candidate=PLACES[1], cause=EndCause.REFUSED, since=NOW),
            ended=CHARGED,
            attempt=2,
        ),
        "Conclude capacity",
    ),
    (
        "every place refused an earlier job",
        RUN,
        seen(REFUSED, intent(IS.REFUSED, 2, candidate=PLACES[1], cause=EndCause.REFUSED), generation_at_open=2),
        "CreateSlice demo-3",
    ),
    ("the create is forbidden", RUN, seen(REFUSED, failure=trouble(final=True)), "Conclude some-code"),
    ("creating, within its deadline", RUN, seen(intent(), state=SS.CREATING), "Wait slice"),
    (
        "creating, past its deadline",
        RUN,
        seen(intent(since=LONG_AGO), state=SS.CREATING, healthy_at=LONG_AGO),
        "EndSlice broken",
    ),
    (
        "creating too long, and the command may not create",
        EXEC,
        seen(intent(since=LONG_AGO), state=SS.CREATING, healthy_at=LONG_AGO),
        "GiveUp timeout",
    ),
    ("an old slice is being started", RUN, seen(intent(since=LONG_AGO), state=SS.STARTING), "Wait slice"),
    (
        "an old slice is being stopped by another command",
        RUN,
        seen(intent(since=LONG_AGO), state=SS.STOPPING),
        "Wait slice",
    ),
    (
        "an old slice is being ended by another command",
        RUN,
        seen(intent(since=LONG_AGO), state=SS.ENDING),
        "Wait slice",
    ),
    (
        "it stays half ended past the deadline",
        RUN,
        seen(intent(since=LONG_AGO), state=SS.ENDING, healthy_at=LONG_AGO),
        "GiveUp timeout",
    ),
    ("stopped", RUN, seen(intent(), state=SS.STOPPED), "StartSlice"),
    (
        "stopped, and a request went out a moment ago",
        RUN,
        seen(intent(last_sent=NOW - 1), state=SS.STOPPED),
        "Wait pause",
    ),
    (
        "stopped, and the start failed three times",
        RUN,
        seen(intent(), state=SS.STOPPED, failure=trouble(3, step="StartSlice")),
        "GiveUp some-code",
    ),
    (
        "still stopped, past the deadline",
        RUN,
        seen(intent(since=LONG_AGO), state=SS.STOPPED, healthy_at=LONG_AGO),
        "GiveUp timeout",
    ),
    ("stopped, and the command may not create", EXEC, seen(intent(), state=SS.STOPPED), "Conclude not-found"),
    ("preempted", RUN, seen(intent(), state=SS.PREEMPTED), "EndSlice preempted"),
    ("preempted, and the command may not create", EXEC, seen(intent(), state=SS.PREEMPTED), "Conclude host-lost"),
    ("planned or ending, and the command may not create", EXEC, seen(intent(IntentState.ENDING)), "Conclude host-lost"),
    ("failed before the program was started", RUN, seen(intent(), state=SS.FAILED), "EndSlice broken"),
    ("failed with the program on it", RUN, seen(intent(), state=SS.FAILED, started=True), "EndSlice host-died"),
    ("absent, and not ended by orch", RUN, seen(intent(), state=SS.ABSENT), "ForgetSlice preempted"),
    (
        "absent, and orch had not looked for long: perhaps another installation ended it",
        RUN,
        seen(intent(), state=SS.ABSENT, unwatched_since=LONG_AGO),
        "ForgetSlice preempted with its jobs",
    ),
    ("the provider cannot be queried", RUN, seen(intent(), unclear_since=NOW - 10), "Wait slice"),
    ("the provider could not be queried for long", RUN, seen(intent(), unclear_since=LONG_AGO), "GiveUp timeout"),
    ("`down` was requested", RUN, ready(down_requested=True), "GiveUp conflict"),
    ("READY with too few hosts shown", RUN, ready(host(0)), "GiveUp cloud"),
)
LOSS: tuple[Line, ...] = (
    ("the slice was lost, not charged yet", RUN, seen(DELETED), "NextAttempt preempted"),
    ("the slice was lost, and charged", RUN, seen(DELETED, ended=CHARGED, attempt=2), "CreateSlice demo-2"),
    (
        "lost once more, no restart is left",
        RUN,
        seen(DELETED, replace(DELETED, generation=2), replace(DELETED, generation=3), ended=TWICE, attempt=3),
        "Conclude host-lost",
    ),
    (
        "lost twice within a short time",
        RUN,
        seen(
            DELETED,
            replace(DELETED, generation=2),
            ended=(replace(TWICE[0], at=NOW - 60), replace(TWICE[1], at=NOW - 1)),
            attempt=3,
        ),
        "Wait pause",
    ),
    (
        "lost while its program was being ended as hung",
        RUN,
        seen(DELETED, started=True, ended=(judged(EndCause.HUNG),)),
        "NextAttempt hung",
    ),
    (
        "lost, and one of two earlier losses was charged already: its program had saved and ended (exit 75)",
        RUN,
        seen(
            DELETED,
            replace(DELETED, generation=2),
            ended=(
                EndedAttempt(attempt=1, cause=EndCause.PREEMPTED, why="exit 75", generation=None, at=NOW - 700),
                EndedAttempt(attempt=2, cause=EndCause.PREEMPTED, why="taken", generation=1, at=NOW - 650),
            ),
            attempt=3,
        ),
        "NextAttempt preempted",
    ),
    ("lost before this job had started anything", RUN, seen(DELETED, generation_at_open=1), "CreateSlice demo-2"),
)
ENDING_A_SLICE: tuple[Line, ...] = (
    (
        "ending, as the provider reports",
        RUN,
        seen(intent(IS.ENDING, cause=EndCause.PREEMPTED), state=SS.ENDING),
        "Wait slice",
    ),
    ("ending, and shown as READY still", RUN, seen(intent(IS.ENDING), state=SS.READY), "Wait slice"),
    (
        "ending, and shown as READY 15 s after the request",
        RUN,
        seen(intent(IS.ENDING, since=NOW - 20), state=SS.READY),
        "EndSlice requested",
    ),
    (
        "ending, and absent",
        RUN,
        seen(intent(IS.ENDING, cause=EndCause.PREEMPTED), state=SS.ABSENT),
        "ForgetSlice preempted",
    ),
    ("ending failed three times", RUN, seen(intent(IS.ENDING), state=SS.READY, failure=trouble(3)), "Wait slice"),
    (
        "ending failed three times, and trying again cannot help",
        RUN,
        seen(intent(IS.ENDING), state=SS.READY, failure=trouble(3, final=True)),
        "GiveUp some-code",
    ),
    (
        "ending failed until the deadline",
        RUN,
        seen(intent(IS.ENDING, since=LONG_AGO), state=SS.READY, failure=trouble(9), healthy_at=LONG_AGO),
        "GiveUp some-code",
    ),
    (
        "reported as ending for minutes: it may be stuck",
        RUN,
        seen(intent(IS.ENDING, since=NOW - 200), state=SS.ENDING),
        "EndSlice requested",
    ),
    (
        "not absent within the deadline",
        RUN,
        seen(intent(IS.ENDING, since=LONG_AGO), state=SS.ENDING, healthy_at=LONG_AGO),
        "GiveUp timeout",
    ),
)
HOSTS: tuple[Line, ...] = (
    ("one does not answer yet", RUN, ready(host(0), silent(1), contact_since=NOW - 10), "Wait contact"),
    (
        "one did not answer within the deadline",
        RUN,
        ready(host(0), silent(1), contact_since=NOW - 301),
        "EndSlice host-died",
    ),
    (
        "one is silent while the program runs",
        RUN,
        ready(running(0), silent(1), contact_since=NOW - 29, started=True),
        "Wait contact",
    ),
    (
        "one is silent for 30 s while the program runs",
        RUN,
        ready(running(0), silent(1), contact_since=NOW - 31, started=True),
        "EndSlice host-died",
    ),
    (
        "all are silent while the program runs: it may be our own network",
        RUN,
        ready(silent(0), silent(1), contact_since=NOW - 89, started=True),
        "Wait contact",
    ),
    (
        "all are silent for 90 s while the program runs",
        RUN,
        ready(silent(0), silent(1), contact_since=NOW - 91, started=True),
        "EndSlice unreachable",
    ),
    (
        "one of the user's own hosts does not answer before the program starts",
        RUN,
        seen(OWNED, state=SS.READY, hosts=(host(0), silent(1)), contact_since=NOW - 7),
        "Wait contact",
    ),
    (
        "the same for 8 s: it is not booting",
        RUN,
        seen(OWNED, state=SS.READY, hosts=(host(0), silent(1)), contact_since=NOW - 9),
        "Conclude host-lost",
    ),
    (
        "one of the user's own hosts accepts no key",
        RUN,
        seen(OWNED, state=SS.READY, hosts=(host(0), replace(silent(1), contact=Contact.DENIED)), contact_since=NOW),
        "Conclude access",
    ),
    (
        "the task names other addresses for the user's own hosts, nothing was started on them",
        replace(RUN, candidates=(replace(OWNED.candidate, details=(("hosts", "others"),)),)),
        seen(OWNED, state=SS.READY, hosts=(silent(0), silent(1)), contact_since=NOW),
        "EndSlice requested",
    ),
    (
        "the task names other addresses for the user's own hosts, the program runs",
        replace(RUN, candidates=(replace(OWNED.candidate, details=(("hosts", "others"),)),)),
        seen(OWNED, state=SS.READY, hosts=(running(0), running(1)), started=True),
        "Wait job",
    ),
    (
        "one of the user's own hosts is silent for 30 s while the program runs",
        RUN,
        seen(OWNED, state=SS.READY, hosts=(running(0), silent(1)), contact_since=NOW - 31, started=True),
        "EndAttempt host-died",
    ),
    (
        "the same, the verdict is recorded",
        RUN,
        seen(
            OWNED,
            state=SS.READY,
            hosts=(running(0), silent(1)),
            contact_since=NOW - 31,
            started=True,
            ended=(judged(EndCause.HOST_DIED),),
        ),
        "StopJob host 0",
    ),
    (
        "the same, and the others are stopped",
        RUN,
        seen(
            OWNED,
            state=SS.READY,
            hosts=(ended(0, 143), silent(1)),
            contact_since=NOW - 31,
            started=True,
            ended=(judged(EndCause.HOST_DIED),),
        ),
        "Wait contact",
    ),
    (
        "the same, and it is not back after the time of a boot",
        RUN,
        seen(
            OWNED,
            state=SS.READY,
            hosts=(ended(0, 143), silent(1)),
            contact_since=NOW - 1801,
            started=True,
            ended=(judged(EndCause.HOST_DIED),),
        ),
        "Conclude host-lost",
    ),
    (
        "the same, and the others cannot be stopped",
        RUN,
        seen(
            OWNED,
            state=SS.READY,
            hosts=(running(0), silent(1)),
            contact_since=NOW - 31,
            started=True,
            ended=(judged(EndCause.HOST_DIED),),
            failure=trouble(3, step="StopJob"),
        ),
        "Conclude host-lost",
    ),
    (
        "one is silent for 30 s while the program runs, no restart is left",
        POOR,
        ready(running(0), silent(1), contact_since=NOW - 31, started=True),
        "Conclude host-lost",
    ),
    (
        "the same, and the command may not create",
        EXEC,
        ready(running(0), silent(1), contact_since=NOW - 31, started=True),
        "Conclude host-lost",
    ),
    ("one of a new slice shows another key", RUN, ready(host(0), host(1, contact=Contact.IDENTITY)), "Wait contact"),
    (
        "it has shown it for 300 s",
        RUN,
        ready(host(0), host(1, contact=Contact.IDENTITY), contact_since=NOW - 301),
        "EndSlice broken",
    ),
    (
        "one shows another key, and the hosts were entered before",
        RUN,
        ready(host(0), host(1, contact=Contact.IDENTITY), entered=True),
        "Conclude identity-mismatch",
    ),
    (
        "one of a new slice shows another key, and the command may not create",
        EXEC,
        ready(host(0), host(1, contact=Contact.IDENTITY)),
        "Conclude identity-mismatch",
    ),
    (
        "the task has secrets, and the key of an own machine is new",
        RUN,
        ready(host(0), host(1, new_keys=("me@gpu1 SHA256:abc",))),
        "Conclude identity-unconfirmed",
    ),
    (
        "the same, and only the script of a bucket mount has a secret",
        replace(RUN, env=(), mounts=(replace(RUN.mounts[0], script=SECRET),)),
        ready(host(0), host(1, new_keys=("me@gpu1 SHA256:abc",))),
        "Conclude identity-unconfirmed",
    ),
    (
        "the same, and only setup has a secret",
        replace(RUN, env=(), setup=SetupSpec("abcdef0123", SECRET)),
        ready(host(0), host(1, new_keys=("me@gpu1 SHA256:abc",))),
        "Conclude identity-unconfirmed",
    ),
    (
        "the same, and only the program has a secret",
        replace(RUN, env=(), job=JobSpec(id=1, script=SECRET)),
        ready(host(0), host(1, new_keys=("me@gpu1 SHA256:abc",))),
        "Conclude identity-unconfirmed",
    ),
    (
        "the same, and the task has no secrets",
        replace(RUN, env=()),
        ready(host(0, trees=()), host(1, new_keys=("me@gpu1 SHA256:abc",))),
        "SyncTree host 0",
    ),
    ("a requested rank does not exist", replace(RUN, ranks=(0, 7)), ready(), "Conclude usage"),
    ("a copy or setup failed by itself", RUN, ready(failure=trouble()), "Conclude some-code"),
    (
        "a connection broke during a step",
        RUN,
        ready(host(0, trees=()), host(1), failure=trouble(is_lost=True)),
        "SyncTree host 0",
    ),
    ("it broke three times", RUN, ready(failure=trouble(3, is_lost=True)), "EndSlice unreachable"),
    ("some do not have this timer", TIMED, ready(host(0, trees=(("timer", "t1"), *HELD)), host(1)), "ArmTimer host 1"),
    ("some hold no files, or old ones", RUN, ready(host(0), host(1, trees=(("workdir", "old"),))), "SyncTree host 1"),
    ("some miss a bucket mount", RUN, ready(host(0, trees=HELD[:1]), host(1, trees=HELD[:1])), "FetchMount hosts 0-1"),
    ("setup has not passed, or has changed", RUN, ready(host(0), host(1, setup="old")), "RunSetup host 1"),
)
PROGRAM: tuple[Line, ...] = (
    ("all is prepared", RUN, ready(), "StartJob hosts 0-1"),
    ("all is prepared, and no program is given", replace(RUN, job=None), ready(), "Conclude ok"),
    ("it runs on some and was not started on others", RUN, ready(running(0), host(1), started=True), "StartJob host 1"),
    ("it runs", RUN, ready(running(0), ended(1, 0), started=True), "Wait job"),
    ("exit 0 on every host", RUN, ready(ended(0, 0), ended(1, 0), started=True), "Conclude ok"),
    ("one failed, others run", RUN, ready(ended(0, 1), running(1), failed_since=NOW - 1, started=True), "Wait grace"),
    (
        "one failed, others run past their grace",
        RUN,
        ready(ended(0, 1), running(1), failed_since=NOW - 6, started=True),
        "StopJob host 1",
    ),
    (
        "one failed, another cannot be stopped",
        RUN,
        ready(ended(0, 1), running(1), failed_since=NOW - 6, started=True, failure=trouble(step="StopJob")),
        "EndAttempt program",
    ),
    (
        "one failed, another cannot be stopped, no restart is left",
        POOR,
        ready(ended(0, 1), running(1), failed_since=NOW - 6, started=True, failure=trouble(step="StopJob")),
        "Conclude program-failed",
    ),
    ("one failed, none runs", RUN, ready(ended(0, 1), ended(1, 143), started=True), "NextAttempt program"),
    (
        "one failed with a status of fail_on_exit_codes, another first with another one",
        RUN,
        ready(ended(0, 1), ended(1, 42), first_failed=0, started=True),
        "Conclude program-failed",
    ),
    (
        "one cannot use its bucket, for a reason that does not pass, others failed with it",
        RUN,
        ready(ended(0, 1), host(1, job=JobPhase.FINISHED, exit_code=1, bucketless=True), started=True),
        "Conclude no-storage",
    ),
    (
        "one failed, no restart is left",
        POOR,
        ready(ended(0, 3), ended(1, 143), started=True),
        "Conclude program-failed",
    ),
    (
        "it failed with a status that is also one of orch's",
        POOR,
        ready(ended(0, 8), ended(1, 0), started=True),
        "Conclude program-failed",
    ),
    (
        "exit 75: it saved and requests a restart",
        RUN,
        ready(ended(0, 75), ended(1, 75), started=True),
        "NextAttempt preempted",
    ),
    (
        "it failed first on a host that only misses another one, whose status is one of restart_on_exit_codes",
        RESTARTED,
        ready(replace(ended(0, 1), lost_peer=True), ended(1, 3), first_failed=0, started=True),
        "NextAttempt exit-status",
    ),
    (
        "it ended with one of restart_on_exit_codes",
        RESTARTED,
        ready(ended(0, 3), ended(1, 143), started=True),
        "NextAttempt exit-status",
    ),
    (
        "it vanished on a host (killed with KILL, or a restart)",
        RUN,
        ready(ended(0, 1), lost(1), started=True),
        "NextAttempt host-died",
    ),
    (
        "two attempts were short, and all is prepared for the next",
        RUN,
        ready(ended=(judged(EndCause.PROGRAM, ago=60), judged(EndCause.HUNG, 2, ago=1)), attempt=3),
        "Wait pause",
    ),
    ("it vanished, no restart is left", POOR, ready(ended(0, 0), lost(1), started=True), "Conclude host-lost"),
)
HANG: tuple[Line, ...] = (
    (
        "it made progress less than 10 min ago",
        RUN,
        ready(moving(0, 7, 599.0), moving(1, 7, 599.0), started=True),
        "Wait job",
    ),
    ("no progress for 10 min", RUN, ready(*HUNG, started=True), "CollectStacks hosts 0-1"),
    (
        "the same, and the stacks could not be collected",
        RUN,
        ready(*HUNG, started=True, failure=trouble(3, step="CollectStacks", is_lost=True)),
        "EndAttempt hung",
    ),
    ("the stacks are collected", RUN, ready(*HUNG, started=True, stacks_collected=True), "EndAttempt hung"),
    (
        "the attempt before hung as well, and got as far",
        RUN,
        ready(*HUNG, started=True, stacks_collected=True, attempt=2, ended=(judged(EndCause.HUNG, 1, 7),)),
        "EndAttempt program",
    ),
    (
        "the attempt before hung as well, at an earlier step",
        RUN,
        ready(*HUNG, started=True, stacks_collected=True, attempt=2, ended=(judged(EndCause.HUNG, 1, 6),)),
        "EndAttempt hung",
    ),
    (
        "the verdict is recorded, it runs (perhaps after a crash)",
        RUN,
        ready(*HUNG, started=True, ended=(judged(EndCause.HUNG),)),
        "StopJob hosts 0-1",
    ),
    (
        "the verdict is recorded, a process cannot be killed",
        RUN,
        ready(ended(0, 143), running(1), started=True, ended=(judged(EndCause.HUNG),), failure=trouble(step="StopJob")),
        "EndSlice host-died",
    ),
    (
        "the verdict is recorded, a process cannot be killed, no restart is left",
        POOR,
        ready(ended(0, 143), running(1), started=True, ended=(judged(EndCause.HUNG),), failure=trouble(step="StopJob")),
        "Conclude program-failed",
    ),
    (
        "the verdict is recorded, it is stopped",
        RUN,
        ready(ended(0, 143), ended(1, 143), started=True, ended=(judged(EndCause.HUNG, step=7),)),
        "NextAttempt hung",
    ),
    (
        "the verdict is recorded, it is stopped, no restart is left",
        POOR,
        ready(ended(0, 143), ended(1, 143), started=True, ended=(judged(EndCause.HUNG, step=7),)),
        "Conclude program-failed",
    ),
)
LIMIT: tuple[Line, ...] = (
    (
        "a limit is reached, the program runs",
        TWO_HOURS,
        seen(UP_FOR_TWO_HOURS, state=SS.READY, hosts=(running(0), running(1)), started=True),
        "EndAttempt limit",
    ),
    (
        "the same, the verdict is recorded",
        TWO_HOURS,
        seen(
            UP_FOR_TWO_HOURS,
            state=SS.READY,
            hosts=(running(0), running(1)),
            started=True,
            ended=(judged(EndCause.LIMIT),),
        ),
        "StopJob hosts 0-1",
    ),
    (
        "the same, it is stopped, whatever its status",
        TWO_HOURS,
        seen(
            UP_FOR_TWO_HOURS,
            state=SS.READY,
            hosts=(ended(0, 0), ended(1, 0)),
            started=True,
            ended=(judged(EndCause.LIMIT),),
        ),
        "Conclude limit",
    ),
    (
        "it was stopped for a limit, which has been raised since",
        RUN,
        ready(ended(0, 143), ended(1, 143), started=True, ended=(judged(EndCause.LIMIT),)),
        "Conclude limit",
    ),
    (
        "a limit is reached, the verdict is recorded, it cannot be stopped",
        TWO_HOURS,
        seen(
            UP_FOR_TWO_HOURS,
            state=SS.READY,
            hosts=(running(0), ended(1, 143)),
            started=True,
            ended=(judged(EndCause.LIMIT),),
            failure=trouble(step="StopJob"),
        ),
        "Conclude limit",
    ),
    (
        "a limit is reached, the program had succeeded before",
        TWO_HOURS,
        seen(UP_FOR_TWO_HOURS, state=SS.READY, hosts=(ended(0, 0), ended(1, 0)), started=True),
        "Conclude ok",
    ),
    (
        "a budget that ends runs is spent, the program runs",
        RUN,
        ready(running(0), running(1), started=True, spent_budget="it is spent"),
        "EndAttempt limit",
    ),
    ("a limit is reached, in any other state", TWO_HOURS, seen(UP_FOR_TWO_HOURS, state=SS.CREATING), "Conclude limit"),
    (
        "the machines were deleted a minute before the limit: their own timer",
        TWO_HOURS,
        seen(intent(billed_from=NOW - 7140.0), state=SS.ABSENT, started=True),
        "Conclude limit",
    ),
    (
        "the machines were deleted an hour before the limit",
        TWO_HOURS,
        seen(intent(billed_from=NOW - 3600.0), state=SS.ABSENT, started=True),
        "ForgetSlice preempted",
    ),
    (
        "a limit ended it, machines exist",
        TWO_HOURS,
        seen(UP_FOR_TWO_HOURS, state=SS.READY, outcome=Outcome(status=124, code="limit", what="reached")),
        "EndSlice requested",
    ),
    (
        "it succeeded, machines are kept, and a limit is reached",
        TWO_HOURS,
        seen(UP_FOR_TWO_HOURS, state=SS.READY, outcome=WELL),
        "EndSlice requested",
    ),
)
ENDS: tuple[Line, ...] = (
    (
        "its block was requested a day ago, and has not started",
        BLOCK,
        seen(WAITED, state=SS.CREATING, slice_until=NOW + 60, healthy_at=LONG_AGO),
        "Wait slice",
    ),
    (
        "its block started a minute ago, it is still being made",
        BLOCK,
        seen(WAITED, state=SS.CREATING, slice_until=NOW - 60, healthy_at=LONG_AGO),
        "Wait slice",
    ),
    (
        "its block started half an hour ago, it is still being made",
        BLOCK,
        seen(WAITED, state=SS.CREATING, slice_until=NOW - 1801, healthy_at=LONG_AGO),
        "EndSlice broken",
    ),
    ("it runs, 11 min before its machines are taken", BLOCK, on_block(running(0), running(1), left=660), "Wait job"),
    ("it runs, 10 min before", BLOCK, on_block(running(0), running(1)), "EndAttempt expired"),
    (
        "the same, the verdict is recorded",
        BLOCK,
        on_block(running(0), running(1), ended=(judged(EndCause.EXPIRED),)),
        "StopJob hosts 0-1",
    ),
    (
        "the same, it is stopped, no other place is left",
        BLOCK,
        on_block(ended(0, 0), ended(1, 143), ended=(judged(EndCause.EXPIRED),)),
        "Conclude limit",
    ),
    (
        "the same, and there are other places",
        ANY_OF,
        on_block(ended(0, 0), ended(1, 143), ended=(judged(EndCause.EXPIRED),)),
        "NextAttempt expired",
    ),
    (
        "the same, and no restarts are allowed",
        replace(ANY_OF, budgets=Budgets()),
        on_block(ended(0, 0), ended(1, 143), ended=(judged(EndCause.EXPIRED),)),
        "Conclude limit",
    ),
    (
        "the next attempt is open, the old machines exist",
        ANY_OF,
        on_block(ended=EXPIRED, attempt=2, started=False),
        "EndSlice expired",
    ),
    (
        "the next attempt is open, the old machines are deleted",
        ANY_OF,
        on_block(slice_state=SS.ABSENT, hosts=(), ended=EXPIRED, attempt=2, started=False),
        "ForgetSlice expired",
    ),
    ("the same, and charged", ANY_OF, seen(OVER, ended=EXPIRED, attempt=2), "CreateSlice demo-2"),
    ("the same, for a job that came after it", BLOCK, seen(OVER, generation_at_open=1), "Conclude limit"),
    (
        "a process cannot be stopped, and there are other places",
        ANY_OF,
        on_block(running(0), ended(1, 143), ended=(judged(EndCause.EXPIRED),), failure=trouble(step="StopJob")),
        "NextAttempt expired",
    ),
    (
        "10 min before, a host does not answer",
        BLOCK,
        on_block(ended(0, 143), silent(1), ended=(judged(EndCause.EXPIRED),), contact_since=NOW - 10),
        "Wait contact",
    ),
    (
        "10 min before, the provider can no longer be queried",
        BLOCK,
        on_block(slice_state=SS.UNCLEAR, hosts=(), ended=(judged(EndCause.EXPIRED),), unclear_since=NOW - 10),
        "Wait slice",
    ),
    ("10 min before, it succeeded", BLOCK, on_block(ended(0, 0), ended(1, 0)), "Conclude ok"),
    ("10 min before, it had failed by itself", BLOCK, on_block(ended(0, 1), ended(1, 143)), "NextAttempt program"),
    (
        "10 min before, it had saved and ended (exit 75)",
        ANY_OF,
        on_block(ended(0, 75), ended(1, 75)),
        "NextAttempt expired",
    ),
    (
        "10 min before, its program was being ended as hung",
        BLOCK,
        on_block(ended(0, 143), ended(1, 143), ended=(judged(EndCause.HUNG),)),
        "NextAttempt hung",
    ),
    ("10 min before, it was not started yet", BLOCK, on_block(started=False), "Conclude limit"),
    (
        "the same, and the machines existed before this job",
        BLOCK,
        on_block(started=False, generation_at_open=1),
        "Conclude timeout",
    ),
    (
        "10 min before, it was not started yet, there are other places",
        ANY_OF,
        on_block(started=False),
        "EndSlice expired",
    ),
    (
        "it runs, 10 min before, and the command may not create",
        replace(BLOCK, create=False),
        on_block(running(0), running(1)),
        "EndAttempt expired",
    ),
    (
        "the same, it is stopped",
        replace(BLOCK, create=False),
        on_block(ended(0, 143), ended(1, 143), ended=(judged(EndCause.EXPIRED),)),
        "Conclude timeout",
    ),
    (
        "the provider has taken the machines, which was not observed before",
        ANY_OF,
        on_block(slice_state=SS.PREEMPTED, hosts=(), left=-3600),
        "NextAttempt expired",
    ),
    (
        "the provider took the machines an hour before that time",
        ANY_OF,
        on_block(slice_state=SS.PREEMPTED, hosts=(), left=3600),
        "EndSlice preempted",
    ),
)
GROWTH: tuple[Line, ...] = (
    (
        "it runs, and better machines are worth the restart",
        RUN,
        ready(running(0), running(1), started=True, growth="larger ones"),
        "EndAttempt grown",
    ),
    (
        "the same, one host does not answer",
        RUN,
        ready(running(0), silent(1), started=True, growth="larger ones", contact_since=NOW - 10),
        "Wait contact",
    ),
    (
        "the same, the program of one host has succeeded",
        RUN,
        ready(running(0), ended(1, 0), started=True, growth="larger ones"),
        "Wait job",
    ),
    (
        "the verdict is recorded",
        RUN,
        ready(running(0), running(1), started=True, ended=(judged(EndCause.GROWN),)),
        "StopJob hosts 0-1",
    ),
    (
        "the same, its state is not clear",
        RUN,
        seen(intent(), started=True, ended=(judged(EndCause.GROWN),), unclear_since=NOW - 10),
        "Wait slice",
    ),
    (
        "the same, it has saved and stopped",
        RUN,
        ready(ended(0, 75), ended(1, 75), started=True, ended=(judged(EndCause.GROWN),)),
        "NextAttempt grown",
    ),
    (
        "the same, a host cannot be stopped",
        RUN,
        ready(running(0), ended(1, 75), started=True, ended=(judged(EndCause.GROWN),), failure=trouble(step="StopJob")),
        "NextAttempt grown",
    ),
    (
        "the same, the machines were taken meanwhile",
        RUN,
        seen(intent(), state=SS.PREEMPTED, started=True, ended=(judged(EndCause.GROWN),)),
        "NextAttempt grown",
    ),
    (
        "the same, the machines are deleted",
        RUN,
        seen(DELETED, started=True, ended=(judged(EndCause.GROWN),)),
        "NextAttempt grown",
    ),
    ("the next attempt is open, the old machines exist", RUN, ready(ended=MOVED, attempt=2), "EndSlice grown"),
    (
        "the next attempt is open, the old machines were taken meanwhile",
        RUN,
        seen(intent(), state=SS.PREEMPTED, ended=MOVED, attempt=2),
        "EndSlice grown",
    ),
    ("the same, they are absent", RUN, seen(intent(), state=SS.ABSENT, ended=MOVED, attempt=2), "ForgetSlice grown"),
    (
        "the same, their end is requested",
        RUN,
        seen(intent(IS.ENDING, cause=EndCause.GROWN), state=SS.ENDING, ended=MOVED, attempt=2),
        "Wait slice",
    ),
    ("the old machines are deleted", RUN, seen(LEFT, ended=MOVED, attempt=2), "CreateSlice demo-2"),
)
ENDINGS = {  # what ended the program on both hosts: the answer where its status is 0, 3, 75 and 143
    None: ("Conclude ok", "NextAttempt program", "NextAttempt preempted", "NextAttempt program"),
    **{one: ("Conclude limit" if one is EndedBy.LIMIT else "Conclude cancelled",) * 4 for one in EndedBy},
}
ENDED_BY: tuple[Line, ...] = (
    *(
        (
            f"ended by {'itself' if ended_by is None else ended_by}, exit {code} on both hosts",
            RUN,
            ready(ended(0, code, ended_by), ended(1, code, ended_by), started=True),
            expected,
        )
        for ended_by, answers in ENDINGS.items()
        for code, expected in zip((0, 3, 75, 143), answers, strict=True)
    ),
    ("one succeeded before, the other is ended by limit", RUN,
     ready(ended(0, 0), ended(1, 0, EndedBy.LIMIT), started=True), "Conclude limit"),
    ("one failed before, the other is ended by restart", RUN,
     ready(ended(0, 3), ended(1, 0, EndedBy.RESTART), started=True), "NextAttempt program"),
    ("one is ended by limit, the other runs", RUN,
     ready(ended(0, 0, EndedBy.LIMIT), running(1), started=True), "EndAttempt limit"),
    ("one is ended by cancel, the other runs, and no cancel is on record", RUN,
     ready(ended(0, 0, EndedBy.CANCEL), running(1), started=True), "StopJob host 1"),
    ("the same, and it cannot be stopped", RUN,
     ready(ended(0, 0, EndedBy.CANCEL), running(1), started=True, failure=trouble(step="StopJob")),
     "Conclude cancelled"),
    ("a cancel is on record, both are ended by it with exit 0", RUN,
     ready(ended(0, 0, EndedBy.CANCEL), ended(1, 0, EndedBy.CANCEL), started=True, cancel_requested=True),
     "Conclude cancelled"),
    ("another computer took the run over, both are ended by it with exit 0", RUN,
     ready(ended(0, 0, EndedBy.TAKEN_OVER), ended(1, 0, EndedBy.TAKEN_OVER), started=True, taken_over="by b"),
     "Conclude conflict"),
    ("a signal that orch did not send, no restart is left", POOR,
     ready(ended(0, 143), ended(1, 137), started=True), "Conclude signal"),
    ("a limit is reached, all had failed by themselves", TWO_HOURS,
     seen(UP_FOR_TWO_HOURS, state=SS.READY, hosts=(ended(0, 3), ended(1, 3)), started=True), "Conclude program-failed"),
    ("a limit is reached, all had asked for a restart (exit 75)", TWO_HOURS,
     seen(UP_FOR_TWO_HOURS, state=SS.READY, hosts=(ended(0, 75), ended(1, 75)), started=True), "Conclude limit"),
)  # fmt: skip


def vain(step: Step, times: int = 3) -> ActionSuccess:
    assert not isinstance(step, Wait | Done | GiveUp)
    return ActionSuccess(identify_action(step), times)


def in_vain(part: str, desired: Desired, observed: Observed, expected: str) -> Line:
    """The action that decide() takes here has succeeded three times, and nothing has changed."""
    done = vain(decide(desired, observed, FACTS))
    return part, desired, replace(observed, succeeded=done), expected


NO_EFFECT: tuple[Line, ...] = (
    in_vain("the files were sent, and are missing", RUN, ready(host(0, trees=()), host(1)), "Conclude no-effect"),
    in_vain("a bucket was copied, and is missing", RUN, ready(host(0, trees=HELD[:1]), host(1)), "Conclude no-effect"),
    in_vain("setup passed, and is not shown", RUN, ready(host(0, setup=""), host(1)), "Conclude no-effect"),
    in_vain("the timer was set, and is missing", TIMED, ready(), "Conclude no-effect"),
    in_vain("the program was started, and is not there", RUN, ready(started=True), "Conclude no-effect"),
    in_vain("it was stopped for a cancel, and runs", RUN, ready(running(0), running(1), cancel_requested=True,
                                                               started=True), "Conclude cancelled"),
    in_vain("it was stopped as hung, and runs", RUN,
            ready(running(0), running(1), started=True, ended=(judged(EndCause.HUNG),)), "EndSlice host-died"),
    in_vain("its stacks were collected, and are missing", RUN,
            ready(moving(0, 7, 700.0), moving(1, 7, 700.0), started=True), "EndAttempt hung"),
    in_vain("the verdict was recorded, and is missing", TWO_HOURS,
            seen(UP_FOR_TWO_HOURS, state=SS.READY, hosts=(running(0), running(1)), started=True), "GiveUp no-effect"),
    in_vain("the result was recorded, and is missing", RUN, ready(ended(0, 0), ended(1, 0), started=True),
            "GiveUp no-effect"),
    in_vain("the stopped machines were started, and are stopped", RUN, seen(intent(), state=SS.STOPPED),
            "GiveUp no-effect"),
    in_vain("the machines were stopped, and are ready", Stop("demo"), seen(intent(), state=SS.READY),
            "GiveUp no-effect"),
    in_vain("a cancelled job was stopped, and runs", Cancel(cluster="demo", folder="1-a1"),
            ready(running(0), running(1)), "GiveUp no-effect"),
    in_vain("the machines were ended, and are ready", Down("demo"),
            seen(intent(IS.ENDING, since=NOW - 60), state=SS.READY), "EndSlice requested"),
)  # fmt: skip
CANCELLED: tuple[Line, ...] = (
    ("cancel was requested, it runs", RUN, ready(running(0), ended(1, 0), cancel_requested=True), "StopJob host 0"),
    ("cancel was requested, it runs on none", RUN, ready(cancel_requested=True), "Conclude cancelled"),
    (
        "cancel was requested, and it had failed by itself on both",
        RUN,
        ready(ended(0, 1), ended(1, 3), cancel_requested=True, started=True),
        "Conclude program-failed",
    ),
    (
        "cancel was requested, and it had failed by itself on one, was ended on the other",
        RUN,
        ready(ended(0, 1), ended(1, 143, EndedBy.CANCEL), cancel_requested=True, started=True),
        "Conclude cancelled",
    ),
    (
        "cancel was requested, a host does not answer",
        RUN,
        ready(ended(0, 143), silent(1), cancel_requested=True, started=True, contact_since=NOW - 10),
        "Wait contact",
    ),
    (
        "cancel was requested, a host did not answer for 30 s",
        RUN,
        ready(ended(0, 143), silent(1), cancel_requested=True, started=True, contact_since=NOW - 31),
        "Conclude cancelled",
    ),
    (
        "cancel was requested, the provider cannot be queried",
        RUN,
        seen(intent(), cancel_requested=True, started=True, unclear_since=NOW - 10),
        "Wait slice",
    ),
    (
        "cancel was requested, and it has succeeded",
        RUN,
        ready(ended(0, 0), ended(1, 0), cancel_requested=True, started=True),
        "Conclude ok",
    ),
)
TAKEN_OVER: tuple[Line, ...] = (
    ("another computer took the run over, it runs here", RUN, ready(running(0), taken_over="by b"), "StopJob host 0"),
    ("another computer took the run over, it runs on none", RUN, ready(taken_over="by b"), "Conclude conflict"),
    (
        "another computer took the run over, it has succeeded",
        RUN,
        ready(ended(0, 0), ended(1, 0), taken_over="by b"),
        "Conclude ok",
    ),
)
VERSION: tuple[Line, ...] = (
    ("a host's folder is of another version", RUN, ready(host(0), newer(1)), "GiveUp host-version"),
    (
        "the same for a day, the program runs",
        RUN,
        ready(running(0), newer(1), started=True, contact_since=LONG_AGO),
        "GiveUp host-version",
    ),
    ("the same, and --down was given", DOWN_AFTER, ready(host(0), newer(1)), "GiveUp host-version"),
    ("the same, and the command may not create", EXEC, ready(host(0), newer(1)), "Conclude host-version"),
    (
        "the same, and the command was started",
        EXEC,
        ready(running(0), newer(1), started=True),
        "GiveUp host-version",
    ),
    (
        "the same, and --down was given to it",
        replace(DOWN_AFTER, create=False),
        ready(host(0), newer(1)),
        "GiveUp host-version",
    ),
    (
        "it is another host than the command runs on",
        replace(EXEC, ranks=(0,)),
        ready(host(0), newer(1)),
        "StartJob host 0",
    ),
    (
        "cancel was requested",
        RUN,
        ready(running(0), newer(1), started=True, cancel_requested=True),
        "GiveUp host-version",
    ),
    (
        "2 hours are reached",
        TWO_HOURS,
        seen(UP_FOR_TWO_HOURS, state=SS.READY, hosts=(host(0), newer(1)), started=True),
        "Conclude limit",
    ),
)
END: tuple[Line, ...] = (
    ("succeeded, machines are kept", RUN, ready(outcome=WELL), "Done"),
    ("failed, machines are kept", RUN, ready(outcome=BADLY), "GiveUp program-failed"),
    ("ended, --down was given", DOWN_AFTER, ready(outcome=BADLY), "EndSlice requested"),
    ("ended, --down was given, nothing is left", DOWN_AFTER, seen(DELETED, outcome=WELL), "Done"),
)
DOWN: tuple[Line, ...] = (
    (
        "credentials of another account",
        Down("demo"),
        seen(intent(), state=SS.ABSENT, refusal=OTHER),
        "GiveUp other-account",
    ),
    ("nothing", Down("demo"), seen(), "Done"),
    ("planned: the create may have left", Down("demo"), seen(intent(IS.PLANNED)), "EndSlice requested"),
    ("a slice in any state", Down("demo"), ready(), "EndSlice requested"),
    (
        "the user's own hosts, a program runs",
        Down("demo"),
        seen(OWNED, state=SS.READY, hosts=(running(0), host(1)), running_job="1-a1"),
        "StopJob host 0",
    ),
    (
        "the same, and it cannot be stopped",
        Down("demo"),
        seen(
            OWNED, state=SS.READY, hosts=(running(0), host(1)), running_job="1-a1", failure=trouble(3, step="StopJob")
        ),
        "GiveUp some-code",
    ),
    (
        "the user's own hosts, one that may run the program does not answer",
        Down("demo"),
        seen(OWNED, state=SS.READY, hosts=(host(0), silent(1)), running_job="1-a1", contact_since=NOW - 29),
        "Wait contact",
    ),
    (
        "the same for 30 s",
        Down("demo"),
        seen(OWNED, state=SS.READY, hosts=(host(0), silent(1)), running_job="1-a1", contact_since=NOW - 31),
        "GiveUp host-lost",
    ),
    (
        "the same, with --abandon",
        Down("demo", abandon=True),
        seen(OWNED, state=SS.READY, hosts=(host(0), silent(1)), running_job="1-a1", contact_since=NOW),
        "EndSlice requested",
    ),
    (
        "the same, and no program was left running",
        Down("demo"),
        seen(OWNED, state=SS.READY, hosts=(host(0), silent(1)), contact_since=NOW),
        "EndSlice requested",
    ),
    ("one has a folder of another version", Down("demo"), ready(host(0), newer(1)), "EndSlice requested"),
    (
        "one of the user's own hosts has a folder of another version",
        Down("demo"),
        seen(OWNED, state=SS.READY, hosts=(running(0), newer(1)), running_job="1-a1", contact_since=NOW),
        "GiveUp host-version",
    ),
    (
        "one of the user's own hosts has a folder of another version, with --abandon",
        Down("demo", abandon=True),
        seen(OWNED, state=SS.READY, hosts=(host(0), newer(1)), running_job="1-a1", contact_since=NOW),
        "EndSlice requested",
    ),
    (
        "the user's own hosts, they cannot be queried",
        Down("demo"),
        seen(OWNED, running_job="1-a1", unclear_since=NOW - 10),
        "Wait slice",
    ),
    ("ending", Down("demo"), seen(intent(IS.ENDING), state=SS.ENDING), "Wait slice"),
    ("ending, the provider cannot be queried", Down("demo"), seen(intent(IS.ENDING)), "Wait slice"),
    (
        "requested again a day after the first request, it is ending",
        Down("demo"),
        seen(intent(IS.ENDING, since=LONG_AGO), state=SS.ENDING),
        "EndSlice requested",
    ),
    (
        "absent",
        Down("demo"),
        seen(intent(IS.ENDING, cause=EndCause.REQUESTED), state=SS.ABSENT),
        "ForgetSlice requested",
    ),
)
STOP: tuple[Line, ...] = (
    ("no machines", Stop("demo"), seen(), "GiveUp not-found"),
    ("READY", Stop("demo"), ready(), "StopSlice"),
    (
        "READY, and a request went out a moment ago",
        Stop("demo"),
        seen(intent(last_sent=NOW - 1), state=SS.READY),
        "Wait pause",
    ),
    ("an old slice is stopping", Stop("demo"), seen(intent(since=LONG_AGO), state=SS.STOPPING), "Wait slice"),
    ("stopped", Stop("demo"), seen(intent(), state=SS.STOPPED), "Done"),
    ("the request failed", Stop("demo"), ready(failure=trouble()), "GiveUp some-code"),
    ("preempted or failed", Stop("demo"), seen(intent(), state=SS.PREEMPTED), "GiveUp cloud"),
)
START: tuple[Line, ...] = (
    ("stopped", Start("demo"), seen(intent(), state=SS.STOPPED), "StartSlice"),
    ("an old slice is starting", Start("demo"), seen(intent(since=LONG_AGO), state=SS.STARTING), "Wait slice"),
    ("READY", Start("demo"), ready(), "Done"),
    ("absent", Start("demo"), seen(intent(), state=SS.ABSENT), "GiveUp cloud"),
)
CANCEL: tuple[Line, ...] = (
    (
        "the program runs on some",
        Cancel(cluster="demo", folder="1-a1"),
        ready(running(0), ended(1, 0)),
        "StopJob host 0",
    ),
    ("it runs on none", Cancel(cluster="demo", folder="1-a1"), ready(ended(0, 143), ended(1, 0)), "Done"),
    (
        "a host does not answer",
        Cancel(cluster="demo", folder="1-a1"),
        ready(ended(0, 143), silent(1), contact_since=NOW - 10),
        "Wait contact",
    ),
    (
        "a host did not answer for 30 s",
        Cancel(cluster="demo", folder="1-a1"),
        ready(ended(0, 143), silent(1), contact_since=NOW - 31),
        "GiveUp host-lost",
    ),
    (
        "the provider cannot be queried",
        Cancel(cluster="demo", folder="1-a1"),
        seen(intent(), unclear_since=NOW - 10),
        "Wait slice",
    ),
    (
        "a host has a folder of another version",
        Cancel(cluster="demo", folder="1-a1"),
        ready(running(0), newer(1)),
        "GiveUp host-version",
    ),
    ("no machines", Cancel(cluster="demo", folder="1-a1"), seen(), "Done"),
)

ROWS = tuple(
    Row(part, *line)
    for part, lines in (
        ("Run: the slice", SLICE),
        ("Run: a loss", LOSS),
        ("Run: ending a slice", ENDING_A_SLICE),
        ("Run: the hosts", HOSTS),
        ("Run: the program", PROGRAM),
        ("Run: a program without progress", HANG),
        ("Run: limits", LIMIT),
        ("Run: what ended the program goes before its exit status", ENDED_BY),
        ("An action succeeded three times, and its effect is missing", NO_EFFECT),
        ("Run: machines that are taken back at an announced time", ENDS),
        ("Run: better machines are worth the restart", GROWTH),
        ("Run: a cancelled job", CANCELLED),
        ("Run: taken over by another computer", TAKEN_OVER),
        ("Run: hosts of another version of orch", VERSION),
        ("Run: the end", END),
        ("Down", DOWN),
        ("Stop", STOP),
        ("Start", START),
        ("Cancel", CANCEL),
    )
    for line in lines
)


def answer(row: Row) -> str:
    return describe_step(decide(row.desired, row.observed, FACTS))


def describe_step(step: Step) -> str:
    """Return the name of a step with the value that distinguishes it."""
    name = type(step).__name__
    match step:
        case SyncTree() | FetchMount() | RunSetup() | StartJob() | StopJob() | ArmTimer() | CollectStacks():
            return f"{name} {format_hosts(step.ranks)}"
        case ForgetSlice() if step.jobs_end:
            return f"{name} {step.cause} with its jobs"
        case EndSlice() | ForgetSlice() | NextAttempt() | EndAttempt():
            return f"{name} {step.cause}"
        case Conclude() | GiveUp():
            return f"{name} {step.code}"
        case Wait():
            return f"{name} {step.on}"
        case Done():
            return name
        case _:
            return f"{name} {step.spec.name}" if hasattr(step, "spec") else name


HEAD = """# What `decide()` answers

This page lists, for each observed state of a cluster, the next step that orch takes. Each row is a test: the page is
made from the rows (`python tests/plan/state_table.py > docs/state-table.md`), and a test compares the two.

- The first row of a section that fits is the answer. The word after a name is the cause, the code, or the hosts.
- A `Conclude` records the result and ends no machine. Machines are taken down after it, only for `--down` or a limit.
- A `GiveUp` records nothing: the same command can be run again.
- The samples have two hosts, two candidates, two restarts after a loss and one after a failed program.
- In the samples, 42 is one of fail_on_exit_codes and ten minutes without a step are a hang. A replacement for a lost
  slice is requested for an hour. Ten minutes for saving are kept before the provider takes machines back.
"""


def page() -> str:
    lines = [HEAD]
    for part, rows in groupby(ROWS, key=lambda row: row.part):
        lines += [f"## {part}", "", "| observed | answer |", "| --- | --- |"]
        lines += [f"| {row.seen} | `{row.answer}` |" for row in rows]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
