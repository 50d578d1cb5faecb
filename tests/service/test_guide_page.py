"""The page `/new`: the questions of `orch init` in forms, up to the plan; with a keyboard, and without script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml
from playwright.sync_api import Browser, expect
from support.orch_process import Orch
from support.service_site import Reply, Served, serve
from test_pages import CHROMIUM, LOOKS, RULES, address, browser, open_context

CANARY = "canary-of-the-server"
MODEL = {"infra": "aws", "model": "tiny", "tokens": "1M"}
WHOLE = {**MODEL, "machine": "g6.xlarge", "market": "spot", "bucket": "s3://mine-runs/a", "max_cost": "5"}
STEPS = [{}, {"infra": "aws"}, {"infra": "aws", "model": "tiny"}, MODEL, {"infra": "aws", "program": "python train.py"},
         {**MODEL, "machine": "g6.xlarge"}, {**MODEL, "machine": "g6.xlarge", "market": "spot"},
         {key: value for key, value in WHOLE.items() if key != "max_cost"}, WHOLE,
         {**MODEL, "other": "nothing-like-it"}, {**MODEL, "budget": "0.01", "by": "1s"}]  # fmt: skip
HOSTILE = {
    "infra": "<script>x", "bucket": '"><img src=x>', "max_cost": "1e999", "tokens": "\x00", "by": "-1h",
    "program": "HF_TOKEN=hf_" + "a" * 34, "other": "../../etc/passwd",
}  # fmt: skip
__all__ = ["browser"]  # a fixture of this file, too
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A service with credentials of one cloud, and tokens of its members."""
    orch = Orch(tmp_path_factory.mktemp("guide"))
    (orch.folder / ".aws").mkdir()
    secret = f"[{CANARY}]\naws_access_key_id = AKIA{CANARY}\naws_secret_access_key = {CANARY}\n"
    (orch.folder / ".aws" / "credentials").write_text(secret)
    tokens = {
        role: orch.ok("token", "create", role, "--member", "bob", "--role", role).strip()
        for role in ("viewer", "member", "owner")
    }
    with serve(orch) as served:
        yield served, tokens | {"admin": served.token}


@pytest.fixture(scope="module")
def cookie(team: tuple[Served, dict[str, str]]) -> dict[str, Any]:
    site = team[0]
    name, _, value = site.sign_in().partition("=")
    return {"name": name, "value": value, "url": address(site)}


def ask(team: tuple[Served, dict[str, str]], role: str, answers: dict[str, str]) -> Reply:
    site, tokens = team
    return site.ask(f"/new?{urlencode(answers)}", signed=False, authorization=f"Bearer {tokens[role]}")


def read_task(page: Reply) -> dict[str, Any]:
    from html import unescape

    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", page.text, re.DOTALL)
    assert found is not None, page.text
    task: dict[str, Any] = yaml.safe_load(unescape(found[1]))
    return task


@pytest.mark.parametrize("role", ["member", "owner"])
def test_a_member_sees_the_clouds_and_nothing_of_where_they_were_found(
    team: tuple[Served, dict[str, str]], role: str
) -> None:
    for answers in STEPS:
        shown = ask(team, role, answers)
        assert CANARY not in shown.text and ".aws" not in shown.text and 'value="local"' not in shown.text
    first = ask(team, role, {})
    assert 'value="aws"' in first.text and "gcloud" not in first.text and "set up on this server" in first.text


def test_an_administrator_sees_where_a_cloud_was_found_and_never_a_key(team: tuple[Served, dict[str, str]]) -> None:
    shown = ask(team, "admin", {}).text
    assert "~/.aws/credentials has credentials" in shown and "aws_secret" not in shown and f"AKIA{CANARY}" not in shown
    assert 'value="local"' in shown and "gcloud auth application-default login" in shown


def test_a_viewer_is_refused(team: tuple[Served, dict[str, str]]) -> None:
    assert ask(team, "viewer", {}).status == 403


@pytest.mark.parametrize("place", ["local", "local:1", "hosts", "gcp", "simulated", "*", "no"])
def test_a_member_does_not_get_another_place(team: tuple[Served, dict[str, str]], place: str) -> None:
    shown = ask(team, "owner", {**WHOLE, "infra": place})
    assert shown.status == 400 and "<textarea" not in shown.text and 'role="alert"' in shown.text


