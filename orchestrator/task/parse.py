"""The one entry for every command that reads a task file.

load_task_file("train.yaml", env=os.environ, flags=Overrides(infra="local:4"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from shlex import quote
from typing import Any, TypeAlias, cast

from orchestrator.computing_limit import check_computing
from orchestrator.errors import NotFoundError, UserError
from orchestrator.task import rules
from orchestrator.task.automatic import ChooseMachines
from orchestrator.task.config import KEYS, Config, Origin, Source, SourcedValue
from orchestrator.task.driver_rules import list_rules
from orchestrator.task.driver_sections import build_options, list_driver_options, load_settings_section
from orchestrator.task.errors import ConfigError, InvalidValueError, Issue, Path, Problem, TaskError
from orchestrator.task.infra import LOCAL, parse_infra
from orchestrator.task.layers import LayeredTask, Overrides, merge_layers
from orchestrator.task.model import PipelineSection, Task, TaskSection
from orchestrator.task.partial import check_task, validate
from orchestrator.task.resolve import Resolver
from orchestrator.task.yaml_reader import LARGEST_BYTES, Document, Value, read_documents

FindSourceProblem: TypeAlias = Callable[[str], InvalidValueError | None]
_LOCAL_BY_DEFAULT = "no machine is requested, so the task runs on this computer; `infra: local` or --yes agrees to it"


class Execution(StrEnum):
    """How the tasks of a pipeline run."""

    SERIAL = "serial"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """Everything in one task file.

    Attributes:
        name: Name of the pipeline, or of its only task.
        termination_delay: Seconds that the other tasks of a group get after the primary ones ended.
        notes: What was understood differently from how it was written, one sentence each; a plan shows them.
        local_by_default: Tasks that run on this computer because nothing names a machine; a launch asks first.
        layers: For each task, where its values came from.
        lines: For each task, its document.
    """

    file: str
    name: str
    tasks: tuple[Task, ...]
    execution: Execution = Execution.SERIAL
    primary_tasks: tuple[str, ...] = ()
    termination_delay: int = 0
    notes: tuple[str, ...] = ()
    local_by_default: tuple[Task, ...] = ()
    layers: tuple[LayeredTask, ...] = field(default=(), repr=False, compare=False)
    lines: tuple[Document, ...] = field(default=(), repr=False, compare=False)

    @property
    def only(self) -> Task:
        """The task of a file with one task.

        Raises:
            UserError: The file is a pipeline.
        """
        if len(self.tasks) != 1:
            raise UserError(f"{self.file} holds {len(self.tasks)} tasks", "one is expected here", "split the file")
        return self.tasks[0]

    def explain(self, path: str, task: int = 0) -> tuple[SourcedValue, ...]:
        """Return every value given for `path`, the one in force first; () when it is not set anywhere."""
        layers, document = self.layers[task], self.lines[task]
        if path in layers.chains:
            return layers.chains[path]
        parts: Path = tuple(path.split("."))
        value: Value = layers.data
        for part in parts:
            value = value.get(str(part)) if isinstance(value, dict) else None
        if value is None:
            return ()
        origin = layers.origins.get(parts) or Origin(Source.TASK, self.file, document.line_of(parts))
        hidden = parts[0] == "secrets" and len(parts) > 1
        return (SourcedValue(origin, "****" if hidden else value),)


def load_task_file(
    path: str,
    *,
    env: Mapping[str, str],
    flags: Overrides | None = None,
    config: Config | None = None,
    secrets_elsewhere: bool = False,
    choose_machines: ChooseMachines | None = None,
) -> TaskFile:
    """Read and parse the file at `path`; the arguments are those of `parse_task`.

    Raises:
        NotFoundError: There is no such file.
        UserError: It cannot be read.
        TaskError: It is wrong.
    """
    text = read_task_text(path)
    return parse_task(
        text,
        file=path,
        env=env,
        flags=flags,
        config=config,
        find_source_problem=find_source_problem,
        secrets_elsewhere=secrets_elsewhere,
        choose_machines=choose_machines,
    )


def read_task_text(path: str) -> str:
    """Return the text of the file at `path`.

    Raises:
        NotFoundError: There is no such file.
        UserError: It cannot be read.
        TaskError: It is no text.
    """
    from pathlib import Path as FilePath

    try:
        with FilePath(path).open(encoding="utf-8") as file:
            return file.read(LARGEST_BYTES + 1)  # of more, the reader says that it is too much
    except FileNotFoundError:
        raise NotFoundError(f"there is no task file `{path}`", "", "give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        step = "save it as UTF-8, or name a YAML file"
        raise TaskError(path, None, "is not a text in UTF-8", str(error), step) from error
    except IsADirectoryError:
        raise UserError(
            f"`{path}` is a directory", "a task is one file", f"ls {_quote_path(str(path))}   to find it"
        ) from None
    except OSError as error:
        raise UserError(
            f"cannot read `{path}`", error.strerror or str(error), f"ls -l {_quote_path(str(path))}"
        ) from error


def _quote_path(path: str) -> str:
    """Return a path for a shell's command line; a tilde stays outside of the quotes, where the shell expands it."""
    home, slash, rest = path.partition("/")
    if not home.startswith("~") or quote(home[1:] or "x") != (home[1:] or "x"):
        return quote(path)
    return f"{home}{slash}{quote(rest) if rest else ''}"


