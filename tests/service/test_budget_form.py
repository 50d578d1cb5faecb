"""Amounts in the form of budgets: what is read, and what is refused beside its field."""

from __future__ import annotations

import pytest

from orchestrator.errors import UserError
from orchestrator.service.budget_form import BudgetForm, read_request


@pytest.mark.parametrize(
    ("text", "dollars"), [("1500", 1500.0), (" $1,500 ", 1500.0), ("99.50", 99.5), ("1,234,567.89", 1_234_567.89)]
)
def test_amounts_are_read_as_people_write_them(text: str, dollars: float) -> None:
    assert read_request(BudgetForm(dollars_per_month=text, dollars_per_run="  ")).limits == {
        "dollars_per_month": dollars
    }


@pytest.mark.parametrize("text", ["99,50", "1,5000", "1e3", "0", "-5", "nan", "inf", "a lot", "$", "1" * 40])
def test_what_is_no_amount_is_refused_at_its_field(text: str) -> None:
    with pytest.raises(UserError, match="is not an amount of dollars") as refused:
        read_request(BudgetForm(dollars_per_hour="5", dollars_per_run=text))
    assert vars(refused.value)["field"] == "dollars_per_run"
