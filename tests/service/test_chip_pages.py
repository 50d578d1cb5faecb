"""Use, memory and temperature of chips: what is drawn, in words and shapes, with and without script."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from service_here import serve_here
from support.orch_process import Orch, until
from support.service_site import CANDIDATE, record_run, serve
from test_pages import LOOKS, RULES

from orchestrator.hosts import ChipReport, ChipSample, JobPhase
from orchestrator.plan.observed import Contact, HostView
from orchestrator.service.host_board import HostBoard
from orchestrator.service.openapi import load_schema
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.store import Store
from orchestrator.values import Text

GIB = 2**30
GPU = Candidate(provider="aws", accelerator="p5.48xlarge", hosts=2, chips_per_host=8, market=OnDemand())
LARGE = Candidate(provider="gcp", accelerator="v5p-1024", hosts=128, chips_per_host=4, market=OnDemand())
PAGES = ("/clusters/gpus?chips=temperature", "/clusters/tpus?chips=memory", "/clusters/large?chips=use",
         "/clusters/unseen?chips=use", "/runs/gpus-run?x=time&chips=use")  # fmt: skip

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium: apt install chromium")


def chip(number: int, **changes: Any) -> ChipSample:
    given: dict[str, Any] = {
        "use": 0.97, "used": 60 * GIB, "total": 80 * GIB, "temperature": 64.0, "slowdown": 88.0, "power": 600.0,
        "errors": 0,
    } | changes  # fmt: skip
    return ChipSample(name=str(number), **given)


def view(rank: int, chips: Sequence[ChipSample] | None) -> HostView:
    report = None if chips is None else ChipReport(age=3.0, chips=tuple(chips))
    return HostView(
        rank=rank, internal_ip=Text.of("10.0.0.1"), contact=Contact.OK, job=JobPhase.RUNNING, step=10, beat_age=1.0,
        chips=report,
    )  # fmt: skip


def sick_gpus() -> list[ChipSample]:
    return [chip(number) for number in range(5)] + [chip(5, temperature=88.0), chip(6, errors=2), chip(7, use=None)]


@dataclass(frozen=True, kw_only=True)
class Here:
    board: HostBoard
    uids: dict[str, str]
    store: Path
    port: int
    token: str
    cookie: dict[str, Any]

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ask(self, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path, headers={"authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        assert answer.status == 200
        return json.loads(answer.read())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    """Two machines of eight GPUs, a TPU slice, a large one, and a cluster that no engine observes."""
    folder = tmp_path_factory.mktemp("chips")
    board, uids = HostBoard(now=lambda: 0.0), dict[str, str]()  # what it has stays new
    with Store(folder / "orch.db") as store:
        for name, candidate in {"gpus": GPU, "tpus": CANDIDATE, "large": LARGE, "unseen": GPU}.items():
            uids[name] = record_run(store, name, f"{name}-run", candidate=candidate, ended=False).uid
    board.note(uids["gpus"], [view(0, sick_gpus()), view(1, None)])
    board.note(uids["tpus"], [view(rank, [chip(n, temperature=None) for n in range(4)]) for rank in range(4)])
    few = {rank: [chip(number, use=0.8 + number / 100) for number in range(4)] for rank in (0, 100)}
    board.note(uids["large"], [view(rank, few.get(rank)) for rank in range(128)])
    with serve_here(folder / "orch.db", board) as shown:
        name, value = f"orch_session_{shown.port}", shown.gate.open_session(shown.gate.make_link())
        yield Here(
            board=board, uids=uids, store=folder / "orch.db", port=shown.port, token=shown.gate.read_token(),
            cookie={"name": name, "value": value, "url": f"http://127.0.0.1:{shown.port}"},
        )  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield started
        started.close()


def open_page(browser: Browser, here: Here, path: str, **options: Any) -> tuple[BrowserContext, Page]:
    context = browser.new_context(**options)
    context.add_cookies([here.cookie])  # type: ignore[list-item]  # a cookie as playwright's typed dict has it
    shown = context.new_page()
    shown.goto(here.address(path))
    return context, shown


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS)
def test_no_drawing_of_chips_has_a_barrier(browser: Browser, here: Here, look: str) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    context, shown = open_page(browser, here, "/clusters", **LOOKS[look])
    for path in PAGES:
        shown.goto(here.address(path))
        shown.locator("#host-table summary").click()
        shown.evaluate(axe)
        report = shown.evaluate(f"axe.run(document, {{runOnly: {RULES}}})")
        if report["violations"]:
            found[path] = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in report["violations"]]
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    context.close()
    assert found == {}


@needs_chromium
def test_what_chips_show_is_chosen_without_script(browser: Browser, here: Here) -> None:
    context, shown = open_page(browser, here, "/runs/gpus-run?x=time", java_script_enabled=False)
    shown.get_by_role("link", name="temperature").click()
    assert shown.url.endswith("?x=time&chips=temperature"), "the axis stays"
    expect(shown.get_by_role("link", name="temperature")).to_have_attribute("aria-current", "true")
    assert shown.locator(".host .value").all_text_contents() == ["64"] * 5 + ["88"] + ["64"] * 2
    assert shown.locator(".chip.hot").count() == 1 and shown.locator(".fault").count() == 1 + 1, "one, and the legend"
    assert shown.locator(".chip.unknown").count() == 8, "all of the host without a sample"
    assert "hatch" in shown.locator(".chip.unknown").first.evaluate("one => getComputedStyle(one).fill")
    name = shown.get_by_role("img", name="host 0").get_attribute("aria-label") or ""
    assert "88 °C, slows down at 88 °C" in name and "64 °C, which slows down at 88 °C, 2 uncorrected errors" in name
    assert (shown.get_by_role("img", name="host 1").get_attribute("aria-label") or "").endswith("; not known")
    shown.get_by_role("link", name="steps").last.click()
    assert shown.locator(".value").count() == 0 and shown.locator(".host.ready").count() == 2
    context.close()


@needs_chromium
def test_the_table_has_a_row_for_each_chip(browser: Browser, here: Here) -> None:
    context, shown = open_page(browser, here, "/clusters/gpus?chips=use", java_script_enabled=False)
    shown.locator("#host-table summary").click()
    rows = shown.get_by_role("region", name="Table of chips").get_by_role("row")
    assert rows.count() == 1 + 8
    assert rows.nth(7).inner_text().split("\t") == [
        "0", "6", "97 %", "60 GiB of 80 GiB", "64 °C", "88 °C", "600 W", "2",
    ]  # fmt: skip
    assert rows.nth(8).inner_text().split("\t")[2] == "not known"
    expect(shown.get_by_text("MFU is known of the run, not of a chip")).to_be_visible()
    context.close()


@needs_chromium
def test_a_large_slice_shows_the_chip_that_matters_of_each_host(browser: Browser, here: Here) -> None:
    context, shown = open_page(browser, here, "/clusters/large?chips=use", java_script_enabled=False)
    assert shown.locator(".host").count() == 128
    name = shown.locator(".host").nth(100).get_attribute("aria-label") or ""
    assert name.endswith("; use: lowest of 4 chips 80 % in use")
    context.close()


@needs_chromium
def test_the_keyboard_reaches_what_chips_show_and_keeps_it_when_numbers_change(browser: Browser, here: Here) -> None:
    context, shown = open_page(browser, here, "/clusters/tpus?chips=use")
    expect(shown.get_by_role("status")).to_contain_text("live")
    assert set(shown.locator(".host .value").all_text_contents()) == {"97"}
    shown.get_by_role("link", name="use").focus()
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.textContent") == "memory"
    here.board.note(here.uids["tpus"], [view(rank, [chip(n, use=0.5) for n in range(4)]) for rank in range(4)])
    with Store(here.store) as store:
        record_run(store, f"another-{time.time_ns()}", "another")  # an event, before the 20 s have passed
    expect(shown.locator(".host .value").first).to_have_text("50", timeout=15_000)
    assert shown.evaluate("document.activeElement.textContent") == "memory"
    shown.keyboard.press("Enter")
    shown.wait_for_url("**chips=memory")
    assert set(shown.locator(".host .value").all_text_contents()) == {"75"}
    context.close()


@needs_chromium
def test_what_is_not_known_yet_is_said(browser: Browser, here: Here) -> None:
    context, shown = open_page(browser, here, "/clusters/unseen?chips=use", java_script_enabled=False)
    expect(shown.get_by_text("no engine of this server observes these hosts")).to_be_visible()
    assert here.board.is_watched(here.uids["unseen"]), "whoever looks asks for samples"
    context.close()


def test_the_document_of_chips(here: Here) -> None:
    document = here.ask("/v1/clusters/gpus/chips")
    jsonschema.validate(document, load_schema("chips"))
    first, second = document["hosts"]
    assert first["sample_age"] >= 3 and len(first["chips"]) == 8
    assert first["chips"][6] == {
        "name": "6", "use": 0.97, "memory_used": 60 * GIB, "memory_total": 80 * GIB, "temperature": 64.0,
        "slowdown_temperature": 88.0, "power": 600.0, "uncorrected_errors": 2,
    }  # fmt: skip
    assert (second["sample_age"], second["chips"]) == (None, [])
    assert here.ask("/v1/clusters/unseen/chips")["hosts"] == []


PROGRAM = """
mkdir -p ~/.local/bin
cat > ~/.local/bin/nvidia-smi <<'END'
#!/bin/sh
case "$*" in *query*) for gpu in 0 1 2 3 4 5 6 7; do echo "$gpu, 9$gpu, 61234, 81559, 6$gpu, 634.12, 0"; done;; esac
END
chmod +x ~/.local/bin/nvidia-smi
step=0; while sleep 0.5; do step=$((step + 1)); echo $step > "$ORCH_HEARTBEAT_FILE"; done
"""


@pytest.mark.slow
def test_the_page_shows_what_a_tool_on_a_real_host_reports(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    with serve(orch, page_only=False) as site:
        try:
            orch.ok("launch", PROGRAM, "--infra", "local:p5.48xlarge", "-c", "mine", "--detach", "--yes")
            until("its start", lambda: site.ask("/v1/clusters/mine").document["clusters"][0]["jobs"] != [], 60)
            time.sleep(3)
            assert not list(tmp_path.glob("**/.orch/hosts/*/chips")), "no one looks"
            end = time.monotonic() + 120
            while 'class="value"' not in (page := site.ask("/clusters/mine?chips=temperature").text):
                assert time.monotonic() < end, page
                time.sleep(2)
            assert "60 °C, 61 °C, 62 °C, 63 °C, 64 °C, 65 °C, 66 °C, 67 °C" in page
            (host,) = site.ask("/v1/clusters/mine/chips").document["hosts"]
            assert [one["use"] for one in host["chips"]] == [(90 + gpu) / 100 for gpu in range(8)]
        finally:
            orch.ok("down", "mine", "--yes")
            orch.kill_engines()
