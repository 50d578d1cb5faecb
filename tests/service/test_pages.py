"""The page in a real browser: complete without script, and live with it. test_every_page.py looks for barriers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from support.orch_process import Orch, until
from support.service_site import Served, record_run, serve, write_points

from orchestrator.store.store import Store

CHROMIUM = shutil.which("chromium")
RULES = "['wcag2a','wcag2aa','wcag21aa','wcag22aa','best-practice']"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced colours": {"forced_colors": "active"},
    "phone": {"viewport": {"width": 390, "height": 800}},
}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # root needs it
        yield started
        started.close()


@pytest.fixture(scope="module")
def cookie(site: Served) -> dict[str, Any]:
    name, _, value = site.sign_in().partition("=")
    return {"name": name, "value": value, "url": address(site)}


def address(site: Served, path: str = "") -> str:
    return f"http://127.0.0.1:{site.port}{path}"


def open_context(browser: Browser, cookie: dict[str, Any], **options: Any) -> BrowserContext:
    context = browser.new_context(**options)
    context.add_cookies([cookie])  # type: ignore[list-item]  # a cookie as playwright's typed dict has it
    return context


@pytest.fixture
def page(browser: Browser, cookie: dict[str, Any], site: Served) -> Iterator[Page]:
    """A page that fails the test when it reports an error or asks another server for anything."""
    context = open_context(browser, cookie)
    shown = context.new_page()
    wrong: list[str] = []
    shown.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    own = (address(site), "data:")
    shown.on("request", lambda request: None if request.url.startswith(own) else wrong.append(request.url))
    yield shown
    context.close()
    assert wrong == []


def test_a_page_is_complete_without_script(browser: Browser, cookie: dict[str, Any], site: Served) -> None:
    context = open_context(browser, cookie, java_script_enabled=False)
    shown = context.new_page()
    shown.goto(address(site, "/runs/one"))
    expect(shown.get_by_role("img", name="Loss")).to_be_visible()
    expect(shown.get_by_role("img", name="Cost")).to_be_visible()
    assert shown.locator(".host").count() == 4 and shown.locator(".host .chip").count() == 16
    expect(shown.get_by_role("cell", name="the provider took host 2")).to_be_visible()
    assert shown.get_by_role("img", name="host 2").get_attribute("aria-label") == "host 2, chips 0,2,0 to 1,3,0, lost"
    context.close()


def test_runs_are_chosen_and_compared_without_script(browser: Browser, cookie: dict[str, Any], site: Served) -> None:
    context = open_context(browser, cookie, java_script_enabled=False)
    shown = context.new_page()
    shown.goto(address(site, "/"))
    shown.get_by_label("Compare one").check()
    shown.get_by_label("Compare two").check()
    shown.get_by_role("button", name="Compare").click()
    expect(shown.get_by_role("heading", level=1)).to_have_text("Compare runs")
    assert shown.url.endswith("/compare?run=two&run=one")
    expect(shown.get_by_role("img", name="Loss")).to_be_visible()
    assert shown.locator("#loss .label").count() == 1, "two has no bucket"
    expect(shown.get_by_text("no bucket, so no curve")).to_be_visible()
    context.close()


def test_what_is_chosen_stays_chosen_when_the_list_is_updated(page: Page, site: Served) -> None:
    page.goto(address(site, "/"))
    expect(page.get_by_role("status")).to_contain_text("live")
    page.get_by_label("Compare one").check()
    with Store(site.orch.state / "orch.db") as store:
        record_run(store, "newer", "newer")
    expect(page.get_by_role("link", name="newer")).to_be_visible(timeout=15_000)
    expect(page.get_by_label("Compare one")).to_be_checked()
    expect(page.get_by_label("Compare one")).to_be_focused()


def test_a_page_shows_what_happens(page: Page, site: Served) -> None:
    page.goto(address(site, "/"))
    expect(page.get_by_role("status")).to_contain_text("live")
    assert page.get_by_role("link", name="fresh").count() == 0
    with Store(site.orch.state / "orch.db") as store:
        record_run(store, "later", "fresh")
    expect(page.get_by_role("link", name="fresh")).to_be_visible(timeout=15_000)


def test_arrow_keys_move_between_hosts(page: Page, site: Served) -> None:
    page.goto(address(site, "/clusters/first"))
    page.locator(".host").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("host 2,")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("host 1,")
    assert page.locator(".host[tabindex='0']").count() == 1, "Tab has one stop"


def test_both_charts_have_one_cursor(page: Page, site: Served) -> None:
    page.goto(address(site, "/runs/one"))
    box = page.locator("#loss svg").bounding_box()
    assert box is not None
    for x in (0.5, 0.52):
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + 60)
    expect(page.locator("#loss + .reading")).to_contain_text("step")
    readings = page.locator(".reading").all_inner_texts()
    assert len(set(readings)) == 1 and "loss" in readings[0] and "$" in readings[0]
    places = page.locator(".cursor").evaluate_all("cursors => cursors.map(one => one.getAttribute('x1'))")
    assert len(places) == 2 and places[0] == places[1]


def test_compared_runs_have_one_cursor(page: Page, site: Served) -> None:
    bucket = site.orch.folder / "bucket"
    now = time.time()
    with Store(site.orch.state / "orch.db") as store:
        record_run(store, "third", "short", f"file://{bucket}")
    write_points(bucket, "short", 1, [(step, now + step, 9 - step / 10) for step in range(1, 21)])
    page.goto(address(site, "/compare?run=one&run=two&run=short"))
    chart = page.locator("#loss")
    box = page.locator("#loss svg").bounding_box()
    assert box is not None
    left, right = (float(chart.get_attribute(name) or 0) for name in ("data-left", "data-right"))
    width = page.evaluate("document.querySelector('#loss svg').viewBox.baseVal.width")

    def read_at(step: int) -> str:
        low, high = (float(chart.get_attribute(name) or 0) for name in ("data-low", "data-high"))
        x = left + (step - low) / (high - low) * (right - left)
        page.mouse.move(box["x"] + box["width"] * x / width, box["y"] + 60)
        expect(page.locator("#loss + .reading")).to_contain_text(f"step {step} ·")
        return page.locator("#loss + .reading").inner_text()

    assert read_at(10) == "step 10 · A 4.0000 · C 8.0000", "two has no curve"
    assert read_at(35) == "step 35 · A 1.5000", "short had ended"
    assert page.locator(".cursor").evaluate("one => one.style.visibility") == "visible"
    page.mouse.move(5, 5)
    expect(page.locator("#loss + .reading")).to_be_empty()


def test_text_of_programs_is_only_text(page: Page, site: Served) -> None:
    evil = "<img src=x onerror=alert(1)>"
    with Store(site.orch.state / "orch.db") as store:
        record_run(store, "evil", evil, "file:///nowhere/<b>")
    page.goto(address(site, "/"))
    expect(page.get_by_role("link", name=evil)).to_be_visible()
    page.get_by_role("link", name=evil).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(evil)
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("path", ["/", "/runs/one", "/compare?run=one&run=two", "/spend?by=cluster"])
def test_the_first_load_is_small(page: Page, site: Served, path: str) -> None:
    page.goto(address(site, path))
    loaded = page.evaluate("performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)")
    paths = [path, *(one for one in loaded if one.startswith("/static/"))]
    assert len(paths) == 3
    assert sum(len(site.ask(path, accept_encoding="gzip").body) for path in paths) <= 60_000


def test_a_session_that_ends_is_said(browser: Browser, cookie: dict[str, Any], site: Served) -> None:
    context = open_context(browser, cookie)
    shown = context.new_page()
    shown.goto(address(site, "/"))
    expect(shown.get_by_role("status")).to_contain_text("live")
    context.clear_cookies()
    with Store(site.orch.state / "orch.db") as store:
        record_run(store, "unseen", "unseen")
    expect(shown.get_by_role("status")).to_contain_text("sign in again", timeout=15_000)
    shown.goto(address(site, "/"))
    expect(shown.get_by_text("orch serve --link")).to_be_visible()
    context.close()


def test_a_person_launches_and_takes_down_without_script(browser: Browser, tmp_path: Path) -> None:
    with serve(Orch(tmp_path)) as site:
        context = browser.new_context(java_script_enabled=False, base_url=address(site))
        shown = context.new_page()
        shown.goto(site.link)
        shown.get_by_label("What is behind the #").fill(site.link)  # the whole address is taken, too
        shown.get_by_role("button", name="Open orch").click()
        shown.get_by_role("link", name="Launch").click()
        shown.get_by_label("Task file").fill("name: mine\nresources: {infra: 'local:1'}\nrunn: sleep 60\n")
        shown.get_by_role("button", name="Show the plan").click()
        expect(shown.get_by_role("alert")).to_contain_text("unknown key `runn`")
        shown.get_by_label("Task file").fill("name: mine\nresources: {infra: 'local:1'}\nrun: echo begun && sleep 60\n")
        shown.get_by_role("button", name="Show the plan").click()
        expect(shown.get_by_role("heading", level=1)).to_have_text("Launch mine?")
        shown.get_by_role("button", name="Launch mine").click()
        wait_until_done(shown, "job 1 is queued on 'mine'")
        shown.get_by_role("link", name="The run").click()
        # While it is started its plan changes, and the page would ask again.
        until("it runs", lambda: "begun" in site.orch("logs", "mine", "1").stdout)
        shown.goto("/clusters/mine")
        shown.get_by_role("link", name="Take down").click()
        expect(shown.locator("pre.plan")).to_contain_text("take down cluster 'mine'")
        shown.get_by_role("button", name="Take down mine").click()
        wait_until_done(shown, "cluster 'mine' is deleted")
        context.close()


def wait_until_done(shown: Page, said: str) -> None:
    def is_said() -> bool:
        shown.goto(shown.url)  # Chromium refuses a reload while the answer of the form still becomes the active page
        return said in shown.locator("main").inner_text()

    until(said, is_said, 60)
