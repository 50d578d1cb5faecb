"""Find clusters and their hosts in the store, and complete cluster names in a shell."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from orchestrator.errors import NotFoundError, OrchError, UserError

if TYPE_CHECKING:  # the help of a command needs none of these
    from orchestrator.hosts import HostAddress
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord

COMPLETION_SECONDS = 3.0  # a shell that completes a word waits no longer for a service


@contextmanager
def open_store_reader(*, seconds: float | None = None) -> Generator[Reader]:
    """Open the records for reading: those of the service that ORCH_SERVER names, else the store of this installation.

    Args:
        seconds: How long an answer of the service may take; None for its usual time.
    """
    with record_source(seconds=seconds) as open_reader, open_reader() as store:
        yield store


@contextmanager
def record_source(*, seconds: float | None = None) -> Generator[Callable[[], AbstractContextManager[Reader]]]:
    """Yield a function that opens the present records for reading, for a command that reads them again and again."""
    import os

    from orchestrator.project import find_named_project, read_project
    from orchestrator.service_address import find_server

    if url := find_server(os.environ):
        from orchestrator.cli.execution.served import ANSWER_SECONDS, ServedRecords

        project, patience = find_named_project(os.environ), ANSWER_SECONDS if seconds is None else seconds
        with ServedRecords(url, project, seconds=patience) as served:
            yield served.open_reader
        return
    from orchestrator.paths import load_paths
    from orchestrator.store.location import store_location
    from orchestrator.store.read import open_reader_at

    project = read_project(os.environ)
    yield lambda: open_reader_at(store_location(os.environ, load_paths()), project)


def read_record_time() -> float:
    """Return the time for what is measured from records: by the clock that writes them, not by this computer's setting.

    A setting that is a minute behind would show a program of a minute as one of no time.
    """
    from orchestrator.clock import SteadyClock
    from orchestrator.paths import load_paths

    return SteadyClock(load_paths().state).now()


def select_hosts(record: ClusterRecord, ranks: tuple[int, ...] | None = None) -> tuple[HostAddress, ...]:
    """Return hosts of a cluster by their last known addresses: all of them, or those of `ranks`."""
    if not record.hosts:
        raise NotFoundError(
            f"cluster '{record.name}' has no hosts now",
            f"its last known state is {record.last_state}" if record.last_state else "",
            f"orch status {record.name}",
        )
    if ranks is None:
        return record.hosts
    by_rank = {host.rank: host for host in record.hosts}
    missing = [rank for rank in ranks if rank not in by_rank]
    if missing:
        raise UserError(
            f"cluster '{record.name}' has no host {missing[0]}",
            f"its hosts are 0 to {max(by_rank)}",
            f"orch status {record.name}",
        )
    return tuple(by_rank[rank] for rank in ranks)


def admit_this_computer(store: Reader, record: ClusterRecord, *, own_key: bool = True) -> None:
    """Get this computer's address and key admitted to hosts of a cluster before a command connects to them.

    Args:
        store: Open.
        record: With the hosts that the command connects to.
        own_key: Whether the command logs in with this computer's key.

    Raises:
        AccessError: The hosts do not admit the key, or IAM refuses the connection.
    """
    import sys

    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.addresses import admit_here
    from orchestrator.engine.operations.own_key import refuse_without_key

    with TerminalNarrator(sys.stderr) as narrator:
        admit_here(store, record, narrator)
        if own_key:
            refuse_without_key(store, record, narrator)


class ClusterName(click.ParamType[str]):
    """The name of a cluster; completes existing names from the records alone."""

    name = "cluster"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with open_store_reader(seconds=COMPLETION_SECONDS) as store:
                known = store.clusters()
        except OrchError:  # the command itself reports an unreadable store, not its completion
            return []
        return [
            CompletionItem(cluster.name, help=cluster.summary)
            for cluster in known
            if cluster.name.startswith(incomplete) and cluster.project == store.project
        ]


CLUSTER = ClusterName()
