"""Contents that records name by their digest: files that a job sends, which any server may need."""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import delete, select, update

from orchestrator.store.batches import insert_or_nothing
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import blobs

_DROPPING = -1.0
_KEPT = blobs.c.used >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A packed tree of files.

    Attributes:
        digest: That of the tree, which who unpacks it compares.
        size: Bytes of the archive.
        unpacked: Bytes of the files in it.
        content: The archive, or None when it is in a bucket.
        bucket: The URI of that bucket, "" when the store has the content.
        path: Of the object in it.
        project: As whose members the bucket is reached: "" for the servers themselves; None for the project of who
            fetches it.
    """

    digest: str
    size: int
    unpacked: int
    content: bytes | None = field(default=None, repr=False)
    bucket: str = ""
    path: str = ""
    project: str | None = None


class BlobChanges(Ledger):
    """The changes of blobs. They are not audited: the events of a job have the digests, which say what was meant."""

    def find_blob(self, digest: str) -> Blob | None:
        """Return a blob, or None."""
        with self._database.reading() as tx:
            row = tx.execute(select(blobs).where(blobs.c.digest == digest)).mappings().first()
        if row is None:
            return None
        content = None if row["content"] is None else base64.b64decode(row["content"])
        return Blob(
            digest=digest,
            size=row["size"],
            unpacked=row["unpacked"],
            content=content,
            bucket=row["bucket"],
            path=row["path"],
            project=row["project"],
        )

    def use_blob(self, digest: str) -> bool:
        """Record that a blob is used now, so that it is not dropped; return whether there is one."""
        statement = update(blobs).where(blobs.c.digest == digest, _KEPT).values(used=self._now())
        return self._database.write(statement) > 0

    def list_kept(self, digests: Collection[str]) -> frozenset[str]:
        """Return those of the digests of which there is a blob. Unlike `use_blob` it keeps none from being dropped."""
        query = select(blobs.c.digest).where(blobs.c.digest.in_(digests), _KEPT)
        return frozenset(self._read_all(query, lambda row: str(row["digest"])))

    def keep_blob(self, blob: Blob) -> None:
        """Keep a blob, unless it is kept already. Its object in a bucket must exist."""
        values = {
            "digest": blob.digest,
            "size": blob.size,
            "unpacked": blob.unpacked,
            "content": None if blob.content is None else base64.b64encode(blob.content).decode("ascii"),
            "bucket": blob.bucket,
            "path": blob.path,
            "project": blob.project,
            "used": self._now(),
        }
        with self._database.writing() as tx:
            tx.execute(delete(blobs).where(blobs.c.digest == blob.digest, ~_KEPT))  # its object exists again
            tx.execute(insert_or_nothing(tx, blobs, values))
            tx.commit()

    def unused_blobs(self, used: Collection[str], older: float) -> tuple[Blob, ...]:
        """Return the blobs, without content, that are not in `used` and that no launch has named since `older` s."""
        query = select(*(column for column in blobs.c if column.name not in ("content", "used")))
        with self._database.reading() as tx:
            rows = tx.execute(query.where(blobs.c.used <= self._now() - older)).mappings().all()
        return tuple(Blob(**row) for row in rows if row["digest"] not in used)

    def begin_dropping(self, digest: str, older: float) -> bool:
        """Mark a blob as being deleted unless it was used meanwhile; return whether it was marked.

        A launch that needs it then keeps it as one that is missing. The mark of a process that was killed stays, and
        the blob is unused.
        """
        old = blobs.c.used <= self._now() - older
        return self._database.write(update(blobs).where(blobs.c.digest == digest, old).values(used=_DROPPING)) > 0

    def end_dropping(self, digest: str, *, older: float | None = None) -> None:
        """Delete a marked blob, whose object is deleted; or, with `older`, leave it as one unused since `older` s."""
        marked = (blobs.c.digest == digest, ~_KEPT)
        if older is None:
            self._database.write(delete(blobs).where(*marked))
        else:
            self._database.write(update(blobs).where(*marked).values(used=self._now() - older))
