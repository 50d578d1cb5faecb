"""Accelerator types, topologies and runtime versions: only what the catalogue has and the TPU API serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from orch_fronts.google.status import invalid
from orchestrator.catalog import tpu
from orchestrator.catalog.machines import TpuSlice
from orchestrator.errors import UserError

_CONFIG_TYPES = {"V2": "v2", "V3": "v3", "V4": "v4", "V5LITE_POD": "v5e", "V5P": "v5p", "V6E": "v6e"}
_TOPOLOGY = re.compile(r"[1-9][0-9]*(?:x[1-9][0-9]*){1,2}")
_NOT_SERVED = "tpu7x"


def machine_of(node: Mapping[str, Any]) -> TpuSlice:
    """What a node asks for, by acceleratorType or by acceleratorConfig. Raises Refusal."""
    kind, config = str(node.get("acceleratorType", "")), node.get("acceleratorConfig")
    if kind and config:
        raise invalid("node", "acceleratorType and acceleratorConfig are mutually exclusive")
    if config:
        return _by_topology(str(config.get("type", "")), str(config.get("topology", "")))
    if not kind:
        raise invalid("node.accelerator_type", "acceleratorType or acceleratorConfig is required")
    try:
        found = tpu.find_slice(kind)
    except UserError as error:
        raise invalid("node.accelerator_type", f"{kind!r} is no accelerator type: {error.why}") from error
    if found is None or found.name != kind or not found.in_tpu_api:  # our other spellings are not Google's
        raise invalid("node.accelerator_type", f"{kind!r} is no accelerator type")
    return found


def check_runtime(version: str) -> None:
    """Rule runtime_version_must_exist. Raises Refusal."""
    if not version:
        raise invalid("node.runtime_version", "runtimeVersion is required")
    if version not in runtime_versions():
        raise invalid("node.runtime_version", f"Runtime version {version!r} does not exist")


def accelerator_types(zone: str) -> list[str]:
    """Those that the API lists in a zone: of the generations that Google lists there, or all where it lists none."""
    served = [each for each in tpu.list_generations() if each.name != _NOT_SERVED]
    here = [each for each in served if zone in each.zones] or served
    return [f"{each.prefix}-{size}" for each in here for size in each.sizes]


def runtime_versions() -> list[str]:
    return list(dict.fromkeys(each.runtime_version for each in tpu.list_generations() if each.runtime_version))


def _by_topology(kind: str, topology: str) -> TpuSlice:
    generation = next((each for each in tpu.list_generations() if each.name == _CONFIG_TYPES.get(kind)), None)
    if generation is None:
        raise invalid("node.accelerator_config.type", f"{kind!r} is no type of an accelerator config")
    if not _TOPOLOGY.fullmatch(topology):
        raise invalid("node.accelerator_config.topology", f"Topology {topology!r} is not of the form 2x2 or 2x2x1")
    sides = [int(side) for side in topology.split("x")]
    chips = prod(sides)
    size = chips * generation.cores_per_chip if generation.counts == "cores" else chips
    wanted = 3 if generation.topology == "3d" else 2
    if len(sides) != wanted or not generation.has(size):
        raise invalid("node.accelerator_config.topology", f"{generation.name} has no topology {topology}")
    found = tpu.find_slice(f"{generation.prefix}-{size}")
    assert found is not None, topology  # noqa: S101  # has() said so
    return found
