"""What a training task will need and cost: the trainer computes it, the catalogue knows the machines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.catalog.machines import Machine
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.training.compiled_steps import load_compiled_speeds
from orchestrator.engine.training.kept_speeds import read_project_speeds
from orchestrator.engine.training.machine_advice import GIB, MachineKind, describe_hardware, request_advice
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import join_some
from orchestrator.offers.speed_choice import ChosenSpeed, SpeedSource, choose_speed
from orchestrator.plan.desired import Run
from orchestrator.slices import Candidate
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.infra import LOCAL, SIMULATED
from orchestrator.task.model import Task
from orchestrator.task.stacks import choose_stack

_SPEED = "speed "  # label of the line


class DoesNotFit(UserError):
    """The step needs more memory than a device has."""

    code = "does-not-fit"


def add_advice(ready: PreparedCommand, task: Task, *, project: str = "") -> PreparedCommand:
    """Return the command with advice for each kind of machine; unchanged without a `train` section.

    The command is refused where the training certainly does not fit one of them and the task does not allow that. Any
    other failure than wrong settings becomes a note: advice is not a condition of a launch.

    Args:
        ready: The command.
        task: Its task.
        project: Whose own runs count; "" for that of the environment.

    Raises:
        UserError: The trainer's settings are wrong on any of the machines.
    """
    if task.train is None or not isinstance(ready.desired, Run):
        return ready
    try:
        found = request_advice(list_machine_kinds(task, ready.desired.candidates))
    except OrchError as error:
        if error.exit_status == 2:
            raise
        return replace(ready, notes=(*ready.notes, f"no advice on memory and time: {error}"))
    refused = ready.refused or (None if task.train.allow_misfit else find_misfit(found))
    return replace(ready, advice=add_speeds(found, project), refused=refused)


def add_speeds(advice: Sequence[Mapping[str, Any]], project: str = "") -> tuple[Mapping[str, Any], ...]:
    """Return the advice with the speed of each step that own runs or a compilation know, beside that of the table."""
    speeds, compiled = read_project_speeds(project), load_compiled_speeds()
    if not speeds and not compiled:
        return tuple(advice)
    chosen = [(one, choose_speed(one, speeds, compiled)) for one in advice]
    return tuple(
        one if speed is None or speed.origin is SpeedSource.PUBLISHED else _add_speed(one, speed)
        for one, speed in chosen
    )


def _add_speed(advice: Mapping[str, Any], speed: ChosenSpeed) -> Mapping[str, Any]:
    tokens = float(advice["timing"]["tokens"])
    day = [86_400.0 * tokens / seconds / 1e9 for seconds in (speed.step.high, speed.step.low)]
    low, typical, high = (f"{seconds:.3g}" for seconds in (speed.step.low, speed.step.typical, speed.step.high))
    line = f"speed    about {typical} s a step, {low} to {high}, {day[0]:.3g}B to {day[1]:.3g}B tokens a day"
    text = [one for one in advice["text"] if not one.startswith(_SPEED)]
    return {**advice, "speed": speed.as_json(), "text": [*text, f"{line} ({speed.source})"]}


def refuse_fatal_settings(task: Task, options: Sequence[Candidate]) -> None:
    """Raise the error with which `orch plan` and `orch launch` would refuse the training on its own machines.

    Any other failure to get the advice raises nothing: it is not a condition of a launch either.

    Args:
        task: The task.
        options: Its candidates.

    Raises:
        UserError: The settings are wrong on any of the machines, or a run with them ends when it starts.
        DoesNotFit: It needs more memory, and the task does not allow that.
    """
    if task.train is None:
        return
    try:
        found = request_advice(list_machine_kinds(task, options))
    except OrchError as error:
        if error.exit_status == 2:
            raise
        return
    if not task.train.allow_misfit and (misfit := find_misfit(found)) is not None:
        raise misfit


def replace_estimate(ready: PreparedCommand, advice: Sequence[Mapping[str, Any]]) -> PreparedCommand:
    """Return the command with advice whose first entry is exact: the estimate refuses only the other machines."""
    refused = find_misfit(advice[1:]) if isinstance(ready.refused, DoesNotFit) else ready.refused
    return replace(ready, advice=tuple(advice), refused=refused)


def find_misfit(advice: Sequence[Mapping[str, Any]]) -> DoesNotFit | None:
    """Return an error where a training certainly does not fit one of the machines, by more than the estimate's error.

    Args:
        advice: Of each kind of machine.
    """
    found = [one for one in advice if one.get("misfit")]
    if not found:
        return None
    first = found[0]
    needed, usable = (f"{size / GIB:,.1f} GiB" for size in (first["memory"]["total"], first["usable"]))
    why = f"a device needs about {needed} and has {usable}; the estimate is accurate to a fifth"
    fixes = [" ".join(one["fix"]) for one in first["concerns"] if one["code"] == "memory"]
    step = f"{fixes[0]}   makes it fit" if fixes and fixes[0] else "use a smaller model, or devices with more memory"
    names = join_some([one["hardware"]["name"] for one in found])
    return DoesNotFit(f"the training does not fit {names}", why, f"{step}; or: --allow-misfit")


def list_machine_kinds(task: Task, options: Sequence[Candidate]) -> tuple[MachineKind, ...]:
    """Return each kind of machine that the catalogue knows once, at the price of its first candidate.

    Of machines that orch chose only the first: it asked the trainer for all of them before.
    """
    if task.differs_by_choice:
        parts = task.split()
        if task.auto is not None:
            parts = tuple(part for part in parts if _select(part, options[:1]))[:1]
        return tuple(one for part in parts for one in _list_kinds(part, _select(part, options)))
    return _list_kinds(task, options)


def _select(task: Task, options: Sequence[Candidate]) -> list[Candidate]:
    first = task.choices[0]
    like = (first.machine.name, task.count_hosts(first))
    return [one for one in options if (one.accelerator, one.hosts) == like]


def _list_kinds(task: Task, options: Sequence[Candidate]) -> tuple[MachineKind, ...]:
    machines = {choice.machine.name: choice.machine for choice in task.choices}
    found: dict[str, MachineKind] = {}
    for option in options:
        machine = machines.get(option.accelerator)
        if machine is None or not machine.listed:
            continue  # of which nothing is known but the name
        if option.accelerator not in found:
            arguments = trainer_settings(task, machine)
            kind = "cpu" if "device=cpu" in arguments else machine.device
            found[option.accelerator] = MachineKind(_hardware(task, machine, option, kind), arguments)
    return tuple(found.values())


def trainer_settings(task: Task, machine: Machine) -> tuple[str, ...]:
    """Return the arguments with which the trainer is started on this machine."""
    if task.train is None:
        return ()
    arguments = task.train.format_args(task.checkpoint)
    try:
        stack = choose_stack(machine, task.train.stack_request(task.choices[0].accelerator_args.framework))
    except InvalidValueError:  # refused elsewhere, with its place in the file
        return arguments
    stack_settings = {"engine": stack.engine, "device": stack.device}
    return (
        *(word for word in arguments if word.partition("=")[0] not in stack_settings),
        *(f"{k}={v}" for k, v in stack_settings.items()),
    )


def _hardware(task: Task, machine: Machine, option: Candidate, kind: str) -> dict[str, Any]:
    """Describe a candidate of the task for the trainer; `kind` is that of the training devices, without idle chips."""
    found = describe_hardware(machine, nodes=task.num_nodes, hosts=option.hosts, kind=kind)
    if found["memory_bytes"] is None:
        found["memory_bytes"] = int(_host_memory(machine, option, kind)) or None
    return found | {"price": option.price_per_hour or None}


def _host_memory(machine: Machine, option: Candidate, kind: str) -> float:
    """Return the bytes that a training on processors has on each host; 0 where they are not known."""
    if kind != "cpu":
        return 0
    if option.provider in (LOCAL, SIMULATED):  # the hosts share this computer
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / max(1, option.hosts)
    return machine.ram_gib * GIB
