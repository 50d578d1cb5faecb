"""Servers of one store in this process that exchange tokens, and what jobs of CI send to them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from support.oidc_provider import Provider

from orchestrator.cloud_access import CloudAccess
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.service.application import build_application
from orchestrator.service.entrance import Entrance
from orchestrator.service.gate import Gate
from orchestrator.service.site import Site
from orchestrator.service.token_exchange import GRANT, ID_TOKEN, TrustedIssuers
from orchestrator.store.location import Location
from orchestrator.store.store import Store
from orchestrator.store.trust_records import TrustRule

NAME = "orch.test"
AUDIENCE = f"https://{NAME}"
CLAIMS = {"repository": "org/name", "ref": "refs/heads/main"}


@dataclass(kw_only=True)
class Server:
    """A server behind a proxy, as far as it knows.

    Attributes:
        clock: The seconds that the keys of issuers are old by, beside the real ones.
    """

    port: int
    gate: Gate
    clock: list[float] = field(default_factory=lambda: [0.0])

    def ask(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Host": NAME} | named)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if "json" in answer.getheader("Content-Type", "") else content
        finally:
            connection.close()

    def exchange(self, token: str, **more: str) -> tuple[int, Any]:
        form = {"grant_type": GRANT, "subject_token": token, "subject_token_type": ID_TOKEN} | more
        kind = "application/x-www-form-urlencoded"
        return self.ask("/v1/tokens/exchange", "POST", urlencode(form).encode(), content_type=kind)

    def who(self, token: str) -> tuple[int, Any]:
        return self.ask("/v1/me", authorization=f"Bearer {token}")


@contextlib.contextmanager
def serve_ci(location: Location, folder: Path, entrance: Entrance | None = None) -> Generator[Server]:
    """Serve a store, by default under the name orch.test."""
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    site = Site(location=location, project=DEFAULT_PROJECT, access=CloudAccess())
    clock = [0.0]
    gate = Gate(
        member="boss", token_file=folder / f"token-{port}", open_reader=site.open_reader,
        open_store=lambda doing: Store(location, doing=doing),
        issuers=TrustedIssuers(clock=lambda: time.monotonic() + clock[0]),
    )  # fmt: skip
    gate.read_token()
    entrance = entrance or Entrance(names=(NAME,), behind_proxy=True)
    application, streams = build_application(site, gate, entrance, port, "0.2.0")
    server = uvicorn.Server(
        uvicorn.Config(application, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield Server(port=port, gate=gate, clock=clock)
    finally:
        streams.close()
        server.should_exit = True
        thread.join()
        listening.close()


def make_job_token(provider: Provider, **twist: Any) -> str:
    """Return the token of a job; a claim that is None is left out."""
    now = int(time.time())
    claims: dict[str, Any] = {"iss": provider.issuer, "aud": AUDIENCE, "iat": now, "nbf": now, "exp": now + 300}
    claims |= {"jti": f"job-{time.time_ns()}", "sub": "repo:org/name:ref:refs/heads/main", **CLAIMS} | twist
    sign: Callable[[dict[str, Any]], str] = provider.sign or provider.key.sign
    return sign({name: one for name, one in claims.items() if one is not None})


def make_rule(issuer: str, name: str = "release", **more: Any) -> TrustRule:
    values: dict[str, Any] = {
        "uid": f"{name}-{time.time_ns()}", "name": name, "issuer": issuer, "claims": CLAIMS, "member": f"ci-{name}",
        "role": "member", "project": "", "seconds": 3600, "created": time.time(),
    }  # fmt: skip
    return TrustRule(**(values | more))
