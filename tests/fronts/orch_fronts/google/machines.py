"""Accelerator types, topologies and runtime versions: only what the table of this front has and the TPU API serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from orch_fronts.google.status import invalid
from orch_fronts.google.tables import Slice, find_slice, generations, slice_of

_TOPOLOGY = re.compile(r"[1-9][0-9]*(?:x[1-9][0-9]*){1,2}")


def machine_of(node: Mapping[str, Any]) -> Slice:
    """What a node asks for, by acceleratorType or by acceleratorConfig. Raises Refusal."""
    kind, config = str(node.get("acceleratorType", "")), node.get("acceleratorConfig")
    if kind and config:
        raise invalid("node", "acceleratorType and acceleratorConfig are mutually exclusive")
    if config:
        return _by_topology(str(config.get("type", "")), str(config.get("topology", "")))
    if not kind:
        raise invalid("node.accelerator_type", "acceleratorType or acceleratorConfig is required")
    found = find_slice(kind)
    if found is None or not generations()[found.generation].api:
        raise invalid("node.accelerator_type", f"{kind!r} is no accelerator type")
    return found


def check_runtime(version: str) -> None:
    """Rule runtime_version_must_exist. Raises Refusal."""
    if not version:
        raise invalid("node.runtime_version", "runtimeVersion is required")
    if version not in runtime_versions():
        raise invalid("node.runtime_version", f"Runtime version {version!r} does not exist")


def accelerator_types(zone: str) -> list[str]:
    """Those that the API lists in a zone."""
    here = [one for one in generations().values() if one.api and one.is_in(zone)]
    return [f"{one.prefix}-{size}" for one in here for size in one.sizes]


def runtime_versions() -> list[str]:
    return list(dict.fromkeys(one.runtime for one in generations().values() if one.runtime))


def _by_topology(kind: str, topology: str) -> Slice:
    generation = next((one for one in generations().values() if one.api and one.api == kind), None)
    if generation is None:
        raise invalid("node.accelerator_config.type", f"{kind!r} is no type of an accelerator config")
    if not _TOPOLOGY.fullmatch(topology):
        raise invalid("node.accelerator_config.topology", f"Topology {topology!r} is not of the form 2x2 or 2x2x1")
    sides = [int(side) for side in topology.split("x")]
    chips = prod(sides)
    size = chips * generation.cores_per_chip if generation.counts == "cores" else chips
    if len(sides) != generation.dimensions or not generation.has(size):
        raise invalid("node.accelerator_config.topology", f"{generation.name} has no topology {topology}")
    return slice_of(generation, size)
