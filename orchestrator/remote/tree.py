"""The files of a folder that are sent to the hosts: those of git, less those in .orchignore. Local only."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.remote.file_index import NOTHING, identify_content

IGNORE_FILE = ".orchignore"
TREE_VERSION = 1
LAST_TIME = (1 << 33) - 1  # seconds since 1970; a header of tar has no larger ones in octal
_LINK_MODE = 0o777
_READ = 1 << 20
# Source: github.com/git-lfs/git-lfs, docs/spec.md, "The Pointer" (2026-11): the first line, and less than 1024 bytes.
_IS_POINTER = "p"
_POINTER, _LARGEST_POINTER = b"version https://git-lfs.github.com/spec/v1\n", 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """One file.

    Attributes:
        path: below the destination, with "/".
        mode: the nine permission bits.
        link: the target of a symbolic link, else None.
        mtime: when it was modified, in whole seconds since 1970.
        pointer: whether it is a pointer of Git LFS, and no content.
        identity: what `file_index.identify_content` returned when its content was read; "" where that is unknown.
    """

    path: str
    size: int
    mode: int
    sha256: str
    link: str | None = None
    mtime: int = field(default=0, compare=False)
    pointer: bool = field(default=False, compare=False)
    identity: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFolder:
    """One folder below the root.

    Attributes:
        path: below the destination, with "/".
        mode: the nine permission bits; the owner has all of theirs, so that later syncs can write there.
        mtime: when it was modified, in whole seconds since 1970.
    """

    path: str
    mode: int
    mtime: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files to send.

    Attributes:
        root: the folder, or the one file.
        digest: the SHA-256 of the manifest: over paths, modes, contents and links, not over times.
        folders: all folders of the files, and empty ones.
        is_file: whether it is one file, and no folder.
        objects: the folder with copies of the contents by their SHA-256; None where they are read from the root.
    """

    root: Path
    files: tuple[TreeFile, ...]
    digest: str
    total_bytes: int
    folders: tuple[TreeFolder, ...] = ()
    is_file: bool = False
    objects: Path | None = None

    def source(self, file: TreeFile) -> Path:
        """Return the local path of one file of this tree."""
        if self.objects is not None and file.link is None:
            return object_path(self.objects, file.sha256)
        return self.root if self.is_file else self.root / file.path


def make_tree(
    root: Path, files: Iterable[TreeFile], folders: Iterable[TreeFolder] = (), *, is_file: bool = False
) -> Tree:
    """Return the tree of these files and folders."""
    files = tuple(files)
    size = sum(file.size for file in files)
    tree = Tree(root=root, files=files, digest="", total_bytes=size, folders=tuple(folders), is_file=is_file)
    return replace(tree, digest=hashlib.sha256(list_manifest(tree)).hexdigest())


def object_path(objects: Path, sha256: str) -> Path:
    """Return the path of a content in a folder of contents."""
    return objects / sha256[:2] / sha256


def list_manifest(tree: Tree) -> bytes:
    """Return the manifest of a tree, which hosts keep: the version of its format, its kind, and its entries.

    Each entry ends in NUL. Times are no part of it: the same commit on two computers is the same tree.
    """
    kind = "file" if tree.is_file else "folder"
    head = f"orch-tree {TREE_VERSION} {kind}\0".encode()
    folders = (f"d{folder.mode:o} ".encode() + os.fsencode(folder.path) + b"\0" for folder in tree.folders)
    return head + b"".join(folders) + b"".join(_manifest_line(file) for file in tree.files)


def _manifest_line(file: TreeFile) -> bytes:
    kind = "f" if file.link is None else "l"
    return f"{kind}{file.mode:o} {file.sha256} ".encode() + os.fsencode(file.path) + b"\0"


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
        return make_tree(root, [_describe(str(root.resolve()), root.name, known)], is_file=True)
    if not root.is_dir():
        raise UserError(f"{root} does not exist", next_step=f"ls {root.parent}")
    names, folders = _names(root, whole)
    files = [_describe(f"{root}/{name}", name, known) for name in sorted(names)]
    return make_tree(root, files, [_describe_folder(f"{root}/{name}", name) for name in sorted(folders)])


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


