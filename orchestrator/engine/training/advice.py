"""What a training task will need and cost: the trainer computes it, the catalogue knows the machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from orchestrator.catalog.machines import Machine
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.training.process import refuse_settings, run_trainer
from orchestrator.errors import OrchError
from orchestrator.plan.desired import Run
from orchestrator.slices import Candidate
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.model import Task
from orchestrator.task.stacks import choose_stack

GIB = 1 << 30
DEADLINE = 30.0
_BITS = 8


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

    Any other failure than wrong settings becomes a note: advice is not a condition of a launch.

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
    return replace(ready, advice=found)


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
    peak = machine.peak_bf16_tflops_per_chip * 1e12 / per_chip
    return {
        "name": option.accelerator if task.num_nodes == 1 else f"{task.num_nodes} x {option.accelerator}",
        "kind": kind,
        "chip": machine.chip if kind != "cpu" else "",
        "devices": max(1, chips * per_chip if kind != "cpu" else option.hosts),
        "hosts": max(1, option.hosts),
        "slices": task.num_nodes if machine.node_is_slice else max(1, option.hosts),
        "memory_bytes": int(machine.hbm_gib_per_chip * GIB / per_chip) if known else None,
        "peak_flops": peak if known and peak else None,
        "has_bf16": bool(peak) or not known,
        "price": option.price_per_hour or None,
        "network": machine.network_gbps * 1e9 / _BITS or None,
        "topology": machine.topology,
    }
