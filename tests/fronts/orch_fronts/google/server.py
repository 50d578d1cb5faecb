"""The TPU API on a free port of the loopback, for the real clients of Google.

with TpuServer(InMemory(scenario, clock)) as server:
    client = TpuClient(transport="rest", client_options={"api_endpoint": server.url}, credentials=...)
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, cast

from orch_fronts.google.api import TpuApi
from orch_fronts.google.compute.front import PREFIX as COMPUTE
from orch_fronts.google.compute.front import ComputeFront
from orch_fronts.google.grants import Grants
from orch_fronts.google.iam import Guard
from orch_fronts.google.methods import PREFIXES
from orch_fronts.google.oslogin import PREFIX as OSLOGIN
from orch_fronts.google.oslogin import OsLoginFront
from orch_fronts.google.services import project_fronts
from orch_fronts.google.status import DEADLINE_EXCEEDED, INTERNAL, UNAUTHENTICATED, Refusal
from orch_fronts.google.tokens import Tokens
from orch_fronts.serving import ApiHandler, ApiHttp, ApiServer
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies, NoBodies

PROJECT = "local-project"  # what the provider takes on the loopback when no other is configured
_LONGEST_BODY = 32 * 1024 * 1024  # bytes


class Front(Protocol):
    """Another service of Google at the same port."""

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        """target: path and query, with the prefix that it is served under. Raises Refusal."""
        ...


class TpuServer(ApiServer):
    """The TPU API, and other services beside it.

    bodies: what stands behind the nodes. project: the only one that there is. fronts: more, by the beginning of
    their paths. grants: what the caller may do; by default what docs/iam/gcp-role.yaml grants; the rest is refused.
    token: the one bearer token that is let in beside those of impersonated accounts; "" asks for none.
    cut: a call without an answer (rule time_out_may_have_acted) breaks its connection; else it is 504.
    """

    def __init__(
        self,
        access: Access,
        bodies: Bodies | None = None,
        *,
        project: str = PROJECT,
        port: int = 0,
        cut: bool = False,
        fronts: Mapping[str, Front] = MappingProxyType({}),
        grants: Grants | None = None,
        token: str = "",
    ) -> None:
        bodies = bodies or NoBodies()
        self.api = TpuApi(access, bodies, project)
        super().__init__(_Handler, port, self.api, bodies)
        self.project = project
        self.requests: list[tuple[str, str, bytes]] = []
        self.callers: list[tuple[str, str]] = []  # of each request: the impersonated account or "", and the path
        self.tokens = Tokens((grants or Grants()).impersonates)
        self.cut = cut
        self.token = token
        self.guard = Guard(grants)
        self._fronts: Mapping[str, Front] = {
            **project_fronts(project, self.guard.grants),
            COMPUTE: ComputeFront(access, bodies, project),
            OSLOGIN: OsLoginFront(),
            PREFIXES["iamcredentials"]: self.tokens,
            **fronts,
        }

    def authenticate(self, authorization: str) -> None:
        """Compare the value of the header with the token ("Authentication at Google", read November 2026).

        Raises:
            Refusal: It is missing, or another one.
        """
        if self.tokens.find(authorization) is not None:
            return
        if not self.token or hmac.compare_digest(authorization.encode(), f"Bearer {self.token}".encode()):
            return
        raise Refusal(
            UNAUTHENTICATED,
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid"
            " authentication credential.",
        )

    def front_of(self, target: str) -> Front:
        """Whose path this is: that of another service, else the TPU API's."""
        found = [prefix for prefix in self._fronts if target.startswith(prefix)]
        return self._fronts[max(found, key=len)] if found else self.api


class _Handler(ApiHandler):
    def serve(self) -> None:
        tpu = cast(TpuServer, cast(ApiHttp, self.server).api)
        length = self.headers.get("Content-Length", "0")
        try:
            tpu.authenticate(self.headers.get("Authorization", ""))
        except Refusal as refusal:
            self.skip_body(length)
            self._send(refusal.canonical.http, refusal.to_json())
            return
        if not length.isdecimal() or int(length) > _LONGEST_BODY:
            self.close_connection = True
            self._send(413, {"error": {"code": 413, "message": "the body is too long", "status": "INVALID_ARGUMENT"}})
            return
        body = self.rfile.read(int(length))
        tpu.requests.append((self.command, self.path, body))
        given = tpu.tokens.find(self.headers.get("Authorization", ""))
        tpu.callers.append((given.account if given is not None else "", self.path))
        status, retry_after = 200, 0
        try:
            tpu.guard.admit(self.command, self.path, body)
            answer = tpu.front_of(self.path).handle(self.command, self.path, body)
        except Refusal as refusal:
            if tpu.cut and refusal.canonical is DEADLINE_EXCEEDED:
                self.close_connection = True
                return
            status, answer, retry_after = refusal.canonical.http, refusal.to_json(), refusal.retry_after
        except Exception as error:  # a fault of the simulator, or a cloud where nothing may change: raised at the end
            tpu.errors.append(error)
            status, answer = 500, Refusal(INTERNAL, f"{type(error).__name__}: {error}").to_json()
        self._send(status, answer, retry_after)

    def _send(self, status: int, answer: dict[str, Any], retry_after: int = 0) -> None:
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        if retry_after:
            headers["Retry-After"] = str(retry_after)
        self.send(status, headers, json.dumps(answer).encode())
