"""Budgets through the service: owners set and remove them, those of one project only in that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.documents.budgets import budgets_as_json, summarize_budgets
from orchestrator.errors import AccessError, UserError
from orchestrator.plan.spending_budget import MARKETS
from orchestrator.project import check_project
from orchestrator.service.route import Answer, Call

Market = Literal["on-demand", "spot", "reservation", "capacity-block", "flex-start"]
_SCOPE = ("project", "member")
_Dollars = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


class BudgetRequest(BaseModel):
    """Limits of a budget: those that are not named stay; null is no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str = Field(default="", max_length=40, description="Only clusters of this project.")
    member: str = Field(default="", max_length=60, description="Only clusters of this member.")
    dollars_per_month: _Dollars | None = None
    dollars_per_run: _Dollars | None = None
    dollars_per_hour: _Dollars | None = None
    largest_slice: int | None = Field(default=None, ge=1, le=10**9, description="Chips; hosts, where it has none.")
    markets: list[Market] = Field(default=[], max_length=len(MARKETS), description="None for all.")
    unknown_prices: Literal["refuse", "allow"] = "refuse"
    at_limit: Literal["refuse", "stop"] = "refuse"

    @property
    def limits(self) -> dict[str, Any]:
        """What is named."""
        named = {name: getattr(self, name) for name in self.model_fields_set if name not in _SCOPE}
        return named | ({"markets": tuple(dict.fromkeys(self.markets))} if "markets" in named else {})


def list_budgets(call: Call) -> Answer:
    """Answer with the budgets."""
    return _show(call)


def set_budget(call: Call) -> Answer:
    """Set limits of a budget, and answer with it."""
    request: BudgetRequest = call.body
    change_budget(call, request)
    return _show(call, (request.project, request.member))


def remove_budget(call: Call) -> Answer:
    """Remove a budget, and answer with the others."""
    project, member = str(call.query["project"]), str(call.query["member"])
    _refuse_scope(call, project)
    with call.site.open_store("orch budget remove") as store:
        store.remove_budget(project, member)
    return _show(call)


def change_budget(call: Call, request: BudgetRequest) -> None:
    """Set the limits that are named. Raises UserError without one, AccessError beyond the project of who asks."""
    if not request.limits:
        raise UserError("nothing to set", "no limit is named", "name one, such as dollars_per_month")
    _refuse_scope(call, request.project)
    with call.site.open_store("orch budget set") as store:
        store.change_budget_limits(request.project, request.member, request.limits)


def _refuse_scope(call: Call, project: str) -> None:
    """Refuse budgets beyond the project of who asks, and names that no project has."""
    if project:
        check_project(project, "project: vision")
    own = call.person.project if call.person is not None else ""
    if own and project != own:
        raise AccessError("this budget is not of your project", f"you are in the project {own}", f"project: {own}")


def _show(call: Call, only: tuple[str, str] | None = None) -> Answer:
    now = call.site.now()
    with call.open_reader() as store:
        states = summarize_budgets(store, now)
    shown = tuple(one for one in states if only is None or (one.budget.project, one.budget.member) == only)
    return Answer(document=budgets_as_json(shown, now))
