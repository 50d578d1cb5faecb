"""Contents of files that this computer keeps, each once: `<state>/files/objects/ab/<sha256>`, read-only.

A record `<state>/files/trees/<digest>.json` names the contents of one tree. A record is written after its contents, and
deleted before them, so that a kept tree is always complete. Who keeps a tree holds the lock together with others who
do; who deletes holds it alone. A process that is killed loses the lock, and what it left is deleted by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder, open_private, write_whole
from orchestrator.remote.tree import Tree
from orchestrator.remote.tree_record import write_record

RECENT = 600.0  # seconds in which a tree without a job may be that of a launch that begins
_BLOCK = 1 << 20
_HEAD_BYTES = 200
_ADDED = re.compile(rb'"added":(\d+)')
_CONTENT = re.compile(rb'(\d+),"([0-9a-f]{64})"')


class Objects:
    """The folder of the contents, while its lock is held."""

    def __init__(self, where: Paths, staged: Path) -> None:
        self._folder, self._trees = objects_folder(where), trees_folder(where)
        self._staged = staged
        self._shards: dict[str, set[str]] = {}
        self.added = 0

    def has(self, sha256: str, size: int) -> bool:
        """Return whether a content is kept. One of another size is damaged, and is kept again."""
        if sha256 not in self._list_shard(sha256[:2]):
            return False
        try:
            return os.lstat(f"{self._folder}/{sha256[:2]}/{sha256}").st_size == size
        except FileNotFoundError:  # damaged, and deleted by who sent it
            return False

    def add(self, sha256: str, size: int, read: Callable[[int], bytes]) -> bool:
        """Keep a content that is read in blocks; return False where it is another one, or shorter.

        It gets its name when it is complete: until then a process of someone else may keep the same content.

        Raises:
            OSError: It cannot be written.
        """
        known, path = self.has(sha256, size), f"{self._staged}/content"
        written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        digest, left, same = hashlib.sha256(), size, False
        try:
            while left and (block := read(min(_BLOCK, left))):
                digest.update(block)
                left -= len(block)
                while block:
                    block = block[os.write(written, block) :]
            same = not left and digest.hexdigest() == sha256
        finally:
            os.close(written)
            if not same:
                os.unlink(path)  # noqa: PTH108  # of 100,000 files
        if not same:
            return False
        os.rename(path, f"{self._folder}/{sha256[:2]}/{sha256}")  # noqa: PTH104  # as above
        if not known:
            self._list_shard(sha256[:2]).add(sha256)
            self.added += size
        return True

    def _list_shard(self, shard: str) -> set[str]:
        """Return the names in a folder of contents, which is made where it is missing."""
        if shard not in self._shards:
            (self._folder / shard).mkdir(mode=0o700, exist_ok=True)
            self._shards[shard] = set(os.listdir(f"{self._folder}/{shard}"))  # noqa: PTH208  # names alone
        return self._shards[shard]

    def record(self, tree: Tree) -> None:
        """Record a tree whose contents are all kept."""
        record = self._staged / "record"
        write_whole(record, write_record(tree, added=self.added), flush=False)
        record.replace(self._trees / f"{tree.digest}.json")


@contextmanager
def adding(where: Paths) -> Generator[Objects]:
    """Let contents be added: nothing is deleted meanwhile. After an error what was added is deleted."""
    make_private_folder(objects_folder(where))
    make_private_folder(trees_folder(where))
    staged = _staged_folder(where) / f"{os.getpid()}-{secrets.token_hex(4)}"
    objects = Objects(where, staged)
    try:
        with _lock(where, fcntl.LOCK_SH):
            make_private_folder(staged)
            yield objects
            shutil.rmtree(staged)
    except BaseException:
        with contextlib.suppress(OSError):  # another launch is adding, or the disk fails: a later one deletes the rest
            for left in staged.glob("*"):
                left.unlink()
            if objects.added:
                delete_trees(where, (), wait=False)
            else:
                staged.rmdir()
        raise


def delete_trees(
    where: Paths,
    digests: Iterable[str],
    *,
    older: float = 0.0,
    needed: Collection[str] = frozenset(),
    wait: bool = True,
) -> None:
    """Delete trees, and the contents that no other tree names.

    Args:
        where: The folders of this installation.
        digests: Of the trees.
        older: Seconds; one that was used since then stays.
        needed: Contents that stay, whether a tree names them or not.
        wait: Whether to wait for launches that are adding contents.

    Raises:
        BlockingIOError: One is, and `wait` is False.
    """
    if not objects_folder(where).exists():
        return
    with _lock(where, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)):
        sweep = _staged_folder(where) / f"{os.getpid()}-{secrets.token_hex(4)}"
        make_private_folder(sweep)  # which says that there is something to delete, if this process is killed
        for digest in digests:
            if age(record_path(where, digest)) >= older:
                record_path(where, digest).unlink(missing_ok=True)
        _sweep(where, set(needed))
        for left in _staged_folder(where).iterdir():
            if left != sweep:
                shutil.rmtree(left, ignore_errors=True)
        sweep.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Trees to delete, and the bytes that all contents have afterwards."""

    digests: tuple[str, ...]
    bytes: int


