"""What a training task will need and cost: the trainer computes it, the catalogue knows the machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from orchestrator.catalog import ec2
from orchestrator.catalog.machines import Accelerator, Ec2Instance, OwnDevices, TpuSlice
from orchestrator.engine.ready import Ready
from orchestrator.engine.trainer_process import ask, refuse_settings
from orchestrator.errors import OrchError
from orchestrator.plan.desired import Run
from orchestrator.slices import Candidate
from orchestrator.spec.errors import FormError
from orchestrator.spec.stacks import choose
from orchestrator.spec.task import Task

GIB = 1 << 30
DEADLINE = 30.0
# Devices that a program sees of one chip. v4 and v5p join their two cores to one (Cloud TPU documentation, system
# architecture, 2025); a TPU7x chip shows two.
_TPU_DEVICES: Mapping[str, int] = {"v2": 2, "v3": 2, "tpu7x": 2}
_BITS = 8


@dataclass(frozen=True, slots=True)
class Machines:
    """One kind of machine that the task may get. hardware: as trainer/shape/hardware.py reads it. settings: the
    trainer's words for it."""

    hardware: Mapping[str, Any]
    settings: tuple[str, ...]


def with_advice(ready: Ready, task: Task) -> Ready:
    """The same with advice for each kind of machine, the first one first; unchanged without a `train` section.

    Raises UserError when the trainer's settings cannot be, on any of the machines. Anything else that goes wrong is a
    note: advice is no condition.
    """
    if task.train is None or not isinstance(ready.desired, Run):
        return ready
    try:
        found = advise(kinds(task, ready.desired.candidates))
    except OrchError as error:
        if error.exit_status == 2:
            raise
        return replace(ready, notes=(*ready.notes, f"no advice on memory and time: {error}"))
    return replace(ready, advice=found)


def advise(machines: Sequence[Machines]) -> tuple[Mapping[str, Any], ...]:
    """One value of trainer/shape/advice.py for each. Raises UserError for settings that cannot be, OrchError else."""
    found: list[Mapping[str, Any]] = []
    for settings in dict.fromkeys(one.settings for one in machines):
        hardware = [one.hardware for one in machines if one.settings == settings]
        answer = ask(["advise", "--json", "--hardware", json.dumps(hardware), *settings], deadline=DEADLINE)
        refuse_settings(answer, "the trainer cannot run with these settings")
        try:
            found += cast("list[Mapping[str, Any]]", json.loads(answer.out))
        except ValueError:
            raise OrchError("the trainer's advice cannot be read", answer.complaint) from None
    order = [one.hardware["name"] for one in machines]
    return tuple(sorted(found, key=lambda advice: order.index(advice["hardware"]["name"])))


def kinds(task: Task, options: Sequence[Candidate]) -> tuple[Machines, ...]:
    """Each kind of machine that the catalogue knows, once, at the price of its first candidate."""
    machines = {choice.machine.name: choice.machine for choice in task.choices}
    found: dict[str, Machines] = {}
    for option in options:
        machine = machines.get(option.accelerator)
        if machine is None or (isinstance(machine, Ec2Instance) and not machine.listed):
            continue  # of which nothing is known but the name
        if option.accelerator not in found:
            words = settings(task, machine)
            kind = "cpu" if "device=cpu" in words else _kind(machine)
            found[option.accelerator] = Machines(_hardware(task, machine, option, kind), words)
    return tuple(found.values())


def settings(task: Task, machine: Accelerator) -> tuple[str, ...]:
    """The words that the trainer is started with there."""
    if task.train is None:
        return ()
    words = task.train.words(task.checkpoint)
    try:
        stack = choose(machine, task.train.asked(task.choices[0].args.framework))
    except FormError:  # refused elsewhere, with its place in the file
        return words
    ours = {"engine": stack.engine, "device": stack.device}
    return (*(word for word in words if word.partition("=")[0] not in ours), *(f"{k}={v}" for k, v in ours.items()))


def _hardware(task: Task, machine: Accelerator, option: Candidate, kind: str) -> dict[str, Any]:
    """kind: of the devices that train; chips that stand by idle do not count."""
    per_chip = _devices_per_chip(machine)
    chips = option.hosts * machine.chips_per_host
    known = kind != "cpu" and machine.hbm_gib_per_chip > 0
    peak = machine.peak_bf16_tflops_per_chip * 1e12 / per_chip
    return {
        "name": option.accelerator if task.num_nodes == 1 else f"{task.num_nodes} x {option.accelerator}",
        "kind": kind,
        "chip": _chip(machine) if kind != "cpu" else "",
        "devices": max(1, chips * per_chip if kind != "cpu" else option.hosts),
        "hosts": max(1, option.hosts),
        "slices": task.num_nodes if isinstance(machine, TpuSlice) else max(1, option.hosts),
        "memory_bytes": int(machine.hbm_gib_per_chip * GIB / per_chip) if known else None,
        "peak_flops": peak if known and peak else None,
        "price": option.price_per_hour or None,
        "network": machine.network_gbps * 1e9 / _BITS if isinstance(machine, Ec2Instance) else None,
        "topology": machine.topology if isinstance(machine, TpuSlice) else "",
    }


def _kind(machine: Accelerator) -> str:
    if isinstance(machine, TpuSlice):
        return "tpu"
    if machine.chips_per_host and isinstance(machine, Ec2Instance | OwnDevices):
        return "neuron" if "neuron" in machine.backends else "cuda"
    return "cpu"


def _chip(machine: Accelerator) -> str:
    if isinstance(machine, TpuSlice):
        return machine.generation
    return machine.chip if isinstance(machine, Ec2Instance | OwnDevices) else ""


def _devices_per_chip(machine: Accelerator) -> int:
    if isinstance(machine, TpuSlice):
        return _TPU_DEVICES.get(machine.generation, 1)
    if isinstance(machine, Ec2Instance | OwnDevices) and "neuron" in machine.backends:
        chip = ec2.chips().get(machine.chip.lower())
        return chip.logical_cores if chip is not None else 1
    return 1
