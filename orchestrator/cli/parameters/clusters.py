"""The name of a cluster on the command line, completed in a shell."""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem

from orchestrator.client.choose import open_documents
from orchestrator.errors import OrchError

CLUSTER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
COMPLETION_SECONDS = 3.0  # a shell that completes a word waits no longer for a service


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
