"""The records of the store as values, and the conversion of rows into them.

Plain dataclasses, so light commands read them without any library. A value that this orch does not know is refused
(version.unknown_value_error), never replaced by a default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from orchestrator.hosts import HostAddress, HostPin, hosts_from_json
from orchestrator.next_step import NextStep
from orchestrator.paths import from_portable, load_paths, to_portable
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, Intent, IntentState
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.project import DEFAULT_PROJECT, qualify_name
from orchestrator.slices import (
    Candidate,
    CapacityBlock,
    FlexStart,
    Market,
    OnDemand,
    Owned,
    Reservation,
    SliceState,
    Spot,
)
from orchestrator.store.audited import format_subject
from orchestrator.store.version import unknown_value_error

Row: TypeAlias = Mapping[Any, Any]  # one row, by column name, whatever library read it
_Enum = TypeVar("_Enum", bound=StrEnum)

DESIRED_STATES = ("up", "stopped", "down")
JOB_KINDS = ("launch", "resume", "exec")
JOB_STATES = ("queued", "pending", "running", "cancelling", "ended")
WATCHERS = ("", "engine")
PIPELINE_STATES = ("running", "ended", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """One cluster.

    Attributes:
        uid: made once with the record; part of every token.
        desired_state: one of DESIRED_STATES.
        hosts: addresses of the last READY slice.
        host_contents: JSON of labels and digests that the hosts last reported, for previews.
        last_state: the SliceState that the provider last reported, "" before the first answer.
        last_seen: when that was, in epoch seconds.
        limits: JSON of max_hours, idle_minutes and max_cost, those that are set.
        deleted: when it was deleted, in epoch seconds; None for an existing one.
        owner: the member who opened it.
        project: in which its name is unique.
    """

    uid: str
    name: str
    created: float
    desired_state: str
    hosts: tuple[HostAddress, ...]
    host_contents: str
    summary: str
    last_state: str
    last_seen: float
    limits: str = "{}"
    deleted: float | None = None
    owner: str = ""
    project: str = DEFAULT_PROJECT

    @property
    def qualified_name(self) -> str:
        """Its name in events and leases."""
        return qualify_name(self.project, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job: a launch, a resume or an exec.

    Attributes:
        kind: one of JOB_KINDS.
        started: the program of `attempt` may be running.
        opened_at: the newest slice generation when the job was opened.
        state: one of JOB_STATES.
        status: exit status of an ended job; code, what, why and next_step explain it.
        ranks: the hosts it runs on, None for all.
        after_end: the TeardownPolicy for the machines.
        launch_request: JSON from which another process prepares the same command again.
        watch: "" for a command in the foreground, "engine" for unattended engines.
        pipeline: uid of the pipeline it belongs to, or "".
        stage: its index in that pipeline.
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
    next_step: NextStep
    created: float
    ended: float | None
    ranks: tuple[int, ...] | None
    after_end: str
    launch_request: str = ""
    watch: str = ""
    pipeline: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """The values with which a job is opened; the fields are those of JobRecord."""

    kind: str
    run_id: str
    digest: str
    task: str
    bucket: str
    ranks: tuple[int, ...] | None
    after_end: str
    first_attempt: int = 1
    launch_request: str = ""
    watch: str = ""
    queued: bool = False
    pipeline: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord:
    """Tasks that run one after the other.

    Attributes:
        tasks: one task as JSON for each stage.
        stage: index of the current stage, from 0.
        state: one of PIPELINE_STATES.
        status: exit status of an ended pipeline; what explains it.
        launch_request: JSON from which another process prepares the stages again.
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
    launch_request: str

    @property
    def project(self) -> str:
        """The project of the clusters on which it runs."""
        return str(self._settings.get("project", DEFAULT_PROJECT))

    @property
    def owner(self) -> str:
        """The member who launched it; "" where not known."""
        return str(self._settings.get("owner", ""))

    @property
    def shared_cluster(self) -> str:
        """The cluster on which all stages run; "" where each has its own, which is deleted after it."""
        return str(self._settings.get("cluster", ""))

    @property
    def watch(self) -> str:
        """The value of JobRecord.watch for its stages: "engine" where unattended engines drive it."""
        return str(self._settings.get("watch", ""))

    @property
    def requested_end(self) -> str:
        """The command that ends it and has not finished, "cancel" or "down"; "" for none."""
        return str(self._settings.get("ending", ""))

    @property
    def may_continue(self) -> bool:
        """Return whether a stage of the pipeline may still start."""
        return self.state == "running" and not self.requested_end

    @property
    def cluster(self) -> str:
        """The name of the cluster of its current stage."""
        return self.cluster_of(self.stage)

    def cluster_of(self, stage: int) -> str:
        """Return the name of the cluster on which a stage runs."""
        return self.shared_cluster or f"{self.name}-{stage + 1}"

    def name_stage(self, stage: int) -> str:
        """Return the name of a stage's task; "" where it has none."""
        return str(_read_object(self.tasks[stage]).get("name") or "")

    def describe_stage(self, stage: int | None = None) -> str:
        """Return `stage 2 of 3 (train)`; of the current stage by default."""
        stage = self.stage if stage is None else stage
        name = self.name_stage(stage)
        return f"stage {stage + 1} of {len(self.tasks)}" + (f" ({name})" if name else "")

    def add_settings(self, more: Mapping[str, Any]) -> str:
        """Return its launch request with further settings."""
        return json.dumps({**self._settings, **more})

    @property
    def _settings(self) -> dict[str, Any]:
        return _read_object(self.launch_request)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One event of the audit.

    Attributes:
        at: epoch seconds.
        subject: the row that changed (audited.format_subject), "" for an event that changed no row.
        before: JSON of the changed columns; None for a new row.
        after: JSON of the changed columns; None when no row changed.
        hash: covers all other fields, and so the whole chain before it (audited.hash_event).
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


