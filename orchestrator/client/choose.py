"""Where a command reads and what carries it out: the service that ORCH_SERVER names, else this computer."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.service_address import find_server

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.client.base import DocumentReads
    from orchestrator.client.orders import OrderCalls
    from orchestrator.client.team import TeamChanges
    from orchestrator.engine.narrator import Narrator
    from orchestrator.hosts import HostAddress
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord


@contextmanager
def open_documents(*, seconds: float | None = None) -> Generator[DocumentReads]:
    """Give the documents that read commands show. What they show is drawn within the block.

    Args:
        seconds: How long an answer of a service may take; None for its usual time.
    """
    if url := find_server(os.environ):
        from orchestrator.client.http import explain_unreadable, open_service

        with open_service(url, seconds=seconds) as client, explain_unreadable(client):
            yield client
        return
    from orchestrator.client.local import LocalDocuments

    yield LocalDocuments()


@contextmanager
def open_orders() -> Generator[OrderCalls]:
    """Give what plans and carries out orders."""
    if url := find_server(os.environ):
        from orchestrator.client.http import Client, explain_unreadable
        from orchestrator.client.service_orders import ServiceOrders

        with Client.connect(url) as client, explain_unreadable(client):
            yield ServiceOrders(client)
        return
    from orchestrator.client.local_orders import LocalOrders

    yield LocalOrders()


@contextmanager
def open_team() -> Generator[TeamChanges]:
    """Give what changes budgets, what lets members in, and settings of projects."""
    if url := find_server(os.environ):
        from orchestrator.client.http import open_service

        with open_service(url) as client:
            yield client
        return
    from orchestrator.client.local_team import LocalTeam

    yield LocalTeam()


def enter_hosts(
    store: Reader,
    record: ClusterRecord,
    ranks: tuple[int, ...] | None,
    key: Path | None,
    narrator: Narrator,
    *,
    connects: bool,
) -> tuple[HostAddress, ...]:
    """Return hosts of a cluster to connect to. See enter_local_hosts and enter_service_hosts."""
    if find_server(os.environ):
        from orchestrator.client.service_hosts import enter_service_hosts

        return enter_service_hosts(store, record, ranks, key, narrator)
    from orchestrator.client.local_hosts import enter_local_hosts

    return enter_local_hosts(store, record, ranks, key, narrator, connects=connects)
