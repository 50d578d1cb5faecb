"""The output of a run that a service drives, shown while the command waits for the end of the run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.cli.drawing.narrator import TerminalNarrator
from orchestrator.client.followed_output import FollowedOutput
from orchestrator.client.http import open_service
from orchestrator.documents.queries import OutputQuery
from orchestrator.errors import NotFoundError, OrchError

if TYPE_CHECKING:
    from orchestrator.cli.execution.act import PerformMode
    from orchestrator.hosts import HostAddress

_LAST_SECONDS = 30.0  # for what a run has printed last


@contextmanager
def show_run_output(url: str, cluster: str, job: int, mode: PerformMode) -> Generator[Callable[[str], None]]:
    """Show the output of a job within the block, and give what prints lines beside it.

    Args:
        url: The service.
        cluster: The name of the cluster.
        job: The number of the job.
        mode: How the output is shown.
    """
    left = threading.Event()
    with TerminalNarrator(sys.stderr if mode.as_json else sys.stdout, prefix=mode.prefix, raw=mode.raw) as narrator:

        def write(host: HostAddress, block: bytes) -> None:
            if not left.is_set():
                narrator.output(host, block)

        def write_setup(host: HostAddress, block: bytes) -> None:
            if not left.is_set():
                narrator.setup_output(host, block)

        def follow() -> None:
            query = OutputQuery(cluster=cluster, job=job, follow=True)
            try:
                with open_service(url) as client:
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
            yield narrator.note
            thread.join(_LAST_SECONDS)
        finally:
            left.set()
