"""The records of budgets, and what is used of them by the records of slices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.errors import BudgetError
from orchestrator.plan.charges import MACHINES, BilledAmount
from orchestrator.plan.spending_budget import (
    MARKETS,
    BilledSlice,
    Excess,
    SpendingBudget,
    find_excess,
    find_month_begin,
    find_reached_limit,
    measure_usage,
)
from orchestrator.slices import Candidate
from orchestrator.store.audited import format_subject
from orchestrator.store.job_spans import list_job_spans
from orchestrator.store.version import unknown_value_error

if TYPE_CHECKING:
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord

_WORDS: Mapping[str, tuple[str, ...]] = {"unknown_prices": ("refuse", "allow"), "at_limit": ("refuse", "stop")}


def budget_from_row(row: Mapping[Any, Any]) -> SpendingBudget:
    """Return the budget of a row of `budgets`. Raises StoreError for a value that is unknown."""
    markets = tuple(str(row["markets"]).split())
    for column, known in _WORDS.items():
        if row[column] not in known:
            raise unknown_value_error(format_subject("budgets", row), column, row[column], known)
    if not set(markets) <= set(MARKETS):
        raise unknown_value_error(format_subject("budgets", row), "markets", row["markets"], MARKETS)
    names = (name for name in SpendingBudget.__dataclass_fields__ if name != "markets")
    return SpendingBudget(markets=markets, **{name: row[name] for name in names})


def budget_to_row(budget: SpendingBudget) -> dict[str, Any]:
    """Return the columns of a budget that counts, without its revision."""
    names = (name for name in SpendingBudget.__dataclass_fields__ if name not in ("markets", "revision"))
    return {"markets": " ".join(budget.markets), "removed": None, **{name: getattr(budget, name) for name in names}}


def list_billed_slices(
    reader: Reader, now: float, run_id: str | None = None, *, without: str = ""
) -> tuple[BilledSlice, ...]:
    """Return the slices that exist, or were billed this month or for a run.

    Args:
        reader: An open store.
        now: Epoch seconds.
        run_id: The run; "" or None for none.
        without: The uid of a cluster that is left out; "" for none.
    """
    of_run = reader.clusters_of_runs([run_id]) if run_id else frozenset[str]()
    found = reader.intents_billed_since(find_month_begin(now), of_run)
    clusters, jobs = reader.clusters_by_uid(found), reader.jobs_by_uid(of_run)
    stopped = reader.stopped_times(now, clusters.values())
    billed: dict[str, list[BilledAmount]] = {}
    for bill in reader.bills_since(find_month_begin(now), of_run):
        if bill.part == MACHINES:  # a budget counts machines alone
            billed.setdefault(bill.token, []).append(bill.amount)
    slices: list[BilledSlice] = []
    for uid, intents in found.items():
        spans = [span for span in list_job_spans(jobs.get(uid, ()), now) if span[0].run_id == run_id]
        slices += (
            BilledSlice(
                project=clusters[uid].project,
                member=clusters[uid].owner,
                intent=intent,
                run_times=tuple((begin, end) for _, begin, end in spans),
                works_for_run=any(job.ended is None for job, _, _ in spans),
                stopped=stopped.get(uid, ()),
                billed=tuple(billed.get(intent.token, ())),
            )
            for intent in intents
            if uid in clusters and uid != without
        )
    return tuple(slices)


def find_refusal(
    reader: Reader,
    budgets: Collection[SpendingBudget],
    candidate: Candidate,
    now: float,
    *,
    run_id: str | None = None,
    starts: str = "",
) -> BudgetError | None:
    """Return why one of the budgets that cover a slice does not allow it; None when all do.

    Args:
        reader: An open store, from which the budgets were read before.
        budgets: Those that cover it.
        candidate: The slice.
        now: Epoch seconds.
        run_id: The run for which it is, "" for a new one; None for none.
        starts: The name of a stopped slice that is to be started; "" for a new one.
    """
    slices = list_billed_slices(reader, now, run_id) if budgets else ()
    slices = tuple(replace(one, starts=one.intent.name == starts) for one in slices)
    for budget in budgets:
        usage = measure_usage(budget, slices, now)
        if (excess := find_excess(budget, usage, candidate, run_id=run_id, exists=bool(starts))) is not None:
            return make_budget_error(excess)
    return None


def make_budget_error(excess: Excess) -> BudgetError:
    """Return the error of a slice that a budget does not allow."""
    return BudgetError(
        f"the budget of {excess.budget.scope} does not allow this slice",
        excess.why,
        f"the owner of the store can: {excess.budget.set_command} {excess.option}   (orch budget   shows what is left)",
    )


def measure_run_elsewhere(reader: Reader, cluster: ClusterRecord, run_id: str, now: float) -> float | None:
    """Return what a run has cost on other clusters, in US dollars by list price; None where a price is not known."""
    slices = list_billed_slices(reader, now, run_id, without=cluster.uid)
    paid = measure_usage(SpendingBudget(project="", member=""), slices, now).run
    return paid.dollars if paid.known else None


def find_spent_budget(reader: Reader, cluster: ClusterRecord, run_id: str, now: float) -> str:
    """Return which budget ends a run on a cluster, in words; "" for none."""
    budgets = [one for one in reader.budgets() if one.at_limit == "stop" and one.covers(cluster.project, cluster.owner)]
    slices = list_billed_slices(reader, now, run_id) if budgets else ()
    return find_reached_limit(budgets, [measure_usage(one, slices, now) for one in budgets])
