"""Compiled steps travel with the run: later attempts fetch what an earlier one compiled, before they start.

JAX and torch_xla keep compiled programs in a folder of the host under a hash of everything that affects them (the
program, the versions, the devices). This folder is filled from <run>/compile-cache/; rank 0 adds what is new.

A compiled program is code: who can replace one runs what they like on the hosts. A name says nothing of its content.
So each object begins with an HMAC-SHA-256, under the run's key, of its name and content. Without the key nothing
is fetched or uploaded, and an object with another signature never reaches the folder. The cache is a convenience: a
failure is only a note.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import threading
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.checkpoint.layout import run_folder
from trainer.checkpoint.signature import SIGNATURE_BYTES, is_signature, sign
from trainer.checkpoint.store import ObjectEntry, Store, open_store
from trainer.config import Config
from trainer.environment import Run, World
from trainer.errors import StorageError
from trainer.team import Team

FOLDER = "compile-cache"
MAX_BYTES = 2 << 30  # of all programs of a run together
MAX_OBJECTS = 10_000  # that are looked at
_READS_BEFORE_UPLOAD = 2  # reads of the numbers, by which the step is compiled
_CLOSE_SECONDS = 30.0
_VARIABLES = {"jax": "JAX_COMPILATION_CACHE_DIR", "xla": "XLA_PERSISTENT_CACHE_PATH"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class SignedPrograms:
    """A folder of a bucket that holds compiled programs of one run for one kind of device.

    Attributes:
        kind: Name of that folder; a program that was signed for another device is refused.
        key: The run's secret.
    """

    store: Store
    kind: str
    key: bytes = field(repr=False)

    def download(self, folder: Path) -> Downloaded:
        """Download what is missing and carries this run's signature."""
        folder.mkdir(parents=True, exist_ok=True)
        count = total = 0
        refused: set[str] = set()
        for entry in self.store.list_objects("", most=MAX_OBJECTS):
            total += entry.size
            target = folder / entry.path
            if total > MAX_BYTES or not _NAME.fullmatch(entry.path) or target.exists():
                continue
            data = self._read_verified(entry)
            if data is None:
                refused.add(entry.path)
                continue
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            temporary.write_bytes(data)
            temporary.replace(target)
            count += 1
        return Downloaded(count, frozenset(refused))

    def upload(self, folder: Path, replaced: frozenset[str]) -> tuple[int, int]:
        """Upload what is new, and what replaces refused objects; return how many programs and their bytes."""
        there = {entry.path: entry.size for entry in self.store.list_objects("", most=MAX_OBJECTS)}
        total = sum(there.values())
        count = size = 0
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            # JAX notes beside each program when it was used last.
            if not path.is_file() or not _NAME.fullmatch(path.name) or path.name.endswith("-atime"):
                continue
            if path.name in there and path.name not in replaced:
                continue
            data = path.read_bytes()
            if total + size + len(data) > MAX_BYTES:
                continue
            self.store.put(path.name, sign(self.key, self._path(path.name), data) + data)
            count, size = count + 1, size + len(data)
        return count, size

    def _read_verified(self, entry: ObjectEntry) -> bytes | None:
        """Return the content of an object, or None when no rank of this run wrote it under this name."""
        if entry.size < SIGNATURE_BYTES:
            return None
        content = bytearray(entry.size)
        try:
            self.store.read_into(entry.path, 0, memoryview(content))
        except StorageError:
            return None  # it was replaced or deleted meanwhile
        data = bytes(content[SIGNATURE_BYTES:])
        return data if is_signature(self.key, self._path(entry.path), data, content[:SIGNATURE_BYTES]) else None

    def _path(self, name: str) -> str:
        return f"{FOLDER}/{self.kind}/{name}"


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The result of a download.

    Attributes:
        count: Programs that were downloaded.
        refused: Names of objects without this run's signature.
    """

    count: int = 0
    refused: frozenset[str] = frozenset()


class CompileCache:
    """The compiled programs of this host and their copy in the run's folder."""

    def __init__(
        self,
        folder: Path | None = None,
        programs: SignedPrograms | None = None,
        report: Callable[[str], None] = lambda _: None,
        refused: frozenset[str] = frozenset(),
    ) -> None:
        """Keep programs.

        Args:
            folder: Of this host; None: nothing is kept.
            programs: Where new programs are uploaded; None on ranks that do not upload.
            report: Receives notes.
            refused: Objects that are replaced by what is compiled now.
        """
        self._folder = folder
        self._programs = programs
        self._report = report
        self._refused = refused
        self._reads = 0
        self._thread: threading.Thread | None = None

    def upload_once_compiled(self) -> None:
        """Count one read of a step's numbers; at the second one, start to upload what is compiled by then."""
        self._reads += 1
        if self._reads == _READS_BEFORE_UPLOAD and self._programs is not None:
            self._thread = threading.Thread(target=self._upload_in_background, name="programs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait a limited time for an upload in progress."""
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _upload_in_background(self) -> None:
        if self._programs is None or self._folder is None:
            return
        try:
            count, size = self._programs.upload(self._folder, self._refused)
        except (StorageError, OSError) as error:
            self._report(f"note: compiled programs are not kept: {error}")
            return
        if count:
            self._report(f"{count} compiled programs kept in {self._programs.store.uri} ({size / 1e6:.1f} MB)")


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
    if not run.key:
        environ[variable] = str(folder)
        if team.world.is_first:
            report(
                "note: compiled programs are not shared through the bucket: ORCH_RUN_KEY, which signs them, is not set"
            )
        return CompileCache()
    failure, programs, fetched = "", None, Downloaded()
    try:
        kind = _device_folder(config)
        store = open_store(f"{run_folder(uri).rstrip('/')}/{FOLDER}/{kind}", create=True)
        programs = SignedPrograms(store, kind, run.key)
        if team.world.local_rank == 0:
            fetched = programs.download(folder)
            _report_download(fetched, store, report)
        environ[variable] = str(folder)
        # JAX 0.10.2 else makes caches of XLA's own below the folder, and its path becomes part of each program's hash.
        environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")
    except (StorageError, OSError) as error:
        failure = f"note: no compiled programs from {uri}: {error}"
    for message in dict.fromkeys(team.gather(failure)):  # the other ranks of a host wait here for its first
        if message:
            report(message)
    uploads = _may_upload(team.world) and not failure
    return CompileCache(folder, programs if uploads else None, report, fetched.refused)


def _report_download(fetched: Downloaded, store: Store, report: Callable[[str], None]) -> None:
    if fetched.count:
        report(f"{fetched.count} compiled programs of this run fetched from {store.uri}")
    if fetched.refused:
        report(
            f"note: {len(fetched.refused)} compiled programs in {store.uri} are ignored: "
            "they lack the signature of this run's ranks"
        )


def _may_upload(world: World) -> bool:
    return world.is_first  # the library, too, lets the first process write


def _default_folder(run: Run) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run.run_id)
    name += "-" + hashlib.sha256(b"folder" + run.key).hexdigest()[:12]  # what came without this key is not in it
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
