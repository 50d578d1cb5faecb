"""A small TPU API on this computer: it keeps what it is given and says what the test tells it to say.

It has no life of its own: a test sets states. Bodies are checked with the library's own messages, those of version
2alpha1 with its discovery document, so a field that the API does not have is refused, as the API would refuse it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from google.cloud import tpu_v2
from google.protobuf import json_format

from orch_fronts.google import documents
from orchestrator.catalog.tpu import find_slice

WORDS = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS"} | {
    401: "UNAUTHENTICATED", 412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"
}  # fmt: skip


class Answer(Exception):
    """An error answer. status: google.rpc's word, when the HTTP code has several."""

    def __init__(self, code: int, words: str = "no", status: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(words)
        self.code, self.words, self.headers = code, words, headers or {}
        self.status = status or WORDS[code]


@dataclass(frozen=True, slots=True)
class Fault:
    """For the next call whose "METHOD path" holds `part`.

    acts: it is done all the same. drops: no answer at all. cuts: the answer is good, and only half of it comes.
    """

    part: str
    answer: Answer | None = None
    acts: bool = False
    drops: bool = False
    cuts: bool = False


@dataclass(slots=True)
class Fake:
    url: str = ""
    zones: list[str] = field(default_factory=lambda: ["us-west4-a", "us-central1-a"])
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    queued: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    operations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    faults: list[Fault] = field(default_factory=list[Fault])
    calls: list[str] = field(default_factory=list[str])
    unreachable: list[str] = field(default_factory=list[str])
    page_size: int = 1
    keys: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, part: str) -> int:
        return sum(part in call for call in self.calls)

    def make_ready(self, name: str) -> None:
        """All nodes of a slice are up, its queued resource active."""
        for path, one in self.queued.items():
            if path.endswith(f"/{name}"):
                one["state"] = {"state": "ACTIVE"}
                for at, node_path in enumerate(self.nodes_of(path)):
                    self.nodes.setdefault(node_path, self._node(node_path, one["tpu"]["nodeSpec"][0]["node"], path, at))
        for path, node in self.nodes.items():
            if path.endswith(f"/{name}") or path.rpartition("-")[0].endswith(f"/{name}"):
                node["state"] = "READY"

    def nodes_of(self, queued: str) -> list[str]:
        place = queued.split("/queuedResources/", maxsplit=1)[0]
        given = self.queued[queued]["tpu"]["nodeSpec"][0]
        if "nodeId" in given:
            return [f"{place}/nodes/{given['nodeId']}"]
        many = given.get("multisliceParams") or given["multiNodeParams"]
        return [f"{place}/nodes/{many['nodeIdPrefix']}-{at}" for at in range(many["nodeCount"])]

    def _node(self, path: str, body: dict[str, Any], queued: str = "", at: int = 0) -> dict[str, Any]:
        tpu = find_slice(body.get("acceleratorType", "v4-16"))
        assert tpu is not None
        made = dict(body) | {
            "name": path,
            "state": "CREATING",
            "createTime": "2026-11-20T10:00:00Z",
            "health": "HEALTHY",
        }
        if queued:
            made["queuedResource"] = queued
        made["networkEndpoints"] = [
            {
                "ipAddress": f"10.0.{at}.{rank}",
                "port": 8470,
                "accessConfig": {"externalIp": f"192.0.2.{at * 100 + rank}"},
            }
            for rank in range(tpu.hosts)
        ]
        return made

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        """One call. Raises Answer."""
        _, version, path = path.split("/", 2)
        if body and method == "POST" and ("nodeId" in query or "queuedResourceId" in query):
            _check(version, "Node" if "nodeId" in query else "QueuedResource", body)
        place, _, rest = path.partition("/nodes")
        if path.endswith("/locations"):
            return self._page([{"locationId": zone} for zone in self.zones], "locations", query)
        if "/operations/" in path:
            return self._one(self.operations, path)
        if "/queuedResources" in path:
            return self._queued_call(method, path, query, body)
        if method == "POST" and not rest:
            return self._create_node(f"{place}/nodes/{query['nodeId']}", body)
        if not rest:
            here = [node for path, node in self.nodes.items() if path.startswith(f"{place}/")]
            return self._page(here, "nodes", query) | {"unreachable": self.unreachable}
        name, _, verb = path.partition(":")
        node = self._one(self.nodes, name)
        if verb == "getGuestAttributes":
            return self._attributes(name)
        if verb:
            node["state"] = "STOPPING" if verb == "stop" else "STARTING"
            return self._operation(place)
        if method == "DELETE":
            del self.nodes[name]
            return self._operation(place)
        return node

    def _queued_call(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        place, _, name = path.partition("/queuedResources")
        if method == "POST":
            made = f"{path}/{query['queuedResourceId']}"
            assert query["requestId"]
            if made in self.queued:
                raise Answer(409, f"{made} exists")
            self.queued[made] = body | {
                "name": made,
                "state": {"state": "CREATING"},
                "createTime": "2026-11-20T10:00:00Z",
            }
            return self._operation(place)
        if not name:
            here = [one for path, one in self.queued.items() if path.startswith(f"{place}/")]
            return self._page(here, "queuedResources", query) | {"unreachable": self.unreachable}
        one = self._one(self.queued, path)
        if method == "DELETE":
            nodes = [node for node in self.nodes_of(path) if node in self.nodes]
            if one["state"]["state"] == "SUSPENDING" or (nodes and query.get("force") != "true"):
                raise Answer(400, f"{path} cannot be deleted now", "FAILED_PRECONDITION")
            for node in nodes:
                del self.nodes[node]
            del self.queued[path]
            return self._operation(place)
        return one

    def _create_node(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path in self.nodes:
            raise Answer(409, f"{path} exists")
        self.nodes[path] = self._node(path, body)
        return self._operation(path.split("/nodes/", maxsplit=1)[0])

    def _operation(self, place: str) -> dict[str, Any]:
        name = f"{place}/operations/op-{len(self.operations)}"
        self.operations[name] = {"name": name, "done": False}
        return self.operations[name]

    def _attributes(self, path: str) -> dict[str, Any]:
        said = [
            {"queryValue": {"items": [{"namespace": "hostkeys", "key": "ssh-ed25519", "value": key}] if key else []}}
            for key in self.keys.get(path, [])
        ]
        return {"guestAttributes": said}

    def _page(self, items: list[dict[str, Any]], key: str, query: dict[str, str]) -> dict[str, Any]:
        start = int(query.get("pageToken") or 0)
        more = start + self.page_size < len(items)
        return {key: items[start : start + self.page_size]} | (
            {"nextPageToken": str(start + self.page_size)} if more else {}
        )

    def _one(self, table: dict[str, dict[str, Any]], path: str) -> dict[str, Any]:
        if path not in table:
            raise Answer(404, f"{path} was not found")
        return table[path]


def _check(version: str, kind: str, body: dict[str, Any]) -> None:
    if version == "v2alpha1":
        documents.check(version, kind, body, "body")
    else:
        json_format.ParseDict(body, getattr(tpu_v2, kind)()._pb)


@contextmanager
def fake_api() -> Generator[Fake]:
    fake = Fake()

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw.strip() else {}
            with fake.lock:
                call = f"{self.command} {parts.path}"
                fake.calls.append(call)
                fault = next((one for one in fake.faults if one.part in call), None)
                if fault is not None:
                    fake.faults.remove(fault)
                code, answer, headers = self._answer(fault, lambda: fake.answer(self.command, parts.path, query, body))
            if code == 0:
                self.close_connection = True
                return
            data = json.dumps(answer).encode()
            if fault is not None and fault.cuts:
                data = data[: len(data) // 2]
            self.send_response(code)
            for key, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815 - the name is the library's
        do_DELETE = do_GET  # noqa: N815 - the name is the library's

        def _answer(
            self, fault: Fault | None, act: Callable[[], dict[str, Any]]
        ) -> tuple[int, dict[str, Any], dict[str, str]]:
            try:
                if fault is None or fault.cuts:
                    return 200, act(), {}
                if fault.acts:
                    act()
                if fault.drops or fault.answer is None:
                    return 0, {}, {}
                raise fault.answer
            except Answer as error:
                told = {"code": error.code, "message": error.words, "status": error.status}
                return error.code, {"error": told}, error.headers

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
