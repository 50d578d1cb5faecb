"""Firewall rules of the Compute API on this computer, and the real gcloud led to it.

It keeps what it is given and fails as a test tells it to. Bodies are read against the library's own copy of the
discovery document, so a field that the API does not have is refused, as the API would refuse it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from google.auth.credentials import AnonymousCredentials
from support.gcloud import gcloud_settings
from support.served import Seen, served

from orchestrator.catalog.tpu import find_slice
from orchestrator.providers.google.session import Session
from orchestrator.slices import Candidate, OnDemand, SliceSpec
from orchestrator.values import Text

PROJECT = "project-of-tests"
INSTALLATION = "inst-0123456789abcdef"
TOKEN = "5f0c91aa7be24d10a7b0c3d2e1f00001-1"
GCLOUD = shutil.which("gcloud")
_PREFIX = "/compute/v1/"


class Answer(Exception):
    """An error answer, in the form that Compute Engine gives it."""

    def __init__(self, http: int, words: str = "no", reason: str = "") -> None:
        super().__init__(words)
        self.http = http
        self.json = {"error": {"code": http, "message": words, "errors": [{"reason": reason, "message": words}]}}


@dataclass(frozen=True, slots=True)
class Fault:
    """For the next call whose "METHOD path" holds `part`. acts: it is done all the same. No answer: none at all."""

    part: str
    answer: Answer | None = None
    acts: bool = False


@dataclass(slots=True)
class Compute:
    """rules: by path below the version. slow: looks at an operation until it is done. fails: with what it then ends."""

    url: str = ""
    rules: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    operations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    seen: list[Seen] = field(default_factory=list[Seen])
    faults: list[Fault] = field(default_factory=list[Fault])
    warning: dict[str, Any] = field(default_factory=dict[str, Any])
    fails: dict[str, Any] = field(default_factory=dict[str, Any])
    slow: int = 0
    page_size: int = 2

    @property
    def session(self) -> Session:
        return Session(AnonymousCredentials(), PROJECT, self.url)

    def calls(self, method: str) -> list[Seen]:
        return [one for one in self.seen if one.method == method]

    def handle(self, method: str, target: str, raw: bytes) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        assert parts.path.startswith(_PREFIX), target
        path = parts.path.removeprefix(_PREFIX)
        query = {key: values[0] for key, values in parse_qs(parts.query).items() if key not in ("alt", "prettyPrint")}
        body = json.loads(raw) if raw.strip() else {}
        self.seen.append(Seen(method, path, query, body))
        fault = next((one for one in self.faults if one.part in f"{method} {path}"), None)
        try:
            if fault is None:
                return 200, self._done(method, path, query, body)
            self.faults.remove(fault)
            if fault.acts:
                self._done(method, path, query, body)
            if fault.answer is None:
                return 0, {}
            raise fault.answer
        except Answer as answer:
            return answer.http, answer.json

    def _done(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        if "/operations/" in path:
            operation = self.operations[path]
            self.slow -= 1
            return operation | ({"status": "DONE"} | self.fails if self.slow < 0 else {})
        if method == "POST":
            return self._insert(path, body)
        if method == "GET" and path.endswith("/firewalls"):
            return self._page(path, query)
        if path not in self.rules:
            raise Answer(404, f"The resource '{path}' was not found", "notFound")
        if method == "DELETE":
            del self.rules[path]
            return self._operation(path, "delete")
        if method == "PATCH":
            _check(body)
            self.rules[path] |= body
            return self._operation(path, "patch")
        return self.rules[path]

    def _insert(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        _check(body)
        made = f"{path}/{body['name']}"
        if made in self.rules:
            raise Answer(409, f"The resource '{made}' already exists", "alreadyExists")
        if not self.fails:
            link = {"selfLink": f"{self.url}{_PREFIX}{made}"}
            self.rules[made] = dict(body) | link | {"id": "1", "creationTimestamp": "2026-11-20T02:00:00.000-08:00"}
        return self._operation(made, "insert")

    def _operation(self, path: str, kind: str) -> dict[str, Any]:
        """gcloud reads the links."""
        name = f"operation-{len(self.operations)}"
        where = "/".join(path.split("/")[:2]) + f"/global/operations/{name}"
        links = {"selfLink": f"{self.url}{_PREFIX}{where}", "targetLink": f"{self.url}{_PREFIX}{path}"}
        operation = {"name": name, "kind": "compute#operation", "operationType": kind} | links
        self.operations[where] = operation | {"status": "RUNNING"}
        return operation | {"status": "DONE" if self.slow == 0 and not self.fails else "RUNNING"}

    def _page(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        here = [rule for key, rule in self.rules.items() if key.startswith(f"{path}/")]
        start = int(query.get("pageToken") or 0)
        more = {"nextPageToken": str(start + self.page_size)} if start + self.page_size < len(here) else {}
        items = {"items": here[start : start + self.page_size]} if here else {}
        return items | more | ({"warning": self.warning} if self.warning else {})


@cache
def _fields() -> frozenset[str]:
    path = files("googleapiclient") / "discovery_cache" / "documents" / "compute.v1.json"
    return frozenset(json.loads(path.read_text())["schemas"]["Firewall"]["properties"])


def _check(body: dict[str, Any]) -> None:
    for key in body:
        if key not in _fields():
            raise Answer(400, f"Unknown name {key}", "invalid")


@contextmanager
def compute_api() -> Generator[Compute]:
    compute = Compute()
    with served(compute.handle) as compute.url:
        yield compute


def run_gcloud(words: Sequence[str], folder: Path, url: str, account: str = "") -> subprocess.CompletedProcess[str]:
    """The real one, led to the server at `url`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")}
    environment |= gcloud_settings(folder, url, account)
    return subprocess.run(
        [str(GCLOUD), *words], env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def candidate(**details: str) -> Candidate:
    tpu = find_slice("v5litepod-16")
    assert tpu is not None
    given = tuple((key, value) for key, value in ({"project": PROJECT} | details).items() if value)
    return Candidate(
        provider="gcp",
        accelerator=tpu.name,
        hosts=tpu.hosts,
        chips_per_host=4,
        market=OnDemand(),
        region="us-west4",
        zone="us-west4-a",
        details=given,
    )


def spec(name: str = "demo-1", token: str = TOKEN, **details: str) -> SliceSpec:
    labels = (
        ("orch-installation", Text.of(INSTALLATION)),
        ("orch-cluster", Text.of("demo")),
        ("orch-intent", Text.of(token)),
        ("team", Text.of('a "team", of = some')),
    )
    return SliceSpec(cluster="demo", name=name, token=Text.of(token), candidate=candidate(**details), labels=labels)
