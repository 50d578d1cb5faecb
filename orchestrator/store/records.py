"""What the store holds, as values. Plain dataclasses: light commands read them without any library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator.hosts import HostAddress
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Ended, Intent, IntentState
from orchestrator.slices import (
    Candidate,
    CapacityBlock,
    FlexStart,
    Market,
    OnDemand,
    Owned,
    Reservation,
    Spot,
)

Row: TypeAlias = Mapping[Any, Any]  # one row, by column name, whatever library read it


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """uid: made once, part of every token. wanted: "up", "stopped" or "down". hosts: of the last READY slice.

    held: JSON of what the hosts were last known to hold (labels and digests), for previews.
    limits: JSON of max_hours, idle_minutes and max_cost, those that are set.
    """

    uid: str
    name: str
    created: float
    wanted: str
    hosts: tuple[HostAddress, ...]
    held: str
    summary: str
    last_state: str
    last_seen: float
    limits: str = "{}"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One launch, exec or resume. state: queued, pending, running, cancelling, ended. status etc.: how it ended.

    wish: JSON with which another process prepares the same command again. watch: "" when somebody follows it in the
    foreground, "engine" when unattended engines shall drive it. pipeline, stage: where it belongs, if anywhere.
    """

    cluster_uid: str
    id: int
    kind: str
    run_id: str
    digest: str
    task: str
    bucket: str
    attempt: int
    started: bool
    opened_at: int
    state: str
    status: int | None
    code: str
    what: str
    why: str
    next_step: str
    created: float
    ended: float | None
    ranks: tuple[int, ...] | None
    after: str
    wish: str = ""
    watch: str = ""
    pipeline: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a job is opened with; see JobRecord."""

    kind: str
    run_id: str
    digest: str
    task: str
    bucket: str
    ranks: tuple[int, ...] | None
    after: str
    first_attempt: int = 1
    wish: str = ""
    watch: str = ""
    queued: bool = False
    pipeline: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """Tasks that run one after the other. tasks: one text a stage. state: running, ended or cancelled.

    stage: index of the stage that is at work, from 0. status, what: how it ended.
    """

    uid: str
    name: str
    tasks: tuple[str, ...]
    stage: int
    state: str
    status: int | None
    what: str
    created: float
    ended: float | None
    wish: str


@dataclass(frozen=True, slots=True)
class EventRecord:
    """What happened. subject: the row that changed, "" for a remark; before, after: JSON of its changed columns.

    before is None for a new row, both are None for a remark. hash covers all of it and prev_hash: see audited.py.
    """

    seq: int
    at: float
    cluster: str
    actor: str
    kind: str
    what: str
    subject: str = ""
    cause: str = ""
    before: str | None = None
    after: str | None = None
    prev_hash: str = ""
    hash: str = ""


def candidate_to_json(candidate: Candidate) -> str:
    data = asdict(candidate)
    data["market"] = _market_to_json(candidate.market)
    return json.dumps(data, sort_keys=True)


def candidate_from_json(text: str) -> Candidate:
    data: dict[str, Any] = json.loads(text)
    data["market"] = _market_from_json(data["market"])
    data["details"] = tuple((str(key), str(value)) for key, value in data["details"])
    return Candidate(**data)


def _market_to_json(market: Market) -> list[str]:
    match market:
        case OnDemand():
            return ["on-demand"]
        case Spot():
            return ["spot"]
        case Owned():
            return ["owned"]
        case Reservation(name):
            return ["reservation", name]
        case CapacityBlock(name):
            return ["capacity-block", name]
        case FlexStart(hours):
            return ["flex-start", repr(hours)]


def _market_from_json(data: list[str]) -> Market:
    match data:
        case ["spot"]:
            return Spot()
        case ["owned"]:
            return Owned()
        case ["reservation", name]:
            return Reservation(name)
        case ["capacity-block", name]:
            return CapacityBlock(name)
        case ["flex-start", hours]:
            return FlexStart(float(hours))
        case _:
            return OnDemand()


def hosts_to_json(hosts: tuple[HostAddress, ...]) -> str:
    return json.dumps([asdict(host) for host in hosts], default=str)


def hosts_from_json(text: str) -> tuple[HostAddress, ...]:
    return tuple(_host(data) for data in json.loads(text or "[]"))


def _host(data: dict[str, Any]) -> HostAddress:
    data["identity_file"] = Path(data["identity_file"])
    data["known_hosts"] = Path(data["known_hosts"])
    data["jump"] = _host(data["jump"]) if data["jump"] else None
    data["proxy"] = tuple(data.get("proxy", ()))  # an older store has none
    return HostAddress(**data)


def cluster_from_row(row: Row) -> ClusterRecord:
    return ClusterRecord(
        uid=row["uid"],
        name=row["name"],
        created=row["created"],
        wanted=row["wanted"],
        hosts=hosts_from_json(row["hosts"]),
        held=row["held"],
        summary=row["summary"],
        last_state=row["last_state"],
        last_seen=row["last_seen"],
        limits=row.get("limits", "{}"),  # a version 1 file that no command has changed yet has none
    )


def intent_from_row(row: Row) -> Intent:
    return Intent(
        generation=row["generation"],
        name=row["name"],
        candidate=candidate_from_json(row["candidate"]),
        state=IntentState(row["state"]),
        since=row["since"],
        cause=EndCause(row["cause"]) if row["cause"] else None,
        why=row["why"],
        touched=row["touched"],
        born=row.get("born"),
        gone=row.get("gone"),
    )


def job_from_row(row: Row) -> JobRecord:
    return JobRecord(
        cluster_uid=row["cluster_uid"],
        id=row["id"],
        kind=row["kind"],
        run_id=row["run_id"],
        digest=row["digest"],
        task=row["task"],
        bucket=row["bucket"],
        attempt=row["attempt"],
        started=bool(row["started"]),
        opened_at=row["opened_at"],
        state=row["state"],
        status=row["status"],
        code=row["code"],
        what=row["what"],
        why=row["why"],
        next_step=row["next_step"],
        created=row["created"],
        ended=row["ended"],
        ranks=tuple(json.loads(row["ranks"])) if row["ranks"] else None,
        after=row["after_end"],
        wish=row.get("wish", ""),
        watch=row.get("watch", ""),
        pipeline=row.get("pipeline", ""),
        stage=row.get("stage", 0),
    )


def ended_from_row(row: Row) -> Ended:
    return Ended(
        attempt=row["attempt"],
        cause=EndCause(row["cause"]),
        why=row["why"],
        generation=row["generation"],
        at=row["at"],
        exit_code=row.get("exit_code"),
        rank=row.get("rank"),
        evidence=row.get("evidence", ""),
    )


def pipeline_from_row(row: Row) -> PipelineRecord:
    return PipelineRecord(
        uid=row["uid"],
        name=row["name"],
        tasks=tuple(str(task) for task in json.loads(row["tasks"])),
        stage=row["stage"],
        state=row["state"],
        status=row["status"],
        what=row["what"],
        created=row["created"],
        ended=row["ended"],
        wish=row["wish"],
    )


def event_from_row(row: Row) -> EventRecord:
    """The names of the columns and of the fields are the same."""
    return EventRecord(**{name: row[name] for name in EventRecord.__dataclass_fields__ if name in row})
