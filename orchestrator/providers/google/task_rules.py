"""What Google's driver knows of tasks for its machines (orchestrator/task/driver_rules.py). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.catalog import tpu
from orchestrator.catalog.accelerators import find_own_topology
from orchestrator.catalog.machines import ComputeType, Machine, TpuSlice
from orchestrator.messages import join_some
from orchestrator.task.driver_rules import TaskRules
from orchestrator.task.errors import InvalidValueError, Issue
from orchestrator.task.infra import Infra

if TYPE_CHECKING:
    from orchestrator.task.resources import Resources
    from orchestrator.task.yaml_reader import Document

_OF_A_GENERATION = "v2-alpha-tpu"
# Persistent disks have 10 to 65,536 GB (`gcloud compute disk-types list`, VALID_DISK_SIZES of pd-balanced, 2026-04-15).
_LEAST_DISK = 10
# Compute Engine documentation, "Requirements for labels" (read 2026-11-23).
_KEY, _VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")


class GoogleRules(TaskRules):
    """The rules of TPU slices, and of machines without TPUs."""

    most_labels = 47  # of 64; orch writes at most 17 beside them, as a long value takes several

    def refuse_documents(self, documents: Sequence[Document], text: str, file: str) -> None:
        """Refuse a task for TPU Nodes, with its rewrite."""
        if "tpu_vm" in text:
            from orchestrator.providers.google.tpu_nodes import refuse_tpu_nodes

            refuse_tpu_nodes(documents, text, file)

    def name_machine(self, name: str, args: Any) -> str:
        """Return the accelerator with the topology that is written beside it: v4 and 2x2x4 are `v4:2x2x4`."""
        topology = args.topology.strip()
        head, _, count = name.partition(":")
        if not topology or (tpu.find_generation(head) is None and tpu.find_slice(head) is None):
            return name
        if not tpu.is_topology(topology):
            raise InvalidValueError(f"`{topology}` is not a topology", "", "write one like 4x4 or 2x2x4")
        if tpu.is_topology(count) and count.strip() != topology:
            raise InvalidValueError(f"`{name}` and the topology {topology} exclude each other", "", "keep one of them")
        return f"{head}:{topology}"

    def resolve_args(self, args: Any, machine: Machine) -> Any:
        """Return the arguments with the topology that has to be requested."""
        if not args.tpu_vm:  # a file is refused before, with its rewrite; this is for other sources
            raise InvalidValueError(
                "`tpu_vm: false` asks for a TPU Node", f"Google ended them on {tpu.NODES_ENDED}", "remove it"
            )
        if right := tpu.load_wrong_runtimes().get(args.runtime_version):
            what = f"there is no runtime version `{args.runtime_version}`"
            raise InvalidValueError(what, "", f"write {right}, or remove it")
        _refuse_other_generation(args.runtime_version, machine)
        if args.topology and isinstance(machine, ComputeType):
            raise InvalidValueError(f"`topology` has no meaning for {machine.name}", "it has no TPUs", "remove it")
        topology = find_own_topology(machine)
        return args if args.topology == topology else args.model_copy(update={"topology": topology})

    def list_notes(self, infra: Infra, machine: Machine) -> list[str]:
        """Return a note for a place that is not known to have the machine."""
        place = infra.zone or infra.region
        if not isinstance(machine, TpuSlice | ComputeType) or infra.provider != tpu.PROVIDER:
            return []
        if not machine.zones or not place:
            return []
        if any(zone.startswith(place) for zone in machine.zones):
            return []
        if not isinstance(machine, TpuSlice):
            return [f"{place} is not among the places known for {machine.name}: {join_some(machine.zones)}"]
        known = f"the places known for {machine.generation} on {machine.zones_as_of}: {join_some(machine.zones)}"
        if not machine.in_tpu_api:
            return [f"{place} is not among {known}"]
        flag = "--zone" if infra.zone else "--region"
        command = f"orch check gcp {flag} {place} --accelerators {machine.name}"
        return [f"{place} is not among {known}   to ask Google: {command}"]

    def find_machine_conflicts(self, choice: Resources) -> Iterator[Issue]:
        """Yield fields that have no meaning for the machine."""
        name, plain = choice.machine.name, isinstance(choice.machine, ComputeType)
        if choice.machine_images.keys() - {""} or (choice.machine_images and not plain):
            yield Issue(
                path=("resources", "image_id"),
                what=f"`image_id` has no meaning for {name}",
                why="an image of Google is in all regions" if plain else "TPU VMs have runtime versions",
                next_step="name one image" if plain else "write accelerator_args: {runtime_version: ...}",
            )
        if plain and choice.disk_size is not None and choice.disk_size < _LEAST_DISK:
            yield Issue(
                path=("resources", "disk_size"),
                what=f"a boot disk of {choice.disk_size} GB is too small for {name}",
                why=f"Compute Engine has disks of {_LEAST_DISK} to 65,536 GB, and images need at least {_LEAST_DISK}",
                next_step=f"disk_size: {_LEAST_DISK} or more",
            )
        if choice.network_tier == "best":
            yield Issue(
                path=("resources", "network_tier"),
                what=f"`network_tier: best` has no meaning for {name}",
                why="orch asks for its usual network" if plain else "the chips of a slice have their own network",
                next_step="remove it",
            )

    def find_label_problem(self, key: str, value: str) -> InvalidValueError | None:
        """Return why a label is not possible on Google Cloud, or None."""
        if _KEY.fullmatch(key) and _VALUE.fullmatch(value):
            return None
        why = "Google allows small letters, digits, - and _, at most 63 of them, and keys begin with a letter"
        return InvalidValueError(f"`{key}: {value}` cannot be a label on gcp", why, "write it so")


def _refuse_other_generation(version: str, machine: Machine) -> None:
    """Refuse the runtime version of another TPU generation ("TPU software versions", Cloud TPU, read 2026-11-26).

    Only versions that carry the number of a generation are refused. Public code requests tpu-ubuntu2204-base, which
    Google lists for v4 and older, for v5e and v6e too. v5p's version runs on v5e (pytorch/xla issue 8295, 2024-10-21).
    """
    if not isinstance(machine, TpuSlice) or not version.startswith(_OF_A_GENERATION):
        return
    owner = next((one for one in tpu.list_generations() if one.runtime_version == version), None)
    if owner is None or owner.name[:2] == machine.generation[:2]:
        return
    right = tpu.get_generation(machine.generation).runtime_version
    raise InvalidValueError(
        f"the runtime version `{version}` cannot run on {machine.name}",
        f"it is for {owner.name}",
        f"write {right}, or remove it" if right else "remove it",
    )


RULES = GoogleRules()
