"""Budgets of money: what a project or a member may pay for, what is paid already, and what a slice would add. Pure.

A slice holds its first hour from the moment in which it is planned: else two launches that are planned at the same time
would both see the money that is left. The minimum that a cloud charges is a minute or less (EC2: 60 s), in which no
slice is set up: a launch that could not pay one hour would end before its first step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from orchestrator.formatting import format_amount
from orchestrator.plan.charges import BILL, BilledAmount, list_charges, to_milliseconds
from orchestrator.plan.observed import FINAL_STATES, Intent, IntentState
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot

HELD_SECONDS = 3600.0  # that a slice holds from its request on
MARKETS = ("on-demand", "spot", "reservation", "capacity-block", "flex-start")
EVERYTHING = "everything"  # the scope of a budget that covers every cluster
_HOUR = 3600.0
_TOLERANCE = 1e-6  # dollars: sums of floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingBudget:
    """What clusters of a project, of a member, or of a member in a project may cost together. None is no limit.

    Attributes:
        project: "" for all projects.
        member: The owner of the clusters; "" for all members.
        dollars_per_month: In a calendar month of UTC.
        dollars_per_run: For each run, over all its attempts and resumes.
        dollars_per_hour: Of all slices that exist at the same time.
        largest_slice: Chips of one slice; a host without chips counts as one.
        markets: Those of MARKETS that are allowed; none for all.
        unknown_prices: Whether machines without a known price are allowed. They are in no sum.
        at_limit: "stop" ends the runs of a budget that is spent; "refuse" only refuses further slices.
        revision: Rises with each slice that is planned under it.
    """

    project: str
    member: str
    dollars_per_month: float | None = None
    dollars_per_run: float | None = None
    dollars_per_hour: float | None = None
    largest_slice: int | None = None
    markets: tuple[str, ...] = ()
    unknown_prices: Literal["refuse", "allow"] = "refuse"
    at_limit: Literal["refuse", "stop"] = "refuse"
    revision: int = 0

    def covers(self, project: str, member: str) -> bool:
        """Return whether a cluster of this project and owner counts."""
        return self.project in ("", project) and self.member in ("", member)

    @property
    def scope(self) -> str:
        """What it is for, in words."""
        who = f"member '{self.member}'" if self.member else ""
        where = f"project '{self.project}'" if self.project else ""
        return f"{who} in {where}" if who and where else who or where or EVERYTHING

    @property
    def set_command(self) -> str:
        """The command that changes it, without the values."""
        names = (("--project", self.project), ("--member", self.member))
        return " ".join(["orch budget set", *(f"{option} {value}" for option, value in names if value)])


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum of dollars; `known` is False where the price of one part is not known, and `billed` of it is from bills."""

    dollars: float = 0.0
    known: bool = True
    billed: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.dollars + other.dollars, self.known and other.known, self.billed + other.billed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledSlice:
    """A slice on record that may count in a budget.

    Attributes:
        project: Of its cluster.
        member: The owner of its cluster.
        run_times: When it worked for the run that is asked about, as pairs of epoch seconds, up to the present.
        works_for_run: Whether it works for that run now.
        starts: Whether it is to be started again, so that its first hour is held again: what was held is over then.
        stopped: When its machines were stopped, as pairs of epoch seconds, in order: they cost nothing then.
        billed: What bills say of its machines; it replaces the recorded price for the time that it covers.
    """

    project: str
    member: str
    intent: Intent
    run_times: tuple[tuple[float, float], ...] = ()
    works_for_run: bool = False
    starts: bool = False
    stopped: tuple[tuple[float, float], ...] = ()
    billed: tuple[BilledAmount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What is used of a budget.

    Attributes:
        month: Paid since the month began.
        held: The rest of the first hours of slices that exist.
        per_hour: What the slices that exist cost in an hour.
        run: Paid for the run, since it began.
        run_held: As `held`, of the run's slices.
    """

    month: Amount = field(default_factory=Amount)
    held: Amount = field(default_factory=Amount)
    per_hour: Amount = field(default_factory=Amount)
    run: Amount = field(default_factory=Amount)
    run_held: Amount = field(default_factory=Amount)


def find_month_begin(now: float) -> float:
    """Return when the calendar month of UTC began, in epoch seconds."""
    day = datetime.fromtimestamp(now, UTC)
    return datetime(day.year, day.month, 1, tzinfo=UTC).timestamp()


def find_month_end(now: float) -> float:
    """Return when the next calendar month of UTC begins, in epoch seconds."""
    day = datetime.fromtimestamp(now, UTC)
    return datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC).timestamp()


def measure_usage(budget: SpendingBudget, slices: Iterable[BilledSlice], now: float) -> Usage:
    """Return what is used of a budget at a time, by bills, and by the prices on record where none says anything."""
    month = held = per_hour = run = run_held = Amount()
    begin = find_month_begin(now)
    for one in slices:
        intent = one.intent
        if not budget.covers(one.project, one.member) or isinstance(intent.candidate.market, Owned):
            continue
        price = intent.candidate.price_per_hour
        month += _measure_paid(one, ((begin, now),), now)
        run += _measure_paid(one, one.run_times, now)
        if intent.state in FINAL_STATES:
            continue
        per_hour += _cost(price, _HOUR)
        left = Amount() if one.starts else _cost(price, _held_seconds(intent, now))
        held += left
        run_held += left if one.works_for_run else Amount()
    return Usage(month=month, held=held, per_hour=per_hour, run=run, run_held=run_held)


def _cost(price: float | None, seconds: float) -> Amount:
    if seconds <= 0:
        return Amount()
    return Amount(known=False) if price is None else Amount(price * seconds / _HOUR)


def _measure_paid(one: BilledSlice, times: Iterable[tuple[float, float]], now: float) -> Amount:
    """Return what the machines of a slice cost in some times until now."""
    if not one.billed:
        seconds = sum(_billed_seconds(one, begin, min(end, now), now) for begin, end in times)
        return _cost(one.intent.candidate.price_per_hour, seconds)
    paid = billed = 0
    known = True
    for charge in list_charges(one.intent, now, stopped=one.stopped, billed=one.billed):
        for begin, end in times:
            first, last = max(charge.begin, to_milliseconds(begin)), min(charge.end, to_milliseconds(end))
            if last > first:
                known = known and charge.microdollars is not None
                paid += (cost := charge.measure_cost(first, last))
                billed += cost if charge.source == BILL else 0
    return Amount(paid / 1e6, known, billed / 1e6)


def _billed_seconds(one: BilledSlice, begin: float, end: float, now: float) -> float:
    """Return for how long the machines of a slice were billed between two times."""
    if one.intent.billed_from is None:
        return 0.0
    first, last = max(one.intent.billed_from, begin), min(one.intent.billed_until or now, end)
    off = sum(max(0.0, min(until, last) - max(at, first)) for at, until in one.stopped)
    return max(0.0, last - first - off)


def _held_seconds(intent: Intent, now: float) -> float:
    """Return what is left of the hour that a slice holds from its create or its last start on."""
    if intent.state is IntentState.ENDING:
        return 0.0
    if intent.billed_from is None or intent.billed_from > now:
        return HELD_SECONDS
    return max(0.0, max(intent.billed_from, intent.last_sent) + HELD_SECONDS - now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """Why a budget does not allow a slice.

    Attributes:
        why: In words: what is spent, and what the slice would add.
        option: The option of `orch budget set` that would allow it.
    """

    budget: SpendingBudget
    why: str
    option: str


def find_excess(
    budget: SpendingBudget, usage: Usage, candidate: Candidate, *, run_id: str | None = None, exists: bool = False
) -> Excess | None:
    """Return why a budget does not allow a slice; None where it does.

    Args:
        budget: It covers the slice.
        usage: Of the budget, and of the run.
        candidate: The slice.
        run_id: The run for which it is, "" for a new one; None for none.
        exists: Whether it is a stopped slice that is to be started, which counts in `per_hour` already.
    """
    if isinstance(candidate.market, Owned) or candidate.price_per_hour == 0:
        return None
    return (
        _find_wrong_kind(budget, candidate)
        or _find_unknown_price(budget, usage, candidate)
        or _find_excess_dollars(budget, usage, candidate, run_id, exists=exists)
    )


def _find_wrong_kind(budget: SpendingBudget, candidate: Candidate) -> Excess | None:
    market, size = name_market(candidate.market), candidate.hosts * (candidate.chips_per_host or 1)
    if budget.markets and market not in budget.markets:
        why = f"its market is {market}, and the budget allows {', '.join(budget.markets)}"
        return Excess(budget=budget, why=why, option=f"--markets {','.join((*budget.markets, market))}")
    if budget.largest_slice is not None and size > budget.largest_slice:
        unit = "chips" if candidate.chips_per_host else "hosts"
        why = f"it has {size} {unit}, and the budget allows {budget.largest_slice}"
        return Excess(budget=budget, why=why, option=f"--largest-slice {size}")
    return None


def _find_unknown_price(budget: SpendingBudget, usage: Usage, candidate: Candidate) -> Excess | None:
    counted = (
        (budget.dollars_per_hour, usage.per_hour),
        (budget.dollars_per_month, usage.month + usage.held),
        (budget.dollars_per_run, usage.run + usage.run_held),
    )
    limited = [amount for limit, amount in counted if limit is not None]
    if budget.unknown_prices == "allow" or not limited:
        return None
    if candidate.price_per_hour is None:
        why = f"the price of {candidate.accelerator} in {candidate.where} is not known"
    elif not all(amount.known for amount in limited):
        why = "the price of other machines that count in it is not known"
    else:
        return None
    return Excess(budget=budget, why=why, option="--unknown-prices allow")


def _find_excess_dollars(
    budget: SpendingBudget, usage: Usage, candidate: Candidate, run_id: str | None, *, exists: bool
) -> Excess | None:
    price = candidate.price_per_hour
    more = price or 0.0
    price_text = (
        f"the first hour of {candidate.accelerator} costs {format_amount(price) if price else 'an unknown price'}"
    )
    spent, for_run = (usage.month + usage.held).dollars, (usage.run + usage.run_held).dollars
    rows = (
        (budget.dollars_per_hour, usage.per_hour.dollars, 0.0 if exists else more, "/h is paid now", "--per-hour"),
        (budget.dollars_per_month, spent, more, " is spent or held this month", "--per-month"),
        (
            budget.dollars_per_run if run_id is not None else None,
            for_run,
            more,
            " is spent or held for this run",
            "--per-run",
        ),
    )
    for limit, used, added, state, option in rows:
        if limit is None:
            continue
        if used + added > limit + _TOLERANCE or (price is None and used >= limit):
            why = f"{format_amount(used)} of {format_amount(limit)}{state}, and {price_text}"
            return Excess(budget=budget, why=why, option=f"{option} N")
    return None


def describe_left(budget: SpendingBudget, usage: Usage) -> str:
    """Return what is left of a budget this month, in words; "" for one without such a limit."""
    if budget.dollars_per_month is None:
        return ""
    used = usage.month + usage.held
    left = (
        format_amount(max(0.0, budget.dollars_per_month - used.dollars))
        if used.known
        else "an amount that is not known"
    )
    of = "" if budget.scope == EVERYTHING else f" of {budget.scope}"
    return f"budget{of}: {left} of {format_amount(budget.dollars_per_month)} left this month"


def find_reached_limit(budgets: Sequence[SpendingBudget], usages: Sequence[Usage]) -> str:
    """Return which budget ends the run, in words; "" for none. Money that is only held is not spent."""
    for budget, usage in zip(budgets, usages, strict=True):
        rows = ((budget.dollars_per_month, usage.month, "this month"), (budget.dollars_per_run, usage.run, "for a run"))
        for limit, spent, period in rows:
            if budget.at_limit == "stop" and limit is not None and spent.dollars >= limit:
                used = f"{format_amount(spent.dollars)} of {format_amount(limit)} {period}"
                return f"the budget of {budget.scope} is spent: {used}"
    return ""


def name_market(market: Market) -> str:
    """Return the kind of a market, one of MARKETS; "owned" for people's own machines, which no budget limits."""
    match market:
        case OnDemand():
            return "on-demand"
        case Spot():
            return "spot"
        case Reservation():
            return "reservation"
        case CapacityBlock():
            return "capacity-block"
        case FlexStart():
            return "flex-start"
        case Owned():
            return "owned"
