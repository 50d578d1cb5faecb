"""Every route of the table, for everyone who may ask, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import signal
import socket
import stat
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from starlette.requests import Request
from starlette.responses import Response
from support.orch_process import Orch, until
from support.service_site import EMPTY, Served, serve, write_points

from orchestrator.errors import UserError
from orchestrator.service.application import _answer_or_explain
from orchestrator.service.openapi import load_schema
from orchestrator.service.order_pages import LaunchForm, OrderForm
from orchestrator.service.plans import OrderRequest, PlanRequest
from orchestrator.service.problems import hide_database
from orchestrator.service.route import Medium, Role, Route
from orchestrator.service.routes import ROUTES
from orchestrator.store.failures import DamagedStoreError, StoreError

PATHS = {"project": "default", "run_id": "one", "name": "first", "uid": "asked", "digest": EMPTY}
QUERIES = {"order-form-page": "?verb=down&cluster=first"}
READ = [route for route in ROUTES if route.handler is not None and route.method == "GET"]
WRITE = {(route.method, route.path) for route in ROUTES if route.method != "GET"}
BY_NAME = pytest.mark.parametrize("route", READ, ids=lambda route: route.name)


def path_of(route: Route) -> str:
    return route.path.format(**PATHS) + QUERIES.get(route.name, "")


@BY_NAME
def test_only_who_may_gets_an_answer(site: Served, route: Route) -> None:
    path = path_of(route)
    answers = {
        "token": site.ask(path).status,
        "no one": site.ask(path, signed=False).status,
        "wrong token": site.ask(path, signed=False, authorization="Bearer orch_wrong").status,
        "empty token": site.ask(path, signed=False, authorization="Bearer ").status,
        "another scheme": site.ask(path, signed=False, authorization=f"Basic {site.token}").status,
        "wrong session": site.ask(path, signed=False, cookie=f"orch_session_{site.port}=x").status,
    }
    closed = 200 if route.role is Role.ANYONE else 401
    assert answers.pop("token") == 200
    assert set(answers.values()) == {closed}, answers


@BY_NAME
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_no_method_changes_anything(site: Served, route: Route, method: str) -> None:
    answer = site.ask(path_of(route), method=method, signed=False, origin="http://evil.example", content_length="0")
    closed = 400 if route.role is Role.ANYONE else 401
    assert answer.status == (closed if (method, route.path) in WRITE else 405)
    assert "access-control-allow-origin" not in answer.headers


@BY_NAME
def test_a_name_that_is_not_ours_is_refused(site: Served, route: Route) -> None:
    for host in ("evil.example", f"evil.example:{site.port}", "127.0.0.1", f"127.0.0.1:{site.port + 1}"):
        answer = site.ask(path_of(route), host=host)
        assert answer.status == 421, host
        assert b"one" not in answer.body.replace(b"one member", b"")


@BY_NAME
def test_unknown_and_wrong_parameters_are_refused(site: Served, route: Route) -> None:
    path = route.path.format(**PATHS)
    assert site.ask(f"{path}?unknown=1").status == 400
    for one in route.parameters:
        wrong = "x" * 201 if one.kind is str else "many"
        answer = site.ask(f"{path}?{one.name}={wrong}")
        assert answer.status == 400, one.name
        if route.medium is Medium.JSON:
            assert one.name in answer.document["title"] and answer.document["exit_status"] == 2


def test_a_list_takes_several_values_and_everything_else_one(site: Served) -> None:
    compared = site.ask("/v1/compare?run=two&run=one").document
    assert [(one["letter"], one["run"]["run_id"]) for one in compared["runs"]] == [("A", "two"), ("B", "one")]
    Draft202012Validator(load_schema("comparison")).validate(compared)
    many = "&".join(f"run={number}" for number in range(9))
    assert "at most 8 times" in site.ask(f"/v1/compare?{many}").document["detail"]
    assert "given 2 times" in site.ask("/v1/runs?limit=1&limit=2").document["title"]
    assert site.ask("/v1/compare?run=one&run=none").status == 404
    described = site.ask("/openapi.json").document["paths"]["/v1/compare"]["get"]["parameters"][0]["schema"]
    assert (described["type"], described["maxItems"]) == ("array", 8)


@pytest.mark.parametrize("route", [route for route in READ if route.schema], ids=lambda route: route.name)
def test_documents_are_valid_against_their_schemas(site: Served, route: Route) -> None:
    document = site.ask(path_of(route)).document
    Draft202012Validator(load_schema(route.schema)).validate(document)
    assert document["version"] == (2 if route.name == "spend" else 1)


@BY_NAME
def test_answers_forbid_what_a_page_does_not_need(site: Served, route: Route) -> None:
    for signed in (True, False):
        headers = site.ask(path_of(route), signed=signed).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


@pytest.mark.parametrize(
    "route", [route for route in READ if route.medium is Medium.JSON], ids=lambda route: route.name
)
def test_an_unchanged_document_is_not_sent_again(site: Served, route: Route) -> None:
    first = site.ask(path_of(route))
    again = site.ask(path_of(route), if_none_match=first.headers["etag"])
    if again.status == 200:  # a cost that grows with the time
        assert again.document != first.document
    else:
        assert (again.status, again.body) == (304, b"")


def test_the_api_describes_every_route(site: Served) -> None:
    document = site.ask("/openapi.json", signed=False).document
    assert set(document["paths"]) == {route.path for route in ROUTES}
    for route in ROUTES:
        described = document["paths"][route.path][route.method.lower()]
        assert described["x-role"] == route.role.name.lower()
        assert {one["name"] for one in described["parameters"]} >= {one.name for one in route.parameters}
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_names_of_routes_and_paths_are_unique() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_a_link_opens_one_session_and_its_secret_is_in_no_address(site: Served) -> None:
    code = site.link.partition("#")[2]
    assert site.ask(f"/login?link={code}", signed=False).status == 400
    shown = site.ask("/login", signed=False)
    assert shown.status == 200 and "set-cookie" not in shown.headers
    opened = site.send_form("/login", code=code)
    assert (opened.status, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", f"orch_session_{site.port}="))
    assert site.ask("/v1/runs", signed=False, cookie=cookie.partition(";")[0]).status == 200
    assert site.send_form("/login", code=code).status == 403, "used twice"
    assert "orch serve --link" in site.send_form("/login", code=code).text


def test_another_link_is_for_this_users_programs(site: Served) -> None:
    assert site.ask("/v1/links", method="POST", signed=False, content_length="0").status == 401
    cookie = site.sign_in()
    assert site.ask("/v1/links", method="POST", signed=False, cookie=cookie, content_length="0").status == 401
    mode = (site.orch.state / "service" / "token").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_secrets_are_not_kept(site: Served) -> None:
    link = site.ask("/v1/links", method="POST", content_length="0").document["link"]
    session = site.sign_in().partition("=")[2]
    kept = [path for path in site.orch.state.rglob("*") if path.is_file() and path.name != "token"]
    assert kept
    for path in kept:
        content = path.read_bytes()
        assert all(secret.encode() not in content for secret in (site.token, link, session)), path


def test_errors_name_the_next_step_in_the_medium_of_the_route(site: Served) -> None:
    problem = site.ask("/v1/runs/on")
    assert problem.headers["content-type"] == "application/problem+json"
    assert (problem.status, problem.document["exit_status"], problem.document["code"]) == (404, 3, "not-found")
    assert "did you mean one" in problem.document["detail"]
    page = site.ask("/runs/on")
    assert page.status == 404 and "did you mean one" in page.text and "<h1>" in page.text


def test_curves_show_what_was_paid_and_attempts_what_was_lost(site: Served) -> None:
    run: dict[str, Any] = site.ask("/v1/runs/one").document
    assert [one["cause"] for one in run["attempts"]] == ["preempted"]
    assert run["saved_steps"] == [20, 40]
    points = site.ask("/v1/runs/one/curves").document["points"]
    assert [point["step"] for point in points] == [*range(1, 31), *range(21, 41)]
    assert all(point["dollars"] is not None for point in points)


def test_many_points_are_few_bytes_and_keep_their_peak(site: Served) -> None:
    bucket = site.orch.folder / "bucket"
    now = time.time()
    losses = [(step, now + 100 + step / 10, 99.0 if step == 54_321 else 2.0) for step in range(50, 100_000)]
    write_points(bucket, "one", 3, losses)
    answer = site.ask("/v1/runs/one/curves?points=600", accept_encoding="gzip")
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.body) <= 50_000
    points = json.loads(gzip.decompress(answer.body))["points"]
    assert len(points) <= 650
    assert max(point["loss"] for point in points) == 99.0


def test_a_stream_resumes_after_the_last_event_without_a_gap(site: Served) -> None:
    everything = [event["seq"] for event in site.ask("/v1/events?limit=1000").document["events"]]
    assert len(everything) > 10
    seen: list[int] = []
    for _ in range(4):  # cut off after three messages each time
        after: dict[str, Any] = {"last_event_id": str(seen[-1])} if seen else {}
        seen += read_messages(site, 3, path="/v1/events/stream?after=0", **after)
    assert seen == everything[:12]


def test_a_stream_refuses_a_number_that_is_none(site: Served) -> None:
    for wrong in ("x", "-1", "1" * 40, "²"):
        answer = site.ask("/v1/events/stream", last_event_id=wrong.encode("utf-8").decode("latin-1"))
        assert answer.status == 400


def read_messages(site: Served, count: int, *, path: str, **headers: str) -> list[int]:
    connection: HTTPConnection
    connection, answer = site.open(path, authorization=f"Bearer {site.token}", **headers)
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
    found: list[int] = []
    number = 0
    while len(found) < count:
        line = answer.readline().decode()
        assert line, "the stream ended"
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            found.append(number)
    connection.close()
    return found


def test_a_stream_says_first_where_it_begins(site: Served) -> None:
    head = site.ask("/v1/events?limit=1000").document["events"][-1]["seq"]
    connection, answer = site.open("/v1/events/stream", authorization=f"Bearer {site.token}")
    lines = [answer.readline() for _ in range(4)]
    assert f"id: {head}\n".encode() in lines, "a client that is cut off now comes back with it"
    connection.close()


def test_a_stop_signal_ends_it_in_order_and_another_port_stays_known(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    with serve(orch) as first, serve(orch) as second:
        (orch.state / "service" / "9.address.json").write_text('{"host": "127.0.0.1", "port": 9}')  # was killed
        assert orch.ok("serve", "--link").startswith(f"http://127.0.0.1:{second.port}/login#")
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(20) == 0
        assert orch.ok("serve", "--link").startswith(f"http://127.0.0.1:{first.port}/login#")
    assert first.process.wait(20) == 0
    assert [file.name for file in (orch.state / "service").glob("*.json")] == ["9.address.json"]


def test_a_port_that_is_taken_is_refused_before_the_engine_starts(site: Served, tmp_path: Path) -> None:
    ended = Orch(tmp_path)("serve", "--port", str(site.port))
    assert (ended.returncode, "is taken" in ended.stderr) == (2, True), ended.stderr
    assert "engine" not in ended.stdout + ended.stderr


def test_what_makes_a_plan_leaves_threads_for_the_others() -> None:
    plans = {PlanRequest, OrderRequest, LaunchForm, OrderForm}
    assert all(route.computes for route in ROUTES if route.request in plans or route.path in ("/new", "/order"))


def test_a_head_of_the_stream_ends(site: Served) -> None:
    assert site.ask("/v1/events/stream", method="HEAD").status == 200


def test_a_method_that_a_path_does_not_have_is_refused_as_everything_else(site: Served) -> None:
    answer = site.ask("/v1/runs", method="DELETE", signed=False)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.headers["content-type"] == "application/problem+json" and answer.document["next_step"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert site.ask("/v1/runs", method="DELETE", host="evil.example").status == 421
    assert site.ask("/v1/plans").status == 405
    assert site.ask("/v1/runs?limit=1&limit=2").status == 400


def test_a_store_that_was_removed_is_no_empty_store(tmp_path: Path) -> None:
    with serve(Orch(tmp_path)) as served:
        assert served.ask("/readyz", signed=False).status == 200
        for file in served.orch.state.glob("orch.db*"):
            file.unlink()
        for path in ("/readyz", "/v1/runs", "/"):
            answer = served.ask(path)
            assert answer.status == 503 and "orch recover" in answer.text, path
        assert served.ask("/v1/links", method="POST", signed=False, authorization="Bearer orch_x").status == 503
        assert served.ask("/healthz", signed=False).status == 200


def test_connections_that_send_nothing_do_not_keep_others_out(tmp_path: Path) -> None:
    orch = Orch(tmp_path, before=("prlimit", "--nofile=320:320"))
    with serve(orch) as served:
        silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(400)]
        for one in silent[:50]:
            with contextlib.suppress(OSError):
                one.send(b"GET / HT")
        until("it answers again", lambda: is_answering(served), 20)
        ended = [one for one in silent if is_closed(one)]
        assert len(ended) == len(silent), "each was closed, in the end by its time"
        for one in silent:
            one.close()


def is_answering(served: Served) -> bool:
    try:
        return served.ask("/healthz", signed=False).status == 200
    except OSError:
        return False


def is_closed(one: socket.socket) -> bool:
    one.settimeout(12)
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/v1/runs?cluster=a%00b", b""), ("GET", "/v1/clusters/a%00b", b""), ("GET", "/v1/events?cluster=%00", b""),
     ("POST", "/v1/plans", b'{"verb": "down", "cluster": "a\\u0000b"}')],
)  # fmt: skip
def test_a_text_that_postgresql_cannot_have_is_refused_on_every_store(
    site: Served, method: str, path: str, body: bytes
) -> None:
    answer = site.ask(path, method=method, body=body, **({"content_type": "application/json"} if body else {}))
    assert answer.status == 400, answer.text


def test_a_command_for_a_name_that_is_too_long_is_refused(site: Served) -> None:
    assert site.ask(f"/order?verb=down&cluster={'x' * 150}").status == 400


def test_the_address_of_the_database_is_in_no_answer() -> None:
    error = StoreError("the store postgresql://orch@10.0.0.1:5432/x cannot be reached", "at postgresql://h:1/x", "wait")
    shown = hide_database(error)
    assert isinstance(shown, StoreError) and error.what.startswith("the store postgresql"), "the error itself stays"
    damaged = DamagedStoreError("the store postgresql://h/x is damaged")
    assert (type(hide_database(damaged)), hide_database(damaged).code) == (DamagedStoreError, damaged.code)
    assert (shown.what, shown.why) == ("the store of the service cannot be reached", "at of the service")
    other = UserError("postgresql://h is no file")
    assert hide_database(other) is other


def test_a_defect_is_a_problem_that_shows_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_request: Request) -> Response:
        raise ValueError("a value that no one should see")

    request = Request({"type": "http", "method": "GET", "path": "/x", "headers": [], "query_string": b""})
    log = logging.getLogger("uvicorn.error")  # a server in this process keeps its lines from the root logger
    log.addHandler(caplog.handler)
    try:
        answer = asyncio.run(_answer_or_explain(cast(Any, None), fail, request))
    finally:
        log.removeHandler(caplog.handler)
    assert (answer.status_code, answer.media_type) == (500, "application/problem+json")
    assert b"ValueError" in bytes(answer.body) and b"no one should see" not in bytes(answer.body)
    assert "no one should see" in caplog.text, "the log has the traceback"
