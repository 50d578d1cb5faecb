"""`--rehearse-world`: all ranks of a torch training, built in one process of this computer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from orchestrator.engine.advice import settings
from orchestrator.engine.compiling import DoesNotFit
from orchestrator.engine.ready import Ready
from orchestrator.engine.trainer_process import ask, refuse_settings
from orchestrator.errors import OrchError, UserError
from orchestrator.spec.task import Task

DEADLINE = 1800.0  # 512 ranks of an 80B model took 188 s on two cores
_GIB = 1 << 30


def with_world(ready: Ready, task: Task, tick: Callable[[float], None]) -> tuple[Ready, OrchError | None]:
    """The same with what the ranks would hold and exchange on the first kind of machine, and what is wrong when that
    does not fit its devices. tick: told the seconds so far.

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
    if "device=xla" in words:
        why = "torch_xla compiles one program for all devices"
        raise UserError("only torch's own ranks can be built here", why, "leave --rehearse-world out")
    hosts, devices = int(hardware["hosts"]), int(hardware["devices"])
    where = (f"hosts={hosts}", f"devices={max(1, devices // hosts)}")
    answer = ask(["rehearse-world", "--json", *where, *words], deadline=DEADLINE, tick=tick)
    refuse_settings(answer, "the world cannot be built")
    if answer.status != 0:
        raise OrchError("the world cannot be built", answer.complaint)
    found = cast("dict[str, Any]", json.loads(answer.out.strip().splitlines()[-1]))
    advice[0]["rehearsed"] = found
    usable = cast("int | None", advice[0]["usable"])
    line = summary(found, usable)
    advice[0]["text"] = [*advice[0]["text"], f"rehearsed {line}"]
    error = None
    if usable is not None and found["first"]["peak"] > usable:
        what = f"a step does not fit a device of {hardware['name']}"
        error = DoesNotFit(what, line, "remat=true, a larger accumulate, or more devices")
    return replace(ready, advice=tuple(advice)), error


def summary(found: Mapping[str, Any], usable: int | None) -> str:
    """One line of the plan. usable: bytes of one device, None when not known."""
    first = found["first"]
    moved = ", ".join(f"{one['count']} {one['kind']}" for one in first["collectives"]) or "none"
    ranks = found["hosts"] * found["devices"]
    agree = f"the first and the last of {ranks} ranks agree; " if ranks > 1 else ""
    fits = ""
    if usable is not None:
        fits = f" of {usable / _GIB:.2f} GiB, {'fits' if first['peak'] <= usable else 'does NOT fit'}"
    return f"{agree}{first['peak'] / _GIB:.2f} GiB{fits} on each device at most; collectives of a step: {moved}"
