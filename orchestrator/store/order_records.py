"""The records of orders: what members asked the service to do, and what became of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from orchestrator.next_step import NO_STEP, NextStep
from orchestrator.store.records import Row

ORDER_VERBS = ("launch", "resume", "exec", "cancel", "stop", "start", "down")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRecord:
    """A change that a member asked the service to make; an engine carries it out.

    Attributes:
        uid: Follows from the member and the key of the request, so a repeated request is the same order.
        project: The project of the cluster.
        cluster: The name of the cluster.
        verb: One of ORDER_VERBS, or `access`: see access_records.py.
        arguments: JSON: what the command gets beside the cluster.
        plan: The digest of the plan that the member saw.
        fingerprint: The digest of the whole request.
        member: Who asked.
        state: "open" until an engine has carried it out, then "ended".
        status: The exit status of the command; None until it has ended.
        run_id: The run that a launch or exec makes; "" for others.
    """

    uid: str
    project: str
    cluster: str
    verb: str
    arguments: str
    plan: str
    fingerprint: str
    member: str
    state: str
    created: float
    run_id: str = ""
    ended: float | None = None
    status: int | None = None
    code: str = ""
    what: str = ""
    why: str = ""
    next_step: NextStep = NO_STEP


def make_order_uid(member: str, key: str) -> str:
    """Return the uid of the order that a member's request with this key makes."""
    return hashlib.sha256(f"{member}\0{key}".encode()).hexdigest()[:16]


def order_from_row(row: Row) -> OrderRecord:
    """Return a row of `orders`, whose columns are named as the fields."""
    values: dict[str, Any] = {name: row[name] for name in OrderRecord.__dataclass_fields__}
    values["next_step"] = NextStep.parse(row["next_step"])
    return OrderRecord(**values)
