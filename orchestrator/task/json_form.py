"""A Task as JSON and back: the JSON is itself a task file, every short form written out, secrets by name only.

The JSON of a record writes defaults out, so that a later orch with other defaults resumes the run as launched. The JSON
of a comparison leaves out each newer field that has its default, so that an orch with one more field finds the
unfinished job of the orch before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import cast

from pydantic import ValidationError

from orchestrator.catalog.machines import CpuMachine, LocalHosts
from orchestrator.task.driver_sections import list_driver_options
from orchestrator.task.errors import Issue, TaskError
from orchestrator.task.infra import SIMULATED
from orchestrator.task.model import Checkpoint, Order, Recovery, Task, TaskSection, UserHost
from orchestrator.task.resolve import Resolver
from orchestrator.task.resources import AutoStop, ResourceFields, Resources
from orchestrator.task.schema import find_issues, find_nul_characters
from orchestrator.task.section import Json, Section
from orchestrator.task.yaml_reader import Value

NAME = "task.json"
DEEPEST = 32  # levels; a task has 8
# Fields that comparisons hold also at their defaults, as recorded digests do. A further name changes every digest.
_COMPARED_AT_DEFAULT = frozenset(
    {
        *((Checkpoint, name) for name in ("bucket", "every", "keep")),
        *((Recovery, name) for name in ("max_preemptions", "max_failures", "restart_on_exit_codes")),
        *((Recovery, name) for name in ("fail_on_exit_codes", "hang_minutes", "capacity_wait_hours")),
        (Recovery, "on_demand_fallback"),
        *((AutoStop, name) for name in ("idle_minutes", "down", "wait_for")),
        (Resources, "use_spot"),
    }
)


def format_json(task: Task) -> str:
    """Return the task as JSON."""
    return _format(_make_document(task, _list_fields))


def format_compared(task: Task) -> str:
    """Return the JSON by which two commands are compared; it is the same in a later orch with further fields."""
    # Not by its commit: what is sent is compared, file by file.
    return _format(_make_document(task.model_copy(update={"git": None}), _list_compared_fields))


def parse_json(text: str) -> Task:
    """Return the task of a text that `format_json` wrote.

    Raises:
        TaskError: The text is something else.
    """
    try:
        data = _load_strictly(text)
    except ValueError as error:
        raise TaskError(NAME, None, "is not JSON", str(error), "launch the task's own file again") from error
    issues: list[Issue] = list(find_nul_characters(data))
    if not issues:
        try:
            resolver = Resolver(section=TaskSection.model_validate(data), data=data, texts={}, shell={}, restored=True)
        except ValidationError as error:
            issues = find_issues(error, data, TaskSection)
        else:
            task = resolver.task()
            if task is not None:
                return task
            issues = resolver.issues
    raise TaskError.from_problems([issue.locate(NAME) for issue in issues])


def _load_strictly(text: str) -> Value:
    """Return the document, without what two readers could understand differently.

    Raises:
        ValueError: It is no JSON, or holds a key twice, a number without end, or more levels than a task has.
    """
    try:
        data: object = json.loads(
            text, object_pairs_hook=_refuse_repeated, parse_constant=_read_number, parse_float=_read_number
        )
        level, values = 0, [data]
        while values:
            level += 1
            if level > DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} levels deep")
            values = [below for value in values for below in _list_below(value)]
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep") from None
    return cast("Value", data)


def _refuse_repeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it has the key {name[:60]!r} twice")
        found[name] = value
    return found


def _list_below(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _read_number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"it has {text[:60]} where a number must be")
    return number


def _format(document: Json) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _list_fields(section: Section) -> set[str]:
    return set(type(section).model_fields)


def _list_compared_fields(section: Section) -> set[str]:
    kind = type(section)
    return {
        name
        for name, field in kind.model_fields.items()
        if (kind, name) in _COMPARED_AT_DEFAULT or getattr(section, name) != field.default
    }


def _make_document(task: Task, list_fields: Callable[[Section], set[str]]) -> Json:
    # The names, the order and the place of the strategy decide the digest of a job: an orch of another version that is
    # given the same command must find the unfinished job that this one recorded.
    mounts = {
        mount.target: {"source": mount.source, "mode": mount.mode}
        | ({"read_only": mount.read_only} if mount.in_s3 else {})
        for mount in task.file_mounts
    }

    def dump(section: Section) -> Json:
        return section.model_dump(mode="json", include=list_fields(section))

    recovery = {name: value for name, value in dump(task.recovery).items() if name != "strategy"}
    return _without_blanks(
        {
            "name": task.name,
            "workdir": _dump(task.workdir) if isinstance(task.workdir, Section) else task.workdir,
            "num_nodes": None if _is_counted_elsewhere(task) else task.num_nodes,
            "resources": _make_resources(task, list_fields),
            "envs": dict(task.envs),
            "secrets": dict.fromkeys(task.secret_names),
            "file_mounts": mounts,
            "setup": task.setup,
            "run": task.run,
            "train": None if task.train is None else {"backend": task.train.backend, "args": {}, **_dump(task.train)},
            "checkpoint": _without_blanks(dump(task.checkpoint)),
            "recovery": _without_blanks(recovery),
            "limits": _dump(task.limits),
            "git": None if task.git is None else _dump(task.git),
            "metrics": _dump(task.metrics),
            "hosts": _without_blanks({"addresses": [_make_host(host, dump(host)) for host in task.hosts]}),
            "config": _without_blanks({name: _make_settings(task.settings(name)) for name in list_driver_options()}),
        }
    )


def _dump(section: Section) -> Json:
    return section.model_dump(mode="json", exclude_defaults=True)


def _without_blanks(pairs: Json) -> Json:
    """Return the pairs that have a value. Maps of the user's own words are left alone: an empty env is a value."""
    return {key: value for key, value in pairs.items() if value is not None and value not in ("", {}, [], ())}


