"""`orch cost`: the table and the document."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator.documents
from orchestrator.plan.observed import IntentState
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store

Orch = Callable[..., Any]
SCHEMA = json.loads((Path(orchestrator.documents.__file__).parent / "data" / "spending.schema.json").read_text())
HOUR = 3600.0


@pytest.fixture
def rented(home: Path) -> None:
    """'dear' for 10 hours until now at $3, 'dark' for 2 hours without a price; another project's for 40 days at $1."""
    now = time.time()
    for cluster, hours, price, project in (
        ("dear", 10, 3.0, "default"), ("dark", 2, None, "default"), ("old", 40 * 24, 1.0, "vision"),
    ):  # fmt: skip
        with Store(home / "state" / "orch.db", lambda hours=hours: now - hours * HOUR, project=project) as store:
            record = store.open_cluster(cluster, "")
            lease = store.acquire(f"cluster:{record.qualified_name}", "test")
            assert isinstance(lease, Lease)
            candidate = Candidate(
                provider="gcp", accelerator="v5e-8", hosts=1, chips_per_host=8, market=OnDemand(), price_per_hour=price
            )
            store.write_intent(lease, record, 1, f"{cluster}-1", candidate, f"token-{cluster}", "{}")
            store.update_intent(lease, record, f"{cluster}-1", IntentState.ACCEPTED)
            store.release(lease)


@pytest.mark.usefixtures("rented")
def test_clusters_of_the_project_are_listed_the_most_expensive_first(orch: Orch) -> None:
    said = orch("cost")
    assert said.status == 0
    assert said.err.splitlines() == [
        "by list prices, recorded when the machines were requested",
        "not in it, as the price is not known: disks and addresses of some slices",
    ]
    rows = [line.split("  ") for line in said.out.splitlines()]
    table = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert table == [
        ["CLUSTER", "COST", "BY", "HOURS", "PRICE NOT KNOWN"],
        ["dear", "$30.00", "list prices", "10.0 h"],
        ["dark", "not known", "2.0 h", "2.0 h"],
        ["TOTAL", "$30.00", "list prices", "12.0 h", "2.0 h"],
    ]


@pytest.mark.usefixtures("rented")
def test_all_projects_and_all_time(orch: Orch) -> None:
    assert "vision   $720.00" in orch("cost", "--all", "--by", "project").out  # of the last 30 days
    assert "vision   $960.00" in orch("cost", "--all", "--by", "project", "--since", "all").out
    lines = orch("cost", "--all", "--by", "day,cluster", "--since", "3d").out.splitlines()
    days = [line.split()[0] for line in lines[1:-1]]
    assert days == sorted(days, reverse=True) and len(set(days)) in (3, 4)


@pytest.mark.usefixtures("rented")
@pytest.mark.parametrize("by", ["cluster", "owner,project,cluster,run,day", "run,day"])
def test_the_document_has_its_schema_and_the_same_sum(orch: Orch, by: str) -> None:
    found = json.loads(orch("cost", "--all", "--by", by, "-o", "json").out)
    jsonschema.validate(found, SCHEMA)
    assert found["by"] == by.split(",")
    assert found["total"]["dollars"] == pytest.approx(750, abs=0.1)
    assert sum(row["dollars"] for row in found["rows"]) == pytest.approx(found["total"]["dollars"], abs=0.1)


def test_without_machines_the_first_step_is_shown(orch: Orch) -> None:
    said = orch("cost")
    assert (said.status, said.out) == (0, "") and "no machine was billed" in said.err
    assert json.loads(orch("cost", "-o", "json").out)["rows"] == []


@pytest.mark.parametrize(
    "words", [("--by", "week"), ("--by", "day,day"), ("--since", "yesterday"), ("--since", "-1d"), ("--since", "30")]
)
def test_what_cannot_be_summed_is_refused(orch: Orch, words: tuple[str, ...]) -> None:
    said = orch("cost", *words)
    assert said.status == 2 and words[1].split(",")[0] in said.err


@pytest.mark.usefixtures("rented")
def test_own_requests_are_shown_by_place(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = orch("offers", "--capacity")
    assert shown.status == 0, shown.err
    assert "on-demand" in shown.out and "not known" in shown.out and "84 days" in shown.err
    document = json.loads(orch("offers", "--capacity", "-o", "json").out)
    schema = Path(orchestrator.documents.__file__).parent / "data" / "capacity.schema.json"
    jsonschema.validate(document, json.loads(schema.read_text()))


def test_accuracy_without_runs_says_so(orch: Orch) -> None:
    said = orch("offers", "--accuracy")
    assert said.status == 0 and "no run has ended" in said.err
    assert json.loads(orch("offers", "--accuracy", "-o", "json").out)["runs"] == []
