"""A task file of the SkyPilot dialect, changed as little as possible so that orch runs it.

Only the text at fault changes, and each change has a remark for the person who decides whether it fits. What remains
wrong is reported as for every task file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from orchestrator.drivers import list_driver_names
from orchestrator.messages import join_words
from orchestrator.task.driver_sections import load_args_section
from orchestrator.task.errors import FileError, InvalidValueError, Problem, TaskError, TaskRewrite
from orchestrator.task.infra import ANY
from orchestrator.task.model import TaskSection
from orchestrator.task.parse import TaskFile, parse_task
from orchestrator.task.resources import ResourcesSection
from orchestrator.task.short_forms import format_env
from orchestrator.task.yaml_edit import Edit, apply_edits, child_of, end_of, items_of, pairs_of, remove_keys, start_of
from orchestrator.task.yaml_reader import refuse_oversize

# Refused keys without which the task still does what its author meant.
_DISPENSABLE = {
    "": ("api_server_access", "event_callback"),
    "resources": ("local_disk",),
    "config": ("kubernetes", "slurm", "nvidia_gpus"),
}
_NOT_IN_VARIABLES = re.compile(r"[^A-Za-z0-9_]|^(?=[0-9])")
_PLACES = ("infra", "cloud", "region", "zone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A task file and what it takes to run it.

    Attributes:
        rewrite: The change; its texts are equal where none is needed.
        problems: What is still wrong after it.
        file: The task, where nothing is.
        missing: Names of envs and secrets that the shell or a flag has to give.
    """

    rewrite: TaskRewrite
    problems: tuple[Problem, ...] = ()
    file: TaskFile | None = None
    missing: tuple[str, ...] = ()


@dataclass(slots=True)
class _Import:
    """The edits of one text, with remarks by line."""

    text: str
    edits: list[Edit] = field(default_factory=list[Edit])
    remarks: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def remove(self, mapping: MappingNode, names: set[str], why: str) -> None:
        """Remove keys of a mapping, for one reason."""
        found = [key for key, _ in pairs_of(mapping) if key.value in names]
        if found:
            self.edits += remove_keys(self.text, mapping, names)
            listed = join_words([f"`{key.value}`" for key in found])
            self.remark(found[0], f"{listed} {'is' if len(found) == 1 else 'are'} removed: {why}")

    def replace(self, node: Node, text: str, remark: str) -> None:
        """Replace the text of a node."""
        self.edits.append(Edit(start_of(node), end_of(node), text))
        self.remark(node, remark)

    def remark(self, node: Node, text: str) -> None:
        self.remarks.append((node.start_mark.line + 1, text))


def import_task(
    text: str, *, file: str, env: Mapping[str, str], find_source_problem: Callable[[str], InvalidValueError | None]
) -> Imported:
    """Return the text changed for orch, and what is still wrong with it.

    Args:
        text: The task file.
        file: Its name.
        env: The shell's variables.
        find_source_problem: See parse_task.

    Raises:
        OutdatedTaskError: The task requests what its vendor has ended.
        TaskError: It has too many bytes or documents.
    """
    refuse_oversize(text, file)
    made, remarks = _rewrite(text)
    given = _EveryName(env)
    rewrite = TaskRewrite(path=file, before=text, after=made, purpose="for orch", remarks=tuple(remarks))
    try:
        parsed = parse_task(made, file=file, env=given, find_source_problem=find_source_problem)
    except FileError as error:
        if type(error) is not TaskError:
            raise
        lines = _lines_before(text, made)
        problems = [replace(one, line=lines.get(one.line, one.line) if one.line else None) for one in error.problems]
        return Imported(rewrite=rewrite, problems=tuple(problems))
    return Imported(rewrite=rewrite, file=parsed, missing=tuple(dict.fromkeys(given.missing)))


def _lines_before(before: str, after: str) -> dict[int, int]:
    """Return for each line of the changed text the line that the user wrote, both from 1."""
    from difflib import SequenceMatcher

    found: dict[int, int] = {}
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for _, start, end, first, last in matcher.get_opcodes():
        found |= {first + 1 + step: min(start + step, max(start, end - 1)) + 1 for step in range(last - first)}
    return found