def _read_object(text: str) -> dict[str, Any]:
    """Return the object of a JSON text; {} for a text that is none."""
    try:
        found: object = json.loads(text or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def candidate_to_json(candidate: Candidate) -> str:
    """Return a candidate as the JSON text that the store keeps."""
    data = asdict(candidate)
    data["market"] = _market_to_json(candidate.market)
    return json.dumps(data, sort_keys=True)


def candidate_from_json(text: str, row: Row | None = None) -> Candidate:
    """Return the candidate that `candidate_to_json` wrote.

    Args:
        text: the JSON text.
        row: the row of `intents` that holds it, for the error.

    Raises:
        StoreError: a field or the market is unknown to this orch.
    """
    try:
        found = _parse_candidate(text)
    except (ValueError, TypeError, KeyError) as error:
        raise unknown_value_error(_name_holder(row), "candidate", text) from error
    if found is None:
        raise unknown_value_error(_name_holder(row), "candidate.market", json.loads(text)["market"])
    return found


@lru_cache(maxsize=1024)  # a list of runs has the same few candidates in hundreds of rows
def _parse_candidate(text: str) -> Candidate | None:
    """Return the candidate of a JSON text; None for an unknown market."""
    data: dict[str, Any] = dict(json.loads(text))
    market = _market_from_json(data["market"])
    if market is None:
        return None
    details = tuple((str(key), str(value)) for key, value in data["details"])
    data |= {"market": market, "details": details}
    return Candidate(**data)


def _name_holder(row: Row | None) -> str:
    return "a candidate" if row is None else format_subject("intents", row)


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


def _market_from_json(data: object) -> Market | None:
    """Return the market, or None for one that is unknown. No market replaces another: each has its own price."""
    match data:
        case ["on-demand"]:
            return OnDemand()
        case ["spot"]:
            return Spot()
        case ["owned"]:
            return Owned()
        case ["reservation", str(name)]:
            return Reservation(name)
        case ["capacity-block", str(name)]:
            return CapacityBlock(name)
        case ["flex-start", str(hours)]:
            return _flex_start(hours)
        case _:
            return None


def _flex_start(hours: str) -> FlexStart | None:
    try:
        return FlexStart(float(hours))
    except ValueError:
        return None


def make_portable(host: HostAddress) -> HostAddress:
    """Return the address as the store keeps it: another computer has its own keys in its own state folder."""
    return _with_paths(host, to_portable, load_paths().state)


def _with_paths(host: HostAddress, change: Callable[[str, Path], str], state: Path) -> HostAddress:
    return replace(
        host,
        identity_file=Path(change(str(host.identity_file), state)),
        known_hosts=Path(change(str(host.known_hosts), state)),
        jump=_with_paths(host.jump, change, state) if host.jump is not None else None,
    )


def _read_hosts(row: Row) -> tuple[HostAddress, ...]:
    """Return the addresses of a row of `clusters`; StoreError for a field that is unknown to this orch."""
    if row["hosts"] in ("", "[]"):
        return ()
    try:
        hosts = hosts_from_json(row["hosts"])
        state = load_paths().state
        return tuple(_with_paths(host, from_portable, state) for host in hosts)
    except (ValueError, TypeError, KeyError) as error:
        raise unknown_value_error(format_subject("clusters", row), "hosts", row["hosts"]) from error


def _read_enum(kind: type[_Enum], table: str, row: Row, column: str) -> _Enum:
    """Return the member of `kind` that a column names; StoreError for any other text."""
    try:
        return kind(row[column])
    except ValueError:
        raise unknown_value_error(format_subject(table, row), column, row[column], list(kind)) from None


def _read_known(known: tuple[str, ...], table: str, row: Row, column: str) -> str:
    """Return a column's text if it is one of `known`; StoreError for any other text."""
    if row[column] not in known:
        raise unknown_value_error(format_subject(table, row), column, row[column], known)
    return cast(str, row[column])


def _read_map(table: str, row: Row, column: str) -> str:
    """Return a column's text if it is a JSON object; StoreError for any other text."""
    try:
        valid = row[column] in ("", "{}") or isinstance(json.loads(row[column]), dict)
    except ValueError:
        valid = False
    if not valid:
        raise unknown_value_error(format_subject(table, row), column, row[column])
    return cast(str, row[column])


def _read_ranks(table: str, row: Row, column: str) -> tuple[int, ...] | None:
    """Return a column's ranks, None for all hosts; StoreError for any other text."""
    try:
        ranks: object = json.loads(row[column]) if row[column] else None
    except ValueError:
        ranks = row[column]
    match ranks:
        case None:
            return None
        case list() if all(type(rank) is int for rank in cast("list[object]", ranks)):
            return tuple(cast("list[int]", ranks))
        case _:
            raise unknown_value_error(format_subject(table, row), column, row[column])


def _read_status(table: str, row: Row, column: str) -> int | None:
    """Return a column's exit status, None without one; StoreError for what is no number (SQLite takes any text)."""
    if row[column] is not None and not isinstance(row[column], int):
        raise unknown_value_error(format_subject(table, row), column, row[column])
    return cast("int | None", row[column])


def cluster_from_row(row: Row) -> ClusterRecord:
    """Return the record of a row of `clusters`. Raises StoreError for a value that is unknown."""
    return ClusterRecord(
        uid=row["uid"],
        name=row["name"],
        created=row["created"],
        desired_state=_read_known(DESIRED_STATES, "clusters", row, "wanted"),
        hosts=_read_hosts(row),
        host_contents=_read_map("clusters", row, "held"),
        summary=row["summary"],
        last_state=_read_enum(SliceState, "clusters", row, "last_state") if row["last_state"] else "",
        last_seen=row["last_seen"],
        limits=row["limits"],
        deleted=row["gone"],
        owner=row["owner"],
        project=row["project"] or DEFAULT_PROJECT,
    )


def intent_from_row(row: Row) -> Intent:
    """Return the intent of a row of `intents`. Raises StoreError for a value that is unknown."""
    return Intent(
        generation=row["generation"],
        name=row["name"],
        token=row["token"],
        candidate=candidate_from_json(row["candidate"], row),
        state=_read_enum(IntentState, "intents", row, "state"),
        since=row["since"],
        cause=_read_enum(EndCause, "intents", row, "cause") if row["cause"] else None,
        why=row["why"],
        last_sent=row["touched"],
        billed_from=row["born"],
        billed_until=row["gone"],
        account=row["account"],
    )


def job_from_row(row: Row) -> JobRecord:
    """Return the record of a row of `jobs`. Raises StoreError for a value that is unknown."""
    return JobRecord(
        cluster_uid=row["cluster_uid"],
        id=row["id"],
        kind=_read_known(JOB_KINDS, "jobs", row, "kind"),
        run_id=row["run_id"],
        digest=row["digest"],
        task=row["task"],
        bucket=row["bucket"],
        attempt=row["attempt"],
        started=bool(row["started"]),
        opened_at=row["opened_at"],
        state=_read_known(JOB_STATES, "jobs", row, "state"),
        status=_read_status("jobs", row, "status"),
        code=row["code"],
        what=row["what"],
        why=row["why"],
        next_step=NextStep.parse(row["next_step"]),
        created=row["created"],
        ended=row["ended"],
        ranks=_read_ranks("jobs", row, "ranks"),
        after_end=_read_enum(TeardownPolicy, "jobs", row, "after_end"),
        launch_request=row["launch_request"],
        watch=_read_known(WATCHERS, "jobs", row, "watch"),
        pipeline=row["pipeline"],
        stage=row["stage"],
    )


def ended_from_row(row: Row) -> EndedAttempt:
    """Return the record of a row of `attempts`. Raises StoreError for a value that is unknown."""
    return EndedAttempt(
        attempt=row["attempt"],
        cause=_read_enum(EndCause, "attempts", row, "cause"),
        why=row["why"],
        generation=row["generation"],
        at=row["at"],
        exit_code=row["exit_code"],
        rank=row["rank"],
        evidence=row["evidence"],
    )


def pipeline_from_row(row: Row) -> PipelineRecord:
    """Return the record of a row of `pipelines`. Raises StoreError for a value that is unknown."""
    return PipelineRecord(
        uid=row["uid"],
        name=row["name"],
        tasks=tuple(str(task) for task in json.loads(row["tasks"])),
        stage=row["stage"],
        state=_read_known(PIPELINE_STATES, "pipelines", row, "state"),
        status=row["status"],
        what=row["what"],
        created=row["created"],
        ended=row["ended"],
        launch_request=row["launch_request"],
    )


def host_pin_from_row(row: Row) -> HostPin:
    """Return a row of `host_pins`, whose columns are named as the fields."""
    return HostPin(**{name: row[name] for name in HostPin.__dataclass_fields__})


def event_from_row(row: Row) -> EventRecord:
    """Return the record of a row of `events`, whose columns are named as the fields."""
    return EventRecord(**{name: row[name] for name in EventRecord.__dataclass_fields__})
