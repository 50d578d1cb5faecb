"""Kept trees for every computer of a team: a small one in the store, a larger one in the job's bucket.

A tree is found by its digest, and compared with that when it is fetched: neither a bucket nor a store can put other
files in its place. The files of this computer are only a cache of it.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import zlib
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orchestrator.engine.services import real_services
from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.engine.state.kept_trees import STALE, is_kept, keep_tree, take_kept_contents
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.tree_archives import ArchiveLimits, keep_archive, write_archive
from orchestrator.errors import NotFoundError, OrchError, StorageError
from orchestrator.paths import Paths, load_paths
from orchestrator.received_files import ReceivingFolder, ReceivingLimits
from orchestrator.remote.tree import Tree
from orchestrator.store.blob_changes import Blob
from orchestrator.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Generator

    from orchestrator.storage.bucket import Bucket

INLINE_BYTES = 1 << 20  # an archive of more is no row of a database
FOLDER = "trees"  # in a bucket, for all of its runs: equal trees are kept once
_IN_MEMORY = 8 << 20
_ONLY_HERE = "only this computer can start it again: "
_ARCHIVE = "archive"
_AGAIN = "the same command again, or launch it again"


def share_tree(
    store: Store,
    where: Paths,
    tree: Tree,
    bucket: str,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> str:
    """Keep a tree for later attempts on this computer, and for all computers that share its store.

    The store has the content, or the object in the bucket exists, before a record names it.

    Args:
        store: Of the job's project.
        where: The folders of this installation.
        tree: What is sent.
        bucket: The job's, for what is too large for the store; "" for none.
        progress: Receives how many bytes are copied, and how many there are.

    Returns:
        Why only this computer can start the job again, or "".
    """
    keep_tree(where, tree, progress)
    if store.is_file or store.use_blob(tree.digest):
        return ""
    problem = publish_tree(store, take_kept_contents(where, tree), bucket, store.project)
    return _ONLY_HERE + problem if problem else ""


def fetch_trees(trees: Mapping[str, str], project: str = "") -> Mapping[str, str]:
    """Return a project's recorded trees, their digests by label, when all are kept here: fetch those that are missing.

    Raises:
        NotFoundError: One is only on the computer that launched.
        StorageError: It cannot be fetched, or is not what was launched.
    """
    where = load_paths()
    for label, digest in trees.items():
        if not is_kept(where, digest):
            _fetch(where, label, digest, project)
    return trees


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


def publish_tree(store: Store, tree: Tree, bucket: str, project: str) -> str:
    """Put a tree where other computers find it: a small one into the store, another one into the bucket.

    Args:
        store: Where it is recorded, with as whom the bucket is reached.
        tree: The files.
        bucket: Its URI, or "".
        project: As whose members the bucket is reached; "" for this computer itself, as the common bucket of servers.

    Returns:
        Why that is not possible, or "".
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as archive:
        write_archive(tree, archive)
        size = archive.tell()
        if size > INLINE_BYTES and not bucket:
            return f"{tree.root} has {size / 1e6:.1f} MB packed, more than the store takes, and the job has no bucket"
        archive.seek(0)
        if size <= INLINE_BYTES:
            content = archive.read()
            store.keep_blob(Blob(digest=tree.digest, size=size, unpacked=tree.total_bytes, content=content))
            return ""
        path = f"{FOLDER}/{tree.digest}.gz"
        _upload(archive, bucket, path, project)
    blob = Blob(digest=tree.digest, size=size, unpacked=tree.total_bytes, bucket=bucket, path=path, project=project)
    store.keep_blob(blob)
    return ""


def _upload(archive: IO[bytes], bucket: str, path: str, project: str) -> None:
    with tempfile.NamedTemporaryFile(prefix="orch-tree-") as file:
        shutil.copyfileobj(archive, file)
        file.flush()
        _open_bucket(bucket, project).upload_file(Path(file.name), path)


def _open_bucket(uri: str, project: str) -> Bucket:
    """Return a bucket as the members of a project reach it; "" for this computer itself, without any identity."""
    from orchestrator.storage.bucket import Bucket

    return open_project_bucket(uri, project) if project else Bucket.open(uri)


def _open_recorded(blob: Blob, project: str = "") -> Bucket:
    """Return the bucket of a tree as who uploaded it; as the given project where that was not recorded."""
    if blob.project is None:
        return open_project_bucket(blob.bucket, project)
    return _open_bucket(blob.bucket, blob.project)


def _fetch(where: Paths, label: str, digest: str, project: str) -> None:
    """Keep a tree of the store on this computer, completely or not at all."""
    with open_store(where, real_services(where)) as store:
        blob = store.find_blob(digest)
    if blob is None:
        raise NotFoundError(
            f"the files of '{label}' are not here",
            "only the computer that launched the job has them: they were too large for the store, without a bucket",
            "on that computer: orch serve --engine-only   or launch it again from here",
        )
    try:
        with _open_archive(where, blob, project) as archive:
            keep_archive(where, digest, archive, ArchiveLimits(bytes=blob.unpacked))
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise StorageError(f"the files of '{label}' cannot be fetched", str(error), _AGAIN) from error


@contextmanager
def _open_archive(where: Paths, blob: Blob, project: str) -> Generator[IO[bytes]]:
    """Open the archive, from the store or from its bucket, with at most the bytes that are on record."""
    if blob.content is not None:
        yield io.BytesIO(blob.content)
        return
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=where.state) as folder:
        with ReceivingFolder(Path(folder), ReceivingLimits(bytes=blob.size)) as receiving:
            _open_recorded(blob, project).download_into(receiving, _ARCHIVE, blob.path)
        with Path(folder, _ARCHIVE).open("rb") as archive:
            yield archive
