"""The documents of the store that commands of this computer use. Each call imports what it needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrator.client.base import Document, DocumentReads
from orchestrator.clock import SteadyClock
from orchestrator.paths import load_paths
from orchestrator.project import read_project
from orchestrator.store.location import store_location
from orchestrator.store.read import open_reader_at

if TYPE_CHECKING:
    from orchestrator.documents.queries import (
        ClustersQuery,
        EventsQuery,
        OutputQuery,
        QueueQuery,
        RunsQuery,
        SpendingQuery,
    )
    from orchestrator.engine.narrator import Narrator
    from orchestrator.engine.operations.checkpoints import RunLocation
    from orchestrator.engine.operations.log_sources import Sink
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.store.read import Reader

_AGAIN_SECONDS = 0.3  # between two looks at the same records


def read_record_time() -> float:
    """Return the time for what is measured from records: by the clock that writes them, not by this computer's setting.

    A setting that is a minute behind would show a program of a minute as one of no time.
    """
    return SteadyClock(load_paths().state).now()


def open_own_reader() -> Reader:
    """Open the store of this computer's commands for reading. Use it as a context manager."""
    return open_reader_at(store_location(os.environ, load_paths()), read_project(os.environ))


class LocalDocuments(DocumentReads):
    """The documents of the store, which each call opens."""

    def read_status(self, query: ClustersQuery) -> Document:
        from orchestrator.documents.status import read_status

        with open_own_reader() as store:
            return read_status(store, read_record_time(), query)

    def read_queue(self, query: QueueQuery) -> Document:
        from orchestrator.documents.queue import read_queue

        with open_own_reader() as store:
            return read_queue(store, read_record_time(), query)

    def read_runs(self, query: RunsQuery) -> Document:
        from orchestrator.documents.runs import read_runs

        with open_own_reader() as store:
            return read_runs(store, read_record_time(), query)

    def compare_runs(self, run_ids: Sequence[str]) -> Document:
        from orchestrator.documents.comparison import compare_runs, comparison_as_json
        from orchestrator.documents.curves import CurveReader
        from orchestrator.engine.state.identities import open_project_bucket

        now = read_record_time()
        with open_own_reader() as store:
            return comparison_as_json(compare_runs(store, run_ids, now, open_project_bucket, CurveReader()), now)

    def measure_run(self, run_id: str) -> Document:
        from orchestrator.documents.measured_run import measure_run, measured_as_json
        from orchestrator.engine.state.identities import open_project_bucket

        now = read_record_time()
        with open_own_reader() as store:
            return measured_as_json(measure_run(store, run_id, now, open_project_bucket), now)

    def read_events(self, query: EventsQuery) -> Document:
        from orchestrator.documents.events import read_events

        with open_own_reader() as store:
            return read_events(store, read_record_time(), query)

    def read_spending(self, query: SpendingQuery) -> Document:
        from orchestrator.documents.ledger import read_spending

        with open_own_reader() as store:
            return read_spending(store, read_record_time(), query)

    def list_budgets(self) -> Document:
        from orchestrator.documents.budgets import read_budgets

        with open_own_reader() as store:
            return read_budgets(store, read_record_time())

    def list_tokens(self) -> Document:
        from orchestrator.documents.entries import read_entries

        with open_own_reader() as store:
            return read_entries(store, read_record_time())

    def read_capacity(self) -> Document:
        from orchestrator.documents.capacity import read_capacity

        with open_own_reader() as store:
            return read_capacity(store, read_record_time())

    def read_accuracy(self) -> Document:
        from orchestrator.documents.accuracy import accuracy_as_json, judge_runs
        from orchestrator.engine.state.identities import open_project_bucket
        from orchestrator.engine.training.kept_speeds import keep_speeds

        now = read_record_time()
        with open_own_reader() as store:
            runs = judge_runs(store, now, open_project_bucket)
        keep_speeds(one.speed for one in runs if one.speed is not None)
        return accuracy_as_json(runs, now)

    def locate_run(self, name: str, bucket: str | None) -> RunLocation:
        from orchestrator.engine.operations.checkpoints import find_run

        return find_run(name, bucket)

    def ask_again(self, question: Callable[[], Document], report: Callable[[str], object], next_step: str) -> Document:
        time.sleep(_AGAIN_SECONDS)
        return question()

    def list_cluster_names(self) -> list[tuple[str, str]]:
        with open_own_reader() as store:
            return [(one.name, one.summary) for one in store.clusters() if one.project == store.project]

    def give_output(self, query: OutputQuery, sink: Sink, narrator: Narrator) -> CommandResult:
        from orchestrator.engine.operations.log_sources import LogStart
        from orchestrator.engine.operations.logs import follow_logs

        start = LogStart(tail=query.tail, seconds=query.since)
        return follow_logs(
            query.cluster, query.job, sink, narrator,
            hosts=query.hosts, follow=query.follow, start=start, setup=query.setup,
        )  # fmt: skip
