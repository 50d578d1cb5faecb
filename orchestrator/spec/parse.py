"""Task file in, tasks out: the one entry for every command that reads what the user wrote.

load_task_file("train.yaml", env=os.environ, flags=Overrides(infra="local:4"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.errors import NotFoundError, UserError
from orchestrator.spec import rules
from orchestrator.spec.build import Builder
from orchestrator.spec.config import Config, Origin, Source, Valued
from orchestrator.spec.dialect import PIPELINE, TASK
from orchestrator.spec.errors import Problem, TaskError
from orchestrator.spec.forms import minutes_of
from orchestrator.spec.layers import Layered, Overrides, lay_over
from orchestrator.spec.schema import Issue
from orchestrator.spec.task import Task
from orchestrator.spec.yaml_reader import Document, Path, Value, read_documents


class Execution(StrEnum):
    SERIAL = "serial"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """Everything in one file. name: of the pipeline, or of its only task. notes: what was understood differently from
    how it was written, one sentence each; a plan shows them.

    layers: for each task, where its values came from.
    """

    file: str
    name: str
    tasks: tuple[Task, ...]
    execution: Execution = Execution.SERIAL
    primary_tasks: tuple[str, ...] = ()
    termination_delay: int = 0  # seconds
    notes: tuple[str, ...] = ()
    layers: tuple[Layered, ...] = field(default=(), repr=False, compare=False)
    lines: tuple[Document, ...] = field(default=(), repr=False, compare=False)

    @property
    def only(self) -> Task:
        """The task of a file with one. Raises UserError for a pipeline."""
        if len(self.tasks) != 1:
            raise UserError(f"{self.file} holds {len(self.tasks)} tasks", "one is expected here", "split the file")
        return self.tasks[0]

    def explain(self, path: str, task: int = 0) -> tuple[Valued, ...]:
        """Every value that was offered for `path`, the one that holds first; () when nobody set it."""
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
        return (Valued(origin, "****" if hidden else value),)


def load_task_file(
    path: str, *, env: Mapping[str, str], flags: Overrides | None = None, config: Config | None = None
) -> TaskFile:
    """Read and parse the file at `path`. Raises NotFoundError, UserError or TaskError."""
    from pathlib import Path as FilePath

    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFoundError(f"there is no task file `{path}`", "", "give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise TaskError(path, None, "is not a text in UTF-8", str(error)) from error
    except OSError as error:
        raise UserError(f"cannot read `{path}`", error.strerror or str(error)) from error
    return parse_task(text, file=path, env=env, flags=flags, config=config)


def parse_task(
    text: str,
    *,
    file: str,
    env: Mapping[str, str],
    flags: Overrides | None = None,
    config: Config | None = None,
) -> TaskFile:
    """Parse a task file. env: the shell, for envs and secrets that are null, or named by a flag without a value.

    Raises TaskError with every problem that was found, and TpuNodeError for a task of that older architecture.
    """
    documents = read_documents(text, file)
    if not documents:
        raise TaskError(file, None, "is empty", "a task needs at least `run` or `train`")
    if "tpu_vm" in text:
        from orchestrator.spec.tpu_nodes import refuse

        refuse(documents, text, file)
    header = documents[0] if len(documents) > 1 and _is_header(documents[0].data) else None
    pipeline = _pipeline(header, file)
    bodies = documents[1:] if header else documents
    flags = flags or Overrides()
    read = [_read_task(document, file, env, _for_task(flags, len(bodies)), config) for document in bodies]
    problems = [problem for one in read for problem in one.problems]
    if problems:
        raise TaskError.of(problems)
    tasks = tuple(one.task for one in read if one.task is not None)
    name = flags.name or pipeline.name or (tasks[0].name if len(tasks) == 1 else "")
    return TaskFile(
        file=file,
        name=name,
        tasks=tasks,
        execution=pipeline.execution,
        primary_tasks=pipeline.primary_tasks,
        termination_delay=pipeline.termination_delay,
        notes=tuple(dict.fromkeys(note for one in read for note in one.notes)),
        layers=tuple(one.layered for one in read),
        lines=tuple(bodies),
    )


@dataclass(frozen=True, slots=True)
class _Read:
    layered: Layered
    task: Task | None
    problems: Sequence[Problem]
    notes: Sequence[str]


def _read_task(document: Document, file: str, env: Mapping[str, str], flags: Overrides, config: Config | None) -> _Read:
    layered = lay_over(document, file, flags, config)
    issues = list(TASK.check(document.data, ())) if not isinstance(document.data, dict) else []
    issues = issues or list(TASK.check(layered.data, ()))
    task: Task | None = None
    notes: list[str] = []
    if not issues:
        builder = Builder(layered.data, document.texts, env)
        task = builder.task()
        issues = list(builder.issues) if task is None else rules.check(task, layered.data)
        notes = builder.notes
        task = rules.arranged(task) if task is not None and not issues else None
    return _Read(layered, task, [_problem(issue, layered, document, file) for issue in issues], notes)


def _problem(issue: Issue, layered: Layered, document: Document, file: str) -> Problem:
    """The place to blame: the flag or file that set the value, else the line."""
    for end in range(len(issue.path), 0, -1):
        origin = layered.origins.get(issue.path[:end])
        if origin is not None:
            return Problem(origin.place, origin.line, issue.what, issue.why, issue.next_step)
        if issue.path[:end] in document.lines:
            break
    return Problem(file, document.line_of(issue.path), issue.what, issue.why, issue.next_step)


def _for_task(flags: Overrides, count: int) -> Overrides:
    """--name names the pipeline when there are several tasks."""
    from dataclasses import replace

    return replace(flags, name=None) if count > 1 else flags


_HEADER_KEYS = {"name", "execution", "primary_tasks", "termination_delay"}


def _is_header(data: Value) -> bool:
    return isinstance(data, dict) and bool(data) and set(data) <= _HEADER_KEYS


@dataclass(frozen=True, slots=True)
class _Pipeline:
    name: str = ""
    execution: Execution = Execution.SERIAL
    primary_tasks: tuple[str, ...] = ()
    termination_delay: int = 0


def _pipeline(document: Document | None, file: str) -> _Pipeline:
    if document is None or not isinstance(document.data, dict):
        return _Pipeline()
    issues = list(PIPELINE.check(document.data, ()))
    if issues:
        raise TaskError.of(
            [Problem(file, document.line_of(issue.path), issue.what, issue.why, issue.next_step) for issue in issues]
        )
    data = document.data
    primary = data.get("primary_tasks")
    return _Pipeline(
        str(data.get("name") or ""),
        Execution(str(data.get("execution") or "serial")),
        tuple(str(name) for name in primary) if isinstance(primary, list) else (),
        _seconds(data.get("termination_delay")),
    )


def _seconds(value: Value) -> int:
    if isinstance(value, str):
        return int(value[:-1]) if value.endswith("s") else minutes_of(value) * 60
    return value if isinstance(value, int) else 0
