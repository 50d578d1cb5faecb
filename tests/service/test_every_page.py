"""Every page in a real browser: without a barrier in every scheme and size, and complete by keyboard.

A template that no address and no way below leads to fails the test.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from page_walk import WAYS, open_path, refuse_budget, sign_in
from playwright.sync_api import Browser, BrowserContext, Page, expect
from service_here import Shown, serve_here
from support.service_site import record_run, save_steps, write_points
from test_pages import CHROMIUM, RULES, browser

from orchestrator.next_step import NextStep
from orchestrator.plan.observed import Outcome
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.service.host_board import HostBoard
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.store import Store

PATHS = (
    "/", "/?owner=unheard-of", "/runs/one", "/runs/one?x=time", "/runs/one?x=dollars", "/runs/two", "/clusters",
    "/clusters/first", "/queue", "/launch", "/order?verb=down&cluster=first", "/orders/asked", "/compare",
    "/compare?run=one&run=two", "/compare?run=one&run=two&x=dollars", "/spend", "/spend?by=cluster%2Cday&since=all",
    "/spend?by=run", "/accuracy", "/accuracy?owner=unheard-of", "/events", "/events?cluster=first", "/new",
    "/new?infra=local", "/token", "/runs/none", "/nothing",
)  # fmt: skip
OUTSIDE = ("/login", "/join", "/clusters")  # without a session
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1440, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1024, "height": 768}},
    "forced colours": {"forced_colors": "active"},
    "phone": {"viewport": {"width": 390, "height": 800}},
    "narrow": {"viewport": {"width": 320, "height": 800}},
}
SHARED = {"base", "pieces"}  # parts of the others
PASSING = {"signed_in"}  # the browser leaves it immediately
__all__ = ["browser"]  # a fixture of this file, too
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")
ESTIMATE = {
    "machines": {"v5litepod-16": {"tokens_per_s": {"low": 4000, "high": 6000}, "seconds": {"low": 1, "high": 9}}}
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Two runs, `one` with two attempts, curves and an estimate, and `two` at work, without a bucket."""
    home = tmp_path_factory.mktemp("every")
    database, bucket, now = home / "state" / "orch.db", home / "bucket", time.time()
    database.parent.mkdir()
    with Store(database) as store:
        record_run(store, "first", "one", f"file://{bucket}", attempts=2)
        record_run(store, "second", "two", ended=False)
        store.record_prediction("one", json.dumps(ESTIMATE))
        store.set_budget(SpendingBudget(project="", member="", dollars_per_month=1e6, largest_slice=256))
        order = OrderRecord(
            uid="asked", project="default", cluster="first", verb="down", arguments="{}", plan="p", fingerprint="f",
            member="ann", state="open", created=now,
        )  # fmt: skip
        store.end_order(
            store.open_order(order),
            Outcome(status=5, code="capacity", what="no", why="", next_step=NextStep(words="x")),
        )
    write_points(bucket, "one", 1, [(step, now + step, 5 - step / 10) for step in range(1, 31)])
    write_points(bucket, "one", 2, [(step, now + 40 + step, 5 - step / 10) for step in range(21, 41)])
    save_steps(bucket, "one", [20, 40])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(home))  # a service changes the store of its environment
        patch.setenv("HOME", str(home))
        with serve_here(database, HostBoard(), provider="login.example.org") as served:
            yield served


def open_browser(browser: Browser, **options: Any) -> tuple[BrowserContext, Page]:
    context = browser.new_context(**options)
    return context, context.new_page()


def list_templates() -> set[str]:
    folder = files("orchestrator.service").joinpath("templates")
    return {one.name.removesuffix(".html") for one in folder.iterdir() if one.name.endswith(".html")}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "look",
    [pytest.param(look, marks=[] if look in ("light", "phone") else [pytest.mark.slow]) for look in LOOKS],
)
def test_no_page_has_a_barrier_and_none_is_forgotten(browser: Browser, shown: Shown, look: str) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    context, page = open_browser(browser, **LOOKS[look])
    wrong, seen = dict[str, Any](), set[str]()

    def check(name: str) -> None:
        seen.add(page.evaluate("document.body.dataset.page"))
        page.evaluate(axe)
        found = page.evaluate(f"axe.run(document, {{runOnly: {RULES}}})")["violations"]
        if found:
            wrong[name] = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found]
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            wrong[f"{name} scrolls sideways"] = page.evaluate("document.documentElement.scrollWidth")

    for path in OUTSIDE:
        open_path(page, shown, path)
        check(path)
    sign_in(page, shown)
    for path in PATHS:
        open_path(page, shown, path)
        check(path)
    for name, way in WAYS.items():
        way(page, shown)
        check(name)
    context.close()
    assert wrong == {}
    assert seen == list_templates() - SHARED - PASSING


