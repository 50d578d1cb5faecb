"""The files of a folder that are sent to the hosts: those of git, less those in .orchignore. Local only."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.remote.file_index import NOTHING, identify_content

IGNORE_FILE = ".orchignore"
_READ = 1 << 20
# Source: github.com/git-lfs/git-lfs, docs/spec.md, "The Pointer" (2026-11): the first line, and less than 1024 bytes.
_IS_POINTER = "p"
_POINTER, _LARGEST_POINTER = b"version https://git-lfs.github.com/spec/v1\n", 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """One file.

    Attributes:
        path: below the destination, with "/".
        mode: 0o755 or 0o644.
        link: the target of a symbolic link, else None.
        pointer: whether it is a pointer of Git LFS, and no content.
    """

    path: str
    size: int
    mode: int
    sha256: str
    link: str | None = None
    pointer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files to send.

    Attributes:
        root: the folder, or the one file.
        digest: over paths, modes, contents and links, not over times.
    """

    root: Path
    files: tuple[TreeFile, ...]
    digest: str
    total_bytes: int

    def source(self, file: TreeFile) -> Path:
        """Return the local path of one file of this tree."""
        return self.root / file.path if self.root.is_dir() else self.root


def read_tree(root: Path, *, whole: bool = False, known: Mapping[str, str] = NOTHING) -> Tree:
    """Return the tree below `root`.

    In a git work tree: tracked files and untracked ones that are not ignored, submodules included. Elsewhere: all
    files but .git. In both, `.orchignore` at `root` (in the syntax of .gitignore) excludes more. Symbolic links
    stay links.

    Args:
        root: The folder, or the one file.
        whole: Whether what git ignores is sent, too.
        known: Files that need not be read again: `describe_content` of each, by `file_index.identify_content`.

    Raises:
        UserError: names the file that cannot be read.
    """
    if root.is_file():
        files: tuple[TreeFile, ...] = (_describe(str(root.resolve()), root.name, known),)
    elif root.is_dir():
        files = tuple(_describe(f"{root}/{name}", name, known) for name in sorted(_names(root, whole)))
    else:
        raise UserError(f"{root} does not exist", next_step=f"ls {root.parent}")
    return Tree(root=root, files=files, digest=_digest(files), total_bytes=sum(file.size for file in files))


def read_snapshot(root: Path) -> Tree:
    """Return the tree of a snapshot: every file, without the rules of git and .orchignore."""
    if not root.is_dir():
        return read_tree(root)
    files = tuple(_describe(f"{root}/{name}", name, NOTHING) for name in sorted(_walked_names(root, _ignore_nothing)))
    return Tree(root=root, files=files, digest=_digest(files), total_bytes=sum(file.size for file in files))


def describe_content(file: TreeFile) -> str:
    """Return what `read_tree` takes as known of a file."""
    return file.sha256 + (_IS_POINTER if file.pointer else "")


def list_grown_files(tree: Tree) -> tuple[Path, ...]:
    """Return the files that are larger now than when the tree was read: their beginning is sent."""
    found: list[Path] = []
    for file in tree.files:
        path = tree.source(file)
        try:
            size = path.lstat().st_size
        except OSError:  # deleted: who sends it reports that
            continue
        if file.link is None and size > file.size:
            found.append(path)
    return tuple(found)


def _names(root: Path, whole: bool) -> Iterator[str]:
    ignored = read_ignore_rule(root)
    names = _git_names(root) if not whole and is_in_git(root) else None
    for name in _walked_names(root, ignored) if names is None else names:
        if not ignored(name):
            yield name


def _ignore_nothing(_name: str) -> bool:
    return False


def read_ignore_rule(root: Path) -> Callable[[str], bool]:
    """Return whether `.orchignore` leaves out a path below `root`; that of a folder ends with "/"."""
    try:
        lines = (root / IGNORE_FILE).read_text("utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(root / IGNORE_FILE, error) from error
    if not lines:
        return _ignore_nothing
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines).match_file


