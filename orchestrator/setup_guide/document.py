"""The task file of a draft: as a document, as text with comments, and read back to compare it."""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import yaml

from orchestrator.engine.training.automatic import open_chooser
from orchestrator.errors import UserError
from orchestrator.formatting import format_dollars
from orchestrator.messages import count_noun
from orchestrator.offers.offer_table import format_dollar_range
from orchestrator.setup_guide.draft import Draft
from orchestrator.setup_guide.machines import DraftMachines, make_resources
from orchestrator.task.automatic import AUTO, ChooseMachines
from orchestrator.task.config import Config
from orchestrator.task.errors import FileError
from orchestrator.task.infra import HOSTS
from orchestrator.task.model import Task
from orchestrator.task.parse import FindSourceProblem, parse_task
from orchestrator.task.trainer_settings import load_settings

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*(?::[A-Za-z0-9_./-]+)*")
_SLUG = re.compile(r"[^A-Za-z0-9]+")
_STRING = "tag:yaml.org,2002:str"
_WIDTH = 76  # columns of a comment
_EVERY, _LEAST_EVERY = 100, 10  # steps between checkpoints: a tenth of a run, within these


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskText:
    """A task file.

    Attributes:
        text: The text.
        document: The same as values.
        task: What a launch reads in it.
    """

    text: str
    document: Mapping[str, Any]
    task: Task = field(repr=False)


def check_draft(draft: Draft, find_source_problem: FindSourceProblem | None = None) -> None:
    """Refuse answers that no task file can have together, by the rules of task files.

    Args:
        draft: The answers so far.
        find_source_problem: Says what is wrong with a local folder; folders are not looked at without it.

    Raises:
        UserError: With what is wrong.
    """
    if draft.infra is None or (draft.place.provider == HOSTS and not draft.hosts):
        return
    draft = replace(draft, machine=None) if draft.machine == AUTO else draft  # chosen when the task is complete
    # First without the trainer: a machine that does not exist is a problem for it, too, and that one says less.
    for one in dict.fromkeys((replace(draft, model="", program=""), draft)):
        _parse("\n".join(_write_map(_make_document(one, DraftMachines()), {}, ())), find_source_problem)


def write_task(draft: Draft, chosen: DraftMachines, config: Config | None = None) -> TaskText:
    """Return the task file of a draft in which every question is answered.

    Args:
        draft: The answers.
        chosen: The machines, with the settings of the trainer that fit them.
        config: What the configuration sets.

    Raises:
        UserError: Answers do not fit each other, or cannot be written so that they are read as they were given.
    """
    document = _make_document(draft, chosen)
    text = "".join(f"{line}\n" for line in (*_head(), *_write_map(document, _explain(draft, chosen), ())))
    task = _parse(text, None, config, open_chooser(()))  # the task names its cloud
    if (wrong := find_difference(document, yaml.safe_load(text))) or (wrong := _find_misreading(draft, task)):
        raise UserError(f"the answer to `{wrong}` cannot be written to a task file", "", "choose another one")
    return TaskText(text=text, document=document, task=task)


def name_task(draft: Draft) -> str:
    """Return the task's name: the one that was given, or one after the model or the program."""
    if draft.name:
        return draft.name
    if draft.model:
        return f"train-{draft.model}"
    words = [word for word in draft.program.split() if word.endswith((".py", ".sh"))] or draft.program.split()
    stem = (words or ["task"])[0].rpartition("/")[2].partition(".")[0]
    return _SLUG.sub("-", stem).strip("-")[:40].strip("-") or "task"


def find_difference(written: Any, read: Any, path: str = "") -> str:
    """Return the path of the first value that is read as another one than was written; "" for none."""
    if isinstance(written, dict) and isinstance(read, dict):
        ours, theirs = cast("dict[str, Any]", written), cast("dict[str, Any]", read)
        keys = dict.fromkeys([*ours, *theirs])
        found = (find_difference(ours.get(key), theirs.get(key), f"{path}.{key}".lstrip(".")) for key in keys)
        return next(filter(None, found), "")
    one, other = cast("object", written), cast("object", read)
    return "" if type(one) is type(other) and one == other else path


