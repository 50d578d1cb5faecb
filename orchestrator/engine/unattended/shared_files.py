"""The open files of an engine, which all clusters share that it drives: those that do not fit wait, and it is said."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from orchestrator.errors import OpenFilesError
from orchestrator.messages import count_noun
from orchestrator.open_files import OF_COMMAND, OF_HOST, describe_remedy, raise_open_files_limit

OF_CLUSTER = 16  # the store, opened by several threads of one cluster, and connections to its cloud


class SharedOpenFiles:
    """The rest of the limit of open files, less what other parts of the process may take. Thread-safe."""

    def __init__(self, others: int = 0) -> None:
        self._limit = raise_open_files_limit()
        self._taken = OF_COMMAND + others
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, hosts: int) -> Generator[None]:
        """Keep what a cluster of so many hosts needs, for as long as the block runs.

        Raises:
            OpenFilesError: Too few are left while other clusters are driven.
        """
        needed = OF_CLUSTER + OF_HOST * hosts
        with self._lock:
            if self._taken + needed > self._limit:
                raise self._make_error(hosts, needed)
            self._taken += needed
        try:
            yield
        finally:
            with self._lock:
                self._taken -= needed

    def _make_error(self, hosts: int, needed: int) -> OpenFilesError:
        total = self._taken + needed
        return OpenFilesError(
            f"the cluster is not observed now: its {count_noun(hosts, 'host')} need {needed:,} open files",
            f"with what this engine drives already it would be {total:,}, and a process may have {self._limit:,}",
            describe_remedy(total),
        )
