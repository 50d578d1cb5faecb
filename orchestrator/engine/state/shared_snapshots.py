"""Snapshots for every computer of a team: a small one in the store, a larger one in the job's bucket.

A snapshot is found by the digest of its tree, and compared with that after it is unpacked: neither a bucket nor a
store can put other files in its place. The folder of this computer is only a cache of it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import secrets
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO

from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.snapshots import CONTENT, STALE, keep_snapshot, snapshots_folder
from orchestrator.errors import NotFoundError, OrchError, StorageError
from orchestrator.paths import Paths, from_portable, load_paths, to_portable
from orchestrator.private_files import make_private_folder
from orchestrator.received_files import ReceivingFolder, ReceivingLimits
from orchestrator.remote.archive import unpack_archive
from orchestrator.remote.tree import Tree, TreeFile, read_snapshot
from orchestrator.store.blob_changes import Blob
from orchestrator.store.store import Store

INLINE_BYTES = 1 << 20  # an archive of more is no row of a database
FOLDER = "snapshots"  # in a bucket, for all of its runs: equal trees are kept once
_IN_MEMORY = 8 << 20
_ONLY_HERE = "only this computer can start it again: "


def share_snapshot(where: Paths, tree: Tree, bucket: str) -> tuple[str, str]:
    """Keep a tree for later attempts on this computer, and for all computers that share its store.

    The store has the content, or the object in the bucket exists, before a record names it.

    Args:
        where: The folders of this installation.
        tree: What is sent.
        bucket: The job's, for what is too large for the store; "" for none.

    Returns:
        The path by which any computer finds it, and why only this one can, or "".
    """
    copy = keep_snapshot(where, tree)
    services = real_services(where)
    with open_store(where, services) as store:
        problem = "" if store.use_blob(tree.digest) else _publish(store, copy, tree, bucket)
        shared = not store.is_file
    return to_portable(str(copy), where.state), _ONLY_HERE + problem if problem and shared else ""


def fetch_snapshots(sources: Mapping[str, str]) -> dict[str, str]:
    """Return the local paths of recorded snapshots by label; fetch those that are missing.

    Raises:
        NotFoundError: One is only on the computer that launched.
        StorageError: It cannot be fetched, or is not what was launched.
    """
    where = load_paths()
    found: dict[str, str] = {}
    for label, source in sources.items():
        place = Path(from_portable(source, where.state))
        if not os.path.lexists(place):
            _fetch(where, label, place.parent.name, place.name)
            place = snapshots_folder(where) / place.parent.name / place.name
        found[label] = str(place)
    return found


def drop_unused_blobs(store: Store, used: Collection[str], *, older: float = STALE) -> None:
    """Delete what no job needs any more from the store and from buckets; what cannot be deleted is left for later."""
    from orchestrator.storage.bucket import Bucket

    for blob in store.unused_blobs(used, older):
        if not store.drop_blob(blob.digest, older) or not blob.bucket:
            continue
        with contextlib.suppress(OrchError):  # the object alone is harmless: it is found by its digest again
            Bucket.open(blob.bucket).delete(blob.path)


def _publish(store: Store, copy: Path, tree: Tree, bucket: str) -> str:
    """Put a snapshot where other computers find it; return why that is not possible, or ""."""
    leaving = [file.path for file in tree.files if _leaves_tree(file)]
    if leaving:
        return f"the link {leaving[0]} leads out of {tree.root}"
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as archive:
        _pack(copy, tree, archive)
        size = archive.tell()
        if size > INLINE_BYTES and not bucket:
            return f"{tree.root} has {size / 1e6:.1f} MB packed, more than the store takes, and the job has no bucket"
        archive.seek(0)
        if size <= INLINE_BYTES:
            content = archive.read()
            store.keep_blob(Blob(digest=tree.digest, size=size, unpacked=tree.total_bytes, content=content))
            return ""
        path = f"{FOLDER}/{tree.digest}.tar.gz"
        _upload(archive, bucket, path)
    blob = Blob(digest=tree.digest, size=size, unpacked=tree.total_bytes, bucket=bucket, path=path)
    store.keep_blob(blob)
    return ""


def _upload(archive: IO[bytes], bucket: str, path: str) -> None:
    from orchestrator.storage.bucket import Bucket

    with tempfile.NamedTemporaryFile(prefix="orch-snapshot-") as file:
        shutil.copyfileobj(archive, file)
        file.flush()
        Bucket.open(bucket).upload_file(Path(file.name), path)


def _pack(copy: Path, tree: Tree, archive: IO[bytes]) -> None:
    """Write the tree as GNU tar, compressed; the same tree gives the same bytes."""
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for file in tree.files:
            entry = tarfile.TarInfo(file.path)
            entry.mode = file.mode
            if file.link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                tar.addfile(entry)
                continue
            entry.size = file.size
            with (copy / file.path if copy.is_dir() else copy).open("rb") as content:
                tar.addfile(entry, content)


def _leaves_tree(file: TreeFile) -> bool:
    """Return whether a link is one that ReceivingFolder does not make."""
    if file.link is None:
        return False
    parts = file.link.split("/")
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return file.link.startswith("/") or ups > file.path.count("/") or ".." in parts[ups:]


def _fetch(where: Paths, label: str, digest: str, name: str) -> None:
    """Unpack a snapshot into the folder of this computer, completely or not at all."""
    root = snapshots_folder(where)
    fresh = root / f".{digest[:16]}-{os.getpid()}-{secrets.token_hex(4)}"
    with open_store(where, real_services(where)) as store:
        blob = store.find_blob(digest)
    if blob is None:
        raise NotFoundError(
            f"the files of '{label}' are not here",
            "only the computer that launched the job has them: they were too large for the store, without a bucket",
            "on that computer: orch serve --engine-only   or launch it again from here",
        )
    try:
        make_private_folder(fresh)
        with _open_archive(blob, fresh) as archive, gzip.GzipFile(fileobj=archive) as packed:
            place = fresh / CONTENT if name == CONTENT else fresh
            with ReceivingFolder(place, ReceivingLimits(bytes=blob.unpacked)) as folder:
                unpack_archive(packed, folder)  # type: ignore[arg-type]  # it reads only
        if read_snapshot(fresh / name).digest != digest:
            raise StorageError(f"the files of '{label}' are not those of the launch", "their digest differs", _AGAIN)
        (fresh / _ARCHIVE).unlink(missing_ok=True)
        fresh.rename(root / digest)
    except (OSError, EOFError, zlib.error) as error:
        if not (root / digest).exists():  # else another process was faster
            raise StorageError(f"the files of '{label}' cannot be fetched", str(error), _AGAIN) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


_ARCHIVE = ".archive"
_AGAIN = "the same command again, or launch it again"


def _open_archive(blob: Blob, folder: Path) -> IO[bytes]:
    """Return the archive, from the store or from its bucket, with at most the bytes that are on record."""
    if blob.content is not None:
        return io.BytesIO(blob.content)
    from orchestrator.storage.bucket import Bucket

    with ReceivingFolder(folder, ReceivingLimits(bytes=blob.size)) as receiving:
        Bucket.open(blob.bucket).download_into(receiving, _ARCHIVE, blob.path)
    return (folder / _ARCHIVE).open("rb")
