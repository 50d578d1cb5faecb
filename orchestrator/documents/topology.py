"""How the chips of a cluster's machines are connected: what the page draws, and what its table says.

It follows from the catalogue alone. Where the vendor publishes no shape, there are hosts with their chips and no links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import prod

from orchestrator.catalog.accelerators import resolve, resolve_reported
from orchestrator.catalog.machines import LocalHosts, Machine
from orchestrator.errors import OrchError
from orchestrator.slices import Candidate

LOCAL = "local"
Position = tuple[int, int, int]

# Sides of the block of chips that one host drives, by its number of chips, in a flat and in a deep slice. Source: Cloud
# TPU documentation, "TPU configurations" of v4, v5e, v5p and v6e (read November 2026).
_FLAT_BLOCKS: dict[int, Position] = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
_DEEP_BLOCKS: dict[int, Position] = {4: (2, 2, 1)}
_CUBE = 4  # a deep slice has wrap-around links from 4x4x4 on: Cloud TPU documentation, v4 and v5p (read November 2026)
# GPUs whose machines of eight connect all of them over NVSwitch: NVIDIA, HGX and DGX data sheets (read November 2026).
_SWITCHED = ("A100", "H100", "H200", "B200", "B300")
_FLAT_RING = 16  # a flat slice has them along a side of 16: Cloud TPU documentation, v5e and v6e (read November 2026)


class Links(StrEnum):
    """What connects the chips of a machine."""

    MESH = "mesh"  # TPU chips, with their neighbours
    SWITCH = "switch"  # GPUs, all with all, over NVSwitch
    TORUS = "torus"  # Trainium chips, with their neighbours and around
    NONE = "none"  # one chip, none, or nothing is published


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipPlace:
    """One chip: the rank of its host, its number in that host, and where it is in its slice."""

    rank: int
    number: int
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The chips of one cluster.

    Attributes:
        name: As people write it: `v5p-128, 4x4x4`.
        slices: Slices or machines whose chips have their own links.
        sides: Chips of one slice along x, y and z.
        block: Chips of one host along x, y and z.
        wraps: Along which sides the last chip is linked to the first.
        links: What connects the chips.
        hosts: Of all slices.
        chips_per_host: 0 for hosts without accelerators.
    """

    name: str
    slices: int
    sides: Position
    block: Position
    wraps: tuple[bool, bool, bool]
    links: Links
    hosts: int
    chips_per_host: int

    @property
    def chips(self) -> int:
        """The chips of all slices."""
        return self.hosts * self.chips_per_host

    def list_chips(self, slice_number: int) -> Iterator[ChipPlace]:
        """Yield the chips of one slice, host after host.

        Hosts are numbered along x, then y, then z, and so are the chips of a host.
        """
        grid = tuple(side // part for side, part in zip(self.sides, self.block, strict=True))
        first = slice_number * prod(grid)
        for host, (z, y, x) in enumerate(product(*(range(side) for side in reversed(grid)))):
            inside = product(*(range(side) for side in reversed(self.block)))
            for number, (dz, dy, dx) in enumerate(inside):
                at = (x * self.block[0] + dx, y * self.block[1] + dy, z * self.block[2] + dz)
                yield ChipPlace(rank=first + host, number=number, position=at)


def describe_topology(candidate: Candidate) -> Topology:
    """Return the topology of a candidate's machines."""
    machine = _find_machine(candidate.accelerator)
    if machine is None or machine.chips_per_host == 0 or candidate.chips_per_host != machine.chips_per_host:
        return _describe_hosts(candidate)
    shaped = _shape_of(machine)
    if shaped is None or candidate.hosts % machine.hosts:
        return _describe_hosts(candidate)
    sides, block = shaped
    written = machine.topology or f"{machine.chips_per_host} x {machine.chip}".strip()
    return Topology(
        name=f"{machine.name}, {written}",
        slices=candidate.hosts // machine.hosts,
        sides=sides,
        block=block,
        wraps=_wraps_of(machine, sides),
        links=_links_of(machine),
        hosts=candidate.hosts,
        chips_per_host=machine.chips_per_host,
    )


def _find_machine(name: str) -> Machine | None:
    """Return the machine of a name, for a local host the one whose shape it has; None for one that no table has."""
    try:
        found = resolve(name) if name.startswith(LOCAL) else resolve_reported(name)
    except OrchError:  # another orch made it, or the table has changed
        return None
    return found.stands_for if isinstance(found, LocalHosts) else found


def _describe_hosts(candidate: Candidate) -> Topology:
    chips = candidate.chips_per_host
    return Topology(
        name=candidate.accelerator,
        slices=candidate.hosts,
        sides=(max(chips, 1), 1, 1),
        block=(max(chips, 1), 1, 1),
        wraps=(False, False, False),
        links=Links.NONE,
        hosts=candidate.hosts,
        chips_per_host=chips,
    )


def _shape_of(machine: Machine) -> tuple[Position, Position] | None:
    """Return the sides of a slice and of a host's block, or None where they are not published."""
    if machine.device == "tpu" and machine.topology:
        written = [int(side) for side in machine.topology.split("x")]
        blocks = _DEEP_BLOCKS if len(written) == 3 else _FLAT_BLOCKS
        block = blocks.get(machine.chips_per_host)
        x, y, z = (*written, 1)[:3]
        sides = (x, y, z)
        if block is None or any(side % part for side, part in zip(sides, block, strict=True)):
            return None
        return (sides, block) if prod(sides) == machine.chips else None
    if machine.device == "neuron" and machine.chips_per_host == 16:
        return (4, 4, 1), (4, 4, 1)  # AWS, "Trn1 and Trn2 architecture": a 2D torus of 16 chips (read November 2026)
    if machine.hosts > 1:
        return None
    return (machine.chips_per_host, 1, 1), (machine.chips_per_host, 1, 1)


def _wraps_of(machine: Machine, sides: Position) -> tuple[bool, bool, bool]:
    if machine.device == "tpu":
        deep = machine.topology.count("x") == 2
        if deep:
            around = all(side % _CUBE == 0 for side in sides)
            return around, around, around
        return sides[0] == _FLAT_RING, sides[1] == _FLAT_RING, False
    around = machine.device == "neuron" and machine.chips_per_host == 16
    return around, around, False


def _links_of(machine: Machine) -> Links:
    if machine.chips_per_host == 1 and machine.hosts == 1:
        return Links.NONE
    if machine.device == "tpu":
        return Links.MESH
    if machine.device == "neuron":
        return Links.TORUS if machine.chips_per_host == 16 else Links.NONE
    return Links.SWITCH if machine.chips_per_host == 8 and machine.chip.startswith(_SWITCHED) else Links.NONE
