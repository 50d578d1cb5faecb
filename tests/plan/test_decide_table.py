"""Every row of the state table holds, and the page in docs/ is made from the rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import state_table
from state_table import ROWS, Row, answer, page

from orchestrator.plan import actions, steps
from orchestrator.plan.causes import REFUSALS, EndCause
from orchestrator.slices import SliceState

WITH_CAUSE = {"EndSlice", "ForgetSlice", "EndAttempt", "NextAttempt"}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.part}: {row.seen}".replace(" ", "_") for row in ROWS])
def test_row_of_the_state_table(row: Row) -> None:
    assert answer(row) == row.answer


def test_the_page_in_docs_is_the_table() -> None:
    written = (Path(state_table.__file__).parents[2] / "docs" / "state-table.md").read_text()
    assert written == page(), "write it again: python tests/plan/state_table.py > docs/state-table.md"


def test_no_two_rows_of_the_table_show_the_same() -> None:
    assert len({(row.part, row.seen) for row in ROWS}) == len(ROWS)


def test_the_table_reaches_every_answer_and_every_state_of_a_slice() -> None:
    answered = {row.answer.split()[0] for row in ROWS}
    possible = set(re.findall(r"\w+", str(actions.Action).replace("orchestrator.plan.actions.", ""))) - {
        "typing",
        "Union",
    }
    assert possible <= answered
    assert {steps.Wait.__name__, steps.Done.__name__, steps.GiveUp.__name__} <= answered
    assert {row.observed.slice_state for row in ROWS} == set(SliceState)


def test_the_table_reaches_every_wait_and_every_cause() -> None:
    answered = {row.answer for row in ROWS}
    assert {f"Wait {one}" for one in steps.WaitFor} <= answered
    causes = {words[1] for row in ROWS if len(words := row.answer.split()) > 1 and words[0] in WITH_CAUSE}
    refusals = {str(cause) for cause in REFUSALS - {EndCause.BROKEN}}
    assert causes | refusals == set(map(str, EndCause)), "a refusal is a result of a create, never an answer"
