"""Two services of one store on PostgreSQL, each on another computer: people enter by either, and leave both."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.orch_process import Orch
from support.postgres import postgres_server
from support.service_site import Served, serve

pytestmark = pytest.mark.slow


def show_member(site: Served, secret: str) -> int:
    return site.ask("/v1/me", signed=False, cookie=f"orch_session_{site.port}={secret}").status


def test_a_session_counts_at_every_server_of_a_store(tmp_path: Path) -> None:
    with postgres_server() as server:
        store = {"ORCH_STORE": server.new_store()}
        homes = [tmp_path / name for name in ("one", "two")]
        for home in homes:
            home.mkdir()
        here, there = (Orch(home, store) for home in homes)
        with serve(here) as one, serve(there) as two:
            link = here.ok("token", "invite", "ada-laptop", "--member", "ada").strip()
            joined = two.send_form("/join", code=link.partition("#")[2])
            assert joined.status == 200, joined.text
            secret = joined.headers["set-cookie"].partition(";")[0].partition("=")[2]
            assert [show_member(site, secret) for site in (one, two)] == [200, 200]
            assert one.send_form("/join", code=link.partition("#")[2]).status == 403
            token = joined.text.partition('class="secret">')[2].partition("<")[0]
            made = one.ask(
                "/v1/links", method="POST", signed=False, authorization=f"Bearer {token}", content_length="0"
            )
            second = two.sign_in(f"#{made.document['link']}").partition("=")[2]
            one.send_form("/sign-out", f"orch_session_{one.port}={second}")
            assert [show_member(site, second) for site in (one, two)] == [401, 401]
            there.ok("token", "revoke", "ada-laptop")
            assert [show_member(site, secret) for site in (one, two)] == [401, 401]
