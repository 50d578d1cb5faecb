"""What goes into the cloud's calls and what comes out of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.simulator.state import Phase, QueuePhase


class Code(StrEnum):
    """Why a call failed, in neutral words; a front gives each its cloud's spelling."""

    ALREADY_EXISTS = "already-exists"
    TOKEN_MISMATCH = "token-mismatch"  # noqa: S105  # an error's name, not a secret
    TOKEN_SPENT = "token-spent"  # noqa: S105  # an error's name, not a secret
    NOT_FOUND = "not-found"
    NO_CAPACITY = "no-capacity"
    NOT_OFFERED = "not-offered"
    QUOTA = "quota"
    DENIED = "denied"
    INVALID = "invalid"
    WRONG_STATE = "wrong-state"
    THROTTLED = "throttled"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"


HTTP = {
    Code.ALREADY_EXISTS: 409,
    Code.TOKEN_MISMATCH: 400,
    Code.TOKEN_SPENT: 409,
    Code.NOT_FOUND: 404,
    Code.NO_CAPACITY: 500,
    Code.NOT_OFFERED: 400,
    Code.QUOTA: 403,
    Code.DENIED: 403,
    Code.INVALID: 400,
    Code.WRONG_STATE: 400,
    Code.THROTTLED: 429,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.TIMEOUT: 0,  # there was no answer
}


class ApiError(Exception):
    """A call failed. code and words are what the caller gets; whether a call that timed out acted is not among them."""

    def __init__(self, code: Code, words: str) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words

    @property
    def http(self) -> int:
        return HTTP[self.code]


class ReadOnlyViolation(AssertionError):
    """A call that changes something, in a cloud where nothing may change: the test has failed (promise P11)."""


@dataclass(frozen=True, slots=True)
class CreateCall:
    """A request for N hosts. extra: kept beside them (keys, start-up text), and part of the request."""

    name: str
    zone: str
    accelerator: str
    hosts: int
    token: str = ""
    chips_per_host: int = 0
    market: str = "on-demand"
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def digest(self) -> str:
        """The same for the same request; the token is no part of it."""
        parts = [self.name, self.zone, self.accelerator, self.hosts, self.chips_per_host, self.market]
        text = json.dumps([*parts, dict(self.labels), dict(self.extra)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Label:
    """A label that a resource must carry. value: "" = any."""

    key: str
    value: str = ""

    def fits(self, labels: Mapping[str, str]) -> bool:
        return self.key in labels and self.value in ("", labels[self.key])


@dataclass(frozen=True, slots=True)
class QueueCall:
    """A request that may wait. valid_for: seconds until it expires, None = never. request_id: its token.

    not_before: seconds until it may be filled. more: further nodes of the same kind in the same zone; they come and go
    together with `node`.
    """

    name: str
    node: CreateCall
    request_id: str = ""
    valid_for: float | None = None
    not_before: float = 0.0
    more: tuple[CreateCall, ...] = ()

    @property
    def nodes(self) -> tuple[CreateCall, ...]:
        return (self.node, *self.more)


@dataclass(frozen=True, slots=True)
class HostLook:
    """One host as the API shows it. dies: when it will be taken, if its notice has been given."""

    rank: int
    address: str
    alias: str
    up: bool
    dies: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A resource as the API shows it. size: how many hosts it has; hosts: those that can be told of in this phase.

    queued: uid of the queued request it came from.
    """

    uid: str
    name: str
    zone: str
    accelerator: str
    market: str
    phase: Phase
    reason: str
    labels: Mapping[str, str]
    extra: Mapping[str, Any]
    created: float
    size: int
    hosts: tuple[HostLook, ...]
    queued: str = ""


@dataclass(frozen=True, slots=True)
class QueueLook:
    """A queued request as the API shows it. node_uid: "" until it has one."""

    uid: str
    name: str
    zone: str
    phase: QueuePhase
    reason: str
    node_name: str
    node_uid: str


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing. next_page: "" on the last one. unreachable: zones whose resources may be missing."""

    items: tuple[Look, ...]
    next_page: str = ""
    unreachable: tuple[str, ...] = ()