def find_source_problem(path: str) -> InvalidValueError | None:
    """Return why a local path cannot be sent to hosts, or None."""
    import os

    if os.path.exists(os.path.expanduser(path)):  # noqa: PTH110, PTH111  # Path.expanduser raises for an unknown user
        return None
    step = f"ls {_quote_path(os.path.dirname(path) or '.')}   to find it"  # noqa: PTH120  # a path as it was written
    return InvalidValueError(f"`{path}` does not exist", "paths begin at the folder of the command", step)


def parse_task(
    text: str,
    *,
    file: str,
    env: Mapping[str, str],
    flags: Overrides | None = None,
    config: Config | None = None,
    find_source_problem: FindSourceProblem | None = None,
    secrets_elsewhere: bool = False,
    choose_machines: ChooseMachines | None = None,
) -> TaskFile:
    """Parse the text of a task file.

    Args:
        text: The text.
        file: Its name, for messages.
        env: The shell's variables, for envs and secrets that are null, or named by a flag without a value.
        flags: What the command line sets.
        config: What the configuration sets.
        find_source_problem: Says what is wrong with a local workdir or mount; they are not looked at without it.
        secrets_elsewhere: Another computer has the values of secrets: one without a value here is no mistake.
        choose_machines: Chooses the machines of a task that leaves them to orch; such a task is refused without it.

    Raises:
        TaskError: With every problem that was found.
        ConfigError: All of them are in the configuration.
        OutdatedTaskError: The task requests what its vendor has ended.
    """
    documents = read_documents(text, file)
    if not documents:
        raise TaskError(file, None, "is empty", "a task is a map", "write `run:` or `train:` in the file")
    for rules_of_driver in list_rules():
        rules_of_driver.refuse_documents(documents, text, file)
    header = documents[0] if len(documents) > 1 and _is_header(documents[0].data) else None
    pipeline, of_header = _read_pipeline(header, file)
    bodies = documents[1:] if header else documents
    flags = flags or Overrides()
    each = _for_task(flags, len(bodies))
    read = [
        _read_task(
            document, file, env, each, config, find_source_problem, choose_machines, secrets_elsewhere=secrets_elsewhere
        )
        for document in bodies
    ]
    _raise_problems([*(one.problems for one in documents), of_header], read, _find_equal_names(bodies, read, file))
    tasks = tuple(one.task for one in read if one.task is not None)
    name = flags.name or pipeline.name or (tasks[0].name if len(tasks) == 1 else "")
    return TaskFile(
        file=file,
        name=name,
        tasks=tasks,
        execution=Execution(pipeline.execution),
        primary_tasks=pipeline.primary_tasks,
        termination_delay=pipeline.termination_delay,
        notes=tuple(dict.fromkeys(note for one in read for note in one.notes)),
        local_by_default=tuple(one.task for one in read if one.task is not None and one.local_by_default),
        layers=tuple(one.layered for one in read),
        lines=tuple(bodies),
    )


