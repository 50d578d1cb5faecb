"""A computer is let in by a person on the page: the codes, their limits, and `orch login` on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_site import Reply, Served, serve
from support.orch_process import Orch

from orchestrator.service.guesses import GUESS_SECONDS, MOST_WRONG, GuessCounter
from orchestrator.store.store import Store
from orchestrator.store.token_parents import MOST_PARENTS

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(Orch(tmp_path_factory.mktemp("team"))) as served:
        yield served


def post(site: Served, path: str, **body: Any) -> Reply:
    return site.ask(path, method="POST", signed=False, body=json.dumps(body).encode(), content_type="application/json")


def request_codes(site: Served, computer: str = "laptop") -> Any:
    found = post(site, "/v1/device/code", computer=computer)
    assert found.status == 200, found.text
    return found.document


def poll(site: Served, codes: Any) -> Any:
    """Ask for the token, as late as the interval wants it."""
    with Store(site.orch.state / "orch.db") as store:
        store._database.write(_sqlite_reset())
    return post(site, "/v1/device/token", device_code=codes["device_code"]).document


def _sqlite_reset() -> Any:
    from sqlalchemy import update

    from orchestrator.store.schema import device_grants

    return update(device_grants).values(polled=0)


def session_of(site: Served, member: str, role: str = "member") -> str:
    """Return the cookie of a session of a member."""
    name = f"{member}-{time.time_ns()}"
    link = site.orch.ok("token", "invite", name, "--member", member, "--role", role).strip()
    return site.send_form("/join", code=link.partition("#")[2]).headers["set-cookie"].partition(";")[0]


def decide(site: Served, cookie: str, code: str, decision: str = "allow") -> Reply:
    return site.send_form("/device", cookie, user_code=code, decision=decision)


def test_a_person_lets_a_computer_in(team: Served) -> None:
    codes = request_codes(team)
    assert re.fullmatch(r"[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}", codes["user_code"])
    assert codes["verification_uri_complete"] == f"{codes['verification_uri']}?user_code={codes['user_code']}"
    assert poll(team, codes)["error"] == "authorization_pending"
    cookie = session_of(team, "ada", "owner")
    path = f"/device?user_code={codes['user_code'].lower()}"
    assert team.ask(path, signed=False).status == 401
    shown = team.ask(path, signed=False, cookie=cookie).text
    assert all(words in shown for words in ("laptop", codes["user_code"], "ada", "owner", "they would act as you"))
    assert poll(team, codes)["error"] == "authorization_pending", "to look changes nothing"
    assert decide(team, cookie, codes["user_code"]).status == 200
    assert decide(team, cookie, codes["user_code"]).status == 404, "decided"
    got = poll(team, codes)
    assert (got["token_type"], got["name"]) == ("Bearer", "laptop")
    me = team.ask("/v1/me", signed=False, authorization=f"Bearer {got['access_token']}").document
    assert (me["member"], me["role"]) == ("ada", "owner")
    assert poll(team, codes)["error"] == "expired_token", "a token is given once"
    events = team.ask("/v1/events?limit=1000").document["events"]
    made = [one["actor"] for one in events if one["what"] == "token 'laptop' for ada, owner"]
    assert len(made) == 1 and made[0].startswith("ada@")


def test_a_computer_that_is_refused_gets_nothing(team: Served) -> None:
    codes, cookie = request_codes(team), session_of(team, "ada")
    assert decide(team, cookie, codes["user_code"], "refuse").status == 200
    assert poll(team, codes)["error"] == "access_denied"
    assert decide(team, cookie, codes["user_code"]).status == 404


def test_a_computer_that_asks_too_often_is_slowed_down(team: Served) -> None:
    codes = request_codes(team)
    assert poll(team, codes)["error"] == "authorization_pending"
    again = post(team, "/v1/device/token", device_code=codes["device_code"])
    assert (again.status, again.document["error"]) == (400, "slow_down")
    assert post(team, "/v1/device/token", device_code="guessed").document["error"] == "expired_token"
    assert post(team, "/v1/device/token", device_code=codes["user_code"]).document["error"] == "expired_token"


@pytest.mark.parametrize("how", ["revoke", "sign out"])
def test_who_may_not_enter_any_more_has_let_no_one_in(team: Served, how: str) -> None:
    codes, member = request_codes(team), f"bob-{how[:4]}"
    cookie = session_of(team, member)
    assert decide(team, cookie, codes["user_code"]).status == 200
    if how == "revoke":
        team.orch.ok("token", "revoke", "--member", member)
    else:
        team.send_form("/sign-out", cookie)
    assert poll(team, codes)["error"] == "access_denied"


def test_a_computer_is_out_with_what_has_let_it_in(team: Served) -> None:
    """Its token ends with the token of who let it in, not with the session: to sign out leaves the laptop alone."""
    link = team.orch.ok("token", "invite", "phone", "--member", "eva", "--project", "vision").strip()
    cookie = team.send_form("/join", code=link.partition("#")[2]).headers["set-cookie"].partition(";")[0]
    codes = request_codes(team, "of-eva")
    assert decide(team, cookie, codes["user_code"]).status == 200
    token = f"Bearer {poll(team, codes)['access_token']}"
    me = team.ask("/v1/me", signed=False, authorization=token).document
    assert (me["member"], me["only_project"]) == ("eva", "vision")
    team.send_form("/sign-out", cookie)
    assert team.ask("/v1/me", signed=False, authorization=token).status == 200
    team.orch.ok("token", "revoke", "phone")
    assert team.ask("/v1/me", signed=False, authorization=token).status == 401


@pytest.mark.parametrize("words", [("--member", "ada lovelace"), ("--member", "-ada"), ("--member", "a/b")])
def test_a_name_that_commands_cannot_take_is_refused_with_the_reason(team: Served, words: tuple[str, ...]) -> None:
    refused = team.orch("token", "create", "laptop", *words)
    assert refused.returncode == 2 and "cannot be a member" in refused.stderr and "without blanks" in refused.stderr


def test_codes_are_not_found_by_trying(team: Served) -> None:
    codes, cookie, other = request_codes(team), session_of(team, "carl"), session_of(team, "dora")
    for number in range(MOST_WRONG):
        wrong = f"BBBB-BBB{'BCDFGHJKLM'[number]}"
        answer = decide(team, cookie, wrong) if number % 2 else team.ask(
            f"/device?user_code={wrong}", signed=False, cookie=cookie
        )  # fmt: skip
        assert answer.status == 404 and "no computer waits" in answer.text
    assert "too many wrong codes" in decide(team, cookie, codes["user_code"]).text
    assert (
        "too many wrong codes" in team.ask(f"/device?user_code={codes['user_code']}", signed=False, cookie=cookie).text
    )
    assert decide(team, other, codes["user_code"]).status == 200, "another member is not kept out"


def test_wrong_codes_are_forgotten_in_their_time() -> None:
    now = [0.0]
    counter = GuessCounter(clock=lambda: now[0])
    for _ in range(MOST_WRONG):
        assert counter.may_guess("ada")
        counter.note_wrong("ada")
    assert not counter.may_guess("ada") and counter.may_guess("bob")
    now[0] = GUESS_SECONDS
    assert counter.may_guess("ada")


def test_another_site_lets_no_computer_in(team: Served) -> None:
    codes, cookie = request_codes(team), session_of(team, "ada")
    body = f"user_code={codes['user_code']}&decision=allow".encode()
    for more in (
        {"sec_fetch_site": "cross-site"},
        {"origin": "http://evil.example"},
        {"sec_fetch_site": "same-origin"},
    ):
        refused = team.ask("/device", method="POST", signed=False, body=body, content_type=FORM, cookie=cookie, **more)
        assert refused.status == 403, more
    assert team.ask("/device", method="POST", body=body, content_type=FORM).status == 403, "a token has no page"
    assert poll(team, codes)["error"] == "authorization_pending"


def test_the_name_of_a_computer_is_text_alone(team: Served) -> None:
    codes, cookie = request_codes(team, "<b>x</b> as admin\u202e"), session_of(team, "ada")
    shown = team.ask(f"/device?user_code={codes['user_code']}", signed=False, cookie=cookie).text
    assert "b-x--b--as-admin-" in shown and "<b>x" not in shown
    for wrong in ("", "x" * 61):
        assert post(team, "/v1/device/code", computer=wrong).status == 400


def test_a_computer_asks_again_under_the_same_name(team: Served) -> None:
    names = []
    cookie = session_of(team, "eva")
    for _ in range(2):
        codes = request_codes(team, "evas")
        decide(team, cookie, codes["user_code"])
        names.append(poll(team, codes)["name"])
    assert names == ["evas", "evas-2"]


def test_secrets_of_computers_are_not_kept(team: Served) -> None:
    codes, cookie = request_codes(team), session_of(team, "ada")
    decide(team, cookie, codes["user_code"])
    token = poll(team, codes)["access_token"]
    kept = b"".join(path.read_bytes() for path in team.orch.state.rglob("*") if path.is_file())
    for secret in (codes["device_code"], codes["user_code"], codes["user_code"].replace("-", ""), token):
        assert secret.encode() not in kept


def test_orch_login_on_a_terminal_asks_a_person(team: Served, tmp_path: Path) -> None:
    ada, url = Orch(tmp_path), f"http://127.0.0.1:{team.port}"
    near, far = pty.openpty()
    command = ada.command("login", url, "--name", "adas-laptop")
    process = subprocess.Popen(
        command, env=ada.env, cwd=ada.folder, stdin=far, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    code = line.strip().rpartition("user_code=")[2]
    assert line.startswith(f"open {url}/device?user_code="), line
    assert decide(team, session_of(team, "ada"), code).status == 200
    _, rest = process.communicate(timeout=60)
    os.close(near), os.close(far)
    assert process.returncode == 0 and f"you are ada (member) at {url}" in rest, rest
    assert ada.ok("login").startswith(f"{url}/login#")
    listed = {one["name"]: one for one in json.loads(team.orch.ok("token", "-o", "json"))["tokens"]}
    assert listed["adas-laptop"]["member"] == "ada"


def test_a_computer_that_many_let_in_one_after_the_other_lets_no_other_in(team: Served) -> None:
    cookie = session_of(team, "gil")
    for number in range(MOST_PARENTS):
        codes = request_codes(team, f"gil-{number}")
        assert decide(team, cookie, codes["user_code"]).status == 200
        token = f"Bearer {poll(team, codes)['access_token']}"
        link = team.ask("/v1/links", method="POST", signed=False, authorization=token, content_length="0")
        entered = team.send_form("/login", code=link.document["link"], target="/")
        cookie = entered.headers["set-cookie"].partition(";")[0]
    codes = request_codes(team, "gil-further")
    refused = decide(team, cookie, codes["user_code"])
    assert refused.status == 404 and "makes no other token" in refused.text
    assert poll(team, codes)["error"] == "authorization_pending"


def test_a_token_by_a_computer_ends_with_what_let_it_in(team: Served) -> None:
    team.orch.ok("token", "invite", "short", "--member", "fay", "--days", "2")
    team.orch.ok("token", "revoke", "short")
    link = team.orch.ok("token", "invite", "short", "--member", "fay", "--days", "2").strip()
    cookie = team.send_form("/join", code=link.partition("#")[2]).headers["set-cookie"].partition(";")[0]
    codes = request_codes(team)
    decide(team, cookie, codes["user_code"])
    assert poll(team, codes)["expires_in"] <= 2 * 86_400
