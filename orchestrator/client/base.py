"""The interface of read commands: each call returns the document that the command prints with `-o json`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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

Document = dict[str, Any]


class DocumentReads(ABC):
    """The documents of a store. All calls raise OrchError where it cannot be read, or has no such record."""

    @abstractmethod
    def read_status(self, query: ClustersQuery) -> Document:
        """Return clusters with their machines, jobs and prices."""

    @abstractmethod
    def read_queue(self, query: QueueQuery) -> Document:
        """Return jobs in the order in which they run, and pipelines."""

    @abstractmethod
    def read_runs(self, query: RunsQuery) -> Document:
        """Return the newest runs, or one."""

    @abstractmethod
    def compare_runs(self, run_ids: Sequence[str]) -> Document:
        """Return runs side by side: results, costs and settings."""

    @abstractmethod
    def measure_run(self, run_id: str) -> Document:
        """Return what a run reached on its machines, by the numbers that its program logged."""

    @abstractmethod
    def read_events(self, query: EventsQuery) -> Document:
        """Return the newest events, oldest first."""

    @abstractmethod
    def read_spending(self, query: SpendingQuery) -> Document:
        """Return what machines have cost, summed."""

    @abstractmethod
    def list_budgets(self) -> Document:
        """Return the budgets, and what is used of them."""

    @abstractmethod
    def list_tokens(self) -> Document:
        """Return what lets members into the service."""

    @abstractmethod
    def read_capacity(self) -> Document:
        """Return what own requests for machines say of capacity."""

    @abstractmethod
    def read_accuracy(self) -> Document:
        """Return what was estimated for runs beside what was measured."""

    @abstractmethod
    def list_cluster_names(self) -> list[tuple[str, str]]:
        """Return name and summary of the open clusters of the project, by name."""

    @abstractmethod
    def locate_run(self, name: str, bucket: str | None) -> RunLocation:
        """Return where the checkpoints of a run are, opened with this computer's own credentials.

        Args:
            name: Its id, its cluster (the last run there), or its folder in a bucket.
            bucket: The bucket, in place of the recorded one.

        Raises:
            NotFoundError: No such run is on record, and no bucket is given.
            UserError: The name is a bucket, or the run has none.
        """

    @abstractmethod
    def ask_again(self, question: Callable[[], Document], report: Callable[[str], object], next_step: str) -> Document:
        """Return the answer to a question that is asked again and again, after a pause.

        Args:
            question: Reads a document.
            report: Receives that a service is away.
            next_step: What to do when it is away for too long.
        """

    @abstractmethod
    def give_output(self, query: OutputQuery, sink: Sink, narrator: Narrator) -> CommandResult:
        """Give the output of a job to `sink`, and return how the job ended where it is followed.

        Args:
            query: Which output.
            sink: Receives the bytes of a host, as its program wrote them.
            narrator: Receives notes, such as whose setup it is.

        Raises:
            NotFoundError: There is no such job or log.
            UserError: The job did not run on one of the hosts.
        """
