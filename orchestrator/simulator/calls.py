"""Parameters and results of the cloud's calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.simulator.state import Phase, QueuePhase


class Code(StrEnum):
    """Neutral error codes; a front translates them into its cloud's codes."""

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
    """Failed call, as the caller sees it: without whether a call that timed out acted.

    Attributes:
        answer: Id of the vendor's answer that a front gives instead; "" for none.
    """

    def __init__(self, code: Code, words: str, answer: str = "") -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words
        self.answer = answer

    @property
    def http(self) -> int:
        return HTTP[self.code]


class ReadOnlyViolation(AssertionError):
    """Mutating call in a read-only cloud: the test has failed (promise P11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCall:
    """Request for N hosts.

    Attributes:
        extra: Data that is kept with the resource (keys, start-up script) and is part of the request.
    """

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
        """Return a digest of the request without its token."""
        parts = [self.name, self.zone, self.accelerator, self.hosts, self.chips_per_host, self.market]
        text = json.dumps([*parts, dict(self.labels), dict(self.extra)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Label:
    """Label that a resource must carry.

    Attributes:
        value: Required value; "" means any.
    """

    key: str
    value: str = ""

    def fits(self, labels: Mapping[str, str]) -> bool:
        return self.key in labels and self.value in ("", labels[self.key])


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCall:
    """Request that may wait for machines.

    Attributes:
        request_id: Idempotency token.
        valid_for: Seconds until it expires; None means never.
        not_before: Seconds until it may be filled.
        more: Further nodes of the same kind and zone, created and ended together with `node`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """One host as the API shows it.

    Attributes:
        dies: Time of its preemption, if notice has been given.
    """

    rank: int
    address: str
    alias: str
    up: bool
    dies: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Resource as the API shows it.

    Attributes:
        size: Number of its hosts.
        hosts: Hosts that the API shows in this phase.
        queued: Uid of the queued request that it came from.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """Queued request as the API shows it.

    Attributes:
        node_uid: Uid of its node; "" until it has one.
    """

    uid: str
    name: str
    zone: str
    phase: QueuePhase
    reason: str
    node_name: str
    node_uid: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing.

    Attributes:
        next_page: Token of the next page; "" on the last one.
        unreachable: Zones whose resources may be missing.
    """

    items: tuple[Look, ...]
    next_page: str = ""
    unreachable: tuple[str, ...] = ()
