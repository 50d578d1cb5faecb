"""What a training task will need and cost: the trainer computes it, the catalogue knows the machines."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from orchestrator.catalog.machines import Machine
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.training.process import refuse_settings, run_trainer
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import join_some
from orchestrator.plan.desired import Run
from orchestrator.slices import Candidate
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.infra import LOCAL, SIMULATED
from orchestrator.task.model import Task
from orchestrator.task.stacks import choose_stack

GIB = 1 << 30
DEADLINE = 30.0
_BITS = 8


class DoesNotFit(UserError):
    """The step needs more memory than a device has."""

    code = "does-not-fit"


@dataclass(frozen=True, slots=True)
class MachineKind:
    """One kind of machine that the task may get.

    Attributes:
        hardware: Its description as trainer/shape/hardware.py reads it.
        settings: The trainer's arguments on it.
    """

    hardware: Mapping[str, Any]
    settings: tuple[str, ...]


def add_advice(ready: PreparedCommand, task: Task) -> PreparedCommand:
    """Return the command with advice for each kind of machine; unchanged without a `train` section.

    The command is refused where the training certainly does not fit one of them and the task does not allow that. Any
    other failure than wrong settings becomes a note: advice is not a condition of a launch.

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
    return replace(ready, advice=found, refused=refused)


def refuse_misfit(task: Task, options: Sequence[Candidate]) -> None:
    """Raise the error of a training that certainly does not fit its machines; without advice there is none.

    Args:
        task: The task.
        options: Its candidates.

    Raises:
        DoesNotFit: It needs more memory.
    """
    if task.train is None or task.train.allow_misfit:
        return
    try:
        found = request_advice(list_machine_kinds(task, options))
    except OrchError:
        return  # the launch gives the reason
    if (error := find_misfit(found)) is not None:
        raise error


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


def request_advice(machines: Sequence[MachineKind]) -> tuple[Mapping[str, Any], ...]:
    """Return the trainer's advice for each machine (one value of trainer/shape/advice.py).

    Raises:
        UserError: The settings are wrong.
        OrchError: The advice cannot be read.
    """
    found: list[Mapping[str, Any]] = []
    for settings in dict.fromkeys(one.settings for one in machines):
        hardware = [one.hardware for one in machines if one.settings == settings]
        answer = run_trainer(["advise", "--json", "--hardware", json.dumps(hardware), *settings], deadline=DEADLINE)
        refuse_settings(answer, "the trainer cannot run with these settings")
        try:
            found += cast("list[Mapping[str, Any]]", json.loads(answer.out))
        except ValueError:
            raise OrchError(
                "the trainer's advice cannot be read", answer.complaint, "reinstall orch: scripts/bootstrap"
            ) from None
    order = [one.hardware["name"] for one in machines]
    return tuple(sorted(found, key=lambda advice: order.index(advice["hardware"]["name"])))


def list_machine_kinds(task: Task, options: Sequence[Candidate]) -> tuple[MachineKind, ...]:
    """Return each kind of machine that the catalogue knows once, at the price of its first candidate."""
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
    """Describe the machine for the trainer; `kind` is that of the training devices, without idle chips."""
    per_chip = machine.devices_per_chip
    chips = option.hosts * machine.chips_per_host
    known = kind != "cpu" and machine.hbm_gib_per_chip > 0
    memory = machine.hbm_gib_per_chip * GIB / per_chip if known else _host_memory(machine, option, kind)
    peak = machine.peak_bf16_tflops_per_chip * 1e12 / per_chip
    return {
        "name": option.accelerator if task.num_nodes == 1 else f"{task.num_nodes} x {option.accelerator}",
        "kind": kind,
        "chip": machine.chip if kind != "cpu" else "",
        "devices": max(1, chips * per_chip if kind != "cpu" else option.hosts),
        "hosts": max(1, option.hosts),
        "slices": task.num_nodes if machine.node_is_slice else max(1, option.hosts),
        "memory_bytes": int(memory) or None,
        "peak_flops": peak if known and peak else None,
        "has_bf16": bool(peak) or not known,
        "price": option.price_per_hour or None,
        "network": machine.network_gbps * 1e9 / _BITS or None,
        "topology": machine.topology,
    }


def _host_memory(machine: Machine, option: Candidate, kind: str) -> float:
    """Return the bytes that a training on processors has on each host; 0 where they are not known."""
    if kind != "cpu":
        return 0
    if option.provider in (LOCAL, SIMULATED):  # the hosts share this computer
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / max(1, option.hosts)
    return machine.ram_gib * GIB
