"""A person makes a token for a computer on the page: whom it acts for, and what ends it; `orch login` asks for it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.service_site import Reply, Served, serve

from orchestrator.store.token_parents import MOST_PARENTS

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(Orch(tmp_path_factory.mktemp("team"))) as served:
        yield served


def session_of(site: Served, member: str, *words: str) -> str:
    """Return the cookie of a session of a member."""
    link = site.orch.ok("token", "invite", f"{member}-{time.time_ns()}", "--member", member, *words).strip()
    return site.send_form("/join", code=link.partition("#")[2]).headers["set-cookie"].partition(";")[0]


def make_token(site: Served, cookie: str, computer: str = "laptop") -> str:
    return read_token(site.send_form("/token", cookie, computer=computer))


def read_token(shown: Reply) -> str:
    assert shown.status == 200, shown.text
    assert shown.headers["cache-control"] == "no-store"
    (token,) = re.findall(r"orch_[\w-]+", shown.text)
    return token


def who(site: Served, token: str) -> Reply:
    return site.ask("/v1/me", signed=False, authorization=f"Bearer {token}")


def test_a_person_makes_a_token_for_a_computer(team: Served) -> None:
    cookie = session_of(team, "ada", "--role", "owner")
    assert team.ask("/token", signed=False).status == 401
    before = team.ask("/v1/events?limit=1000").document["events"]
    shown = team.ask("/token", signed=False, cookie=cookie).text
    assert "<dd>ada</dd>" in shown and "<dd>owner</dd>" in shown
    assert team.ask("/v1/events?limit=1000").document["events"] == before, "to look changes nothing"
    answer = team.send_form("/token", cookie, computer="adas-laptop")
    assert "orch token revoke adas-laptop" in answer.text
    me = who(team, read_token(answer)).document
    assert (me["member"], me["role"]) == ("ada", "owner")
    events = team.ask("/v1/events?limit=1000").document["events"]
    made = [one["actor"] for one in events if one["what"] == "token 'adas-laptop' for ada, owner"]
    assert len(made) == 1 and made[0].startswith("ada@")


def test_a_token_ends_with_what_its_person_entered_by(team: Served) -> None:
    """It ends with the token of who made it, not with the session: to sign out leaves the laptop alone."""
    link = team.orch.ok("token", "invite", "phone", "--member", "eva", "--project", "vision", "--days", "2").strip()
    cookie = team.send_form("/join", code=link.partition("#")[2]).headers["set-cookie"].partition(";")[0]
    token = make_token(team, cookie, "of-eva")
    me = who(team, token).document
    assert (me["member"], me["only_project"]) == ("eva", "vision")
    listed = {one["name"]: one for one in json.loads(team.orch.ok("token", "-o", "json"))["tokens"]}
    assert listed["of-eva"]["expires"] <= listed["phone"]["expires"]
    team.send_form("/sign-out", cookie)
    assert who(team, token).status == 200
    assert team.send_form("/token", cookie, computer="later").status == 401
    team.orch.ok("token", "revoke", "phone")
    assert who(team, token).status == 401


def test_a_person_who_was_taken_back_makes_no_token(team: Served) -> None:
    cookie = session_of(team, "bob")
    team.orch.ok("token", "revoke", "--member", "bob")
    assert team.send_form("/token", cookie, computer="laptop").status == 401


def test_another_site_makes_no_token(team: Served) -> None:
    cookie, body = session_of(team, "ada"), b"computer=laptop"
    for more in (
        {"sec_fetch_site": "cross-site"},
        {"origin": "http://evil.example"},
        {"sec_fetch_site": "same-origin"},
    ):
        refused = team.ask("/token", method="POST", signed=False, body=body, content_type=FORM, cookie=cookie, **more)
        assert refused.status == 403 and "orch_" not in refused.text, more
    assert team.ask("/token", method="POST", body=body, content_type=FORM).status == 403, "a token has no page"


def test_the_name_of_a_computer_is_text_alone(team: Served) -> None:
    cookie = session_of(team, "ada")
    shown = team.send_form("/token", cookie, computer="<b>x</b> as admin\u202e").text
    assert "b-x--b--as-admin-" in shown and "<b>x" not in shown
    for wrong in ("", "x" * 61):
        assert team.send_form("/token", cookie, computer=wrong).status == 400


def test_computers_of_one_name_get_different_ones(team: Served) -> None:
    cookie = session_of(team, "eva")
    shown = [team.send_form("/token", cookie, computer="evas").text for _ in range(2)]
    assert ["The token of evas<" in shown[0], "The token of evas-2<" in shown[1]] == [True, True]


def test_a_token_is_not_kept(team: Served) -> None:
    token = make_token(team, session_of(team, "ada"))
    kept = b"".join(path.read_bytes() for path in team.orch.state.rglob("*") if path.is_file())
    assert token.encode() not in kept


def test_a_computer_that_many_let_in_one_after_the_other_lets_no_other_in(team: Served) -> None:
    cookie = session_of(team, "gil")
    for number in range(MOST_PARENTS):
        token = f"Bearer {make_token(team, cookie, f'gil-{number}')}"
        link = team.ask("/v1/links", method="POST", signed=False, authorization=token, content_length="0")
        entered = team.send_form("/login", code=link.document["link"], target="/")
        cookie = entered.headers["set-cookie"].partition(";")[0]
    refused = team.send_form("/token", cookie, computer="gil-further")
    assert refused.status == 403 and "makes no other token" in refused.text


def test_orch_login_on_a_terminal_asks_for_the_token(team: Served, tmp_path: Path) -> None:
    ada, url = Orch(tmp_path), f"http://127.0.0.1:{team.port}"
    near, far = pty.openpty()
    process = subprocess.Popen(
        ada.command("login", url), env=ada.env, cwd=ada.folder, stdin=far, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == f"make a token at {url}/token, and paste it here\n"
    os.write(near, f"{make_token(team, session_of(team, 'ada'), 'adas')}\n".encode())
    out, rest = process.communicate(timeout=60)
    os.close(near)
    os.close(far)
    assert process.returncode == 0 and f"you are ada (member) at {url}" in rest, rest
    assert out.startswith(f"{url}/login#") and ada.ok("login").startswith(f"{url}/login#")


@pytest.mark.parametrize("words", [("--member", "ada lovelace"), ("--member", "-ada"), ("--member", "a/b")])
def test_a_name_that_commands_cannot_take_is_refused_with_the_reason(team: Served, words: tuple[str, ...]) -> None:
    refused = team.orch("token", "create", "laptop", *words)
    assert refused.returncode == 2 and "cannot be a member" in refused.stderr and "without blanks" in refused.stderr
