"""The output of a job that a service drives, reported while the command waits for its end."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.client.followed_output import FollowedOutput
from orchestrator.client.http import explain_unreadable, open_service
from orchestrator.documents.queries import OutputQuery
from orchestrator.errors import NotFoundError, OrchError

if TYPE_CHECKING:
    from orchestrator.engine.progress import DescribedNarrator
    from orchestrator.hosts import HostAddress

_LAST_SECONDS = 30.0  # for what a job has printed last


@contextmanager
def report_output(url: str, cluster: str, job: int, narrator: DescribedNarrator) -> Generator[None]:
    """Report the output of a job within the block.

    Args:
        url: The service.
        cluster: The name of the cluster.
        job: The number of the job.
        narrator: Receives the output.
    """
    left = threading.Event()

    def write(host: HostAddress, block: bytes) -> None:
        if not left.is_set():
            narrator.output(host, block)

    def write_setup(host: HostAddress, block: bytes) -> None:
        if not left.is_set():
            narrator.setup_output(host, block)

    def follow() -> None:
        query = OutputQuery(cluster=cluster, job=job, follow=True)
        try:
            with open_service(url) as client, explain_unreadable(client):
                FollowedOutput(
                    client=client, query=query, sink=write, setup_sink=write_setup, note=lambda _line: None
                ).run()
        except NotFoundError:  # it printed nothing
            return
        except OrchError as error:
            narrator.note(f"the output cannot be shown: {error.what}")

    thread = threading.Thread(target=follow, daemon=True, name=f"output of job {job}")
    thread.start()
    try:
        yield
        thread.join(_LAST_SECONDS)
    finally:
        left.set()
