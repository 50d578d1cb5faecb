"""Trees of files that members sent to the service of this computer, for what they will launch.

The trees are kept as those of launches, found by their digest, whoever sent them. A member may name only what they sent
themselves: the digest of a tree is in plans and events that others see, and must not give them its files. What each
member sent is noted in a folder of theirs. A note counts while the tree is kept.

Several servers of one team have a bucket in common, with the notes and with trees that are too large for the store.
Then a note counts while the store has the tree, or its place in the bucket, whichever server has received it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import zlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.engine.services import real_services
from orchestrator.engine.state.file_objects import is_complete
from orchestrator.engine.state.kept_trees import is_kept, take_kept_contents, use_kept_tree
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.shared_trees import INLINE_BYTES, publish_tree
from orchestrator.engine.state.tree_archives import ArchiveLimits, keep_archive
from orchestrator.errors import NotFoundError, StorageError, UserError
from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder, open_private, write_whole
from orchestrator.received_files import RefusedEntryError
from orchestrator.remote.tree import Tree
from orchestrator.store.store import Store
from orchestrator.task.sent_tree import SentTree, parse_sent_tree

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

_AGAIN = "the same command again"
_BLOCK = 4096  # bytes of a disk
_NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """What members may send.

    Attributes:
        archive_bytes: Of one tree, packed.
        tree_bytes: Of one tree's files.
        tree_files: Of one tree: files, folders and links.
        member_bytes: Of all files that a member has sent and that are kept.
        member_trees: How many trees that are.
    """

    archive_bytes: int = 1 << 30
    tree_bytes: int = 4 << 30
    tree_files: int = 200_000
    member_bytes: int = 16 << 30
    member_trees: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What is noted of one tree: its digest, "" where the note cannot be read, and what it takes of a disk."""

    digest: str
    size: int

    @classmethod
    def parse(cls, content: bytes) -> _Note:
        try:
            found = json.loads(content)
            tree = parse_sent_tree(str(found["tree"]))
            return cls(digest=tree.digest if tree is not None else "", size=int(found["bytes"]))
        except (ValueError, KeyError, TypeError):  # half written when the computer lost its power
            return cls(digest="", size=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTrees:
    """What one member has sent to this computer, or to any server of the team.

    Attributes:
        where: The folders of this installation.
        member: Who sent it.
        limits: What they may send.
        common: The URI of the bucket that all servers use, "" where each keeps its own files.
    """

    where: Paths
    member: str
    limits: TreeLimits = TreeLimits()
    common: str = ""

    def has(self, tree: SentTree) -> bool:
        """Return whether the member has sent a tree that is still here; it is kept for another day then."""
        note = self._note(tree)
        if self.common:
            if not note.exists() and not self._bucket().exists(self._common_note(note)):
                return False
            with self._open_store() as store:
                return store.use_blob(tree.digest)
        return note.exists() and is_complete(self.where, tree.digest) and use_kept_tree(self.where, tree.digest)

    def find_missing(self, trees: Iterable[SentTree]) -> tuple[SentTree, ...]:
        """Return those that the member has to send."""
        return tuple(tree for tree in trees if not self.has(tree))

    def keep(self, tree: SentTree, archive: Path) -> int:
        """Keep a tree that the member sent, and return how many bytes its files have.

        Args:
            tree: Which tree it is said to be.
            archive: The archive, which is not trusted.

        Raises:
            UserError: It is another tree, no archive, or too much.
            StorageError: It cannot be written.
        """
        make_private_folder(self._folder)
        with self._lock():
            left = self._find_space_left()
            try:
                found = self._keep(tree, archive, left)
                self._publish(found)
                note, content = self._note(tree), json.dumps({"tree": str(tree), "bytes": _count_disk_bytes(found)})
                write_whole(note, content, flush=False)
                if self.common:
                    self._bucket().put(self._common_note(note), content.encode())
            except OSError as error:
                why, step = f"{error.strerror or error}", "its disk may be full; ask who runs it"
                raise StorageError("the service cannot keep the files", why, step) from error
        return found.total_bytes

    def _keep(self, tree: SentTree, archive: Path, left: int) -> Tree:
        limits = ArchiveLimits(
            entries=min(self.limits.tree_files, left // _BLOCK), bytes=min(left, self.limits.tree_bytes)
        )
        try:
            with archive.open("rb") as packed:
                return keep_archive(self.where, tree.digest, packed, limits)
        except RefusedEntryError as error:
            raise UserError(
                error.what, error.why, "leave files out: .orchignore; large data goes into a bucket"
            ) from error
        except (ValueError, EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the disk; a damaged archive has none
                raise
            what = "what was sent is not what was announced"
            raise UserError(what, f"{error}; files changed meanwhile, or were damaged", _AGAIN) from error

    def _find_space_left(self) -> int:
        """Return how many bytes the member may still send. Notes of trees that were deleted are deleted, too."""
        notes = self._read_notes()
        kept = self._list_kept({note.digest for note in notes.values()})
        for name in [name for name, note in notes.items() if note.digest not in kept]:
            del notes[name]
            (self._folder / name).unlink(missing_ok=True)
            if self.common:
                self._bucket().delete(self._common_note(self._folder / name))
        used, trees = sum(note.size for note in notes.values()), len(notes)
        if trees >= self.limits.member_trees or used >= self.limits.member_bytes:
            raise UserError(
                "you have sent too many files that are still kept",
                f"{trees:,} trees with {used / 1e9:.1f} GB; unused ones are deleted after a day",
                "put large data into a bucket: file_mounts, or data of the program",
            )
        return self.limits.member_bytes - used

    def _read_notes(self) -> dict[str, _Note]:
        """Return what is noted of the member's trees, here and in the bucket, by the names of the notes."""
        contents = {note.name: note.read_bytes() for note in self._folder.glob("*.json")}
        if self.common:
            folder = self._common_note(self._folder / "x").rpartition("/")[0]
            for found in self._bucket().list(folder):
                name = found.path.rpartition("/")[2]
                if name not in contents:
                    with contextlib.suppress(NotFoundError):  # another server deletes it at this moment
                        contents[name] = self._bucket().get_bounded(found.path, _NOTE_BYTES)
        return {name: _Note.parse(content) for name, content in contents.items()}

    def _list_kept(self, digests: set[str]) -> frozenset[str]:
        if not self.common:
            return frozenset(one for one in digests if one and is_kept(self.where, one))
        with self._open_store() as store:
            return store.list_kept(digests)

    def _publish(self, tree: Tree) -> None:
        """Put a tree where engines on other computers find it: a small one into the store, another into the bucket."""
        large = tree.total_bytes > INLINE_BYTES or len(tree.files) * 512 > INLINE_BYTES
        if large and not self.common:
            return
        with self._open_store() as store:
            if not store.use_blob(tree.digest):
                publish_tree(store, take_kept_contents(self.where, tree), self.common, project="")

    def _open_store(self) -> Store:
        return open_store(self.where, real_services(self.where))

    def _bucket(self) -> Bucket:
        from orchestrator.storage.bucket import Bucket

        return Bucket.open(self.common)

    def _common_note(self, note: Path) -> str:
        """Return the path of a note in the bucket."""
        return f"sent/{note.parent.name}/{note.name}"

    @property
    def _folder(self) -> Path:
        return self.where.state / "service" / "trees" / hashlib.sha256(self.member.encode()).hexdigest()[:32]

    def _note(self, tree: SentTree) -> Path:
        return self._folder / f"{hashlib.sha256(str(tree).encode()).hexdigest()}.json"

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Wait until no other upload of the member is being kept: what they may send is counted."""
        with open(self._folder / "lock", "w", encoding="utf-8", opener=open_private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _count_disk_bytes(tree: Tree) -> int:
    """Return what a tree takes on a disk: each file a block for itself, and its content in whole blocks."""
    return sum(_BLOCK * (1 + -(-file.size // _BLOCK)) for file in tree.files)