def _make_document(draft: Draft, chosen: DraftMachines) -> dict[str, Any]:
    """Return the task as a document; a program that is not answered yet is one that does nothing."""
    found: dict[str, Any] = {
        "name": name_task(draft),
        "resources": make_resources(draft),
    }
    if draft.num_nodes > 1 and not draft.place.shape and draft.machine != AUTO:
        found["num_nodes"] = draft.num_nodes
    if draft.hosts:
        found["hosts"] = {"addresses": list(draft.hosts)}
    if draft.workdir:
        found["workdir"] = draft.workdir
    if draft.model:
        given = {"data": draft.data} if draft.data else {"data": load_settings().keys["data.source"].default}
        found["train"] = {"args": {key: _number(value) for key, value in chosen.settings} | given}
        found["train"]["args"].setdefault("model", draft.model)
    else:
        found |= {"setup": draft.setup} if draft.setup else {}
        found["run"] = draft.program or "true"
    if draft.bucket:
        steps = int(dict(chosen.settings).get("steps", _EVERY))
        every = {"every": chosen.every or max(_LEAST_EVERY, min(_EVERY, steps // 10))} if draft.model else {}
        every = {} if draft.machine == AUTO else every
        found["checkpoint"] = {"bucket": draft.bucket, **every}
    if draft.rents:
        cost = draft.max_cost or 0
        # Where no price is known, a limit in dollars holds nothing: so many hours cost as much where it is known.
        hours = math.ceil(cost / chosen.price) if chosen.unpriced and chosen.price else 0
        limits = {
            "max_cost": int(cost) if cost == int(cost) else cost,
            "max_hours": hours,
            "idle_minutes": draft.idle_minutes,
        }
        found["limits"] = {key: value for key, value in limits.items() if value}
        found = {key: value for key, value in found.items() if value}
    return found


def _number(text: str) -> Any:
    """Return a setting as a number or truth value where it is one, so that it needs no quotes."""
    if text in ("true", "false"):
        return text == "true"
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and f"{value}" == text else text


def _parse(
    text: str,
    find_source_problem: FindSourceProblem | None,
    config: Config | None = None,
    choose: ChooseMachines | None = None,
) -> Task:
    try:
        return parse_task(
            text, file="task", env={}, config=config, find_source_problem=find_source_problem, choose_machines=choose
        ).only
    except FileError as error:
        first = error.problems[0]
        raise UserError(first.what, first.why, first.next_step) from error


def _find_misreading(draft: Draft, task: Task) -> str:
    """Return the first answer that a launch would read as another one."""
    pairs = (
        ("program", draft.program, task.run),
        ("setup", draft.setup or "", task.setup),
        ("workdir", draft.workdir or None, task.workdir),
        ("bucket", (draft.bucket or "").rstrip("/"), task.checkpoint.bucket.rstrip("/")),
        ("name", name_task(draft), task.name),
    )
    return next((key for key, written, read in pairs if written != read), "")


def _head() -> Iterator[str]:
    yield "# Written by orch init; every field: docs/task-files.md"
    yield "#   orch plan FILE      shows what it does, with the price"
    yield "#   orch launch FILE    does it"


def _explain(draft: Draft, chosen: DraftMachines) -> dict[str, str]:
    """Return a comment for each path; none of them holds what a person typed."""
    steps = dict(chosen.settings).get("steps", "")
    return {
        "name": "of the task, and of the cluster",
        "resources.infra": _explain_place(draft),
        "resources.accelerators": _explain_machine(chosen),
        "resources.instance_type": _explain_machine(chosen),
        "resources.use_spot": "cheaper, and may be taken away at any moment; the run then resumes from the bucket",
        "num_nodes": "so many of them",
        "hosts": "your own machines in rank order; the head is the first",
        "workdir": "this folder is sent to every host, without files that git ignores; setup and run start in it",
        "setup": "on every host, before run; skipped while it is unchanged",
        "run": "on every host; what it finds in its environment: docs/environment.md",
        "train": "the bundled trainer instead of run; its settings: python -m trainer --help",
        "train.args.steps": f"{draft.tokens or 0:,} tokens" if steps else "",
        "resources.auto": "as the options of orch offers; budget and time also count after a loss",
        "train.args.accumulate": "parts of a step, one after the other, so that it fits the memory of a chip",
        "train.args.remat": "computes parts of a step twice, so that it fits the memory of a chip",
        "train.args.data": "what it learns from: a path, gs://, s3:// or hf://NAME; docs/trainer.md",
        "checkpoint": "checkpoints, metrics and logs; a run whose machine is lost resumes from here",
        "checkpoint.every": "steps between two checkpoints",
        "limits": "a machine that runs on unseen is the most expensive mistake",
        "limits.max_cost": "US dollars for the whole run, by list price: it saves, and the machines are deleted",
        "limits.max_hours": "not every place has a known price; hours from the first machine on hold there",
        "limits.idle_minutes": "minutes without a job after which the machines are deleted",
    }


def _explain_place(draft: Draft) -> str:
    if not draft.rents:
        return "nothing is rented"
    return "where the machines are" if draft.place.region else "any of its regions, the cheapest first"


def _explain_machine(chosen: DraftMachines) -> str:
    machine = chosen.machine
    if machine is None:
        return "orch chooses: at each launch, and again after a loss; orch offers shows among what"
    parts = [f"{count_noun(machine.chips, 'chip')} on {count_noun(machine.hosts, 'host')}" if machine.chips else ""]
    parts += [f"{machine.hbm_gib_per_chip:g} GiB a chip" if machine.hbm_gib_per_chip else ""]
    parts += [f"{format_dollars(chosen.price)} an hour" if chosen.price is not None else ""]
    parts += [f"{format_dollar_range(chosen.offer.dollars)} for the run, estimated" if chosen.offer else ""]
    return ", ".join(filter(None, parts))


def _write_map(values: Mapping[str, Any], comments: Mapping[str, str], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a map; the comment of a key stands above it."""
    indent = "  " * len(path)
    for key, value in values.items():
        here = (*path, key)
        for line in textwrap.wrap(comments.get(".".join(here), ""), _WIDTH - len(indent)):
            yield f"{indent}# {line}"
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _write_map(cast("dict[str, Any]", value), comments, here)
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {write_scalar(one)}" for one in cast("Sequence[str]", value))
        else:
            yield f"{indent}{key}: {write_scalar(value)}"


def write_scalar(value: Any) -> str:
    """Return a value as YAML on one line: plain where every reader takes it for this text, else in quotes."""
    if not isinstance(value, str):
        return json.dumps(value)
    resolver = cast("Any", yaml.resolver.Resolver())
    if _PLAIN.fullmatch(value) and resolver.resolve(yaml.ScalarNode, value, (True, False)) == _STRING:
        return value
    return str(yaml.safe_dump(value, default_style='"', allow_unicode=True, width=sys.maxsize)).rstrip("\n")
