"""End of a simulated cloud: none of its hosts stays."""

from __future__ import annotations

import time

from orchestrator.errors import ConflictError, StorageError
from orchestrator.simulator.bodies import LocalBodies


def end_hosts(bodies: LocalBodies, whose: str) -> None:
    """End all hosts of a simulated cloud, retrying while a command that was just killed holds a lock.

    Raises:
        StorageError: A lock is still held after several tries.
    """
    for attempt in range(5):
        try:
            bodies.sync_hosts(())
        except ConflictError:
            time.sleep(0.5 * (attempt + 1))
        else:
            return
    raise StorageError(f"hosts of {whose} are still there", "a lock on them is held", "try again")
