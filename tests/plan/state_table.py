"""The state table of decide() as data: what is seen, and what is answered.

Each row is a test (test_decide_table.py), and the rows together are docs/state-table.md:
    python tests/plan/state_table.py > docs/state-table.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from plan_samples import FACTS, candidate, wish

from orchestrator.hosts import JobPhase
from orchestrator.plan.actions import (
    Conclude,
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
from orchestrator.plan.desired import After, Budgets, Cancel, Desired, Down, Start, Stop
from orchestrator.plan.observed import Contact, Ended, HostView, Intent, IntentState, Observed, Outcome, Trouble
from orchestrator.plan.ranks import host_words
from orchestrator.plan.steps import Done, GiveUp, Step, Wait
from orchestrator.slices import Owned, SliceState
from orchestrator.values import Text

NOW = 1_000_000.0
LONG_AGO = NOW - 86_400.0

RUN = wish(2, budgets=Budgets(preemptions=2, failures=1), after=After.KEEP)
POOR = replace(RUN, budgets=Budgets())
EXEC = replace(RUN, create=False)
DOWN_AFTER = replace(RUN, after=After.DOWN)
PLACES = RUN.candidates

HELD = (("workdir", "d1"), ("/data", "d2"))


@dataclass(frozen=True)
class Row:
    part: str
    seen: str
    desired: Desired
    observed: Observed
    answer: str


def intent(state: IntentState = IntentState.ACCEPTED, generation: int = 1, **changes: object) -> Intent:
    base = Intent(generation, f"demo-{generation}", PLACES[0], state, NOW - 10)
    return replace(base, **changes)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def seen(*intents: Intent, state: SliceState = SliceState.UNCLEAR, **changes: object) -> Observed:
    base = Observed(NOW, intents, state, well_at=NOW - 10)
    return replace(base, **changes)  # type: ignore[arg-type]  # as above


def ready(*hosts: HostView, **changes: object) -> Observed:
    return seen(intent(), state=SliceState.READY, hosts=hosts or (host(0), host(1)), **changes)


def host(rank: int, **changes: object) -> HostView:
    base = HostView(rank, Text.of(f"10.0.0.{rank}"), Contact.OK, HELD, "abcdef0123")
    return replace(base, **changes)  # type: ignore[arg-type]  # as above


def running(rank: int) -> HostView:
    return host(rank, job=JobPhase.RUNNING)


def ended(rank: int, code: int) -> HostView:
    return host(rank, job=JobPhase.FINISHED, exit_code=code)


def lost(rank: int) -> HostView:
    return host(rank, job=JobPhase.LOST)


def silent(rank: int) -> HostView:
    return host(rank, contact=Contact.DOWN)


def trouble(times: int = 1, *, is_lost: bool = False, final: bool = False, step: str = "SyncTree") -> Trouble:
    return Trouble(step, is_lost, "it failed", "because", "some-code", 7, times, "do this", final)


GONE = intent(IntentState.GONE, cause=EndCause.PREEMPTED, why="taken")
REFUSED = intent(IntentState.REFUSED, cause=EndCause.REFUSED, why="none left")
CHARGED = (Ended(1, EndCause.PREEMPTED, "taken", 1),)
TWICE = (*CHARGED, Ended(2, EndCause.PREEMPTED, "taken", 2))
OWNED = intent(candidate=candidate(2, market=Owned()))
WELL = Outcome(0, "ok", "it ended well")
BADLY = Outcome(3, "program-failed", "it failed")
SS = SliceState
IS = IntentState

Line: TypeAlias = tuple[str, Desired, Observed, str]  # what is seen in words, the wish, what is seen, the answer

SLICE: tuple[Line, ...] = (
    ("nothing at all", RUN, seen(), "CreateSlice demo-1"),
    ("nothing, and the wish may not create (exec)", EXEC, seen(), "Conclude not-found"),
    ("intent planned (a crash before or after the create)", RUN, seen(intent(IS.PLANNED)), "CreateSlice demo-1"),
    (
        "planned, and the create failed three times",
        RUN,
        seen(intent(IS.PLANNED), trouble=trouble(3)),
        "EndSlice broken",
    ),
    ("the first place refused, another is left", RUN, seen(REFUSED), "CreateSlice demo-2"),
    (
        "every place refused",
        RUN,
        seen(REFUSED, intent(IS.REFUSED, 2, candidate=PLACES[1], cause=EndCause.REFUSED)),
        "Conclude capacity",
    ),
    (
        "every place refused an earlier job",
        RUN,
        seen(REFUSED, intent(IS.REFUSED, 2, candidate=PLACES[1], cause=EndCause.REFUSED), opened_at=2),
        "CreateSlice demo-3",
    ),
    ("the create is forbidden", RUN, seen(REFUSED, trouble=trouble(final=True)), "Conclude some-code"),
    ("creating, within its deadline", RUN, seen(intent(), state=SS.CREATING), "Wait slice"),
    (
        "creating, past its deadline",
        RUN,
        seen(intent(since=LONG_AGO), state=SS.CREATING, well_at=LONG_AGO),
        "EndSlice broken",
    ),
    (
        "creating too long, and the wish may not create",
        EXEC,
        seen(intent(since=LONG_AGO), state=SS.CREATING, well_at=LONG_AGO),
        "GiveUp timeout",
    ),
    ("an old slice is being started", RUN, seen(intent(since=LONG_AGO), state=SS.STARTING), "Wait slice"),
    ("an old slice is being stopped by somebody", RUN, seen(intent(since=LONG_AGO), state=SS.STOPPING), "Wait slice"),
    ("an old slice is being ended by somebody", RUN, seen(intent(since=LONG_AGO), state=SS.ENDING), "Wait slice"),
    (
        "it stays half ended past the deadline",
        RUN,
        seen(intent(since=LONG_AGO), state=SS.ENDING, well_at=LONG_AGO),
        "GiveUp timeout",
    ),
    ("stopped", RUN, seen(intent(), state=SS.STOPPED), "StartSlice"),
    ("stopped, and the wish may not create", EXEC, seen(intent(), state=SS.STOPPED), "Conclude not-found"),
    ("preempted", RUN, seen(intent(), state=SS.PREEMPTED), "EndSlice preempted"),
    ("preempted, and the wish may not create", EXEC, seen(intent(), state=SS.PREEMPTED), "Conclude host-lost"),
    ("planned or ending, and the wish may not create", EXEC, seen(intent(IntentState.ENDING)), "Conclude host-lost"),
    ("failed", RUN, seen(intent(), state=SS.FAILED), "EndSlice broken"),
    ("gone, not by us", RUN, seen(intent(), state=SS.ABSENT), "ForgetSlice preempted"),
    ("the provider cannot be asked", RUN, seen(intent(), unclear_since=NOW - 10), "Wait slice"),
    ("the provider could not be asked for long", RUN, seen(intent(), unclear_since=LONG_AGO), "GiveUp timeout"),
    ("somebody asked for down", RUN, ready(wanted_down=True), "GiveUp conflict"),
    ("READY with too few hosts shown", RUN, ready(host(0)), "GiveUp cloud"),
)
LOSS: tuple[Line, ...] = (
    ("the slice was lost, not booked yet", RUN, seen(GONE), "NextAttempt preempted"),
    ("the slice was lost, booked", RUN, seen(GONE, ended=CHARGED, attempt=2), "CreateSlice demo-2"),
    (
        "lost once more, no restart is left",
        RUN,
        seen(GONE, replace(GONE, generation=2), replace(GONE, generation=3), ended=TWICE, attempt=3),
        "Conclude host-lost",
    ),
    ("lost before this job had started anything", RUN, seen(GONE, opened_at=1), "CreateSlice demo-2"),
)
ENDING_A_SLICE: tuple[Line, ...] = (
    (
        "ending, the provider says so",
        RUN,
        seen(intent(IS.ENDING, cause=EndCause.PREEMPTED), state=SS.ENDING),
        "Wait slice",
    ),
    ("ending, and shown as READY still", RUN, seen(intent(IS.ENDING), state=SS.READY), "Wait slice"),
    (
        "ending, and shown as READY 15 s after the request",
        RUN,
        seen(intent(IS.ENDING, since=NOW - 20), state=SS.READY),
        "EndSlice asked",
    ),
    (
        "ending, and gone",
        RUN,
        seen(intent(IS.ENDING, cause=EndCause.PREEMPTED), state=SS.ABSENT),
        "ForgetSlice preempted",
    ),
    ("ending failed three times", RUN, seen(intent(IS.ENDING), state=SS.READY, trouble=trouble(3)), "GiveUp some-code"),
    (
        "not gone within the deadline",
        RUN,
        seen(intent(IS.ENDING, since=LONG_AGO), state=SS.ENDING, well_at=LONG_AGO),
        "GiveUp timeout",
    ),
)
HOSTS: tuple[Line, ...] = (
    ("one does not answer yet", RUN, ready(host(0), silent(1), contact_since=NOW - 10), "Wait contact"),
    (
        "one did not answer within the deadline",
        RUN,
        ready(host(0), silent(1), contact_since=NOW - 301),
        "EndSlice preempted",
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
        "EndSlice preempted",
    ),
    (
        "the same on the user's own hosts",
        RUN,
        seen(OWNED, state=SS.READY, hosts=(running(0), silent(1)), contact_since=NOW - 31, started=True),
        "StopJob host 0",
    ),
    (
        "the same, no restart is left",
        POOR,
        ready(running(0), silent(1), contact_since=NOW - 31, started=True),
        "Conclude host-lost",
    ),
    (
        "the same, and the wish may not create",
        EXEC,
        ready(running(0), silent(1), contact_since=NOW - 31, started=True),
        "Conclude host-lost",
    ),
    ("one shows another key", RUN, ready(host(0), host(1, contact=Contact.IDENTITY)), "Conclude identity-mismatch"),
    ("a rank is asked for that is not there", replace(RUN, ranks=(0, 7)), ready(), "Conclude usage"),
    ("a copy or setup failed by itself", RUN, ready(trouble=trouble()), "Conclude some-code"),
    (
        "a connection broke during a step",
        RUN,
        ready(host(0, trees=()), host(1), trouble=trouble(is_lost=True)),
        "SyncTree host 0",
    ),
    ("it broke three times", RUN, ready(trouble=trouble(3, is_lost=True)), "EndSlice preempted"),
    ("some hold no or old files", RUN, ready(host(0), host(1, trees=(("workdir", "old"),))), "SyncTree host 1"),
    ("some miss a bucket mount", RUN, ready(host(0, trees=HELD[:1]), host(1, trees=HELD[:1])), "FetchMount hosts 0-1"),
    ("setup has not passed, or has changed", RUN, ready(host(0), host(1, setup="old")), "RunSetup host 1"),
)
PROGRAM: tuple[Line, ...] = (
    ("all is prepared", RUN, ready(), "StartJob hosts 0-1"),
    ("all is prepared, and no program is wanted", replace(RUN, job=None), ready(), "Conclude ok"),
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
    ("one failed, none runs", RUN, ready(ended(0, 1), ended(1, 143), started=True), "NextAttempt program"),
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
        "exit 75: it saved and asks to go on",
        RUN,
        ready(ended(0, 75), ended(1, 75), started=True),
        "NextAttempt preempted",
    ),
    (
        "it vanished on a host (killed hard, or a restart)",
        RUN,
        ready(ended(0, 1), lost(1), started=True),
        "NextAttempt preempted",
    ),
    ("it vanished, no restart is left", POOR, ready(ended(0, 0), lost(1), started=True), "Conclude host-lost"),
)
END: tuple[Line, ...] = (
    ("ended well, machines are kept", RUN, ready(outcome=WELL), "Done"),
    ("ended badly, machines are kept", RUN, ready(outcome=BADLY), "GiveUp program-failed"),
    ("ended, --down was asked", DOWN_AFTER, ready(outcome=BADLY), "EndSlice asked"),
    ("ended, --down was asked, nothing is left", DOWN_AFTER, seen(GONE, outcome=WELL), "Done"),
)
DOWN: tuple[Line, ...] = (
    ("nothing", Down("demo"), seen(), "Done"),
    ("planned: the create may have left", Down("demo"), seen(intent(IS.PLANNED)), "EndSlice asked"),
    ("a slice in any state", Down("demo"), ready(), "EndSlice asked"),
    (
        "the user's own hosts, a program runs",
        Down("demo"),
        seen(OWNED, state=SS.READY, hosts=(running(0), host(1)), running_job="1-a1"),
        "StopJob host 0",
    ),
    ("ending", Down("demo"), seen(intent(IS.ENDING), state=SS.ENDING), "Wait slice"),
    ("ending, the provider cannot be asked", Down("demo"), seen(intent(IS.ENDING)), "Wait slice"),
    (
        "asked again a day after the first request, it is ending",
        Down("demo"),
        seen(intent(IS.ENDING, since=LONG_AGO), state=SS.ENDING),
        "Wait slice",
    ),
    ("gone", Down("demo"), seen(intent(IS.ENDING, cause=EndCause.ASKED), state=SS.ABSENT), "ForgetSlice asked"),
)
STOP: tuple[Line, ...] = (
    ("no machines", Stop("demo"), seen(), "GiveUp not-found"),
    ("READY", Stop("demo"), ready(), "StopSlice"),
    ("an old slice is stopping", Stop("demo"), seen(intent(since=LONG_AGO), state=SS.STOPPING), "Wait slice"),
    ("stopped", Stop("demo"), seen(intent(), state=SS.STOPPED), "Done"),
    ("the request failed", Stop("demo"), ready(trouble=trouble()), "GiveUp some-code"),
    ("preempted or failed", Stop("demo"), seen(intent(), state=SS.PREEMPTED), "GiveUp cloud"),
)
START: tuple[Line, ...] = (
    ("stopped", Start("demo"), seen(intent(), state=SS.STOPPED), "StartSlice"),
    ("an old slice is starting", Start("demo"), seen(intent(since=LONG_AGO), state=SS.STARTING), "Wait slice"),
    ("READY", Start("demo"), ready(), "Done"),
    ("gone", Start("demo"), seen(intent(), state=SS.ABSENT), "GiveUp cloud"),
)
CANCEL: tuple[Line, ...] = (
    ("the program runs on some", Cancel("demo", "1-a1"), ready(running(0), ended(1, 0)), "StopJob host 0"),
    ("it runs on none", Cancel("demo", "1-a1"), ready(ended(0, 143), ended(1, 0)), "Done"),
    (
        "a host does not answer",
        Cancel("demo", "1-a1"),
        ready(ended(0, 143), silent(1), contact_since=NOW - 10),
        "Wait contact",
    ),
    (
        "a host did not answer for 30 s",
        Cancel("demo", "1-a1"),
        ready(ended(0, 143), silent(1), contact_since=NOW - 31),
        "GiveUp host-lost",
    ),
    ("the provider cannot be asked", Cancel("demo", "1-a1"), seen(intent(), unclear_since=NOW - 10), "Wait slice"),
    ("no machines", Cancel("demo", "1-a1"), seen(), "Done"),
)

ROWS = tuple(
    Row(part, *line)
    for part, lines in (
        ("Run: the slice", SLICE),
        ("Run: a loss", LOSS),
        ("Run: ending a slice", ENDING_A_SLICE),
        ("Run: the hosts", HOSTS),
        ("Run: the program", PROGRAM),
        ("Run: the end", END),
        ("Down", DOWN),
        ("Stop", STOP),
        ("Start", START),
        ("Cancel", CANCEL),
    )
    for line in lines
)


def answer(row: Row) -> str:
    return words(decide(row.desired, row.observed, FACTS))


def words(step: Step) -> str:
    """A step by its name and what tells it from others of that name."""
    name = type(step).__name__
    match step:
        case SyncTree() | FetchMount() | RunSetup() | StartJob() | StopJob():
            return f"{name} {host_words(step.ranks)}"
        case EndSlice() | ForgetSlice() | NextAttempt():
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

Each row is a test. This page is made from the rows (`python tests/plan/state_table.py > docs/state-table.md`), and a
test compares it with them. "seen" is what the last look showed; the first row of a part that fits is the answer. A
`Conclude` records the result and ends nothing: taking machines down comes after it, and only when that was asked. A
`GiveUp` records nothing: the same command can be typed again. The words after a name are the cause, the code, or the
hosts. The samples have two hosts, two places to try, two restarts for a loss of hosts and one for a failed program.
"""


def page() -> str:
    lines = [HEAD]
    for part, rows in groupby(ROWS, key=lambda row: row.part):
        lines += [f"## {part}", "", "| seen | answer |", "| --- | --- |"]
        lines += [f"| {row.seen} | `{row.answer}` |" for row in rows]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
