"""Changes of budgets, and how a slice is planned under those that cover it.

What is used of a budget is read first, and computed without a lock. The change that records the slice has guards: each
budget that covers it has the revision that was read before, and the same change raises it. So of two slices that are
planned at the same time under one budget, the second is computed again, and sees the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select

from orchestrator.errors import NotFoundError, UserError
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.slices import Candidate
from orchestrator.store.budget_records import (
    budget_from_row,
    budget_to_row,
    find_refusal,
    find_spent_budget,
    measure_run_elsewhere,
)
from orchestrator.store.change import EventDetails, Guard, RowChange, insert_row, update_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import ClusterRecord
from orchestrator.store.schema import budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRevisions:
    """That no budget of a cluster changed since it was read, as parts of a change.

    Attributes:
        guards: Each budget that may cover the cluster has its revision, or does not exist.
        moves: Raise these revisions.
    """

    guards: tuple[Guard, ...]
    moves: tuple[RowChange, ...]


class BudgetChanges(Ledger):
    """The changes of budgets. A removed budget keeps its row, so that its revision never decreases."""

    def budgets(self) -> tuple[SpendingBudget, ...]:
        """Return the budgets that count, by project and member."""
        query = select(budgets).where(budgets.c.removed.is_(None)).order_by(budgets.c.project, budgets.c.member)
        return self._read_all(query, budget_from_row)

    def set_budget(self, budget: SpendingBudget) -> None:
        """Record a budget, or replace its limits.

        Raises:
            UserError: The member cannot be one.
        """
        if "/" in budget.member:  # the events name the row as PROJECT/MEMBER
            raise UserError(f"'{budget.member}' cannot have a budget", "its name has a slash", "orch budget")
        self._change_budget(budget, budget_to_row(budget), f"budget of {budget.scope} set")

    def change_budget_limits(self, project: str, member: str, values: Mapping[str, Any]) -> SpendingBudget:
        """Set some limits of a budget, and return it; the others stay. The errors are those of set_budget.

        Args:
            project: Of the budget; "" for all.
            member: Of the budget; "" for all.
            values: Fields of SpendingBudget.
        """
        known = {(one.project, one.member): one for one in self.budgets()}
        budget = replace(known.get((project, member)) or SpendingBudget(project=project, member=member), **values)
        self.set_budget(budget)
        return budget

    def remove_budget(self, project: str, member: str) -> None:
        """Remove a budget.

        Raises:
            NotFoundError: There is none.
        """
        budget = SpendingBudget(project=project, member=member)
        if not any((one.project, one.member) == (project, member) for one in self.budgets()):
            raise NotFoundError(f"there is no budget of {budget.scope}", "", "orch budget")
        self._change_budget(budget, {"removed": self._now()}, f"budget of {budget.scope} removed")

    def _change_budget(self, budget: SpendingBudget, values: Mapping[str, Any], what: str) -> None:
        key = {"project": budget.project, "member": budget.member}
        details = EventDetails(cluster="", kind="budget", what=what)
        for at in self._tries(f"the budget of {budget.scope}"):
            known = self._budget_rows(budget.project, budget.member, exact=True)
            if not known:
                change = insert_row(budgets, {**values, **key, "revision": 1}, details)
            else:
                change = update_row(budgets, key, {**values, "revision": known[0]["revision"] + 1}, details)
            guard = Guard(table=budgets, key=key, values={"revision": known[0]["revision"]} if known else None)
            if self.change(change, at=at, guards=(guard,)) is not None:
                return

    def _do_under_budgets(
        self, cluster: ClusterRecord, candidate: Candidate, run_id: str | None, do: Callable[[BudgetRevisions], bool],
        *, starts: str = "",
    ) -> None:  # fmt: skip
        """Do a change by which a slice counts in the budgets of its cluster, if they allow it.

        Args:
            cluster: In which the slice is.
            candidate: The slice.
            run_id: The run for which it is; None for none.
            do: Does the change with these guards, or returns False when one of them does not hold.
            starts: The name of a stopped slice that is to be started; "" for a new one.

        Raises:
            BudgetError: A budget does not allow it.
        """
        if do(self._hold_revisions(cluster, {})):  # most stores have no budget, so nothing has to be read
            return
        with open_reader_at(
            self._database.location, self.project
        ) as reader:  # what a plan shows is computed by it, too
            for at in self._tries(f"the budget of '{cluster.name}'"):
                revisions = self.read_budget_revisions(
                    cluster
                )  # before what is used: a change between the two is found
                covering = [one for one in reader.budgets() if one.covers(cluster.project, cluster.owner)]
                refusal = find_refusal(reader, covering, candidate, at, run_id=run_id, starts=starts)
                if refusal is not None:
                    raise refusal
                if do(revisions):
                    return

    def find_spent_budget(self, cluster: ClusterRecord, run_id: str) -> str:
        """Return which budget ends a run on a cluster, in words; "" for none."""
        if not any(one.at_limit == "stop" for one in self.budgets()):
            return ""
        with open_reader_at(self._database.location, self.project) as reader:
            return find_spent_budget(reader, cluster, run_id, self._now())

    def find_spent_before(self, cluster: ClusterRecord, run_id: str) -> float | None:
        """Return what a run has cost on other clusters than this, in US dollars; None where a price is not known."""
        with open_reader_at(self._database.location, self.project) as reader:
            return measure_run_elsewhere(reader, cluster, run_id, self._now())

    def read_budget_revisions(self, cluster: ClusterRecord) -> BudgetRevisions:
        """Return the present revisions of the budgets that cover a cluster."""
        rows = self._budget_rows(cluster.project, cluster.owner)
        return self._hold_revisions(cluster, {(row["project"], row["member"]): row["revision"] for row in rows})

    def _hold_revisions(self, cluster: ClusterRecord, known: Mapping[tuple[str, str], int]) -> BudgetRevisions:
        guards: list[Guard] = []
        moves: list[RowChange] = []
        details = EventDetails(cluster=cluster.qualified_name, kind="budget", what="a slice was planned")
        scopes = {(project, member) for project in ("", cluster.project) for member in ("", cluster.owner)}
        for project, member in sorted(scopes):
            key, revision = {"project": project, "member": member}, known.get((project, member))
            guards.append(Guard(table=budgets, key=key, values=None if revision is None else {"revision": revision}))
            if revision is not None:
                moves.append(update_row(budgets, key, {"revision": revision + 1}, details))
        return BudgetRevisions(guards=tuple(guards), moves=tuple(moves))

    def _budget_rows(self, project: str, member: str, *, exact: bool = False) -> tuple[Mapping[str, Any], ...]:
        """Return the rows of one budget, or of those that may cover a cluster; the removed ones too."""
        projects, members = ({project}, {member}) if exact else ({"", project}, {"", member})
        query = select(budgets).where(budgets.c.project.in_(projects), budgets.c.member.in_(members))
        return self._read_all(query, dict)
