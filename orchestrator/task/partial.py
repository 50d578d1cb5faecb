"""What of a task can still be checked although some of its values are wrong.

A user sees every problem of a file together only if the later checks run beside the earlier ones. They run on the task
without what is wrong, and skip what depends on it, so that no mistake is reported twice in different words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from pydantic import ValidationError

from orchestrator.computing_limit import check_computing
from orchestrator.task.errors import Issue, Path, did_you_mean
from orchestrator.task.model import TaskSection
from orchestrator.task.resources import WITHOUT_EFFECT, CandidateSection, ResourcesSection
from orchestrator.task.schema import find_issues, find_nul_characters
from orchestrator.task.section import Section
from orchestrator.task.yaml_reader import Value

_S = TypeVar("_S", bound=Section)
_MOST_ROUNDS = 8  # a section whose short form is wrong hides what is inside, and that what is inside of it
# Keys of `resources` that do not say which machines are meant.
_BESIDE = frozenset(
    {
        *ResourcesSection.refused,
        *CandidateSection.refused,
        *WITHOUT_EFFECT,
        *("autostop", "job_recovery", "labels", "disk_size", "max_hourly_cost", "use_spot", "network_tier"),
    }
) - {"any_of", "ordered"}
_FOLLOWS = {("num_nodes", "hosts", "addresses")}  # what is wrong, and where it would be reported again
_KEYS = [*ResourcesSection.model_fields, *sorted(_BESIDE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The paths of a task that are wrong, and were left out of it."""

    paths: tuple[Path, ...] = ()

    @property
    def machines_unknown(self) -> bool:
        """Whether the machines of the task cannot be known: what names them is wrong."""
        return any(self._names_machines(path) for path in self.paths)

    @property
    def variables(self) -> frozenset[str]:
        """Names of envs and secrets that have no value to fill in."""
        return frozenset(str(path[1]) for path in self.paths if path[0] in ("envs", "secrets") and len(path) > 1)

    def explains(self, issue: Issue) -> bool:
        """Return whether a later issue may only be there because of what was left out."""
        return any(
            path[: len(issue.path)] == issue.path or issue.path[: len(path)] == path for path in self.paths if path
        ) or any((path[0], *issue.path) in _FOLLOWS for path in self.paths)

    @staticmethod
    def _names_machines(path: Path) -> bool:
        if path[0] in ("hosts", "resources"):
            check_computing()
        if path[0] != "resources":
            return path[0] == "hosts"
        keys = [part for part in path[1:] if isinstance(part, str) and part not in ("any_of", "ordered")]
        key = next(iter(keys), "")
        meant = key if key in _KEYS else did_you_mean(key, _KEYS)
        return meant not in _BESIDE


@dataclass(slots=True, kw_only=True)
class Checked:
    """A section, what is wrong with it, and what was left out; no section where nothing is left."""

    section: TaskSection | None
    issues: list[Issue] = field(default_factory=list[Issue])
    broken: Broken = field(default_factory=Broken)


def validate(kind: type[_S], data: Value) -> tuple[_S | None, list[Issue]]:
    """Return the section that the data is, or what is wrong with it."""
    issues = list(find_nul_characters(data))
    if issues:
        return None, issues
    try:
        return kind.model_validate(data), []
    except ValidationError as error:
        return None, find_issues(error, data, kind)


def check_task(data: Value) -> Checked:
    """Return the task that the data is, without what is wrong with it."""
    found: list[Issue] = []
    paths: list[Path] = []
    for _ in range(_MOST_ROUNDS):
        section, issues = validate(TaskSection, data)
        found += [issue for issue in issues if issue not in found]
        if section is not None:
            return Checked(section=section, issues=found, broken=Broken(paths=tuple(paths)))
        removed = list(dict.fromkeys(_key_of(issue.path) for issue in issues))
        if () in removed:
            break
        paths += [issue.path for issue in issues]
        data = _without(data, removed)
    return Checked(section=None, issues=found)


def _key_of(path: Path) -> Path:
    """Return the path of the innermost key of a map: items of lists are not removed one by one."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return path


def _without(data: Value, paths: Sequence[Path]) -> Value:
    """Return a copy of the data without these keys; where one does not exist, without the key that holds it."""
    inside: dict[str | int, list[Path]] = {}
    for path in paths:
        inside.setdefault(path[0], []).append(path[1:])
    return cast("Value", dict(_kept(data, inside))) if isinstance(data, dict) else _kept_items(data, inside)


def _kept(data: dict[str, Value], inside: dict[str | int, list[Path]]) -> Iterator[tuple[str, Value]]:
    for key, value in data.items():
        rest = inside.get(key)
        if rest is None:
            yield key, value
        elif all(rest) and _has_all(value, rest):
            yield key, _without(value, rest)


def _kept_items(data: Value, inside: dict[str | int, list[Path]]) -> Value:
    items = data if isinstance(data, list) else []
    return [_without(item, inside[index]) if index in inside else item for index, item in enumerate(items)]


def _has_all(value: Value, paths: Iterable[Path]) -> bool:
    if isinstance(value, dict):
        return all(path[0] in value for path in paths)
    return isinstance(value, list) and all(isinstance(path[0], int) and len(path) > 1 for path in paths)
