"""Compiled steps travel with the run: later attempts fetch what an earlier one compiled, before they start.

JAX and torch_xla keep compiled programs in a folder of the host under a hash of everything that affects them (the
program, the versions, the devices). This folder is filled from <run>/compile-cache/; rank 0 adds what is new.
Anyone who may write there can make the hosts run code, as with the task itself. The cache is a convenience: a failure
is only a note.
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
MAX_BYTES = 2 << 30  # of all programs of a run together
_READS_BEFORE_UPLOAD = 2  # reads of the numbers, by which the step is compiled
_CLOSE_SECONDS = 30.0
_VARIABLES = {"jax": "JAX_COMPILATION_CACHE_DIR", "xla": "XLA_PERSISTENT_CACHE_PATH"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class CompileCache:
    """The compiled programs of this host and their copy in the run's folder."""

    def __init__(
        self, folder: Path | None = None, store: Store | None = None, report: Callable[[str], None] = lambda _: None
    ) -> None:
        """Keep programs.

        Args:
            folder: Of this host; None: nothing is kept.
            store: Where new programs are uploaded; None on ranks that do not upload.
            report: Receives notes.
        """
        self._folder = folder
        self._store = store
        self._report = report
        self._reads = 0
        self._thread: threading.Thread | None = None

    def upload_once_compiled(self) -> None:
        """Count one read of a step's numbers; at the second one, start to upload what is compiled by then."""
        self._reads += 1
        if self._reads == _READS_BEFORE_UPLOAD and self._store is not None:
            self._thread = threading.Thread(target=self._upload_in_background, name="programs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait a limited time for an upload in progress."""
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _upload_in_background(self) -> None:
        if self._store is None or self._folder is None:
            return
        try:
            count, size = _upload_programs(self._folder, self._store)
        except (StorageError, OSError) as error:
            self._report(f"note: compiled programs are not kept: {error}")
            return
        if count:
            self._report(f"{count} compiled programs kept in {self._store.uri} ({size / 1e6:.1f} MB)")


def open_compile_cache(
    config: Config,
    run: Run,
    team: Team,
    report: Callable[[str], None],
    environ: MutableMapping[str, str] = os.environ,
) -> CompileCache:
    """Fill this host's folder and set the library's variable to it; call it before the engine is opened.

    Only where compiling is slow: not on the processor, unless the user has named a folder.

    Args:
        config: With engine and device resolved.
        run: Which run this is.
        team: All ranks; the other ranks of a host wait for its first.
        report: Receives notes.
        environ: The variables that the library reads.

    Raises:
        PeerError: Another rank was lost.
    """
    variable = _VARIABLES.get("jax" if config.engine == "jax" else config.device)
    uri = config.checkpoint.uri or run.checkpoint_uri
    named = environ.get(variable or "", "")
    if variable is None or not uri or (config.device == "cpu" and not named):
        return CompileCache()
    folder = Path(named) if named else _default_folder(run)
    failure, store = "", None
    try:
        store = open_store(f"{run_folder(uri).rstrip('/')}/{FOLDER}/{_device_folder(config)}", create=True)
        if team.world.local_rank == 0:
            count = _download_programs(store, folder)
            if count:
                report(f"{count} compiled programs of this run fetched from {store.uri}")
        environ[variable] = str(folder)
        # JAX 0.10.2 else makes caches of XLA's own below the folder, and its path becomes part of each program's hash.
        environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")
    except (StorageError, OSError) as error:
        failure = f"note: no compiled programs from {uri}: {error}"
    for message in dict.fromkeys(team.gather(failure)):  # the other ranks of a host wait here for its first
        if message:
            report(message)
    return CompileCache(folder, store if _may_upload(team.world) and not failure else None, report)


def _may_upload(world: World) -> bool:
    return world.is_first  # the library, too, lets the first process write


def _default_folder(run: Run) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run.run_id)
    return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "orch-trainer" / name


def _device_folder(config: Config) -> str:
    """Return the cache folder for this device.

    Programs for a processor fit only processors with the same features, which the device's name does not contain.
    """
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


def _download_programs(store: Store, folder: Path) -> int:
    """Download what is missing; return how many programs."""
    folder.mkdir(parents=True, exist_ok=True)
    count = total = 0
    for entry in store.list_objects(""):
        total += entry.size
        target = folder / entry.path
        if total > MAX_BYTES or not _NAME.fullmatch(entry.path) or target.exists():
            continue
        found = store.find(entry.path)
        if found is not None:
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            temporary.write_bytes(found.data)
            temporary.replace(target)
            count += 1
    return count


def _upload_programs(folder: Path, store: Store) -> tuple[int, int]:
    """Upload what is new; return how many programs and their bytes."""
    there = {entry.path: entry.size for entry in store.list_objects("")}
    total = sum(there.values())
    count = size = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # JAX notes beside each program when it was used last.
        if path.name in there or not path.is_file() or not _NAME.fullmatch(path.name) or path.name.endswith("-atime"):
            continue
        data = path.read_bytes()
        if total + size + len(data) > MAX_BYTES:
            continue
        store.create(path.name, data)
        count, size = count + 1, size + len(data)
    return count, size