def _raise_problems(first: Sequence[Iterable[Problem]], read: Sequence[_Read], last: Iterable[Problem]) -> None:
    """Raise all problems in one error, if there are any: of the configuration where no other file has one."""
    problems = list(dict.fromkeys(chain(*first, *(one.problems for one in read), last)))
    if not problems:
        return
    outside = {
        origin.place
        for one in read
        for origin in one.layered.origins.values()
        if origin.source in (Source.CONFIG, Source.ENVIRONMENT)
    }
    kind = ConfigError if all(problem.file in outside for problem in problems) else TaskError
    raise kind.from_problems(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    layered: LayeredTask
    name: str
    task: Task | None
    problems: Sequence[Problem]
    notes: Sequence[str]
    local_by_default: bool = False


def _read_task(
    document: Document,
    file: str,
    env: Mapping[str, str],
    flags: Overrides,
    config: Config | None,
    find_source_problem: FindSourceProblem | None,
    choose_machines: ChooseMachines | None,
    *,
    secrets_elsewhere: bool,
) -> _Read:
    check_computing()
    layered = merge_layers(document, file, flags, config)
    # What is not a map at all is not in the merged data.
    data = layered.data if isinstance(document.data, dict) else document.data
    task: Task | None = None
    notes: list[str] = []
    local_by_default = False
    checked = check_task(data)
    section, issues = checked.section, checked.issues
    if section is not None:
        resolver = Resolver(
            section=section,
            data=data,
            texts=document.texts,
            shell=env,
            broken=checked.broken,
            find_source_problem=find_source_problem,
            secrets_elsewhere=secrets_elsewhere,
            choose_machines=choose_machines,
        )
        draft = resolver.draft()
        notes = resolver.notes
        later = [*resolver.issues, *rules.find_conflicts(draft, section, complete=resolver.complete)]
        issues += [issue for issue in later if not checked.broken.explains(issue)]
        task = rules.arrange_candidates(draft) if not issues else None
        local_by_default = task is not None and _is_local_by_default(task, section)
        notes += [_LOCAL_BY_DEFAULT] if local_by_default else []
    unclear = set(document.unclear)
    clear = [issue for issue in issues if not any(issue.path[:end] in unclear for end in range(len(issue.path) + 1))]
    return _Read(
        layered=layered,
        name=section.name if section is not None else "",
        task=task,
        problems=[_locate(issue, layered, document, file) for issue in clear],
        notes=notes,
        local_by_default=local_by_default,
    )


def _is_local_by_default(task: Task, section: TaskSection) -> bool:
    """Return whether a candidate is this computer and no file, flag or configuration names a place."""
    resources = section.resources
    written = (resources, *resources.any_of, *resources.ordered)
    named = any(one.infra or one.cloud or one.region or one.zone for one in written)
    return not named and any(choice.infra.provider == LOCAL for choice in task.choices)


def _find_equal_names(documents: Sequence[Document], read: Sequence[_Read], file: str) -> Iterator[Problem]:
    """Yield tasks of a pipeline that have the name of another one; their clusters are known by their names."""
    seen: dict[str, int] = {}
    for document, one in zip(documents, read, strict=True):
        line, column = document.place_of(("name",))
        if one.name in seen:
            what, why = f"two tasks are called `{one.name}`", f"the first is in line {seen[one.name]}"
            step = "give each its own name"
            yield Problem(file=file, line=line, column=column, what=what, why=why, next_step=step)
        elif one.name:
            seen[one.name] = line


def find_field_issues(task_path: str, value: object) -> list[Issue]:
    """Return what is wrong with the value of one field, by the rules of that field alone."""
    data: object = value
    for part in reversed(task_path.split(".")):
        data = {part: data}
    section, issues = validate(TaskSection, cast("Value", data))
    if section is not None and section.resources.infra:
        try:
            parse_infra(section.resources.infra)
        except InvalidValueError as error:
            return [Issue(path=("resources", "infra"), what=error.what, why=error.why, next_step=error.next_step)]
    return issues


def _locate(issue: Issue, layered: LayeredTask, document: Document, file: str) -> Problem:
    """Return the problem with its place: the flag or file that set the value, else line and column."""
    for end in range(len(issue.path), 0, -1):
        origin = layered.origins.get(issue.path[:end])
        if origin is not None:
            return issue.locate(origin.place, origin.line)
        if issue.path[:end] in document.lines:
            break
    return issue.locate(file, *document.place_of(issue.path))


def read_configured_options(config: Config, provider: str) -> Any:
    """Return the options of a driver (its module `options`) that the configuration sets.

    Raises:
        ConfigError: A value is not allowed.
    """
    layers = {
        key.task_path.rpartition(".")[2]: config.explain(key.full_name) for key in KEYS if key.section == provider
    }
    values = {name: found[0] for name, found in layers.items() if found}
    data: dict[str, Any] = {name: one.value for name, one in values.items()}
    data = {name: list(cast("Sequence[Any]", one)) if isinstance(one, tuple) else one for name, one in data.items()}
    settings, issues = validate(load_settings_section(provider), cast("Value", data))
    if settings is None:
        origins = [values[str(issue.path[0])].origin for issue in issues]
        raise ConfigError.from_problems(
            [issue.locate(origin.place, origin.line) for issue, origin in zip(issues, origins, strict=True)]
        )
    return build_options(list_driver_options()[provider].kind, settings)


def _for_task(flags: Overrides, count: int) -> Overrides:
    """--name names the pipeline when there are several tasks."""
    from dataclasses import replace

    return replace(flags, name=None) if count > 1 else flags


def _is_header(data: Value) -> bool:
    return isinstance(data, dict) and bool(data) and set(data) <= set(PipelineSection.model_fields)


def _read_pipeline(document: Document | None, file: str) -> tuple[PipelineSection, list[Problem]]:
    if document is None:
        return PipelineSection.model_construct(), []
    section, issues = validate(PipelineSection, document.data)
    located = [issue.locate(file, *document.place_of(issue.path)) for issue in issues]
    return section or PipelineSection.model_construct(), located
