"""Regions, zones, instance types and quotas as the simulated EC2 states them, from `data/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from orch_fronts.tables import read_table

_EC2, _QUOTAS, _PRICES = "aws/data/ec2.toml", "aws/data/quotas.toml", "aws/data/prices.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Accelerators of an instance type.

    Attributes:
        cores: Of each; 0 for GPUs.
        memory: MiB of each.
    """

    name: str
    count: int
    memory: int
    cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """Instance type.

    Attributes:
        memory: MiB.
        cards: Network cards.
        interfaces: Interfaces of one card.
        efa: EFA interfaces in all.
        usage: Usage classes.
        zones: Letters of the zones that offer it, by region.
    """

    name: str
    vcpus: int
    memory: int
    network: str
    cards: int
    interfaces: int
    efa: int
    efa_on_card0: bool
    storage: bool
    usage: tuple[str, ...]
    on_demand: bool
    zones: Mapping[str, str]
    device: Device | None = None

    def is_offered_in(self, zone: str) -> bool:
        return zone[-1:] in self.zones.get(zone[:-1], "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Quota of EC2 in a region.

    Attributes:
        default: Of a new account.
        granted: Of an account that asked for more.
        families: Beginnings of the instance types whose vCPUs it counts; none for addresses.
        market: Of the simulated cloud.
    """

    code: str
    name: str
    default: float
    granted: float
    families: tuple[str, ...] = ()
    market: str = "on-demand"

    def counts(self, kind: str, market: str) -> bool:
        return bool(self.families) and kind.startswith(self.families) and market == self.market


@cache
def zones_by_region() -> Mapping[str, tuple[str, ...]]:
    letters = {name: text for name, text in read_table(_EC2)["zones"].items() if name != "source"}
    return {region: tuple(region + letter for letter in letters[region]) for region in sorted(letters)}


@cache
def instance_types() -> Mapping[str, InstanceType]:
    return {row["name"]: _type(row) for row in read_table(_EC2)["type"]}


@cache
def quotas() -> Mapping[str, Quota]:
    rows: list[dict[str, Any]] = [
        {**row, "families": tuple(row.get("families", ()))} for row in read_table(_QUOTAS)["quota"]
    ]
    return {row["code"]: Quota(**row) for row in rows}


def list_price(name: str, region: str) -> str:
    """Return the list price an hour as the Price List writes it; "" for a type without one."""
    table = read_table(_PRICES)
    usd = table["usd"].get(name)
    return f"{float(usd) * table['factor'][region]:.10f}" if usd else ""


def _type(row: Mapping[str, Any]) -> InstanceType:
    plain: dict[str, Any] = {"efa_on_card0": False, "storage": False, "on_demand": True, **row}
    device = _device(plain.pop("gpus", ""), plain.pop("neuron", ""))
    zones = dict(one.split(":") for one in plain.pop("zones").split())
    made: dict[str, Any] = {**plain, "usage": tuple(plain["usage"]), "zones": zones, "device": device}
    return InstanceType(**made)


def _device(gpus: str, neuron: str) -> Device | None:
    if gpus:
        name, count, memory = gpus.rsplit(" ", 2)
        return Device(name=name, count=int(count), memory=int(memory))
    if neuron:
        name, count, cores, memory = neuron.rsplit(" ", 3)
        return Device(name=name, count=int(count), cores=int(cores), memory=int(memory))
    return None
