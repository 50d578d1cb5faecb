"""Own programs that save: on several ranks, or killed at a given request to the bucket in another process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from checkpoint_crash import DyingStore

from trainer.program import Run, init

T = TypeVar("T")
KEY = "6b" * 32


def open_run(
    place: str,
    folder: Path,
    *,
    epoch: int,
    rank: int = 0,
    world: int = 1,
    uri: str = "",
    keep: int = 2,
    key: str = KEY,
    trusted: str = "",
) -> Run:
    """Return a run as orch starts it; `folder` is the host's home folder, `uri` what the program chooses."""
    given = {
        "ORCH_RUN_ID": "run",
        "ORCH_RUN_KEY": key,
        "ORCH_RANK": str(rank),
        "ORCH_NUM_HOSTS": str(world),
        "ORCH_COORDINATOR": "127.0.0.1:29500",
        "ORCH_ATTEMPT": str(epoch),
        "ORCH_EPOCH": str(epoch),
        "ORCH_CHECKPOINT_URI": f"{place}/run/checkpoints",
        "ORCH_SCRATCH": str(folder),
        "ORCH_TRUSTED_CHECKPOINTS": trusted,
    }
    return init(uri, keep=keep, environ={**os.environ, **given})


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Return the results of calls that wait for each other, as ranks do."""
    results: dict[int, T] = {}
    threads = [
        threading.Thread(target=lambda at=at, call=call: results.update({at: call()})) for at, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[at] for at in range(len(calls))]


def two_ranks(place: str, folder: Path, epoch: int) -> list[Run]:
    return at_once(*(lambda rank=rank: open_run(place, folder, epoch=epoch, rank=rank, world=2) for rank in (0, 1)))


def save_step(run: Run, step: int, *, sharded: bool = False) -> None:
    """Save two files whose content only this step has."""
    folder = run.new_folder()
    (folder / "deep").mkdir()
    (folder / f"deep/.weights-{run.rank}").write_bytes(bytes([step]) * 1000)
    (folder / f"empty-{run.rank}").touch()
    run.save(folder, step, {"rank": run.rank}, sharded=sharded)


def save_until_killed(place: str, folder: str, step: int, moment: int) -> None:
    """Save one step; the process is killed at that request, or ends with status 0 after the last one."""
    run = open_run(place, Path(folder), epoch=2)
    assert run.saver is not None
    run.saver._store = DyingStore(run.saver._store, moment)  # killed in the middle of the save
    save_step(run, step)
    run.wait()
    os._exit(0)