def _make_host(host: UserHost, fields: Json) -> Json:
    return {**_without_blanks(fields), "host": f"[{host.host}]" if ":" in host.host else host.host}


def _make_settings(settings: Section) -> Json:
    """Return the settings of a driver; a flag that is off comes last, which the digest of recorded jobs depends on."""
    fields = _dump(settings)
    return dict(sorted(fields.items(), key=lambda pair: pair[1] is False))


def _is_counted_elsewhere(task: Task) -> bool:
    return bool(task.hosts) or any(choice.infra.shape.isdigit() for choice in task.choices)


def _make_resources(task: Task, list_fields: Callable[[Section], set[str]]) -> Json:
    candidates = [_make_candidate(choice, list_fields(choice)) for choice in task.choices]
    shared: Json = {"job_recovery": {"strategy": task.recovery.strategy}}
    if task.autostop is not None:
        shared["autostop"] = task.autostop.model_dump(mode="json", include=list_fields(task.autostop))
    if task.auto is not None:
        shared["auto"] = _dump(task.auto)
    if task.grow:
        shared["grow"] = True
    # `auto` beside one named machine is refused in a file, so what orch chose stays a list.
    plain = len(candidates) == 1 and task.order is Order.GIVEN and task.auto is None
    return {**shared, **candidates[0]} if plain else {**shared, str(task.order): candidates}


def _make_candidate(choice: Resources, names: set[str]) -> Json:
    machine = choice.machine
    by_infra = isinstance(machine, LocalHosts | CpuMachine) and choice.infra.provider != SIMULATED
    plain = {name: getattr(choice, name) for name in ResourceFields.model_fields if name in names}
    images = dict(choice.image_id)
    return _without_blanks(
        {
            "infra": str(choice.infra),
            "instance_type" if machine.is_instance_type else "accelerators": None if by_infra else machine.name,
            **{name: _dump(value) if isinstance(value, Section) else value for name, value in plain.items()},
            "image_id": images.get("", images),
            "labels": dict(choice.labels),
            "settings": dict(choice.settings),
        }
    )
