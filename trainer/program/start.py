"""How the ranks of one start of a program agree, by objects in the run's folder without connections between them.

Rank 0 claims the start's epoch and chooses the checkpoint to restore. It writes both to an object whose name only the
ranks of this start know: ranks/<digest>.json in the run's folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..checkpoint.manifest import CorruptCheckpoint, parse_count
from ..checkpoint.store import Store
from ..environment import Run, World
from ..errors import ConfigError, StorageError

PATIENCE_SECONDS = 900.0
"""For how long a rank waits for another one."""
_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 10.0  # of a wait that is not reported

T = TypeVar("T")


def wait_for(
    find: Callable[[], T | None],
    what: str,
    report: Callable[[str], None],
    must_end: Callable[[], bool] = lambda: False,
) -> T:
    """Return what `find` returns once it is not None.

    Args:
        find: Reads the bucket.
        what: Completes "waiting for".
        report: Prints a line, once the wait is longer than usual.
        must_end: Whether the process has to end without it.

    Raises:
        StorageError: It was None for too long, or the process has to end.
    """
    began, reported = time.monotonic(), False
    while (found := find()) is None:
        waited = time.monotonic() - began
        if must_end():
            raise StorageError(f"this process ends, and does not wait any longer for {what}")
        if waited > PATIENCE_SECONDS:
            raise StorageError(f"waited {PATIENCE_SECONDS:.0f} s for {what}, in vain")
        if waited > _QUIET_SECONDS and not reported:
            report(f"waiting for {what}, for at most {PATIENCE_SECONDS / 60:.0f} min")
            reported = True
        time.sleep(_LOOK_SECONDS)
    return found


def name_start(run: Run, world: World, environ: Mapping[str, str]) -> str:
    """Return a text that the ranks of this start share, and no other start of the run has.

    orch claims an epoch for each attempt, and torchrun counts its restarts within it. Without orch, the ranks must be
    the children of one torchrun.

    Args:
        run: As the launcher set it, also where the program saves elsewhere.
        world: All ranks.
        environ: What orch or torchrun has set.

    Raises:
        ConfigError: Several hosts have no epoch.
    """
    restart = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if run.epoch:
        return f"{run.checkpoint_uri} epoch {run.epoch} attempt {run.attempt} restart {restart}"
    if world.size > 1 and world.local_size != world.size:
        raise ConfigError(
            "several hosts without orch: export ORCH_EPOCH on each, the same number, and a higher one at each start"
        )
    return f"{platform.node()} parent {os.getppid()} since {_start_time(os.getppid())} restart {restart}"


def _start_time(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


@dataclass(kw_only=True)
class Agreement:
    """What rank 0 has decided in this start, and the other ranks follow.

    Attributes:
        place: The run's folder.
        epoch: Of this start; 0 until it is known.
        report: Prints a line.
        restored: What each call of `restore` found: the name of a checkpoint's folder, or "".
    """

    place: Store
    name: str
    is_first: bool
    report: Callable[[str], None]
    epoch: int = 0
    restored: list[str]

    @property
    def path(self) -> str:
        """Where it is in the run's folder."""
        return f"ranks/{hashlib.sha256(self.name.encode()).hexdigest()[:16]}.json"

    def publish(self) -> None:
        """Show the other ranks what is decided; on rank 0.

        Raises:
            StorageError: The bucket fails.
        """
        self.place.put(self.path, json.dumps({"epoch": self.epoch, "restored": self.restored}).encode())

    def follow_epoch(self) -> int:
        """Return the epoch that rank 0 has claimed; on the other ranks.

        Raises:
            StorageError: Rank 0 has claimed none in time, or the bucket fails.
        """
        return wait_for(lambda: (found := self._read()) and found[0], "rank 0 to claim the run", self.report)

    def follow_restore(self, call: int) -> str:
        """Return what rank 0's call of `restore` with this index found; on the other ranks.

        Raises:
            StorageError: Rank 0 has not called it in time, or the bucket fails.
        """

        def find() -> str | None:
            found = self._read()
            return found[1][call] if found is not None and len(found[1]) > call else None

        return wait_for(find, "rank 0 to call restore() as well", self.report)

    def _read(self) -> tuple[int, list[str]] | None:
        found = self.place.find(self.path)
        if found is None:
            return None
        try:
            content: Any = json.loads(found.data)
            return parse_count(content["epoch"], 1), [str(name) for name in content["restored"]]
        except (ValueError, KeyError, TypeError, CorruptCheckpoint) as error:
            raise StorageError(f"{self.place.uri}/{self.path} cannot be read: {error}") from error
