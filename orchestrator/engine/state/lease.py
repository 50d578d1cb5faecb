"""Holding a cluster's lease while working on it: waits for another holder, and renews in the background."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from orchestrator.engine.narrator import Narrator
from orchestrator.errors import ConflictError
from orchestrator.project import qualify_name
from orchestrator.store.failures import StoreError
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store

QUIET = 2.0  # seconds before the wait is reported
PATIENCE = 15.0  # seconds another command may still need before it is reported as blocking


class LeaseKeeper:
    """Holds one lease between `hold()` and `release()`; a context manager, so that it is never kept."""

    def __init__(
        self, store: Store, cluster: str, doing: str, narrator: Narrator, *, kind: str = "cluster", key: str = ""
    ) -> None:
        """Prepare.

        Args:
            store: Where leases are kept; those of clusters are of its project.
            cluster: The cluster's name, or another key for another kind.
            doing: What is done meanwhile, for others that wait.
            narrator: Gets a note about a long wait.
            kind: What the lease is for.
            key: The lease's whole name, where store and kind do not give it.
        """
        self._store = store
        self._name = key or f"{kind}:{qualify_name(store.project, cluster) if kind == 'cluster' else cluster}"
        self._cluster = cluster
        self._doing = doing
        self._narrator = narrator
        self._lease: Lease | None = None
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def __enter__(self) -> LeaseKeeper:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Whether the lease was taken and not given back."""
        return self._lease is not None

    @property
    def lease(self) -> Lease:
        """The lease that is held; every guarded write checks it. Raises ConflictError when none is held."""
        if self._lease is None:
            raise ConflictError(f"the lease of '{self._cluster}' is not held", next_step="run the command again")
        return self._lease

    def hold(self, patience: float = PATIENCE) -> None:
        """Take the lease, waiting up to `patience` seconds for another command to finish.

        Raises:
            ConflictError: Another command still holds it after that time.
        """
        if self._lease is not None:
            return
        began = time.monotonic()
        reported = False
        while True:
            got = self._store.acquire(self._name, self._doing)
            if isinstance(got, Lease):
                self._lease = got
                self._start_renewing(got)
                return
            waited = time.monotonic() - began
            if not reported and waited > QUIET:
                self._narrator.note(f"'{self._cluster}' is being worked on by {got}; waiting for it")
                reported = True
            if waited > patience:
                raise ConflictError(
                    f"'{self._cluster}' is being worked on by {got}",
                    f"it did not finish within {patience:.0f} s",
                    f"wait for it, end it, or inspect it: orch events {self._cluster}",
                )
            time.sleep(0.1)

    def try_hold(self) -> bool:
        """Take the lease if it is free now, and return whether it is held."""
        if self._lease is None:
            got = self._store.acquire(self._name, self._doing)
            if not isinstance(got, Lease):
                return False
            self._lease = got
            self._start_renewing(got)
        return True

    def release(self) -> None:
        """Give the lease back and stop renewing it."""
        lease, self._lease = self._lease, None
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
            self._renewer = None
        if lease is not None:
            self._store.release(lease)

    def _start_renewing(self, lease: Lease) -> None:
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew, args=(lease, self._stop), daemon=True, name="lease")
        self._renewer.start()

    def _renew(self, lease: Lease, stop: threading.Event) -> None:
        while not stop.wait(self._store.lease_seconds / 3):
            try:
                if not self._store.renew(lease):
                    return  # lost: the next guarded write fails
            except StoreError:
                continue  # the server may be back in time; if not, the next guarded write fails
