"""Documents of a service of another kind, or a hostile one: a command says so, and is no bug of orch."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch

PLAN: dict[str, Any] = {
    "plan": "d", "cluster": "mine", "project": "default", "notes": [], "ends": [], "owner": None, "idle": None,
    "cost": None, "transfers": [], "asks_transfers": False, "price_per_hour": 0, "text": "", "details": "", "head": "",
    "steps": {"steps": [], "ending": {"status": 0}},
}  # fmt: skip
ORDER: dict[str, Any] = {
    "id": "1",
    "cluster": "mine",
    "project": "default",
    "run_id": "r",
    "state": "ended",
    "status": 0,
    "what": "x",
}
ENDED = ORDER | {"code": None, "why": None}
JOB = {"id": 1, "kind": "exec", "run_id": "r"}
WORDS = ("exec", "mine", "--", "true")


@contextmanager
def service(documents: dict[str, Any]) -> Generator[str]:
    """Answer each path with a document, and others with 404, until the end of the block; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            path = self.path.partition("?")[0]
            content = documents.get(path, {"title": "no", "status": 404, "exit_status": 3})
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(200 if path in documents else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815  # the name that the library calls

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    "documents",
    [
        {"/v1/plans": {}},
        {"/v1/plans": PLAN | {"steps": None}},
        {"/v1/plans": PLAN | {"notes": [3]}},
        {"/v1/plans": PLAN, "/v1/orders": {}},
        {"/v1/plans": PLAN, "/v1/orders": ORDER, "/v1/orders/1": {}, "/v1/queue": {"jobs": []}},
        {"/v1/plans": PLAN, "/v1/orders": ORDER, "/v1/orders/1": ENDED, "/v1/queue": {"jobs": None}},
    ],
)
def test_an_order_is_answered_with_other_documents(documents: dict[str, Any], tmp_path: Path) -> None:
    with service(documents) as url:
        done = Orch(tmp_path, {"ORCH_SERVER": url, "ORCH_TOKEN": "orch_x"})(*WORDS)
    assert done.returncode == 1 and f"{url} sent a document that cannot be read" in done.stderr, done.stderr


@pytest.mark.parametrize("status", ["x", 999, 256, -1])
def test_a_failure_never_ends_with_the_status_of_a_success(status: object, tmp_path: Path) -> None:
    ended = ENDED | {"status": status}
    documents = {"/v1/plans": PLAN, "/v1/orders": ORDER, "/v1/orders/1": ended, "/v1/queue": {"jobs": []}}
    with service(documents) as url:
        done = Orch(tmp_path, {"ORCH_SERVER": url, "ORCH_TOKEN": "orch_x"})(*WORDS)
    assert done.returncode == 1 and done.stderr.startswith("error["), done.stderr


def test_a_refusal_of_other_kinds_is_still_a_refusal(tmp_path: Path) -> None:
    refusal: dict[str, Any] = {"what": 1, "why": [2], "next_step": None, "code": 4, "status": 10**9}
    documents: dict[str, Any] = {"/v1/plans": PLAN | {"steps": PLAN["steps"] | {"refusal": refusal}}}
    with service(documents) as url:
        done = Orch(tmp_path, {"ORCH_SERVER": url, "ORCH_TOKEN": "orch_x"})(*WORDS)
    assert done.returncode == 1 and done.stderr.startswith("error[4]: 1\n") and "Traceback" not in done.stderr


def test_output_of_another_form_is_reported_in_a_line(tmp_path: Path) -> None:
    documents: dict[str, Any] = {
        "/v1/plans": PLAN, "/v1/orders": ORDER, "/v1/orders/1": ENDED, "/v1/queue": {"jobs": [JOB]}, "/v1/records": {}
    }  # fmt: skip
    with service(documents) as url:
        done = Orch(tmp_path, {"ORCH_SERVER": url, "ORCH_TOKEN": "orch_x"})(*WORDS)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert f"the output cannot be shown: {url} sent a document that cannot be read" in done.stderr
