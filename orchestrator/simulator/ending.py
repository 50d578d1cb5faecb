"""How a pretend cloud goes: none of its hosts stays."""

from __future__ import annotations

import time

from orchestrator.errors import ConflictError, StorageError
from orchestrator.simulator.bodies import LocalBodies


def end_hosts(bodies: LocalBodies, whose: str) -> None:
    """Raises StorageError when a lock on them is held for long: a command that was just killed may still have one."""
    for attempt in range(5):
        try:
            bodies.settle(())
        except ConflictError:
            time.sleep(0.5 * (attempt + 1))
        else:
            return
    raise StorageError(f"hosts of {whose} are still there", "a lock on them is held", "try again")