def is_in_git(root: Path) -> bool:
    """Return whether a folder is in a work tree of git."""
    folder = root.resolve()
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))


def _git_names(root: Path) -> list[str] | None:
    """Return the files of git, or None when git ignores the folder `root`."""
    listed = run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if not listed and run_git(root, "check-ignore", "--", ".", ok=(0, 1)):
        return None
    names: set[str] = set()
    for raw in listed.split(b"\0"):
        name = os.fsdecode(raw).rstrip("/")
        if not name:
            continue
        path = root / name
        if path.is_dir() and not path.is_symlink():  # a submodule, or a separate repository
            inner = _git_names(path) if (path / ".git").exists() else list(_walked_names(path, read_ignore_rule(path)))
            names.update(f"{name}/{below}" for below in inner or ())
        elif os.path.lexists(path):  # tracked, and not deleted in the work tree
            names.add(name)
    return sorted(names)


def run_git(root: Path, *arguments: str, ok: tuple[int, ...] = (0,)) -> bytes:
    """Return what git prints about a folder.

    Raises:
        UserError: There is no git, or it ends with another status than those of `ok`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, env=environment, check=False)
    except FileNotFoundError:
        raise UserError(
            f"{root} is in a git repository, and git is not installed",
            "git lists the files to send",
            "install git, or copy the folder to a place outside the repository",
        ) from None
    if done.returncode not in ok:
        raise UserError(
            f"git cannot list {root}", done.stderr.decode("utf-8", "replace").strip(), f"git -C {root} status"
        )
    return done.stdout


def _walked_names(root: Path, ignored: Callable[[str], bool]) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise _unreadable(Path(str(error.filename)), error) from error

    for folder, folders, names in os.walk(root, onerror=fail):
        here = Path(folder).relative_to(root).as_posix()
        below = "" if here == "." else f"{here}/"
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [
            name for name in folders if name != ".git" and name not in links and not ignored(f"{below}{name}/")
        ]
        yield from (f"{below}{name}" for name in [*names, *links] if _is_content(f"{folder}/{name}"))


def _is_content(path: str) -> bool:
    """Return whether a path is a regular file or a link, not a socket, pipe or device."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise _unreadable(Path(path), error) from error
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _describe(path: str, name: str, known: Mapping[str, str]) -> TreeFile:
    try:
        now = os.lstat(path)
        if stat.S_ISLNK(now.st_mode):
            link = str(Path(path).readlink())
            return TreeFile(
                path=name, size=0, mode=0o755, sha256=hashlib.sha256(os.fsencode(link)).hexdigest(), link=link
            )
        rights = 0o755 if now.st_mode & 0o111 else 0o644
        if found := known.get(identify_content(now)):
            pointer = found.endswith(_IS_POINTER)
            return TreeFile(path=name, size=now.st_size, mode=rights, sha256=found[:64], pointer=pointer)
        return _hash(path, name)
    except OSError as error:
        raise _unreadable(Path(path), error) from error


def _hash(path: str, name: str) -> TreeFile:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        now = os.fstat(handle)
        digest = hashlib.sha256()
        size, pointer = 0, False
        # Up to its size at this moment: a log may grow as fast as it is read.
        while block := os.read(handle, min(_READ, now.st_size - size)):
            pointer = not size and now.st_size < _LARGEST_POINTER and block.startswith(_POINTER)
            digest.update(block)
            size += len(block)
    finally:
        os.close(handle)
    rights = 0o755 if now.st_mode & 0o111 else 0o644
    return TreeFile(path=name, size=size, mode=rights, sha256=digest.hexdigest(), pointer=pointer)


def _digest(files: Iterable[TreeFile]) -> str:
    digest = hashlib.sha256()
    for file in files:
        kind = "l" if file.link is not None else "f"
        digest.update(f"{kind}{file.mode:o} {file.sha256} ".encode() + os.fsencode(file.path) + b"\0")
    return digest.hexdigest()


def _unreadable(path: Path, error: Exception) -> UserError:
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return UserError(f"cannot read {path}", why, f"make it readable, or add it to {IGNORE_FILE}")
