"""The page and the document of costs: sums, links, and what is not known."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.orch_process import Orch
from support.service_site import CANDIDATE, PRICE, Served, record_run, serve

from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.store.store import Store

HOURS = 10.0


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three clusters that have been billed for ten hours: `third` has no price."""
    orch = Orch(tmp_path_factory.mktemp("spent"))
    with Store(orch.state / "orch.db", lambda: time.time() - HOURS * 3600) as store:
        record_run(store, "first", "one", ended=False)
        record_run(store, "second", "two", ended=False, candidate=replace(CANDIDATE, price_per_hour=3 * PRICE))
        record_run(store, "third", "three", ended=False, candidate=replace(CANDIDATE, price_per_hour=None))
    with serve(orch) as served:
        yield served


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_the_document_sums_by_each_dimension_and_since_a_moment(spent: Served) -> None:
    rows = spent.ask("/v1/spend?by=cluster").document["rows"]
    assert [row["key"]["cluster"] for row in rows] == ["second", "first", "third"]
    assert [round(row["dollars"]) for row in rows] == [round(3 * PRICE * HOURS), round(PRICE * HOURS), 0]
    assert [round(row["unknown_hours"]) for row in rows] == [0, 0, 40]
    hour = spent.ask("/v1/spend?by=cluster&since=1h").document["rows"]
    assert round(hour[0]["dollars"], 1) == round(3 * PRICE, 1)
    assert len(spent.ask("/v1/spend?since=9999999999999999999d").document["rows"]) == 1
    assert spent.ask("/v1/spend?by=").document["rows"][0]["key"] == {}


def test_the_page_shows_bars_links_and_what_is_not_known(spent: Served) -> None:
    page = spent.ask("/spend?by=cluster").text
    assert [float(width) for width in re.findall(r'class="part" width="([\d.]+)"', page)] == [100, 33.33, 0]
    assert 'href="/clusters/second"' in page
    shown = text_of(page)
    assert "third not known 40.0" in shown, "its cost is never 0"
    assert re.search(r"\$28[89]\.", shown) and "and 40.0 h at a price not known" in shown, (
        "the sum says what it does not have"
    )
    assert 'href="/runs/two"' in spent.ask("/spend?by=run").text


def test_every_address_of_the_page_is_taken(spent: Served) -> None:
    page = spent.ask("/spend?by=cluster&since=7d").text
    found = {one.replace("&amp;", "&") for one in re.findall(r'href="(/spend[^"]*)"', page)}
    assert len(found) >= 9
    assert {spent.ask(path).status for path in found} == {200}


@pytest.mark.parametrize("query", ["by=colour", "by=owner,owner", "since=yesterday"])
def test_what_cannot_be_summed_is_refused(spent: Served, query: str) -> None:
    answer = spent.ask(f"/v1/spend?{query}")
    assert (answer.status, answer.document["exit_status"]) == (400, 2)
    assert spent.ask(f"/spend?{query}").status == 400


def test_budgets_are_shown_with_what_is_left_and_where_the_month_ends(spent: Served) -> None:
    with Store(spent.orch.state / "orch.db") as store:
        store.set_budget(SpendingBudget(project="default", member="", dollars_per_month=5000.0))
        store.set_budget(SpendingBudget(project="other", member="", dollars_per_month=100.0, dollars_per_hour=7.0))
    default, other = spent.ask("/v1/budgets").document["budgets"]
    assert default["project"] == "default"
    assert [default[name] for name in ("spent", "left", "projected")] == [None, None, None]
    assert (other["spent"], other["left"], other["per_hour"], other["projected"]) == (0.0, 100.0, 0.0, 0.0)
    shown = text_of(spent.ask("/spend").text)
    assert "project &#39;default&#39; not known $0.00 not known $5,000.00 not known" in shown, "never 0"
    assert "project &#39;other&#39; $0.00 $0.00 $100.00 $100.00 $0.00 $0.00 of $7.00 none" in shown
    with Store(spent.orch.state / "orch.db") as store:
        for project in ("default", "other"):
            store.remove_budget(project, "")
    assert "Budgets this month" not in spent.ask("/spend").text


def test_nothing_billed_is_said(spent: Served) -> None:
    with Store(spent.orch.state / "orch.db") as store:
        store.set_budget(SpendingBudget(project="quiet", member="", dollars_per_month=1.0))
        store.remove_budget("quiet", "")
    assert "No machine was billed" in spent.ask("/spend?project=quiet").text
