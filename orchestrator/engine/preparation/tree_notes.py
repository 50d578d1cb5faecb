"""Notes of a plan on the files that it sends: what stays behind, what the program names of that, what is empty."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.formatting import format_size
from orchestrator.messages import count_noun, join_some
from orchestrator.remote.left_out import LeftOut, list_left_out, list_parents
from orchestrator.remote.tree import Tree
from orchestrator.task.model import Task

_LARGEST_READ = 256 * 1024  # bytes of a file that the program starts
_MOST_NAMES = 1_000  # that are searched for, the largest first
# A relative path: no part of gs://b/data, /data or ~/data, but data.bin of f"{folder}/data.bin".
_WORD = re.compile(r"(?:(?<![\w.~:/])|(?<=\}/))(?:\./)?([\w.+@%-][\w./+@%-]*)")
_MODULE = re.compile(r"-m\s+([\w.]+)")
# What a program writes is no loss: `--out_dir=out`, `> log`, `tee log`.
_WRITES = re.compile(
    r"(?:-[\w-]*(?:out|log|save|ckpt|checkpoint|result|cache)[\w-]*[= ]|>\s*|\btee\s+(?:-a\s+)?)[\"']?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNotes:
    """The notes on the files of a task.

    Attributes:
        notes: What a user should know before agreeing.
        doubts: What a user at a terminal is asked about: the program names files that it will not find.
    """

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def describe_trees(task: Task, trees: Mapping[str, Tree]) -> TreeNotes:
    """Return what a plan says of the files that are read on this computer.

    Args:
        task: What uses them.
        trees: They, by label: `workdir`, or the target of a file mount.
    """
    mounted = {Path(mount.source).absolute() for mount in task.file_mounts if not mount.from_bucket}
    return _describe_trees(trees, {"setup": task.setup, "run": task.run}, mounted)


def describe_command_workdir(workdir: Tree, command: str) -> tuple[str, ...]:
    """Return the notes on a workdir that is sent for one command, which asks nothing: doubts are notes, too."""
    described = _describe_trees({"workdir": workdir}, {"the command": command}, ())
    return (*described.notes, *(f"{doubt} (of a launch: exec sends the workdir alone)" for doubt in described.doubts))


def _describe_trees(trees: Mapping[str, Tree], scripts: Mapping[str, str], mounted: Iterable[Path]) -> TreeNotes:
    notes = [note for label, tree in trees.items() for note in _describe_content(label, tree)]
    workdir = trees.get("workdir")
    if workdir is None:
        return TreeNotes(notes=tuple(notes))
    left = [one for one in list_left_out(workdir) if not _is_mounted((workdir.root / one.path).absolute(), mounted)]
    left.sort(key=lambda one: -one.size)
    doubts = [_describe_doubt(one, where) for one, where in _find_named(left[:_MOST_NAMES], scripts, workdir)]
    return TreeNotes(notes=(*_describe_left_out(left), *notes), doubts=tuple(doubts))


def _is_mounted(path: Path, mounted: Iterable[Path]) -> bool:
    """Return whether a mount sends it, or a part of it: its user knows that it stays behind."""
    return any(path.is_relative_to(one) or one.is_relative_to(path) for one in mounted)


def _describe_left_out(left: list[LeftOut]) -> Iterator[str]:
    for reason in dict.fromkeys(one.reason for one in left):
        some = [one for one in left if one.reason == reason]
        largest = join_some([f"{one.path} {format_size(one.size)}" for one in some], 3)
        files, size = count_noun(sum(one.files for one in some), "file"), format_size(sum(one.size for one in some))
        least = "at least " if any(one.is_more for one in some) else ""
        yield f"the workdir is sent without what {reason}: {least}{files}, {size} ({largest})"


def _describe_content(label: str, tree: Tree) -> Iterator[str]:
    sent = {file.path for file in tree.files}
    folders = {folder.path for folder in tree.folders}
    links = [(file.path, file.link) for file in tree.files if file.link is not None]
    outside = [path for path, link in links if _leads_outside(path, link)]
    if outside:
        yield f"links of {label} that lead out of it may lead nowhere on the hosts: {join_some(outside)}"
    inside = ((path, posixpath.normpath(posixpath.join(posixpath.dirname(path), link))) for path, link in links)
    dangling = [path for path, target in inside if path not in outside and target not in sent | folders | {"."}]
    if dangling:
        yield f"links of {label} lead to what is not sent, or does not exist: {join_some(dangling)}"
    pointers = [file.path for file in tree.files if file.pointer]
    if pointers:
        yield (
            f"Git LFS has not fetched the content of {count_noun(len(pointers), 'file')} of {label}: "
            f"{join_some(pointers)}; git lfs pull does"
        )


def _leads_outside(path: str, link: str) -> bool:
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return link.startswith("/") or reached == ".." or reached.startswith("../")


def _describe_doubt(one: LeftOut, where: str) -> str:
    # A whole folder is sent by its mount, so that one line serves all files of it.
    folder = one.path.rstrip("/") if one.path.endswith("/") else posixpath.dirname(one.path) or one.path
    step = f"to send it: file_mounts: {{~/sky_workdir/{folder}: {folder}}}"
    if one.environment:
        step = "make it in setup, for an environment works on its own computer alone"
    return f"{where} names {one.path}, which is not sent, for {one.reason} it; {step}"


# Names in scripts, and what they start


def _find_named(left: list[LeftOut], scripts: Mapping[str, str], workdir: Tree) -> Iterator[tuple[LeftOut, str]]:
    """Yield what is named of what stays behind, and where: each once."""
    found: set[str] = set()
    names = _Names.of(left)
    for where, text in _read_started(scripts, workdir):
        for word in _WORD.finditer(text):
            one = names.find(word[1], quoted=text[word.start() - 1 : word.start()] in ('"', "'"))
            if (
                one is not None
                and one.path not in found
                and not _WRITES.search(text[max(word.start() - 80, 0) : word.start()])
            ):
                found.add(one.path)
                yield one, where


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """The names by which a program may open what stays behind."""

    paths: Mapping[str, LeftOut]  # of files, and of folders with "/"
    file_names: Mapping[str, LeftOut]  # without their folder

    @classmethod
    def of(cls, left: Iterable[LeftOut]) -> _Names:
        paths = {one.path: one for one in left}
        names = {path.rpartition("/")[2]: one for path, one in paths.items()}
        return cls(paths=paths, file_names={name: one for name, one in names.items() if "." in name.strip(".")})

    def find(self, word: str, *, quoted: bool) -> LeftOut | None:
        """Return what a word of a program names. That of a folder alone counts in quotes: `data` is a word, too."""
        parents = [f"{parent}/" for parent in list_parents(word)]
        alone = [f"{word}/"] if quoted or "/" in word or word.startswith(".") else []
        found = next((self.paths[path] for path in (word, *alone, *parents) if path in self.paths), None)
        return found or self.file_names.get(word.rpartition("/")[2])


def _read_started(scripts: Mapping[str, str], workdir: Tree) -> Iterator[tuple[str, str]]:
    """Yield where what is written: the scripts, and the files of the workdir that they name, such as train.py."""
    yield from scripts.items()
    files = {file.path: file for file in workdir.files if file.link is None and file.size <= _LARGEST_READ}
    named = [word[1] for text in scripts.values() for word in _WORD.finditer(text)]
    named += [f"{module.replace('.', '/')}.py" for text in scripts.values() for module in _MODULE.findall(text)]
    for path in dict.fromkeys(name for name in named if name in files):
        try:
            yield path, workdir.source(files[path]).read_text("utf-8", "replace")
        except OSError:  # deleted since it was read: who sends it reports that
            continue