class _EveryName(dict[str, str]):
    """Variables of which each has a value; what the shell does not have is recorded as missing."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(env)
        self.missing: list[str] = []

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __missing__(self, name: str) -> str:
        self.missing.append(name)
        return "value"


def _rewrite(text: str) -> tuple[str, list[str]]:
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return text, []  # the reader reports it
    work = _Import(text)
    for root in roots:
        _drop_dispensable(work, root)
        _quote_envs(work, root)
        _list_secrets(work, root)
        for _, mount in pairs_of(child_of(root, "file_mounts")):
            _serve_mount(work, mount)
        for place in _list_places(root):
            _serve_place(work, place)
    remarks = [f"line {line}: {remark}" for line, remark in sorted(work.remarks)]
    return (apply_edits(text, work.edits) if work.edits else text), remarks


def _drop_dispensable(work: _Import, root: Node) -> None:
    holders: Mapping[str, Sequence[Node | None]] = {
        "": [root],
        "resources": _list_places(root),
        "config": [child_of(root, "config")],
    }
    for section, names in _DISPENSABLE.items():
        for holder in holders[section]:
            for key, _ in pairs_of(holder):
                if key.value in names and isinstance(holder, MappingNode):
                    work.remove(holder, {key.value}, _refused_because(section, key.value))
    refused = load_args_section().refused
    for args in (child_of(place, "accelerator_args") for place in _list_places(root)):
        for key, _ in pairs_of(args):
            if key.value in refused and isinstance(args, MappingNode):
                work.remove(args, {key.value}, refused[key.value].reason)


def _refused_because(section: str, name: str) -> str:
    if section == "config":
        return "it configures what orch does not use"
    refused = ResourcesSection.refused if section else TaskSection.refused
    return refused[name].reason


def _quote_envs(work: _Import, root: Node) -> None:
    """Quote values that YAML would change: 3.10 into 3.1, `yes` into True."""
    for section in ("envs", "secrets"):
        for key, value in pairs_of(child_of(root, section)):
            if not isinstance(value, ScalarNode) or value.style is not None:
                continue
            try:
                format_env(key.value, yaml.safe_load(value.value), value.value)
            except InvalidValueError:
                work.replace(value, f'"{value.value}"', f"`{key.value}` is in quotes, so that it stays text")
            except yaml.YAMLError:
                continue


def _list_secrets(work: _Import, root: Node) -> None:
    """Turn a list of secrets, which a server keeps there, into names whose values the shell gives."""
    secrets = child_of(root, "secrets")
    if not isinstance(secrets, SequenceNode):
        return
    written = [str(item.value).rpartition("/")[2].removeprefix("secrets:") for item in items_of(secrets)]
    names = [_NOT_IN_VARIABLES.sub("_", name) for name in written]
    inside = ", ".join(f"{name}: null" for name in names)
    work.replace(secrets, f"{{{inside}}}", f"orch keeps no secrets on a server: give {join_words(names)} with --secret")


def _serve_mount(work: _Import, mount: Node) -> None:
    if not isinstance(mount, MappingNode):
        return
    mode = child_of(mount, "mode")
    if isinstance(mode, ScalarNode) and mode.value.upper() == "MOUNT_CACHED":
        work.replace(
            mode, "MOUNT", "MOUNT_CACHED, which uploads after the program believes it has saved, is not served"
        )


def _serve_place(work: _Import, place: MappingNode) -> None:
    """Remove a place that orch does not rent from."""
    written = next(filter(None, (child_of(place, name) for name in ("infra", "cloud"))), None)
    if not isinstance(written, ScalarNode):
        return
    cloud = written.value.partition("/")[0].lower()
    if cloud not in ("", "*", ANY, *list_driver_names()):
        why = f"orch rents nothing from {cloud}"
        if not all(key.value in _PLACES for key, _ in pairs_of(place)):
            why += "; the cheapest place that has the machine is meant then"
        work.remove(place, set(_PLACES), why)


def _list_places(root: Node) -> list[MappingNode]:
    resources = child_of(root, "resources")
    entries = [entry for name in ("any_of", "ordered") for entry in items_of(child_of(resources, name))]
    return [place for place in (resources, *entries) if isinstance(place, MappingNode)]


def list_remarks(imported: Imported) -> Iterator[str]:
    """Yield what a person has to know of an import, one sentence each."""
    yield from imported.rewrite.remarks
    for name, option in list_missing_options(imported):
        yield f"{name} has no value: give it with {option}"
    if imported.file is not None:
        yield from imported.file.notes


def list_missing_options(imported: Imported) -> list[tuple[str, str]]:
    """Return each variable without a value, with the option that gives it one."""
    tasks = imported.file.tasks if imported.file is not None else ()
    secrets = {name for task in tasks for name in task.secret_names}
    return [(name, f"--secret {name}" if name in secrets else f"--env {name}=VALUE") for name in imported.missing]
