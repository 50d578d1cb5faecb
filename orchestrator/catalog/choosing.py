"""Choose a rented machine by its chips, vCPUs and memory: the cheapest by list price. Of no vendor, and pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.catalog.chips import split_count
from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price, price_per_hour
from orchestrator.catalog.rented import load_tables
from orchestrator.errors import UserError
from orchestrator.messages import join_words
from orchestrator.slices import OnDemand

FEW = 12  # values that a message lists


@dataclass(frozen=True, slots=True)
class Amount:
    """How many vCPUs, or GiB: exactly `count`, or at least so many."""

    count: float
    or_more: bool = False

    def admits(self, available: float) -> bool:
        return available >= self.count if self.or_more else available == self.count

    def __str__(self) -> str:
        return f"{self.count:g}{'+' if self.or_more else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What each host of a machine must have; None for anything."""

    cpus: Amount | None = None
    memory: Amount | None = None

    def __bool__(self) -> bool:
        return self.cpus is not None or self.memory is not None

    def __str__(self) -> str:
        pairs = (("cpus", self.cpus), ("memory", self.memory))
        return ", ".join(f"{name}: {amount}" for name, amount in pairs if amount is not None)


class NotRentedError(UserError):
    """A machine that exists, or existed, and that orch rents from no cloud."""


class UnmetRequirementError(UserError):
    """No machine has what is required.

    Attributes:
        key: The requirement, as a field of Requirements.
    """

    def __init__(self, key: str, what: str, why: str, next_step: str) -> None:
        super().__init__(what, why, next_step)
        self.key = key


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen machine, and how many fitted."""

    machine: Machine
    fitting: int

    def explain(self, region: str = "") -> str:
        """Return one line for the plan: why this one; "" where nothing else fitted."""
        if self.fitting == 1:
            return ""
        name = self.machine.name
        price = _list_price(self.machine, region)
        among = f"of the {self.fitting} types in orch's table that fit"
        if price is None:
            return f"{name} is the smallest {among}, none of which has a list price"
        return f"{name} is the cheapest {among}: {describe_host(self.machine)}, {price}"


def choose_machine(name: str, required: Requirements, provider: str = "", region: str = "") -> Choice | None:
    """Return the cheapest machine of a name, NAME:COUNT of a chip, or "" for one without chips.

    A type that the region does not offer is taken only where no other fits.

    Args:
        name: NAME:COUNT, or "".
        required: What it must have beside its chips.
        provider: The driver that rents it out; "" for any.
        region: Where it has to be; "" for anywhere.

    Returns:
        The choice; None for a name that is no chip's, and where no table has a machine with this chip.

    Raises:
        UnmetRequirementError: There are such machines, and none meets the requirements.
        UserError: No machine has so many of a chip that is rented out.
    """
    chip, count = "", 0
    if name:
        split = split_count(name.strip())
        if split is None:
            return None
        chip, count = split[0].name, split[1]
    rented = [machine for table in load_tables() for machine in table.list_machines()]
    with_chip = [one for one in rented if one.chip == chip and provider in ("", one.provider)]
    found = [one for one in with_chip if one.chips == count]
    if not found and with_chip:
        raise _no_such_count(chip, count, sorted({one.chips for one in with_chip}), provider)
    if not found:
        return None
    fitting = filter_machines(found, required)
    fitting = [one for one in fitting if not _is_missing(one, region)] or fitting
    cheapest = min(fitting, key=lambda one: rank_by_price(one, region))
    written = ", ".join(word for word in (name.strip(), str(required)) if word)
    return Choice(replace(cheapest, normalised_from=written or None), len(fitting))


def _no_such_count(chip: str, count: int, offered: Sequence[int], provider: str) -> NotRentedError:
    largest = offered[-1]
    several = count > largest and count % largest == 0
    listed = join_words([f"{chip}:{one}" for one in offered], "or")
    return NotRentedError(
        f"no machine{f' of {provider}' if provider else ''} has {count} {chip}",
        f"one has {join_words([str(one) for one in offered], 'or')}",
        f"use {chip}:{largest} with num_nodes: {count // largest}" if several else f"use {listed}",
    )


def filter_machines(machines: Sequence[Machine], required: Requirements) -> list[Machine]:
    """Return those that meet the requirements.

    Raises:
        UnmetRequirementError: There are none; the message says what would be met.
    """
    found = _filter(machines, "cpus", "vCPUs", required.cpus, lambda one: one.vcpus)
    return _filter(found, "memory", "GiB", required.memory, lambda one: one.ram_gib)


def rank_by_price(machine: Machine, region: str = "") -> tuple[float, int, float, str]:
    """Return a key by which the cheapest comes first: list price, then size, then name.

    Spot prices do not count, because they move by the hour. Types without a list price come last.
    """
    price = _list_price(machine, region)
    return (math.inf if price is None else price.low, machine.vcpus, machine.ram_gib, machine.name)


def describe_host(machine: Machine) -> str:
    """Return vCPUs and memory of one host, in words."""
    return f"{machine.vcpus} vCPUs, {machine.ram_gib:g} GiB"


def _list_price(machine: Machine, region: str) -> Price | None:
    return price_per_hour(machine, OnDemand(), region) or price_per_hour(machine, OnDemand())


def _is_missing(machine: Machine, region: str) -> bool:
    return bool(region and machine.regions) and region not in machine.regions


def _filter(
    machines: Sequence[Machine], key: str, unit: str, amount: Amount | None, measure: Callable[[Machine], float]
) -> list[Machine]:
    if amount is None:
        return list(machines)
    if found := [one for one in machines if amount.admits(measure(one))]:
        return found
    sizes = sorted({measure(one) for one in machines if measure(one)})
    if not sizes:
        what, why = f"`{key}: {amount}` cannot be checked", f"orch does not know the {unit} of {machines[0].name}"
        raise UnmetRequirementError(key, what, why, f"remove {key}")
    largest = max(machines, key=lambda one: (measure(one), one.name))
    listed = join_words([f"{size:g}" for size in sizes[-FEW:]], "or")
    why = f"the largest, {largest.name}, has {sizes[-1]:g} {unit}; possible: {listed}"
    beyond = amount.count > sizes[-1]
    step = (
        f"write {key}: {sizes[-1]:g}, or several machines: num_nodes" if beyond else f"write {key}: {amount.count:g}+"
    )
    raise UnmetRequirementError(key, f"no machine that fits has {amount} {unit}", why, step)
