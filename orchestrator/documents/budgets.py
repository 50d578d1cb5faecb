"""What is used of each budget this month, and what it will be at the end of the month."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import gmtime, strftime
from typing import Any

from orchestrator.formatting import format_amount, format_utc
from orchestrator.plan.spending_budget import SpendingBudget, Usage, find_month_end, measure_usage
from orchestrator.store.budget_records import list_billed_slices
from orchestrator.store.read import Reader

_HOUR = 3600.0


def read_budgets(store: Reader, now: float) -> dict[str, Any]:
    """Return the document of data/budgets.schema.json for all budgets."""
    return budgets_as_json(summarize_budgets(store, now), now)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A budget and what is used of it.

    Attributes:
        now: Epoch seconds of `usage`.
    """

    budget: SpendingBudget
    usage: Usage
    now: float

    @property
    def spent(self) -> float | None:
        """Dollars paid since the month began; None where a price is not known."""
        return self.usage.month.dollars if self.usage.month.known else None

    @property
    def billed(self) -> float:
        """Dollars of `spent` that are from bills."""
        return self.usage.month.billed

    @property
    def held(self) -> float | None:
        """Dollars for the rest of the first hours of slices that exist; None where a price is not known."""
        return self.usage.held.dollars if self.usage.held.known else None

    @property
    def left(self) -> float | None:
        """Dollars for further slices this month; None where that is not known, or without such a limit."""
        used, limit = self.usage.month + self.usage.held, self.budget.dollars_per_month
        return max(0.0, limit - used.dollars) if used.known and limit is not None else None

    @property
    def per_hour(self) -> float | None:
        """Dollars an hour for the slices that exist; None where a price is not known."""
        return self.usage.per_hour.dollars if self.usage.per_hour.known else None

    @property
    def projected(self) -> float | None:
        """Dollars for the month if the slices that exist are kept to its end; None where a price is not known."""
        if self.spent is None or self.per_hour is None:
            return None
        return self.spent + self.per_hour * (find_month_end(self.now) - self.now) / _HOUR

    @property
    def other_limits(self) -> list[str]:
        """What is limited beside the money of a month and an hour, and what happens at a limit, in words."""
        return list_other_limits(self.budget)


def list_other_limits(budget: SpendingBudget) -> list[str]:
    """Return what is limited beside the money of a month and an hour, and what happens at a limit, in words."""
    words = [f"{format_amount(budget.dollars_per_run)} a run"] if budget.dollars_per_run is not None else []
    words += [f"slices up to {budget.largest_slice} chips"] if budget.largest_slice is not None else []
    words += [", ".join(budget.markets)] if budget.markets else []
    words += ["unknown prices allowed"] if budget.unknown_prices == "allow" else []
    return [*words, *(["ends runs"] if budget.at_limit == "stop" else [])]


def summarize_budgets(store: Reader, now: float) -> tuple[BudgetState, ...]:
    """Return what is used of each budget, by project and member."""
    budgets = store.budgets()
    slices = list_billed_slices(store, now) if budgets else ()
    return tuple(BudgetState(budget=one, usage=measure_usage(one, slices, now), now=now) for one in budgets)


def budgets_as_json(states: tuple[BudgetState, ...], now: float) -> dict[str, Any]:
    """Return budgets as in data/budgets.schema.json."""
    return {
        "version": 1,
        "kind": "budgets",
        "now": format_utc(now),
        "month": strftime("%Y-%m", gmtime(now)),
        "budgets": [_state_as_json(state) for state in states],
    }


def budget_from_json(document: Mapping[str, Any]) -> SpendingBudget:
    """Return the budget of one item of data/budgets.schema.json."""
    limits: dict[str, Any] = {**document["limits"]}
    limits["markets"] = tuple(limits["markets"] or ())
    return SpendingBudget(
        project=document["project"] or "", member=document["member"] or "", unknown_prices=document["unknown_prices"],
        at_limit=document["at_limit"], **limits,
    )  # fmt: skip


def _state_as_json(state: BudgetState) -> dict[str, object]:
    budget = state.budget
    return {
        "project": budget.project or None,
        "member": budget.member or None,
        "limits": {
            "dollars_per_month": budget.dollars_per_month,
            "dollars_per_run": budget.dollars_per_run,
            "dollars_per_hour": budget.dollars_per_hour,
            "largest_slice": budget.largest_slice,
            "markets": list(budget.markets) or None,
        },
        "unknown_prices": budget.unknown_prices,
        "at_limit": budget.at_limit,
        "spent": _round(state.spent),
        "billed": _round(state.billed),
        "held": _round(state.held),
        "left": _round(state.left),
        "per_hour": _round(state.per_hour),
        "projected": _round(state.projected),
    }


def _round(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 4)
