"""The copy of the store that commands and engines make by themselves: bounded in time, and never a failure."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import OrchError
from orchestrator.paths import Paths
from orchestrator.store.location import store_location
from orchestrator.task.config import load_config

WAIT_SECONDS = 20.0  # how long a command waits for its copy; the next one tries again


def back_up_if_due(where: Paths, note: Callable[[str], None]) -> None:
    """Copy the store to the bucket that the configuration names, if the last copy is old and something changed since.

    Args:
        where: the folders of this installation.
        note: receives why there is no copy.
    """
    try:
        config = load_config(os.environ)
        uri = config.text("store.backup")
        if not uri or not _is_due(uri, 60.0 * config.number("store.backup_minutes")):
            return
    except OrchError as error:
        note(f"the store was not copied: {error}")
        return
    failures: list[str] = []
    worker = threading.Thread(target=_back_up, args=(where, uri, failures), name="store backup", daemon=True)
    worker.start()
    worker.join(WAIT_SECONDS)
    if worker.is_alive():
        failures.append(f"{uri} did not take it within {WAIT_SECONDS:.0f} s")
    if failures:
        note(f"the store was not copied: {failures[0]}")


def _is_due(uri: str, seconds: float) -> bool:
    with open_reader() as reader:
        last, head = reader.last_backup(), reader.head()
    if last is None or last.uri.rstrip("/") != uri.rstrip("/"):
        return head.seq > 0
    return head.seq > last.seq and time.time() - last.at >= seconds


def _back_up(where: Paths, uri: str, failures: list[str]) -> None:
    from orchestrator.storage.bucket import Bucket
    from orchestrator.store.backup import back_up

    try:
        back_up(store_location(os.environ, where), Bucket.open(uri), time.time())
    except OrchError as error:
        failures.append(str(error))
    except Exception as error:  # a defect of the copy must not end the command or the engine
        failures.append(f"{type(error).__name__}: {error}")
