"""`--rehearse-world`: all ranks of a torch training, built in one process of this computer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.training.advice import DoesNotFit, replace_estimate, trainer_settings
from orchestrator.engine.training.process import refuse_settings, run_trainer
from orchestrator.errors import OrchError, UserError
from orchestrator.task.model import Task

DEADLINE = 1800.0  # 512 ranks of an 80B model took 188 s on two cores
_GIB = 1 << 30
_WITHOUT = "leave --rehearse-world out"


def add_rank_rehearsal(
    ready: PreparedCommand, task: Task, tick: Callable[[float], None]
) -> tuple[PreparedCommand, OrchError | None]:
    """Return the command with what the ranks hold and exchange on the first machine, and an error if it does not fit.

    Args:
        ready: The command.
        task: Its task.
        tick: Called with the seconds so far.

    Raises:
        UserError: torch does not train this task, or its settings or the local torch cannot.
        OrchError: Two ranks would disagree.
    """
    if task.train is None:
        raise UserError("only the bundled trainer can be built here", "the task has no `train` section", _WITHOUT)
    if not ready.advice:
        raise OrchError("too little is known of the machines to build all ranks here", next_step=_WITHOUT)
    advice = [dict(one) for one in ready.advice]
    hardware = cast("Mapping[str, Any]", advice[0]["hardware"])
    arguments = trainer_settings(task, task.choices[0].machine)
    if "engine=jax" in arguments:
        raise UserError("only torch's ranks can be built here", "JAX trains this task", "--compile answers for it")
    if "device=xla" in arguments:
        why = "torch_xla compiles one program for all devices"
        raise UserError("only torch's own ranks can be built here", why, _WITHOUT)
    hosts, devices = int(hardware["hosts"]), int(hardware["devices"])
    where = (f"hosts={hosts}", f"devices={max(1, devices // hosts)}")
    answer = run_trainer(["rehearse-world", "--json", *where, *arguments], deadline=DEADLINE, tick=tick)
    refuse_settings(answer, "the ranks cannot be built")
    if answer.status != 0:
        raise OrchError("the ranks cannot be built", answer.complaint, _WITHOUT)
    found = cast("dict[str, Any]", json.loads(answer.out.strip().splitlines()[-1]))
    advice[0]["rehearsed"] = found
    usable = cast("int | None", advice[0]["usable"])
    line = summarize_ranks(found, usable)
    advice[0]["text"] = [*advice[0]["text"], f"rehearsed {line}"]
    error = None
    if usable is not None and _peak(found) > usable:
        what = f"a step does not fit a device of {hardware['name']}"
        error = DoesNotFit(what, line, "remat=true, a larger accumulate, or more devices")
    return replace_estimate(ready, advice), error


def summarize_ranks(found: Mapping[str, Any], usable: int | None) -> str:
    """Return the line of the plan about the ranks.

    Args:
        found: What the trainer printed.
        usable: Bytes of one device, or None when unknown.
    """
    first = found["first"]
    moved = ", ".join(f"{one['count']} {one['kind']}" for one in first["collectives"]) or "none"
    ranks = found["hosts"] * found["devices"]
    stages = found["mesh"]["pipeline"]
    agree = f"the first and the last of {ranks} ranks agree; " if ranks > 1 else ""
    if stages > 1:
        agree = "the first and the last rank of a stage agree; " if ranks > stages else ""
    peak, fits = _peak(found), ""
    if usable is not None:
        fits = f" of {usable / _GIB:.2f} GiB, {'fits' if peak <= usable else 'does NOT fit'}"
    return f"{agree}{peak / _GIB:.2f} GiB{fits} on each device at most; collectives of a step: {moved}"


def _peak(found: Mapping[str, Any]) -> int:
    """Return the most bytes of a device; of a pipeline, the first or the last stage needs the most."""
    return max(int(one["peak"]) for one in (found["first"], found["last"]) if one)
