"""Following the output of a job through a service, whichever server answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.client.base import Document
from orchestrator.client.host_records import SentRows
from orchestrator.client.output import OutputCalls
from orchestrator.client.patience import Patience
from orchestrator.documents.output_parts import OutputPart
from orchestrator.documents.queries import OutputQuery
from orchestrator.engine.operations.log_sources import Sink, choose_ranks, explain_unread, find_logged_host
from orchestrator.engine.operations.logs import (
    describe_copy,
    describe_recorded_end,
    find_job,
    no_output_error,
)
from orchestrator.engine.operations.output_source import is_absent
from orchestrator.engine.operations.setup_logs import describe_setup, no_setup_error
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.kept_log import describe_missing
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.plan.steps import Done
from orchestrator.store.records import ClusterRecord, JobRecord

HOLD_SECONDS = 20  # that the service waits for more before it answers
_PAUSE_SECONDS = 0.2  # after an answer without anything new: a server that ends does not hold a request
_Answer = TypeVar("_Answer")


@dataclass(kw_only=True)
class FollowedOutput:
    """The output of one job, read a part after the other.

    Attributes:
        sink: Receives the bytes of a host, as its program wrote them.
        setup_sink: The same of its setup.
        note: Receives lines for people.
    """

    client: OutputCalls
    query: OutputQuery
    sink: Sink
    setup_sink: Sink
    note: Callable[[str], None]
    _patience: Patience | None = None  # from the first answer on
    _positions: dict[str, int] = field(default_factory=dict[str, int])
    _hosts: dict[str, dict[int, HostAddress]] = field(default_factory=dict[str, dict[int, HostAddress]])

    def run(self) -> CommandResult:
        """Give the output to the sink. See DocumentReads.give_output."""
        query = self.query
        record, job = self._find_job(query.job)
        head = self._give_parts(record, job)
        hosts = {host.rank: host.host for host in record.hosts}
        unread = tuple(_read_outcome(one, hosts) for one in head["unread"])
        if not self._positions and not unread:
            raise no_setup_error(record) if query.setup else no_output_error(record, job)
        if not head["setup_of"] and is_absent(record) and (job.state == "ended" or not query.follow):
            self.note(describe_copy(record))
        if not query.follow:
            step = explain_unread(record.name, f"no log of job {job.id}", unread) if unread else Done("")
            return CommandResult(step=step, outcomes=unread, job_id=job.id, run_id=job.run_id)
        _, ended = self._find_job(job.id)
        return CommandResult(step=describe_recorded_end(ended), outcomes=(), job_id=ended.id, run_id=ended.run_id)

    def _find_job(self, number: int | None) -> tuple[ClusterRecord, JobRecord]:
        with SentRows(self._ask(lambda: self.client.read_records(self.query.cluster))) as reader:
            return find_job(reader, self.query.cluster, number)

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        return question() if self._patience is None else self._patience.ask(question)

    def _give_parts(self, record: ClusterRecord, job: JobRecord) -> Document:
        """Give all parts, until the job has ended where it is followed; return the last document."""
        follow, noted, wait = self.query.follow, False, 0

        def read() -> tuple[Document, Iterator[OutputPart]]:
            return self._read(record, job, wait)

        while True:
            head, parts = self._ask(read)
            if follow and self._patience is None:
                step = f"orch logs {self.query.cluster} -f"
                self._patience = Patience(report=self.note, subject="the job", next_step=step)
            if head["ranks"]:
                choose_ranks(record, job, head["ranks"], self.query.hosts)
            if head["setup_of"] and not noted:
                noted = True
                self.note(describe_setup(job, head["setup_of"]))
            begun = len(self._positions), sum(self._positions.values())
            for part in parts:
                sink = self.sink if part.file.startswith("attempt-") else self.setup_sink
                sink(self._find_host(part), describe_missing(part.missing) + part.content)
                self._positions[part.file] = part.end
            if head["complete"] and (head["ended"] or not follow):
                return head
            wait = HOLD_SECONDS if follow else 0
            if begun == (len(self._positions), sum(self._positions.values())):
                time.sleep(_PAUSE_SECONDS)

    def _find_host(self, part: OutputPart) -> HostAddress:
        """Return the host of a part: of the cluster as it is when output of its attempt comes first."""
        attempt = part.file.partition("/")[0]
        if attempt not in self._hosts:
            record, _ = self._find_job(self.query.job)
            self._hosts[attempt] = {host.rank: host for host in record.hosts}
        return self._hosts[attempt].get(part.rank) or find_logged_host(part.rank)

    def _read(self, record: ClusterRecord, job: JobRecord, wait: int) -> tuple[Document, Iterator[OutputPart]]:
        query = self.query
        return self.client.read_output(
            query.cluster, job.id, uid=record.uid, setup=query.setup, hosts=query.hosts or (),
            tail=query.tail, since=query.since, wait=wait, positions=self._positions,
        )  # fmt: skip


def _read_outcome(unread: Document, hosts: Mapping[int, str]) -> HostOutcome:
    """Return the outcome of a host that could not be read, given the addresses of hosts by rank."""
    rank = int(unread["rank"])
    failure = Failure(unread["failure"]) if unread["failure"] else None
    status = None if failure is not None else int(unread["status"])
    return HostOutcome(
        rank=rank, host=hosts.get(rank, ""), exit_code=status, failure=failure, detail=str(unread["why"]),
        remedy=str(unread["next_step"]),
    )  # fmt: skip
