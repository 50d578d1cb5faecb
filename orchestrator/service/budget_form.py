"""The form of budgets on the page of costs: what is wrong in it is shown beside the field, with all that was typed."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import OrchError, UserError
from orchestrator.service.budgets import BudgetRequest, change_budget
from orchestrator.service.problems import find_http_status
from orchestrator.service.route import Answer, Call
from orchestrator.service.spending import read_page

AMOUNTS = {
    "dollars_per_month": "Dollars a month",
    "dollars_per_hour": "Dollars an hour, of all slices at the same time",
    "dollars_per_run": "Dollars a run",
}
_MOST_DOLLARS = 1e12
_AMOUNT = re.compile(r"\$?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?")


class BudgetForm(BaseModel):
    """The form of a budget, as it was typed; an empty field leaves a limit as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str = Field(default="", max_length=200)
    member: str = Field(default="", max_length=200)
    dollars_per_month: str = Field(default="", max_length=40)
    dollars_per_hour: str = Field(default="", max_length=40)
    dollars_per_run: str = Field(default="", max_length=40)


class _FieldError(UserError):
    """What is wrong in one field."""

    def __init__(self, field: str, what: str, next_step: str) -> None:
        super().__init__(what, "", next_step)
        self.field = field


def show_spending(call: Call) -> Answer:
    """Show the sums with bars, the budgets, and for owners the form that sets one."""
    project = call.person.project if call.person is not None else ""
    return _show(call, BudgetForm(project=project))


def set_budget_on_page(call: Call) -> Answer:
    """Set limits of a budget by the form of the page, or show the form again with what is wrong in it."""
    form: BudgetForm = call.body
    try:
        change_budget(call, read_request(form))
    except OrchError as error:
        return _show(call, form, error)
    return Answer(location="/spend", status=303)


def _show(call: Call, form: BudgetForm, error: OrchError | None = None) -> Answer:
    wrong = error.field if isinstance(error, _FieldError) else ""
    values = {"form": form, "amounts": AMOUNTS, "form_error": error, "wrong_field": wrong}
    status = 200 if error is None else find_http_status(error)
    return Answer(template="spend.html", values=read_page(call) | values, status=status)


def read_request(form: BudgetForm) -> BudgetRequest:
    """Return the limits that were typed. Raises UserError for the first field that is none."""
    limits = {name: _read_amount(name, text) for name in AMOUNTS if (text := getattr(form, name).strip())}
    values: dict[str, Any] = {"project": form.project.strip(), "member": form.member.strip(), **limits}
    try:
        return BudgetRequest.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = str(first["loc"][0])
        raise _FieldError(field, f"`{field}` is not taken: {first['msg'][:200]}", "orch budget") from None


def _read_amount(name: str, text: str) -> float:
    """Return dollars, such as `1500`, `1,500.00` or `$99.50`; `99,50` may be meant as a hundredth of 9,950."""
    amount = float(text.removeprefix("$").replace(",", "")) if _AMOUNT.fullmatch(text) else 0.0
    if not 0 < amount <= _MOST_DOLLARS:
        raise _FieldError(name, f"'{text}' is not an amount of dollars", "write one above 0, such as 1500 or 99.50")
    return amount