STOPS = """() => [...document.querySelectorAll('a[href], button, input, textarea, summary, [tabindex="0"]')]
    .filter(one => one.type !== 'hidden' && one.checkVisibility() && one.tabIndex >= 0)
    .filter(one => one.type !== 'radio' || one.checked).length"""
FOCUSED = """() => {
    const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
    if (one === document.body) return null;
    one.dataset.visited = 'yes';
    const seen = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    const marked = style.outlineStyle !== 'none' || one.matches('.host');
    return seen && marked ? 'seen' : one.outerHTML.slice(0, 120);
}"""


@pytest.mark.parametrize(
    "path", ["/", "/runs/one", "/compare?run=one&run=two", "/launch", "/new?infra=local", "/spend", "/token"]
)
def test_the_keyboard_reaches_everything_and_is_seen_where_it_is(browser: Browser, shown: Shown, path: str) -> None:
    context, page = open_browser(browser, viewport={"width": 390, "height": 800})
    sign_in(page, shown)
    open_path(page, shown, path)
    stops, places = page.evaluate(STOPS), list[str]()
    for _ in range(stops):
        page.keyboard.press("Tab")
        places.append(page.evaluate(FOCUSED))
    assert set(places) == {"seen"}
    assert page.locator("[data-visited]").count() == stops
    context.close()


def test_a_budget_is_set_by_keyboard_and_a_mistake_is_shown_at_its_field(browser: Browser, shown: Shown) -> None:
    context, page = open_browser(browser, java_script_enabled=False)
    page.goto(f"http://127.0.0.1:{shown.port}/login")
    page.get_by_label("What is behind the #").fill(shown.gate.make_link())
    page.get_by_role("button", name="Open orch").press("Enter")
    refuse_budget(page, shown)
    expect(page.get_by_role("alert")).to_contain_text("'a lot' is not an amount of dollars")
    month = page.get_by_label("Dollars a month")
    assert month.get_attribute("aria-invalid") == "true" and month.get_attribute("aria-describedby") == "problem"
    expect(month).to_be_focused()
    expect(month).to_have_value("a lot")
    expect(page.get_by_label("Dollars a run")).to_have_value("40")
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("$1,500")
    page.keyboard.press("Enter")
    expect(page.locator("#budget-form[open]")).to_have_count(0)  # the form's own address is /spend, too
    expect(page.get_by_role("row", name="everything")).to_contain_text("$1,500.00")
    expect(page.get_by_role("row", name="everything")).to_contain_text("$40.00 a run")
    context.close()


def test_a_task_is_planned_by_keyboard(browser: Browser, shown: Shown) -> None:
    context, page = open_browser(browser)
    sign_in(page, shown)
    open_path(page, shown, "/launch")
    page.get_by_label("Task file").focus()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text("name: mine\nresources: {infra: 'local:1'}\nrun: echo hello\n")
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Show the plan"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Launch mine?")
    context.close()


def test_nothing_moves_when_a_page_becomes_live(browser: Browser, shown: Shown, tmp_path: Path) -> None:
    context, page = open_browser(browser, viewport={"width": 1024, "height": 768})
    sign_in(page, shown)
    for path in ("/", "/runs/one", "/clusters/first", "/spend"):
        open_path(page, shown, path)
        expect(page.get_by_role("status")).to_contain_text("live")
        shifts = page.evaluate(
            """() => new Promise(done => {
                const seen = [];
                new PerformanceObserver(list => seen.push(...list.getEntries().map(one => one.value)))
                    .observe({type: 'layout-shift', buffered: true});
                setTimeout(() => done(seen), 100);
            })"""
        )
        assert sum(shifts) < 0.01, (path, shifts)
    context.close()