def test_a_member_does_not_come_to_a_task_on_the_server(team: tuple[Served, dict[str, str]]) -> None:
    answers = {"infra": "local", "program": "id", "machine": "1", "bucket": "none"}
    assert read_task(ask(team, "admin", answers))["resources"] == {"infra": "local:1"}
    assert ask(team, "owner", answers).status == 400


def test_all_answers_lead_to_the_task_that_the_command_line_writes(
    team: tuple[Served, dict[str, str]], tmp_path: Any
) -> None:
    orch = Orch(tmp_path)
    words = ("--infra", "aws", "--model", "tiny", "--tokens", "1M", "--instance-type", "g6.xlarge", "--use-spot",
             "--bucket", "s3://mine-runs/a", "--max-cost", "5", "--no-check")  # fmt: skip
    orch("init", *words)
    assert read_task(ask(team, "member", WHOLE)) == yaml.safe_load((tmp_path / "task.yaml").read_text())


def test_hostile_answers_are_shown_escaped_and_refused(team: tuple[Served, dict[str, str]]) -> None:
    for key, text in HOSTILE.items():
        before = {
            name: value for name, value in WHOLE.items() if name not in (key, "model" if key == "program" else "")
        }
        shown = ask(team, "member", {**before, key: text})
        assert shown.status == 400, (key, shown.text)
        assert "<script>x" not in shown.text and "<img" not in shown.text


def test_quotes_and_yaml_in_a_command_stay_what_they_are(team: tuple[Served, dict[str, str]]) -> None:
    program = "python -c 'print(\"a: b # c\")' </textarea>&amp; {x: [y]} %TAG !!python/object"
    answers = {name: value for name, value in WHOLE.items() if name not in ("model", "tokens")}
    assert read_task(ask(team, "member", {**answers, "program": program}))["run"] == program


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS)
def test_no_step_has_a_barrier(
    browser: Browser, cookie: dict[str, Any], team: tuple[Served, dict[str, str]], look: str
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    context = open_context(browser, cookie, **LOOKS[look])
    shown = context.new_page()
    found: dict[str, Any] = {}
    for answers in STEPS:
        shown.goto(address(team[0], f"/new?{urlencode(answers)}"))
        shown.evaluate(axe)
        report = shown.evaluate(f"axe.run(document, {{runOnly: {RULES}}})")
        wide = shown.evaluate("document.documentElement.scrollWidth > innerWidth")
        if report["violations"] or wide:
            found[str(answers)] = [(one["id"], one["nodes"][0]["html"][:120]) for one in report["violations"]], wide
    context.close()
    assert found == {}


@needs_chromium
@pytest.mark.slow
def test_a_person_comes_to_a_plan_with_the_keyboard_and_without_script(
    browser: Browser, cookie: dict[str, Any], team: tuple[Served, dict[str, str]]
) -> None:
    context = open_context(browser, cookie, java_script_enabled=False, viewport={"width": 320, "height": 800})
    shown = context.new_page()
    shown.goto(address(team[0], "/launch"))
    shown.get_by_role("link", name="answer some questions").press("Enter")
    shown.get_by_role("radio", name="aws").press("Space")
    shown.keyboard.press("Enter")
    shown.get_by_label("Or the command of your program").fill("python train.py")
    shown.keyboard.press("Enter")
    shown.get_by_label("At most so many US dollars").fill("0.1")
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("radio")).to_have_count(1)
    shown.get_by_role("link", name="change budget").press("Enter")
    assert shown.get_by_role("radio").count() > 4
    shown.get_by_label("Or another machine, by its name").fill("t3.huge")
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("alert")).to_contain_text("t3.huge")
    shown.get_by_label("Or another machine, by its name").fill("t3.medium")
    shown.keyboard.press("Enter")
    shown.get_by_role("button", name="Next").press("Enter")
    shown.get_by_label("Which bucket keeps the checkpoints?").fill("none")
    shown.keyboard.press("Enter")
    shown.get_by_label("How many US dollars may the run cost?").fill("2")
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("heading", level=1)).to_have_text("Launch")
    shown.get_by_role("button", name="Show the plan").press("Enter")
    expect(shown.get_by_text("t3.medium").first).to_be_visible()
    expect(shown.get_by_role("heading", level=1)).to_contain_text("aunch")
    context.close()
