"""Formatting that every preview uses: sizes, times, prices, and text that is safe to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.drivers import name_vendor
from orchestrator.exits import Exit
from orchestrator.formatting import format_amount, format_rate
from orchestrator.messages import count_noun
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
from orchestrator.plan.desired import Cancel, Desired, Down, Run, Start, Stop, Strategy
from orchestrator.plan.dry_run import Plan
from orchestrator.plan.ranks import count_hosts
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, CapacityBlock, Owned


def escape_control(value: str) -> str:
    r"""Return the text with every control or invisible character escaped, such as `\x1b`; newlines and tabs stay."""
    if value.isprintable():
        return value
    return "".join(char if char in "\n\t" or char.isprintable() else _escaped(char) for char in value)


def to_one_line(value: str) -> str:
    """Return the text on one line, with control characters escaped."""
    return escape_control(value).replace("\n", "\\n").replace("\t", " ")


def format_size(count: int) -> str:
    """Format bytes: `712 B`, `4.0 MiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def format_duration(seconds: float) -> str:
    """Format seconds in whole units, without rounding: `5 min`, `90 s`, `2 h`."""
    whole = round(seconds)
    if whole >= 3600 and whole % 3600 == 0:
        return f"{whole // 3600} h"
    if whole > 120 and whole % 60 == 0:
        return f"{whole // 60} min"
    return f"{whole} s"


def format_price(candidate: Candidate) -> str:
    """Format a price: `$12.34/h for 4 hosts (source, date)`. A price that is not known is never shown as 0."""
    note = f" ({to_one_line(candidate.price_note)})" if candidate.price_note else ""
    count = count_hosts(candidate.hosts)
    if candidate.price_per_hour is None:
        own = isinstance(candidate.market, Owned)
        return ("nothing is rented: your own machines" if own else "price not known") + note
    return f"{format_rate(candidate.price_per_hour)} for {count}{note}"


def group_by_place(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Group consecutive candidates that differ only in their place."""
    found: list[list[Candidate]] = []
    for one in candidates:
        last = found[-1][0] if found else None
        if last is not None and replace(one, region=last.region, zone=last.zone, price_note=last.price_note) == last:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def describe_machines(candidate: Candidate) -> str:
    """Describe a candidate: `v5litepod-16: 4 hosts x 4 chips, spot, google/us-west4/us-west4-a`."""
    chips = f" x {count_noun(candidate.chips_per_host, 'chip')}" if candidate.chips_per_host else ""
    hosts = f"{count_hosts(candidate.hosts)}{chips}"
    return to_one_line(f"{candidate.accelerator}: {hosts}, {candidate.market}, {candidate.where}")


def name_verb(desired: Desired) -> str:
    """Return the verb of a request, as in JSON."""
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


def describe_teardown(run: Run) -> str:
    """Describe what happens to the machines afterwards, and when idle ones go by themselves."""
    idle = describe_idle(run)
    if run.teardown is TeardownPolicy.DOWN:
        return f"the machines are taken down, whatever the result{f'; {idle}' if idle else ''}"
    cost = "" if all(candidate.price_per_hour == 0 for candidate in run.candidates) else " (and cost)"
    limited = run.limits.hours is not None or run.limits.dollars is not None
    until = "until `orch down`" + (" or a limit" if limited else "")
    return f"{idle}; until then they stay{cost}, or {until}" if idle else f"the machines stay{cost} {until}"


def describe_idle(run: Run) -> str:
    """Describe what the hosts do by themselves when they are idle; "" for nothing."""
    timer = run.timer
    if timer is None or timer.idle_minutes is None:
        return ""
    does = "stop and keep their disks, which cost: `orch start`" if timer.stops else "are deleted, disks included"
    return f"after {timer.idle_minutes:g} min without a job the machines {does}"


def describe_limits(run: Run) -> str:
    """Describe what ends the machines whatever the program does; "" when nothing does."""
    found: list[str] = []
    if run.limits.hours is not None:
        found.append(f"{run.limits.hours:g} h after the first machine exists")
    if run.limits.dollars is not None:
        unpriced = any(candidate.price_per_hour is None for candidate in run.candidates)
        where = " where the price is known" if unpriced else ""
        found.append(f"at {format_amount(run.limits.dollars)} by list price{where}")
    if not found:
        return ""
    held = "; the hosts enforce this too, without orch" if run.timer is not None else ""
    if run.timer is not None and run.timer.only_stops:
        held = "; without orch the hosts stop then, and keep their disks"
    return f"the machines are ended {', or '.join(found)}{held}"


def describe_recovery(run: Run) -> tuple[str, ...]:
    """Describe the other conditions of restarts, one line each."""
    budgets = run.budgets
    found: list[str] = []
    if budgets.restart_on:
        found.append(f"{_statuses(budgets.restart_on)} counts as a loss, not as a failure")
    if budgets.storage:
        count = count_noun(budgets.storage, "time")
        found.append(f"{_statuses((Exit.STORAGE,))} (the bucket fails) is restarted up to {count} without progress")
    if never := (*budgets.fail_on, *budgets.final):
        found.append(f"never after {_statuses(never)}")
    if budgets.hang_deadline > 0:
        hang = f"no progress for {format_duration(budgets.hang_deadline)} is treated as a hang, and counts as a loss"
        own = "where your program reports its steps (orch_run, $ORCH_HEARTBEAT_FILE), "
        found.append(hang if budgets.reports_steps else f"{own}{hang}; without reports no hang is seen")
    if budgets.preemptions and len(run.candidates) > 1:
        near = budgets.strategy is Strategy.FAILOVER
        found.append(f"a replacement is requested {'where the loss was' if near else 'elsewhere'} first")
    if budgets.capacity_wait > 0:
        found.append(f"waits for a replacement up to {format_duration(budgets.capacity_wait)}")
    before = format_duration(budgets.save_before)
    for provider in dict.fromkeys(one.provider for one in run.candidates if isinstance(one.market, CapacityBlock)):
        taken = f"before {name_vendor(provider)} takes a capacity block's machines"
        found.append(f"{before} {taken}, the program is asked to save and stop")
    if budgets.capacity_wait_first > 0:
        found.append(f"waits for the first machines up to {format_duration(budgets.capacity_wait_first)}")
    return tuple(found)


def _statuses(codes: tuple[int, ...]) -> str:
    return "exit " + ", ".join(str(code) for code in codes)


def list_action_ranks(action: Action) -> tuple[int, ...]:
    """Return the hosts of an action; () for actions on a slice or a record."""
    match action:
        case SyncTree() | FetchMount() | RunSetup() | StartJob() | StopJob() | ArmTimer() | CollectStacks():
            return action.ranks
        case _:
            return ()


def list_ranks(plan: Plan) -> tuple[int, ...]:
    """Return every host that the plan creates or uses."""
    ranks = {rank for action in plan.actions for rank in list_action_ranks(action)}
    for action in plan.actions:
        if isinstance(action, CreateSlice):
            ranks.update(range(action.spec.candidate.hosts))
    return tuple(sorted(ranks))


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
