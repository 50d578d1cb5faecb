"""Pretend AWS services at one free port of the loopback, for boto3, the `aws` command and the hosts' programs.

with AwsServer(InMemory(scenario, clock)) as server:
    ec2 = boto3.client("ec2", endpoint_url=server.url, region_name="us-east-1")

Which service is meant stands in the signature: Credential=KEY/20261120/us-east-1/ec2/aws4_request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from orch_fronts.aws.calls import Admits, AwsAnswer, AwsCall, AwsRefusal, Front, needs_of
from orch_fronts.aws.ec2.front import Ec2Front
from orch_fronts.aws.refusals import in_form, unknown_caller
from orch_fronts.aws.roles import Roles, is_signed_by_known
from orch_fronts.aws.sts import StsFront
from orch_fronts.serving import LONGEST_UNPROVEN, ApiHandler, ApiHttp, ApiServer
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies, NoBodies

_LONGEST_BODY = 256 * 1024 * 1024  # bytes; parts of an upload come whole
_SCOPE = re.compile(r"Credential=[^/,\s]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
_FORM = "application/x-www-form-urlencoded"


class AwsServer(ApiServer):
    """EC2 and STS are there; fronts: other services by their name in the signature, such as "ssm".

    bodies: what stands behind the instances. guard: says who may do what; None lets all pass.
    cut: a call without an answer (rule time_out_may_have_acted) breaks its connection; else it is 503.
    secret: of the caller's key; "" does not verify signatures. roles: which of them the caller may assume.
    """

    def __init__(
        self,
        access: Access,
        bodies: Bodies | None = None,
        *,
        port: int = 0,
        cut: bool = False,
        fronts: Mapping[str, Front] = MappingProxyType({}),
        guard: Admits | None = None,
        secret: str = "",
        roles: Roles | None = None,
    ) -> None:
        bodies = bodies or NoBodies()
        self.ec2 = Ec2Front(access, bodies)
        super().__init__(_Handler, port, self.ec2, bodies)
        self.requests: list[AwsCall] = []
        self.cut = cut
        self.secret = secret
        self.guard = guard
        self.roles = roles or Roles()
        self._fronts: Mapping[str, Front] = {"ec2": self.ec2, "sts": StsFront(access, self.roles), **fronts}

    def answer(self, call: AwsCall) -> AwsAnswer:
        """Raises AwsRefusal."""
        front = self._fronts.get(call.service)
        if front is None:
            raise AwsRefusal("UnknownService", f"there is no pretend service {call.service!r}", 404)
        if self.guard is not None:
            self.guard.admit(call, needs_of(front, call))
        return front.handle(call)


def call_of(method: str, target: str, headers: Mapping[str, str], body: bytes) -> AwsCall:
    """headers: by lower-case name. A request without a signature is for s3: public objects need none."""
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    scope = _SCOPE.search(headers.get("authorization", "") or f"Credential={query.get('X-Amz-Credential', '')}")
    service, region = (scope["service"], scope["region"]) if scope else ("s3", "us-east-1")
    operation, params = "", cast(dict[str, Any], {})
    target_header = headers.get("x-amz-target", "")
    if target_header:
        operation = target_header.rpartition(".")[2]
        with suppress(ValueError):
            params = json.loads(body or b"{}")
    elif service != "s3":
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100_000))
        params = {**query, **form} if headers.get("content-type", "").startswith(_FORM) or not body else query
        operation = str(params.get("Action", ""))
    return AwsCall(
        service=service,
        region=region,
        method=method,
        path=parts.path,
        query=query,
        headers=headers,
        body=body,
        operation=operation,
        params=params,
    )


class _Handler(ApiHandler):
    def serve(self) -> None:
        aws = cast(AwsServer, cast(ApiHttp, self.server).api)
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = headers.get("content-length", "0")
        digest = headers.get("x-amz-content-sha256", "")  # without it the body has to be read before its signature is
        longest = _LONGEST_BODY if digest or not aws.secret else LONGEST_UNPROVEN
        if not length.isdecimal() or int(length) > longest or "transfer-encoding" in headers:
            self.close_connection = True  # the body is not read
            self._send(AwsAnswer(status=413))
            return
        body = b"" if digest else self.rfile.read(int(length))
        if aws.secret and not self._is_signed(aws, digest or hashlib.sha256(body).hexdigest()):
            if digest:
                self.skip_body(length)
            self._send(unknown_caller(call_of(self.command, self.path, headers, b"")))
            return
        call = call_of(self.command, self.path, headers, body or self.rfile.read(int(length) if digest else 0))
        aws.requests.append(call)
        try:
            answer = aws.answer(call)
        except AwsRefusal as refusal:
            if aws.cut and not refusal.answered:
                self.close_connection = True
                return
            answer = in_form(call.service, refusal)
        except Exception as error:  # a fault of the simulator, or a cloud where nothing may change: raised at the end
            aws.errors.append(error)
            answer = in_form(call.service, AwsRefusal("InternalError", f"{type(error).__name__}: {error}", 500))
        self._send(answer)

    def _is_signed(self, aws: AwsServer, digest: str) -> bool:
        return is_signed_by_known(aws.secret, aws.roles, self.command, self.path, self.headers, digest)

    def _send(self, answer: AwsAnswer) -> None:
        self.send(answer.status, {"Content-Type": answer.kind, **answer.headers}, answer.body)
