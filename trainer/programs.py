"""Compiled steps travel with the run: what one attempt compiled, the next one's hosts find before they start.

JAX and torch_xla keep compiled programs in a folder of the host under the hash of all that matters for them (the
program, the versions, the devices). This folder is filled from <run>/compile-cache/; rank 0 adds what was new.
Whoever may write there can make the hosts run code, as with the task itself. All of it is a convenience: a failure is
a note.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path

from trainer.checkpoint.layout import run_folder
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.environment import Run, World
from trainer.errors import StorageError
from trainer.team import Team

FOLDER = "compile-cache"
MOST_BYTES = 2 << 30  # of all programs of a run together
_OFFERS_BEFORE = 2  # looks at the numbers, by which the step is compiled
_CLOSE_SECONDS = 30.0
_VARIABLES = {"jax": "JAX_COMPILATION_CACHE_DIR", "xla": "XLA_PERSISTENT_CACHE_PATH"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Programs:
    """folder: of this host; None: nothing is kept. store: None on ranks that do not write."""

    def __init__(
        self, folder: Path | None = None, store: Store | None = None, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._folder = folder
        self._store = store
        self._report = report
        self._offers = 0
        self._thread: threading.Thread | None = None

    def offer(self) -> None:
        """Numbers of a step were read. The second time, what is compiled by then is sent off in the background."""
        self._offers += 1
        if self._offers == _OFFERS_BEFORE and self._store is not None:
            self._thread = threading.Thread(target=self._send, name="programs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Give what is on its way a little time."""
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _send(self) -> None:
        if self._store is None or self._folder is None:
            return
        try:
            count, size = _send(self._folder, self._store)
        except (StorageError, OSError) as error:
            self._report(f"note: compiled programs are not kept: {error}")
            return
        if count:
            self._report(f"{count} compiled programs kept in {self._store.uri} ({size / 1e6:.1f} MB)")


def open_programs(
    config: Config,
    run: Run,
    team: Team,
    report: Callable[[str], None],
    environ: MutableMapping[str, str] = os.environ,
) -> Programs:
    """Fill this host's folder and tell the library of it; before the engine is opened. config: settled.

    Only where compiling is slow: not on the processor, unless the user has named a folder. Raises PeerError.
    """
    variable = _VARIABLES.get("jax" if config.engine == "jax" else config.device)
    uri = config.checkpoint.uri or run.checkpoint_uri
    named = environ.get(variable or "", "")
    if variable is None or not uri or (config.device == "cpu" and not named):
        return Programs()
    folder = Path(named) if named else _own_folder(run)
    failure, store = "", None
    try:
        store = open_store(f"{run_folder(uri).rstrip('/')}/{FOLDER}/{_kind(config)}", create=True)
        if team.world.local_rank == 0:
            count = _fetch(store, folder)
            if count:
                report(f"{count} compiled programs of this run fetched from {store.uri}")
        environ[variable] = str(folder)
        # JAX 0.10.2 else makes caches of XLA's own below the folder, and its path becomes part of each program's hash.
        environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")
    except (StorageError, OSError) as error:
        failure = f"note: no compiled programs from {uri}: {error}"
    for told in dict.fromkeys(team.gather(failure)):  # and the other ranks of a host wait for its first
        if told:
            report(told)
    return Programs(folder, store if _writes(team.world) and not failure else None, report)


def _writes(world: World) -> bool:
    return world.is_first  # the library, too, lets the first process write


def _own_folder(run: Run) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run.run_id)
    return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "orch-trainer" / name


def _kind(config: Config) -> str:
    """Programs for a processor fit processors of the same features only, which their names do not tell."""
    if config.device != "cpu":
        return config.device
    try:
        flags = [
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features"))
        ]
    except OSError:
        flags = []
    features = "".join(flags[:1]) or platform.processor()
    return f"cpu-{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"


def _fetch(store: Store, folder: Path) -> int:
    """Bring what is missing; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    count = total = 0
    for entry in store.entries(""):
        total += entry.size
        target = folder / entry.path
        if total > MOST_BYTES or not _NAME.fullmatch(entry.path) or target.exists():
            continue
        found = store.find(entry.path)
        if found is not None:
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            temporary.write_bytes(found.data)
            temporary.replace(target)
            count += 1
    return count


def _send(folder: Path, store: Store) -> tuple[int, int]:
    """Add what is new; returns how many, and their bytes."""
    there = {entry.path: entry.size for entry in store.entries("")}
    total = sum(there.values())
    count = size = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # JAX notes beside each program when it was used last.
        if path.name in there or not path.is_file() or not _NAME.fullmatch(path.name) or path.name.endswith("-atime"):
            continue
        data = path.read_bytes()
        if total + size + len(data) > MOST_BYTES:
            continue
        store.create(path.name, data)
        count, size = count + 1, size + len(data)
    return count, size
