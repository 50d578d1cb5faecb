"""Tables fit the terminal, or 80 columns elsewhere, and lose no text."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.drawing.tables import draw_table, fit_columns
from orchestrator.plan.observed import IntentState
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.leases import Lease
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

Orch = Callable[..., Any]
CELL = st.text("abc -", max_size=60)


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=5), st.integers(30, 120))
def test_a_table_fits_its_width_and_keeps_every_letter(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = fit_columns(rows, width)
    least = sum(
        max(len(word) for cell in column for word in cell.split() or [""]) for column in zip(*rows, strict=True)
    )
    assert all(len(line) <= max(width, least + 4) for line in lines), "only words that are too long make a line longer"
    assert sorted("".join(lines).replace(" ", "")) == sorted("".join(map("".join, rows)).replace(" ", ""))


def test_words_stay_whole_while_other_columns_can_be_narrowed() -> None:
    lines = fit_columns([("NAME", "WHY"), ("cluster-k3x9q", "preempted by the cloud after two hours")], 40)
    assert lines == [
        "NAME           WHY",
        "cluster-k3x9q  preempted by the cloud",
        "               after two hours",
    ]


def test_prose_keeps_a_width_in_which_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column is left out before the words of another stand one below the other."""
    monkeypatch.setenv("COLUMNS", "60")
    rows = [
        ("RUN", "OWNER", "FROM OUTPUT", "RESULT"),
        ("r" * 28, "o" * 8, "step 3", "job 12 was ended by KILL on worker1"),
    ]
    lines = draw_table(rows, io.StringIO(), optional=("OWNER", "FROM OUTPUT"), least={"RESULT": 24})
    assert lines[0].split() == ["RUN", "RESULT"] and len(lines) == 3, lines
    assert "OWNER" in draw_table(rows, io.StringIO(), optional=("OWNER", "FROM OUTPUT"))[0]
    absent = draw_table(rows, io.StringIO(), optional=("COMMIT", "OWNER", "FROM OUTPUT"), least={"RESULT": 24})
    assert absent == lines, "a column that a table does not have"


@pytest.mark.parametrize(
    "words", [("status",), ("status", "mine"), ("queue", "--all"), ("runs",), ("accelerators",), ("config", "list")]
)
def test_tables_fit_80_columns_in_a_pipe(orch_process: Orch, filled: object, words: tuple[str, ...]) -> None:
    done = orch_process(*words)
    assert done.status == 0, done.err
    tables = done.out.split("LAST EVENTS")[0].splitlines()
    assert tables and max(map(len, tables)) <= 80


@pytest.mark.parametrize(
    ("words", "left_out"),
    [(("status",), "WHERE"), (("queue",), "RUN"), (("runs",), "CLUSTER"), (("status", "NAME"), "TOOK")],
)
def test_tables_leave_columns_out_where_names_are_long(
    orch_process: Orch, home: Path, words: tuple[str, ...], left_out: str
) -> None:
    name = "llama-pretrain-europe"
    candidate = Candidate(
        provider="gcp",
        accelerator="v5litepod-256",
        hosts=64,
        chips_per_host=4,
        market=OnDemand(),
        region="europe-west4",
        zone="europe-west4-b",
        price_per_hour=307.2,
    )
    job = NewJob(
        kind="launch",
        run_id=f"{name}-20261123-120612-72bc",
        digest="d",
        task="",
        bucket="",
        ranks=None,
        after_end=TeardownPolicy.KEEP,
    )
    with Store(home / "state" / "orch.db") as store:
        cluster = store.open_cluster(name, "")
        lease = store.acquire(f"cluster:{name}", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, f"{name}-1", candidate, "token", "{}")
        store.update_intent(lease, cluster, f"{name}-1", IntentState.ACCEPTED)
        store.start_attempt(cluster, store.open_job(cluster, job).id)
    for width in (80, 200):
        done = orch_process(*(name if word == "NAME" else word for word in words), env={"COLUMNS": str(width)})
        lines = done.out.split("LAST EVENTS")[0].splitlines()
        assert done.status == 0 and max(map(len, lines)) <= width, done.out
        assert (left_out in done.out) == (width == 200), done.out


def test_a_table_takes_the_width_that_columns_names(orch_process: Orch, filled: object) -> None:
    done = orch_process("queue", "--all", env={"COLUMNS": "60"})
    assert max(map(len, done.out.splitlines())) <= 60
