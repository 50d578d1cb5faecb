"""Budgets through the service: owners set and remove them, in their project, with the words of the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from service_ci import NAME, Server, serve_ci
from support.orch_process import Orch

from orchestrator.client.http import Client
from orchestrator.service.entrance import Entrance
from orchestrator.service.openapi import load_schema
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord, digest_token

TOKENS = {"viewer": "", "member": "", "owner": "", "owner-of-vision": "vision"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("budgets") / "state" / "orch.db"


@pytest.fixture(scope="module")
def server(database: Path) -> Iterator[Server]:
    database.parent.mkdir()
    with Store(database) as store:
        for name, project in TOKENS.items():
            token = TokenRecord(
                digest=digest_token(f"orch_{name}"), name=name, member=name, role=name.partition("-")[0], created=1.0,
                expires=1e11, project=project,
            )  # fmt: skip
            store.add_token(token)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(database.parent.parent))  # a service changes the store of its environment
        with serve_ci(database, database.parent) as served:
            yield served


def put(server: Server, who: str, **body: Any) -> tuple[int, Any]:
    content = json.dumps(body).encode()
    return server.ask(
        "/v1/budgets", "PUT", content, authorization=f"Bearer orch_{who}", content_type="application/json"
    )


def remove(server: Server, who: str, query: str = "") -> int:
    return server.ask(f"/v1/budgets{query}", "DELETE", authorization=f"Bearer orch_{who}")[0]


def test_owners_set_limits_and_the_others_stay(server: Server, database: Path) -> None:
    for who in ("viewer", "member"):
        assert put(server, who, dollars_per_month=5)[0] == 403
        assert remove(server, who) == 403
    status, made = put(server, "owner", dollars_per_month=500, markets=["spot", "spot"], member="ada")
    assert status == 200
    Draft202012Validator(load_schema("budgets")).validate(made)
    status, made = put(server, "owner", member="ada", dollars_per_month=None, dollars_per_hour=40)
    (one,) = made["budgets"]
    assert (one["limits"]["dollars_per_month"], one["limits"]["dollars_per_hour"]) == (None, 40)
    assert one["limits"]["markets"] == ["spot"]
    with open_reader_at(database) as reader:
        events = [one for one in reader.events(None) if one.kind == "budget"]
    assert len(events) == 2 and all(one.actor.startswith("owner@") for one in events)
    assert remove(server, "owner", "?member=ada") == 200
    assert remove(server, "owner", "?member=ada") == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"dollars_per_month": 0}, {"dollars_per_run": -1}, {"dollars_per_hour": "inf"}, {"largest_slice": 1.5},
     {"markets": ["auction"]}, {"member": "a/b", "dollars_per_run": 1}, {"project": "No", "dollars_per_run": 1},
     {"revision": 7}, {"at_limit": "never"}],
)  # fmt: skip
def test_what_is_not_a_limit_is_refused(server: Server, body: dict[str, Any]) -> None:
    status, problem = put(server, "owner", **body)
    assert status == 400 and problem["exit_status"] == 2, problem


def test_an_owner_of_a_project_sets_budgets_of_that_project_alone(server: Server) -> None:
    assert put(server, "owner-of-vision", project="vision", dollars_per_month=5)[0] == 200
    for project in ("", "default", "other"):
        assert put(server, "owner-of-vision", project=project, dollars_per_month=5)[0] == 403
        assert remove(server, "owner-of-vision", f"?project={project}") == 403
    assert remove(server, "owner-of-vision", "?project=vision") == 200


def test_a_session_changes_a_budget_by_the_form_of_the_page_alone(server: Server) -> None:
    session = server.gate.open_session(server.gate.make_link("orch_owner"))
    cookie = {"cookie": f"__Host-orch_session={session}"}
    shown = server.ask("/spend", **cookie)[1].decode()
    assert 'action="/spend"' in shown and 'name="dollars_per_month"' in shown
    token = shown.partition('name="_token" value="')[2].partition('"')[0]
    kind = {"content_type": "application/x-www-form-urlencoded", "sec_fetch_site": "same-origin"}
    form = f"_token={token}&dollars_per_month=7&project=".encode()
    assert server.ask("/spend", "POST", form, **cookie, **kind)[0] == 303
    assert "$7" in server.ask("/spend", **cookie)[1].decode()
    assert server.ask("/spend", "POST", b"_token=x&dollars_per_month=8", **cookie, **kind)[0] == 403
    assert server.ask("/spend", "POST", form, **cookie, **(kind | {"sec_fetch_site": "cross-site"}))[0] == 403
    assert server.ask("/v1/budgets", "DELETE", **cookie)[0] == 403
    assert server.ask("/v1/budgets", "PUT", b"{}", content_type="application/json", **cookie)[0] == 403
    viewer = server.gate.open_session(server.gate.make_link("orch_viewer"))
    assert b'action="/spend"' not in server.ask("/spend", cookie=f"__Host-orch_session={viewer}")[1]
    assert NAME and remove(server, "owner") == 200


@pytest.mark.slow
def test_the_command_line_has_the_same_words_through_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "state" / "orch.db"
    database.parent.mkdir()
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    with Store(database) as store:
        for role in ("owner", "member"):
            digest = digest_token(f"orch_{role}")
            store.add_token(TokenRecord(digest=digest, name=role, member=role, role=role, created=1.0, expires=1e11))
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    with serve_ci(database, tmp_path, Entrance()) as server:
        url = f"http://127.0.0.1:{server.port}"
        here = Orch(tmp_path / "here")
        served = Orch(tmp_path / "there", {"ORCH_SERVER": url, "ORCH_TOKEN": "orch_owner"})
        commands = (
            ("budget", "set", "--per-month", "500", "--markets", "spot", "--at-limit", "stop"),
            ("budget", "set", "--per-month", "none", "--per-hour", "40"),
            ("budget",),
            ("budget", "-o", "json"),
            ("budget", "remove", "--project", "none"),
            ("budget", "remove"),
            ("budget",),
        )
        for words in commands:
            mine, its = here(*words), served(*words)
            said = [re.sub(r'"now": "[^"]*"', "", one.stdout) for one in (mine, its)]
            assert (mine.returncode, said[0], mine.stderr) == (its.returncode, said[1], its.stderr), words
        refused = Orch(tmp_path / "there", served.more | {"ORCH_TOKEN": "orch_member"})(
            "budget", "set", "--per-run", "1"
        )
        assert refused.returncode != 0 and "this needs the role owner" in refused.stderr
        with Client(url, "orch_owner") as client:
            assert client.list_budgets()["budgets"] == []
