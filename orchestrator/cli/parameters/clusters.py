"""Find hosts of clusters, and complete cluster names in a shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from orchestrator.client.choose import open_documents
from orchestrator.errors import NotFoundError, OrchError, UserError

if TYPE_CHECKING:  # the help of a command needs none of these
    from orchestrator.hosts import HostAddress
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord

CLUSTER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
COMPLETION_SECONDS = 3.0  # a shell that completes a word waits no longer for a service


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
            with open_documents(seconds=COMPLETION_SECONDS) as documents:
                known = documents.list_cluster_names()
        except OrchError:  # the command itself reports an unreadable store, not its completion
            return []
        return [
            CompletionItem(name, help=summary)
            for name, summary in known
            if name.startswith(incomplete)
            and CLUSTER_NAME.fullmatch(name)  # a shell puts it on the command line as it is
        ]


CLUSTER = ClusterName()
