"""Words that every form of the preview uses: sizes, times, prices, and text that is safe to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.plan.actions import (
    Action,
    ArmTimer,
    CollectStacks,
    CreateSlice,
    FetchMount,
    RunSetup,
    StartJob,
    StopJob,
    SyncTree,
)
from orchestrator.plan.desired import Adopt, After, Cancel, Desired, Down, Run, Start, Stop, Strategy
from orchestrator.plan.imagined import Plan
from orchestrator.slices import Candidate, CapacityBlock, Owned, SliceSpec


def visible(value: str) -> str:
    r"""The same text with every character that could move a cursor or hide something written as `\x1b`.

    Newlines and tabs stay.
    """
    if value.isprintable():
        return value
    return "".join(char if char in "\n\t" or char.isprintable() else _escaped(char) for char in value)


def one_line(value: str) -> str:
    return visible(value).replace("\n", "\\n").replace("\t", " ")


def size(count: int) -> str:
    """Bytes for people: `712 B`, `4.0 MiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float) -> str:
    """`5 min`, `90 s`, `2 h`: whole units only, so that nothing is rounded away."""
    whole = round(seconds)
    if whole >= 3600 and whole % 3600 == 0:
        return f"{whole // 3600} h"
    if whole > 120 and whole % 60 == 0:
        return f"{whole // 60} min"
    return f"{whole} s"


def price(candidate: Candidate) -> str:
    """`$12.34/h for 4 hosts (source, date)`. A price that is not known is never shown as 0."""
    note = f" ({one_line(candidate.price_note)})" if candidate.price_note else ""
    count = f"{candidate.hosts:,} host{'s' if candidate.hosts != 1 else ''}"
    if candidate.price_per_hour is None:
        own = isinstance(candidate.market, Owned)
        return ("nothing is rented: your own machines" if own else "price not known") + note
    return f"${candidate.price_per_hour:,.2f}/h for {count}{note}"


def alike(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Neighbours that differ in their place alone, together."""
    found: list[list[Candidate]] = []
    for one in candidates:
        last = found[-1][0] if found else None
        if last is not None and replace(one, region=last.region, zone=last.zone, price_note=last.price_note) == last:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def shape(candidate: Candidate) -> str:
    """`v5litepod-16: 4 hosts x 4 chips, spot, google/us-west4/us-west4-a`."""
    chips = f" x {candidate.chips_per_host} chips" if candidate.chips_per_host else ""
    hosts = f"{candidate.hosts:,} host{'s' if candidate.hosts != 1 else ''}{chips}"
    return one_line(f"{candidate.accelerator}: {hosts}, {candidate.market}, {candidate.where}")


def verb(desired: Desired) -> str:
    match desired:
        case Run():
            return "run"
        case Down():
            return "down"
        case Stop():
            return "stop"
        case Start():
            return "start"
        case Cancel():
            return "cancel"
        case Adopt():
            return "adopt"


def making(spec: SliceSpec) -> str:
    """What a CreateSlice does, without the shape."""
    adopted = spec.candidate.adopted
    return f"adopt '{adopted}' as '{spec.name}'" if adopted else f"create '{spec.name}'"


def afterwards(run: Run) -> str:
    if run.after is After.DOWN:
        return "the machines are taken down, whatever the result"
    free = all(candidate.price_per_hour == 0 for candidate in run.candidates)
    return f"the machines stay{'' if free else ', and cost,'} until they are taken down"


def limits(run: Run) -> str:
    """What ends the machines whatever the program does; empty when nothing does."""
    found: list[str] = []
    if run.limits.hours is not None:
        found.append(f"{run.limits.hours:g} h after the first machine was there")
    if run.limits.dollars is not None:
        found.append(f"at ${run.limits.dollars:,.2f} by list price")
    if not found:
        return ""
    held = "; the hosts hold this too, without orch" if run.timer is not None else ""
    return f"the machines are ended {', or '.join(found)}{held}"


def recovery(run: Run) -> tuple[str, ...]:
    """What restarts depend on beside their number, one line each; nothing where nothing was asked for."""
    budgets = run.budgets
    found: list[str] = []
    if budgets.restart_on:
        found.append(f"{_statuses(budgets.restart_on)} counts as a loss, not as a failure")
    if budgets.fail_on:
        found.append(f"never after {_statuses(budgets.fail_on)}")
    if budgets.hang_deadline > 0:
        found.append(f"a program that does not move for {duration(budgets.hang_deadline)} counts as a loss")
    if budgets.preemptions and len(run.candidates) > 1:
        near = budgets.strategy is Strategy.FAILOVER
        found.append(f"a replacement is looked for {'where the loss was' if near else 'elsewhere'} first")
    if budgets.capacity_wait > 0:
        found.append(f"a replacement is waited for up to {duration(budgets.capacity_wait)}")
    if any(isinstance(candidate.market, CapacityBlock) for candidate in run.candidates):
        before = duration(budgets.save_before)
        found.append(f"{before} before AWS takes a capacity block's machines, the program is told to save and stop")
    if budgets.capacity_wait_first > 0:
        found.append(f"the first machines are waited for up to {duration(budgets.capacity_wait_first)}")
    return tuple(found)


def _statuses(codes: tuple[int, ...]) -> str:
    return "exit " + ", ".join(str(code) for code in codes)


def ranks_of(action: Action) -> tuple[int, ...]:
    """The hosts an action is about; () for those about a slice or the record."""
    match action:
        case SyncTree() | FetchMount() | RunSetup() | StartJob() | StopJob() | ArmTimer() | CollectStacks():
            return action.ranks
        case _:
            return ()


def all_ranks(plan: Plan) -> tuple[int, ...]:
    """Every host that the plan makes or touches."""
    ranks = {rank for action in plan.actions for rank in ranks_of(action)}
    for action in plan.actions:
        if isinstance(action, CreateSlice):
            ranks.update(range(action.spec.candidate.hosts))
    return tuple(sorted(ranks))


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
