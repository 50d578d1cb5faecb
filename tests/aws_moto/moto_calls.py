"""One request of AWS as the proxy reads it, and the answers that the proxy gives itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

_SCOPE = re.compile(r"Credential=([^/]+)/[0-9]+/([^/]+)/([^/]+)/")  # AWS Signature Version 4
_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


@dataclass(frozen=True)
class Reply:
    """headers: without those of the connection."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Call:
    """One request, as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def scope(self) -> tuple[str, str, str]:
        """Access key, region and service, by its signature."""
        found = _SCOPE.search(self.headers.get("Authorization", ""))
        return (found[1], found[2], found[3]) if found else ("", "", "")

    @property
    def key(self) -> str:
        return self.scope[0]

    @property
    def place(self) -> tuple[str, str]:
        """Account, by its one access key, and region."""
        return self.scope[:2]

    @cached_property
    def params(self) -> dict[str, str]:
        """Of EC2's query protocol; of JSON the plain strings."""
        if "X-Amz-Target" in self.headers:
            sent: dict[str, Any] = json.loads(self.body)
            return {name: value for name, value in sent.items() if isinstance(value, str)}
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def operation(self) -> str:
        target = self.headers.get("X-Amz-Target", "")
        return target.rpartition(".")[2] if target else self.params.get("Action", "")

    def filters(self) -> dict[str, list[str]]:
        names = {key.split(".")[1]: value for key, value in self.params.items() if _parts(key, "Filter") == "Name"}
        return {
            name: [value for key, value in self.params.items() if key.startswith(f"Filter.{number}.Value.")]
            for number, name in names.items()
        }

    def tags(self, kind: str) -> dict[str, str]:
        """Return what TagSpecifications say of one kind of resource."""
        kinds = {k.split(".")[1]: v for k, v in self.params.items() if _parts(k, "TagSpecification") == "ResourceType"}
        leads = [f"TagSpecification.{number}.Tag." for number, of in kinds.items() if of == kind]
        keys = [key for key in self.params if key.startswith(tuple(leads)) and key.endswith(".Key")] if leads else []
        return {self.params[key]: self.params[key.removesuffix("Key") + "Value"] for key in keys}

    def with_params(self, params: Mapping[str, str]) -> Call:
        """Return the same request with other parameters. moto checks no signature."""
        return Call(self.method, self.path, self.headers, urlencode(params).encode())


def _parts(key: str, lead: str) -> str:
    parts = key.split(".")
    return parts[2] if len(parts) == 3 and parts[0] == lead else ""


def xml_reply(call: Call, content: str) -> Reply:
    lines = f'<{call.operation}Response xmlns="{_NAMESPACE}"><requestId>proxy</requestId>{content}'
    return Reply(200, {"Content-Type": "text/xml"}, f"{lines}</{call.operation}Response>".encode())


def refusal(code: str, words: str, status: int = 400) -> Reply:
    """Return an error of EC2 ("Error codes for the Amazon EC2 API", read November 2026)."""
    error = f"<Error><Code>{escape(code)}</Code><Message>{escape(words)}</Message></Error>"
    body = f"<Response><Errors>{error}</Errors><RequestID>proxy</RequestID></Response>"
    return Reply(status, {"Content-Type": "text/xml"}, body.encode())


def json_reply(answer: Mapping[str, Any]) -> Reply:
    return Reply(200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(answer).encode())
