"""Snapshots for every computer of a team: a small one in the store, a larger one in the job's bucket.

A snapshot is found by the digest of its tree, and compared with that after it is unpacked: neither a bucket nor a
store can put other files in its place. The folder of this computer is only a cache of it.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import tempfile
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orchestrator.engine.services import real_services
from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.snapshot_archives import find_leaving_link, pack_tree, unpack_tree
from orchestrator.engine.state.snapshots import STALE, keep_snapshot, snapshots_folder
from orchestrator.errors import NotFoundError, OrchError, StorageError
from orchestrator.paths import Paths, from_portable, load_paths, to_portable
from orchestrator.private_files import make_private_folder
from orchestrator.received_files import ReceivingFolder, ReceivingLimits
from orchestrator.remote.tree import Tree, read_snapshot
from orchestrator.store.blob_changes import Blob
from orchestrator.store.store import Store

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

INLINE_BYTES = 1 << 20  # an archive of more is no row of a database
FOLDER = "snapshots"  # in a bucket, for all of its runs: equal trees are kept once
_IN_MEMORY = 8 << 20
_ONLY_HERE = "only this computer can start it again: "


def share_snapshot(
    store: Store,
    where: Paths,
    tree: Tree,
    bucket: str,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[str, str]:
    """Keep a tree for later attempts on this computer, and for all computers that share its store.

    The store has the content, or the object in the bucket exists, before a record names it.

    Args:
        store: Of the job's project.
        where: The folders of this installation.
        tree: What is sent.
        bucket: The job's, for what is too large for the store; "" for none.
        progress: Receives how many bytes are copied, and how many there are.

    Returns:
        The path by which any computer finds it, and why only this one can, or "".
    """
    copy = keep_snapshot(where, tree, progress)
    kept = store.use_blob(tree.digest)
    problem = "" if kept else publish_snapshot(store, copy, tree, bucket, store.project)
    return to_portable(str(copy), where.state), _ONLY_HERE + problem if problem and not store.is_file else ""


def fetch_snapshots(sources: Mapping[str, str], project: str = "") -> dict[str, str]:
    """Return the local paths of a project's recorded snapshots by label; fetch those that are missing.

    Raises:
        NotFoundError: One is only on the computer that launched.
        StorageError: It cannot be fetched, or is not what was launched.
    """
    where = load_paths()
    found: dict[str, str] = {}
    for label, source in sources.items():
        place = Path(from_portable(source, where.state))
        if not os.path.lexists(place):
            _fetch(where, label, place.parent.name, place.name, project)
            place = snapshots_folder(where) / place.parent.name / place.name
        found[label] = str(place)
    return found


def drop_unused_blobs(store: Store, used: Collection[str], *, older: float = STALE) -> dict[str, OrchError]:
    """Delete what no job needs any more from the store and from buckets, as who uploaded it.

    Returns:
        The first error of each bucket from which something cannot be deleted: that is left for another time.
    """
    refused: dict[str, OrchError] = {}
    for blob in store.unused_blobs(used, older):
        if not store.begin_dropping(blob.digest, older):
            continue
        try:
            if blob.bucket:
                _open_recorded(blob).delete(blob.path)
        except OrchError as error:
            refused.setdefault(blob.bucket, error)
            store.end_dropping(blob.digest, older=older)
        else:
            store.end_dropping(blob.digest)
    return refused


def publish_snapshot(store: Store, copy: Path, tree: Tree, bucket: str, project: str) -> str:
    """Put a snapshot where other computers find it: a small one into the store, another one into the bucket.

    Args:
        store: Where it is recorded, with as whom the bucket is reached.
        copy: The files.
        tree: What they are.
        bucket: Its URI, or "".
        project: As whose members the bucket is reached; "" for this computer itself, as the common bucket of servers.

    Returns:
        Why that is not possible, or "".
    """
    if leaving := find_leaving_link(tree):
        return f"the link {leaving} leads out of {tree.root}"
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as archive:
        pack_tree(tree, archive, copy)
        size = archive.tell()
        if size > INLINE_BYTES and not bucket:
            return f"{tree.root} has {size / 1e6:.1f} MB packed, more than the store takes, and the job has no bucket"
        archive.seek(0)
        if size <= INLINE_BYTES:
            content = archive.read()
            store.keep_blob(Blob(digest=tree.digest, size=size, unpacked=tree.total_bytes, content=content))
            return ""
        path = f"{FOLDER}/{tree.digest}.tar.gz"
        _upload(archive, bucket, path, project)
    blob = Blob(digest=tree.digest, size=size, unpacked=tree.total_bytes, bucket=bucket, path=path, project=project)
    store.keep_blob(blob)
    return ""


def _upload(archive: IO[bytes], bucket: str, path: str, project: str) -> None:
    with tempfile.NamedTemporaryFile(prefix="orch-snapshot-") as file:
        shutil.copyfileobj(archive, file)
        file.flush()
        _open_bucket(bucket, project).upload_file(Path(file.name), path)


def _open_bucket(uri: str, project: str) -> Bucket:
    """Return a bucket as the members of a project reach it; "" for this computer itself, without any identity."""
    from orchestrator.storage.bucket import Bucket

    return open_project_bucket(uri, project) if project else Bucket.open(uri)


def _open_recorded(blob: Blob, project: str = "") -> Bucket:
    """Return the bucket of a snapshot as who uploaded it; as the given project where that was not recorded."""
    if blob.project is None:
        return open_project_bucket(blob.bucket, project)
    return _open_bucket(blob.bucket, blob.project)


def _fetch(where: Paths, label: str, digest: str, name: str, project: str) -> None:
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
        with _open_archive(blob, fresh, project) as archive:
            unpack_tree(archive, fresh, name, ReceivingLimits(bytes=blob.unpacked))
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


def _open_archive(blob: Blob, folder: Path, project: str) -> IO[bytes]:
    """Return the archive, from the store or from its bucket, with at most the bytes that are on record."""
    if blob.content is not None:
        return io.BytesIO(blob.content)
    with ReceivingFolder(folder, ReceivingLimits(bytes=blob.size)) as receiving:
        _open_recorded(blob, project).download_into(receiving, _ARCHIVE, blob.path)
    return (folder / _ARCHIVE).open("rb")
