"""Clients and services of other versions, over real sockets: which of the two is older, and what to do."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from service_ci import Server, serve_ci

from orchestrator import __version__
from orchestrator.client.http import Client
from orchestrator.client.transport import OlderServiceError, ServiceError
from orchestrator.errors import CloudError
from orchestrator.service.route import Medium, Role
from orchestrator.service.routes import ROUTES
from orchestrator.service_version import OLDEST_CLIENT, is_older, parse_version
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord, digest_token

AUTHORIZATION = "Bearer orch_ada"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    database = tmp_path_factory.mktemp("versions") / "orch.db"
    digest = digest_token("orch_ada")
    with Store(database) as store:
        store.add_token(TokenRecord(digest=digest, name="ada", member="ada", role="viewer", created=1.0, expires=1e11))
    with serve_ci(database, database.parent) as served:
        yield served


@pytest.mark.parametrize("said", ["0.1.0", "0.1.99", "0.0.1", "0.1", "0.1.9.dev7+local"])
def test_a_client_that_is_too_old_learns_what_to_install(server: Server, said: str) -> None:
    status, problem = server.ask("/v1/runs", orch_version=said, authorization=AUTHORIZATION)
    assert (status, problem["code"], problem["exit_status"]) == (426, "old-client", 2)
    assert said in problem["title"] and OLDEST_CLIENT in problem["detail"] and "install orch" in problem["next_step"]
    assert server.ask("/v1/runs", orch_version=said)[0] == 426, "whoever it is"


@pytest.mark.parametrize("said", [OLDEST_CLIENT, __version__, "0.9", "99.0.0", "0.2.1rc1"])
def test_others_are_answered(server: Server, said: str) -> None:
    assert server.ask("/v1/runs", orch_version=said, authorization=AUTHORIZATION)[0] == 200
    assert server.ask("/v1/runs", authorization=AUTHORIZATION)[0] == 200, "a program that says none"


@pytest.mark.parametrize("said", ["", "x", "1", "0.2.0\u00b2", "0.2.0 0.1.0", "-1.0", "0." + "9" * 60])
def test_what_is_no_version_is_refused(server: Server, said: str) -> None:
    status, problem = server.ask("/v1/runs", orch_version=said, authorization=AUTHORIZATION)
    assert status == 400 and "is not a version" in problem["title"]


def test_every_route_of_the_api_names_its_oldest_client(server: Server) -> None:
    for route in ROUTES:
        assert parse_version(route.oldest_client) and not is_older(__version__, route.oldest_client), route.name
        if route.path.startswith("/v1/") and route.medium is Medium.JSON and route.role > Role.ANYONE:
            path = route.path.replace("{", "").replace("}", "")
            assert server.ask(path, route.method, orch_version="0.1.0")[0] == 426, route.name
    assert server.ask("/login", orch_version="0.1.0")[0] == 200, "pages are for browsers"


def test_a_program_sees_the_next_step_in_the_text_of_the_error(server: Server) -> None:
    with Client(f"http://127.0.0.1:{server.port}", "orch_wrong") as client, pytest.raises(ServiceError) as refused:
        client.show_member()
    assert refused.value.http_status == 401 and str(refused.value).endswith(f"\nnext: {refused.value.next_step}")
    assert "".join(traceback.format_exception(refused.value)).count("next:") == 1
    away = CloudError("it does not answer", "refused", "curl https://orch.example.org/healthz")
    assert "\nnext: curl" in "".join(traceback.format_exception(away))


@contextmanager
def service_of(version: str | None, status: int, problem: dict[str, object]) -> Generator[str]:
    """Answer every request as a service of a version does."""

    class Answers(BaseHTTPRequestHandler):
        def answer(self) -> None:
            said.append(self.headers["Orch-Version"])
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            content = json.dumps(problem).encode()
            self.send_response(status)
            if version is not None:
                self.send_header("Orch-Version", version)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815  # the names of the library

        def log_message(self, format: str, *args: object) -> None:
            pass

    said: list[str] = []
    found = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}"
        assert said == [__version__]
    finally:
        found.shutdown()
        found.server_close()


NO_PATH: dict[str, object] = {"title": "there is no /v1/tokens", "status": 404, "code": "not-found", "exit_status": 3}


@pytest.mark.parametrize("version", [None, "0.1.7"])
def test_an_older_service_is_named_where_a_route_is_missing(version: str | None) -> None:
    with (
        service_of(version, 404, NO_PATH) as url,
        Client(url, "orch_x") as client,
        pytest.raises(OlderServiceError, match="which cannot do this") as refused,
    ):
        client.list_tokens()
    assert (version or "an older orch") in refused.value.what and "upgraded" in refused.value.next_step
    assert (refused.value.code, refused.value.exit_status, refused.value.http_status) == ("old-service", 3, 404)
    other: dict[str, object] = {"title": "/v1/tokens is not called with POST", "status": 405}
    with service_of(version, 405, other) as url, Client(url, "orch_x") as client, pytest.raises(OlderServiceError):
        client.create_token("0" * 64, "x")


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (__version__, NO_PATH),
        ("99.0.0", NO_PATH),
        ("0.1.7", NO_PATH | {"title": "there is no cluster 'x'"}),
        (None, {"title": "404 Not Found"}),
    ],
    ids=["same", "newer", "cluster", "other-program"],
)
def test_another_refusal_is_not_taken_for_an_older_service(version: str | None, problem: dict[str, object]) -> None:
    with (
        service_of(version, 404, problem) as url,
        Client(url, "orch_x") as client,
        pytest.raises(ServiceError) as refused,
    ):
        client.list_tokens()
    assert not isinstance(refused.value, OlderServiceError) and refused.value.what == problem["title"]


def test_a_field_that_an_older_service_does_not_take_may_be_newer() -> None:
    problem: dict[str, object] = {"title": "`days` is not taken", "status": 400, "next_step": "see /openapi.json"}
    with (
        service_of("0.1.7", 400, problem) as url,
        Client(url, "orch_x") as client,
        pytest.raises(ServiceError) as refused,
    ):
        client.create_token("0" * 64, "x")
    assert refused.value.next_step.splitlines()[0] == "see /openapi.json"
    assert "orch 0.1.7" in refused.value.next_step and __version__ in refused.value.next_step