def plan_deletion(where: Paths, fresh: Mapping[str, int], most: int, used: Collection[str] | None = None) -> Deletion:
    """Return the trees whose deletion leaves at most these bytes, those used longest ago; it may leave more.

    Args:
        where: The folders of this installation.
        fresh: The sizes of contents that will be kept, by their SHA-256.
        most: The bytes.
        used: The digests of trees that stay; None for all.
    """
    named = {record: dict(list_contents(record)) for record in list_records(where)}
    sizes, uses = dict(fresh), Counter(fresh.keys())
    for contents in named.values():
        sizes |= contents
        uses.update(contents.keys())
    total, unused = sum(sizes.values()), list[str]()
    for record, contents in named.items():
        if total > most and used is not None and record.stem not in used and age(record) >= RECENT:
            unused.append(record.stem)
            uses.subtract(contents.keys())
            total -= sum(size for sha256, size in contents.items() if not uses[sha256])
    return Deletion(digests=tuple(unused), bytes=total)


def _sweep(where: Paths, named: set[str]) -> None:
    """Delete the contents that no tree names, and record how many bytes the others have."""
    for record in list_records(where):
        named.update(sha256 for sha256, _ in list_contents(record))
    size = 0
    for folder in objects_folder(where).iterdir():
        with os.scandir(folder) as found:
            for entry in found:
                if entry.name in named:
                    size += entry.stat(follow_symlinks=False).st_size
                else:
                    os.unlink(entry.path)  # noqa: PTH108  # of 100,000 files
    added = sum(_read_added(record) for record in list_records(where))
    write_whole(_rest_path(where), str(size - added), flush=False)


def count_kept_bytes(where: Paths) -> int:
    """Return the bytes of all contents that trees name: what each of them added, and what deleted ones had added."""
    try:
        rest = int(_rest_path(where).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        rest = 0
    return rest + sum(_read_added(record) for record in list_records(where))


def is_complete(where: Paths, digest: str) -> bool:
    """Return whether a tree is kept with all its contents: someone may have deleted or cut some."""
    folder, record = objects_folder(where), record_path(where, digest)
    try:
        return record.exists() and all(
            os.lstat(f"{folder}/{sha256[:2]}/{sha256}").st_size == size for sha256, size in list_contents(record)
        )
    except FileNotFoundError:
        return False


def list_records(where: Paths) -> list[Path]:
    """Return the records of the trees, that of the one used longest ago first."""
    return sorted(trees_folder(where).glob("*.json"), key=age, reverse=True)


def list_contents(record: Path) -> Iterator[tuple[str, int]]:
    """Yield the SHA-256 and the size of each content that a record names; of one that is deleted now, nothing."""
    with contextlib.suppress(FileNotFoundError):
        for found in _CONTENT.finditer(record.read_bytes()):
            yield found[2].decode(), int(found[1])


def has_leftovers(where: Paths, older: float) -> bool:
    """Return whether a process that was killed left contents without a tree."""
    return any(age(folder) >= older for folder in _staged_folder(where).glob("*"))


def age(path: Path) -> float:
    """Return the seconds since something was used, or -1 when it was deleted meanwhile."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return -1.0


def record_path(where: Paths, digest: str) -> Path:
    """Return the path of a tree's record."""
    return trees_folder(where) / f"{digest}.json"


def files_folder(where: Paths) -> Path:
    """Return the folder with all files that this computer keeps."""
    return where.state / "files"


def objects_folder(where: Paths) -> Path:
    """Return the folder with the contents."""
    return files_folder(where) / "objects"


def trees_folder(where: Paths) -> Path:
    """Return the folder with the records of trees."""
    return files_folder(where) / "trees"


def _staged_folder(where: Paths) -> Path:
    return files_folder(where) / "staged"


def _rest_path(where: Paths) -> Path:
    return files_folder(where) / "rest"


def _read_added(record: Path) -> int:
    try:
        with record.open("rb") as file:
            found = _ADDED.search(file.read(_HEAD_BYTES))
    except FileNotFoundError:  # deleted at this moment
        return 0
    return int(found[1]) if found is not None else 0


@contextmanager
def _lock(where: Paths, how: int) -> Generator[None]:
    with open(files_folder(where) / "lock", "w", encoding="utf-8", opener=open_private) as file:
        fcntl.flock(file, how)
        yield