def _names(root: Path, whole: bool) -> tuple[list[str], set[str]]:
    """Return the paths of the files, and of the folders: those of the files, and empty ones."""
    ignored = read_ignore_rule(root)
    names = _git_names(root) if not whole and is_in_git(root) else None
    if names is None:
        names, empty = _walked_names(root, ignored)
    else:
        empty = _git_empty_folders(root)
    names = [name for name in names if not ignored(name)]
    folders = {name for name in empty if not ignored(f"{name}/")}
    for name in [*names, *folders]:
        parent = name.rpartition("/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    return names, folders


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
            inner = _git_names(path) if (path / ".git").exists() else _walked_names(path, read_ignore_rule(path))[0]
            names.update(f"{name}/{below}" for below in inner or ())
        elif os.path.lexists(path):  # tracked, and not deleted in the work tree
            names.add(name)
    return sorted(names)


def _git_empty_folders(root: Path) -> list[str]:
    """Return the empty folders of a work tree that git does not ignore."""
    listed = run_git(root, "ls-files", "-z", "--others", "--directory", "--exclude-standard").split(b"\0")
    empty: list[str] = []
    for raw in listed:
        name = os.fsdecode(raw)
        if name.endswith("/") and name != "./" and not (root / name / ".git").exists():
            empty += [f"{name}{below}".rstrip("/") for below in _find_empty_folders(root / name)]
    if not empty:
        return []
    paths = b"".join(os.fsencode(name) + b"\0" for name in empty)
    ignored = set(run_git(root, "check-ignore", "-z", "--stdin", ok=(0, 1), words=paths).split(b"\0"))
    return [name for name in empty if os.fsencode(name) not in ignored]


def _find_empty_folders(top: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != ".git"]
        if not folders and not names:
            below = Path(folder).relative_to(top).as_posix()
            yield "" if below == "." else below


def run_git(root: Path, *arguments: str, ok: tuple[int, ...] = (0,), words: bytes = b"") -> bytes:
    """Return what git prints about a folder; `words` are its input.

    Raises:
        UserError: There is no git, or it ends with another status than those of `ok`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], input=words, capture_output=True, env=environment, check=False
        )
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


def _walked_names(root: Path, ignored: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Return the paths of the files and of the folders below `root`."""
    files, below_root = list[str](), list[str]()

    def fail(error: OSError) -> None:
        raise _unreadable(Path(str(error.filename)), error) from error

    for folder, folders, names in os.walk(root, onerror=fail):
        here = Path(folder).relative_to(root).as_posix()
        below = "" if here == "." else f"{here}/"
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [
            name for name in folders if name != ".git" and name not in links and not ignored(f"{below}{name}/")
        ]
        files += [f"{below}{name}" for name in [*names, *links] if _is_content(f"{folder}/{name}")]
        below_root += [f"{below}{name}" for name in folders]
    return files, below_root


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
            return TreeFile(path=name, size=0, mode=_LINK_MODE, sha256=hash_link(link), link=link, mtime=_seconds(now))
        identity = identify_content(now)
        if not (found := known.get(identity)):
            return _hash(path, name)
        return TreeFile(
            path=name,
            size=now.st_size,
            mode=_rights(now),
            sha256=found[:64],
            mtime=_seconds(now),
            pointer=found.endswith(_IS_POINTER),
            identity=identity,
        )
    except OSError as error:
        raise _unreadable(Path(path), error) from error


def _hash(path: str, name: str) -> TreeFile:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        now = os.fstat(handle)
        identity = identify_content(now)
        digest = hashlib.sha256()
        size, pointer = 0, False
        # Up to its size at this moment: a log may grow as fast as it is read.
        while block := os.read(handle, min(_READ, now.st_size - size)):
            pointer = not size and now.st_size < _LARGEST_POINTER and block.startswith(_POINTER)
            digest.update(block)
            size += len(block)
    finally:
        os.close(handle)
    return TreeFile(
        path=name,
        size=size,
        mode=_rights(now),
        sha256=digest.hexdigest(),
        mtime=_seconds(now),
        pointer=pointer,
        identity=identity if size == now.st_size else "",
    )


def hash_link(target: str) -> str:
    """Return what the digest of a tree has of a link."""
    return hashlib.sha256(os.fsencode(target)).hexdigest()


def _describe_folder(path: str, name: str) -> TreeFolder:
    try:
        now = os.stat(path)  # noqa: PTH116  # of many folders
    except OSError as error:
        raise _unreadable(Path(path), error) from error
    return TreeFolder(path=name, mode=_rights(now) | 0o700, mtime=_seconds(now))


def _rights(status: os.stat_result) -> int:
    return status.st_mode & 0o777


def _seconds(status: os.stat_result) -> int:
    return min(max(0, status.st_mtime_ns // 1_000_000_000), LAST_TIME)


def _unreadable(path: Path, error: Exception) -> UserError:
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return UserError(f"cannot read {path}", why, f"make it readable, or add it to {IGNORE_FILE}")
