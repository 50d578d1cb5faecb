"""How the ranks of one start of a program agree, by objects in the run's folder without connections between them.

Rank 0 claims the start's epoch and chooses the checkpoint to restore. It writes both to an object whose name only the
ranks of this start know: ranks/<digest>.json in the run's folder. The run's key signs it: whoever else can write there
could have ranks restore different checkpoints, and so mix their states.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..checkpoint.epoch import BEAT
from ..checkpoint.manifest import CorruptCheckpoint, parse_count
from ..checkpoint.signature import is_signature, sign
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
    read_sign: Callable[[], object] = lambda: None,
) -> T:
    """Return what `find` returns once it is not None.

    Args:
        find: Reads the bucket.
        what: Completes "waiting for".
        report: Prints a line, once the wait is longer than usual.
        must_end: Whether the process has to end without it.
        read_sign: Returns what changes while the other rank is at work: as long as it does, the wait continues.

    Raises:
        StorageError: It was None for too long, or the process has to end.
    """
    began, reported, last = time.monotonic(), False, None
    while (found := find()) is None:
        waited = time.monotonic() - began
        if must_end():
            raise StorageError(f"this process ends, and does not wait any longer for {what}")
        if waited > PATIENCE_SECONDS:
            if (sign := read_sign()) == last:
                raise StorageError(f"waited {PATIENCE_SECONDS:.0f} s for {what}, in vain")
            began, last = time.monotonic(), sign
        elif waited > _QUIET_SECONDS and not reported:
            report(f"waiting for {what}, for at most {PATIENCE_SECONDS / 60:.0f} min")
            reported, last = True, read_sign()
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


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What rank 0 restores.

    Attributes:
        folder: Name of the checkpoint's folder; "" for none.
        is_final: Whether rank 0 has verified it; else it is reading it.
        failure: Why rank 0 restores nothing, or "".
    """

    folder: str
    is_final: bool
    failure: str = ""


@dataclass(kw_only=True)
class Agreement:
    """What rank 0 has decided in this start, and the other ranks follow.

    Attributes:
        place: The run's folder.
        key: Of the run; empty for none.
        epoch: Of this start; 0 until it is known.
        report: Prints a line.
        choices: The last one of each call of `restore`, in order.
    """

    place: Store
    name: str
    is_first: bool
    report: Callable[[str], None]
    key: bytes = field(default=b"", repr=False)
    epoch: int = 0
    choices: list[Choice]

    @property
    def path(self) -> str:
        """Where it is in the run's folder."""
        return f"ranks/{hashlib.sha256(self.name.encode()).hexdigest()[:16]}.json"

    def publish(self) -> None:
        """Show the other ranks what is decided; on rank 0.

        Raises:
            StorageError: The bucket fails.
        """
        content = json.dumps({"epoch": self.epoch, "choices": [asdict(choice) for choice in self.choices]})
        signature = sign(self.key, self.path, content.encode()).hex() if self.key else ""
        self.place.put(self.path, json.dumps({"signature": signature, "start": content}).encode())

    def choose(self, call: int, choice: Choice) -> None:
        """Show the other ranks what a call of `restore` restores; on rank 0.

        Raises:
            StorageError: The bucket fails.
        """
        self.choices[call:] = [choice]
        self.publish()

    def follow_epoch(self) -> int:
        """Return the epoch that rank 0 has claimed; on the other ranks.

        Raises:
            StorageError: Rank 0 has claimed none in time, or the bucket fails.
        """
        return wait_for(lambda: (found := self._read()) and found[0], "rank 0 to claim the run", self.report)

    def follow_choice(self, call: int, last: Choice | None) -> Choice:
        """Return what rank 0's call of `restore` with this index restores, once it is another than `last`.

        Raises:
            StorageError: Rank 0 has not called it in time, or the bucket fails.
        """

        def find() -> Choice | None:
            choice = self.read_choice(call)
            return None if choice == last else choice

        if last is None:
            return wait_for(find, "rank 0 to call restore() as well", self.report)
        what = f"rank 0 to verify {last.folder}"
        return wait_for(find, what, self.report, read_sign=self._read_beat)

    def read_choice(self, call: int) -> Choice | None:
        """Return what rank 0 restores now in a call of `restore`; None before the call.

        Raises:
            StorageError: The bucket fails.
        """
        found = self._read()
        return found[1][call] if found is not None and len(found[1]) > call else None

    def _read_beat(self) -> bytes | None:
        found = self.place.find(BEAT)
        return None if found is None else found.data

    def _read(self) -> tuple[int, list[Choice]] | None:
        found = self.place.find(self.path)
        if found is None:
            return None
        try:
            written: Any = json.loads(found.data)
            text, signature = written["start"].encode(), bytes.fromhex(written["signature"])
            if self.key and not is_signature(self.key, self.path, text, signature):
                raise StorageError(f"{self.place.uri}/{self.path} does not carry the signature of this run")
            content: Any = json.loads(text)
            return parse_count(content["epoch"], 1), [Choice(**choice) for choice in content["choices"]]
        except (ValueError, KeyError, TypeError, AttributeError, CorruptCheckpoint) as error:
            raise StorageError(f"{self.place.uri}/{self.path} cannot be read: {error}") from error
