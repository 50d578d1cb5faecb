"""What goes into a pretend AWS service and what comes out of it, whichever protocol it speaks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

ACCOUNT = "123456789012"
XML = "text/xml;charset=UTF-8"
JSON_1_1 = "application/x-amz-json-1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCall:
    """One request. service, region: of the signature's credential scope ("ec2", "us-east-1").

    path: without the query, still quoted. query: of the URL, each name's last value. headers: by lower-case name.
    operation: "RunInstances", from Action or X-Amz-Target; "" for a service that has paths (s3). params: of the
    protocols with an Action the flat form as it was sent, of those with a target the JSON object, else nothing.
    """

    service: str
    region: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    operation: str = ""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAnswer:
    status: int = 200
    body: bytes = b""
    kind: str = XML  # its Content-Type
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of_json(cls, value: object, status: int = 200) -> AwsAnswer:
        return cls(status=status, body=json.dumps(value).encode(), kind=JSON_1_1)


class AwsRefusal(Exception):
    """The service refuses: code and words as AWS spells them; the server puts them into the protocol's form.

    answered: False for a call whose answer is lost; the server then says 503, or breaks the connection.
    """

    def __init__(self, code: str, words: str, http: int = 400, *, answered: bool = True) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words
        self.http = http
        self.answered = answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A permission that a call needs: on this resource, which carries these tags, sent with those tags.

    resource: its ARN; "*" where the action knows none. context: further condition keys with their values, such as
    "ec2:CreateAction" or "iam:PassedToService".
    """

    action: str
    resource: str = "*"
    resource_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    request_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    context: Mapping[str, str] = field(default_factory=dict[str, str])


class Front(Protocol):
    """One service."""

    def handle(self, call: AwsCall) -> AwsAnswer:
        """Raises AwsRefusal."""
        ...


@runtime_checkable
class Needy(Protocol):
    """A front that says which permissions a call needs; of the others it is `service:Operation` on "*"."""

    def needs(self, call: AwsCall) -> Sequence[Need]:
        """Raises AwsRefusal for a call that is not well formed."""
        ...


class Admits(Protocol):
    """Who may do what: asked before every call."""

    def admit(self, call: AwsCall, needs: Sequence[Need]) -> None:
        """Raises AwsRefusal."""
        ...


def needs_of(front: Front, call: AwsCall) -> tuple[Need, ...]:
    if isinstance(front, Needy):
        return tuple(front.needs(call))
    return (Need(action=f"{call.service}:{call.operation}"),)
