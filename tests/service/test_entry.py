"""How a person enters and leaves: invitations, one-time links and sign-out, by HTTP and in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from support.orch_process import Orch
from support.service_site import Served, serve

from orchestrator.service.entry_pages import choose_target

CHROMIUM = shutil.which("chromium")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(Orch(tmp_path_factory.mktemp("team"))) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # root needs it
        yield started
        started.close()


def invite(site: Served, name: str, *words: str) -> str:
    """Return the link of a new invitation."""
    return site.orch.ok("token", "invite", name, "--member", name, *words).strip()


def show_member(site: Served, **headers: str) -> Any:
    return site.ask("/v1/me", signed=False, **headers)


def test_an_invitation_is_a_session_and_a_token_once(team: Served) -> None:
    link = invite(team, "ada", "--role", "owner")
    assert re.fullmatch(rf"http://127\.0\.0\.1:{team.port}/join#[\w-]{{40,}}", link)
    code = link.partition("#")[2]
    for _ in range(3):  # as scanners of mail programs do
        assert team.ask(f"/join?x={code}", signed=False).status == 400
        assert "set-cookie" not in team.ask("/join", signed=False).headers
    joined = team.send_form("/join", code=code)
    assert joined.status == 200 and joined.headers["cache-control"] == "no-store"
    cookie = joined.headers["set-cookie"].partition(";")[0]
    (token,) = re.findall(r"orch_[\w-]{40,}", joined.text)
    for headers in ({"cookie": cookie}, {"authorization": f"Bearer {token}"}):
        document = show_member(team, **headers).document
        assert (document["member"], document["role"]) == ("ada", "owner")
    again = team.send_form("/join", code=code)
    assert again.status == 403 and "used before" in again.text and "orch_" not in again.text
    kept = b"".join(path.read_bytes() for path in team.orch.state.rglob("*") if path.is_file())
    assert not [secret for secret in (code, token, cookie.partition("=")[2]) if secret.encode() in kept]


def test_invitations_are_listed_and_taken_back(team: Served) -> None:
    link = invite(team, "bert", "--expires", "2h")
    listed = {one["name"]: one for one in json.loads(team.orch.ok("token", "-o", "json"))["tokens"]}
    assert (listed["bert"]["kind"], listed["bert"]["counts"], listed["bert"]["used"]) == ("invitation", True, None)
    assert "bert  invitation  bert    member  all      expires soon" in team.orch.ok("token")
    assert link.partition("#")[2] not in json.dumps(listed)
    assert team.orch("token", "invite", "bert", "--member", "bert").returncode == 6
    team.orch.ok("token", "revoke", "bert")
    assert team.send_form("/join", code=link.partition("#")[2]).status == 403
    for wrong in ("31d", "0s", "soon"):
        assert team.orch("token", "invite", "x", "--member", "x", "--expires", wrong).returncode == 2


def test_a_form_of_another_site_opens_nothing(team: Served) -> None:
    """Login CSRF: another page must not put this browser into the session of someone else."""
    code = invite(team, "carl").partition("#")[2]
    form = "application/x-www-form-urlencoded"
    for path in ("/join", "/login"):
        for origin in ({"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"sec_fetch_site": "none"},
                       {"origin": "http://evil.example"}, {}):  # fmt: skip
            wrong = team.ask(
                path, method="POST", signed=False, body=f"code={code}".encode(), content_type=form, **origin
            )
            assert wrong.status == 403 and "set-cookie" not in wrong.headers, (path, origin)
    body = f"code={code}".encode()
    with_token = team.ask("/join", method="POST", body=body, content_type=form, sec_fetch_site="same-origin")
    assert with_token.status == 403, "a program has no browser"
    assert team.send_form("/join", code=code).status == 200, "none of it has used the invitation"


def test_a_sign_in_gives_a_new_session_and_ends_the_one_before(team: Served) -> None:
    """Session fixation: what the browser had before counts for nothing."""
    fixed = f"orch_session_{team.port}=fixed-by-someone-else"
    code = team.ask("/v1/links", method="POST", content_length="0").document["link"]
    first = team.send_form("/login", fixed, code=code).headers["set-cookie"].partition(";")[0]
    assert first != fixed and show_member(team, cookie=fixed).status == 401
    code = team.ask("/v1/links", method="POST", content_length="0").document["link"]
    second = team.send_form("/login", first, code=code).headers["set-cookie"].partition(";")[0]
    assert [show_member(team, cookie=one).status for one in (first, second)] == [401, 200]


def test_sign_out_ends_the_session_everywhere_and_takes_the_cookie(team: Served) -> None:
    cookie, other = team.sign_in(), team.sign_in()
    assert "Sign out" in team.ask("/", signed=False, cookie=cookie).text
    assert team.ask("/sign-out", signed=False, cookie=cookie).status == 405, "a GET changes nothing"
    assert team.send_form("/sign-out", cookie, _token="wrong").status == 403
    ended = team.send_form("/sign-out", cookie)
    assert (ended.status, ended.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert [show_member(team, cookie=one).status for one in (cookie, other)] == [401, 200]


def test_sessions_outlive_the_server(tmp_path: Any) -> None:
    orch = Orch(tmp_path)
    with serve(orch) as first:
        secret = first.sign_in().partition("=")[2]
        with serve(orch) as beside:
            assert show_member(beside, cookie=f"orch_session_{beside.port}={secret}").status == 200
    with serve(orch) as after:
        cookie = f"orch_session_{after.port}={secret}"
        assert show_member(after, cookie=cookie).status == 200
        after.send_form("/sign-out", cookie)
        assert show_member(after, cookie=cookie).status == 401


@pytest.mark.parametrize(
    "text",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "evil.example",
        "/%0d%0a\r\nx",
        "javascript:x",
        "",
        "/ ",
    ],
)
def test_a_sign_in_leads_to_this_server_alone(team: Served, text: str) -> None:
    assert choose_target(text) == "/"
    code = team.ask("/v1/links", method="POST", content_length="0").document["link"]
    assert team.send_form("/login", code=code, target=text).headers["location"] == "/"


def test_a_sign_in_leads_to_the_page_that_needed_it(team: Served) -> None:
    closed = team.ask("/runs/x?x=time", signed=False)
    assert closed.status == 401 and 'href="/login?target=/runs/x%3Fx%3Dtime"' in closed.text
    shown = team.ask("/login?target=/runs/x%3Fx%3Dtime", signed=False).text
    assert 'name="target" value="/runs/x?x=time"' in shown


@in_browser
@pytest.mark.parametrize("script", [True, False])
def test_an_invitation_is_accepted_in_a_browser(team: Served, browser: Browser, script: bool) -> None:
    name = f"dora-{script}".lower()
    link = invite(team, name)
    context = browser.new_context(java_script_enabled=script)
    page, sent = context.new_page(), list[str]()
    page.on("request", lambda request: sent.append(request.url + str(request.headers)))
    page.goto(link)
    code = link.partition("#")[2]
    if script:
        expect(page.get_by_role("textbox")).to_have_count(0)
        assert page.url == link.partition("#")[0], "the secret leaves the address"
    else:
        page.get_by_role("textbox").fill(code)
    page.get_by_role("button", name="Accept the invitation").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Welcome, {name}")
    expect(page.locator(".secret")).to_contain_text("orch_")
    page.get_by_role("link", name="To the runs").click()
    expect(page.locator("header")).to_contain_text(name)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.goto(link.partition("/join")[0])
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    assert code not in "".join(sent)
    context.close()


@in_browser
def test_a_link_opens_the_page_in_a_browser(team: Served, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(team.orch.ok("serve", "--link").strip())
    page.get_by_role("button", name="Open orch").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    context.close()
