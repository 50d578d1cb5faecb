"""The trainer's advice on machines of the catalogue: what a run needs there and how long it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.catalog.machines import Machine
from orchestrator.engine.training.process import refuse_settings, run_trainer
from orchestrator.errors import OrchError, UserError

GIB = 1 << 30
DEADLINE = 30.0
_REFUSED = "the trainer cannot run with these settings"
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


def request_advice(machines: Sequence[MachineKind], *, fastest: bool = False) -> tuple[Mapping[str, Any], ...]:
    """Return the trainer's advice for each machine (one value of trainer/shape/advice.py).

    Args:
        machines: Each with another name.
        fastest: Let the trainer choose mesh, micro-batches and recomputation, and leave out what nothing fits on.

    Raises:
        UserError: The settings are wrong, or a run with them ends when it starts.
        OrchError: The advice cannot be read.
    """
    found: list[Mapping[str, Any]] = []
    for settings in dict.fromkeys(one.settings for one in machines):
        hardware = [one.hardware for one in machines if one.settings == settings]
        words = ["advise", "--json", *(["--fastest"] if fastest else []), "--hardware", json.dumps(hardware)]
        answer = run_trainer([*words, *settings], deadline=DEADLINE)
        refuse_settings(answer, _REFUSED)
        try:
            advice = cast("list[Mapping[str, Any]]", json.loads(answer.out))
        except ValueError:
            raise OrchError(
                "the trainer's advice cannot be read", answer.complaint, "reinstall orch: scripts/bootstrap"
            ) from None
        for one in advice:
            _refuse_fatal_concerns(one, settings)
        found += advice
    order = [one.hardware["name"] for one in machines]
    return tuple(sorted(found, key=lambda advice: order.index(advice["hardware"]["name"])))


def _refuse_fatal_concerns(advice: Mapping[str, Any], settings: Sequence[str]) -> None:
    """Raise UserError for concerns by which the run would end when it starts.

    That of the memory is an estimate: advice.find_misfit refuses it, beyond the error of the estimate alone.
    """
    fatal = [one for one in advice["concerns"] if one["fatal"] and one["code"] != "memory"]
    if not fatal:
        return
    why = f"on {advice['hardware']['name']}: {'; '.join(one['words'] for one in fatal)}"
    fix = " ".join(word for one in fatal for word in one["fix"])
    other = ", or another backend, such as jax" if "device=xla" in settings else ""
    raise UserError(_REFUSED, why, f"{fix}{other}" if fix else "python -m trainer --help")


def describe_hardware(machine: Machine, *, nodes: int, hosts: int, kind: str) -> dict[str, Any]:
    """Describe machines for the trainer, as trainer/shape/hardware.py reads it; without price.

    Args:
        machine: One of the equal machines or slices.
        nodes: How many of them.
        hosts: Of all of them.
        kind: Of the training devices.
    """
    per_chip = machine.devices_per_chip
    known = kind != "cpu" and machine.hbm_gib_per_chip > 0
    peak = machine.peak_bf16_tflops_per_chip * 1e12 / per_chip
    return {
        "name": name_machines(machine, nodes),
        "kind": kind,
        "chip": machine.chip if kind != "cpu" else "",
        "devices": max(1, hosts * machine.chips_per_host * per_chip if kind != "cpu" else hosts),
        "hosts": max(1, hosts),
        "slices": nodes if machine.node_is_slice else max(1, hosts),
        "memory_bytes": int(machine.hbm_gib_per_chip * GIB / per_chip) if known else None,
        "peak_flops": peak if known and peak else None,
        "has_bf16": bool(peak) or not known,
        "network": machine.network_gbps * 1e9 / _BITS or None,
        "topology": machine.topology,
    }


def name_machines(machine: Machine, nodes: int) -> str:
    """Return the name of machines of which there are `nodes`."""
    return machine.name if nodes == 1 else f"{nodes} x {machine.name}"
