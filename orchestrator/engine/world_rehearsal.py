"""`orch plan --rehearse-world`: all ranks of a torch training, built in one process of this computer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from orchestrator.engine.advice import settings
from orchestrator.engine.ready import Ready
from orchestrator.engine.trainer_process import ask, refuse_settings
from orchestrator.errors import OrchError, UserError
from orchestrator.spec.task import Task

DEADLINE = 1800.0  # 512 ranks of an 80B model took 188 s on two cores
_GIB = 1 << 30


def with_world(ready: Ready, task: Task, tick: Callable[[float], None]) -> Ready:
    """The same with what the ranks would hold and exchange on the first kind of machine. tick: told the seconds so far.

    Raises UserError for a task that torch does not train, or with settings or a local torch that do not do; OrchError
    when two ranks would part ways.
    """
    if task.train is None:
        raise UserError("only the bundled trainer can be built here", "the task has no `train` section")
    if not ready.advice:
        raise OrchError("the machines are not known well enough to build all ranks here")
    advice = [dict(one) for one in ready.advice]
    hardware = cast("Mapping[str, Any]", advice[0]["hardware"])
    words = settings(task, task.choices[0].machine)
    if "engine=jax" in words:
        raise UserError("only torch's ranks can be built here", "JAX trains this task", "--compile answers for it")
    hosts, devices = int(hardware["hosts"]), int(hardware["devices"])
    where = (f"hosts={hosts}", f"devices={max(1, devices // hosts)}")
    answer = ask(["rehearse-world", "--json", *where, *words], deadline=DEADLINE, tick=tick)
    refuse_settings(answer, "the world cannot be built")
    if answer.status != 0:
        raise OrchError("the world cannot be built", answer.complaint)
    found = cast("dict[str, Any]", json.loads(answer.out.strip().splitlines()[-1]))
    advice[0]["rehearsed"] = found
    advice[0]["text"] = [*advice[0]["text"], f"rehearsed {summary(found)}"]
    return replace(ready, advice=tuple(advice))


def summary(found: Mapping[str, Any]) -> str:
    """One line of the plan."""
    first = found["first"]
    moved = ", ".join(f"{one['count']} {one['kind']}" for one in first["collectives"]) or "none"
    ranks = found["hosts"] * found["devices"]
    return f"{ranks} ranks agree; {first['peak'] / _GIB:.2f} GiB on each device at most; collectives of a step: {moved}"
