"""The catalogue and the simulated vendors state the same facts, each by itself: a difference fails, with both sources.

A difference that is known stands in KNOWN with its reason, and fails when it is gone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from re import search

from orch_fronts.aws import tables as ec2
from orch_fronts.google import tables as google
from orchestrator.catalog import tpu
from orchestrator.catalog.ec2 import load_instances
from orchestrator.catalog.ec2_regions import load_zones_by_region
from orchestrator.catalog.machines import Ec2Instance

GIB = 1024
EC2_SOURCE = "orch_fronts/aws/data/ec2.toml"


@dataclass(frozen=True, slots=True)
class Difference:
    what: str
    catalogue: object
    simulator: object
    sources: str

    def __str__(self) -> str:
        return f"{self.what}: catalogue {self.catalogue!r}, simulator {self.simulator!r} ({self.sources})"


KNOWN = {
    "eu-west-2 zones": "the record of offerings names eu-west-2d, DescribeAvailabilityZones of the same month does not",
    "trn2u.48xlarge chips": "DescribeInstanceTypes has no NeuronInfo of it; 16 are those of trn2.48xlarge",
}


def test_tpu_tables_agree() -> None:
    assert [str(one) for one in tpu_differences() if one.what not in KNOWN] == []


def test_tpu_quotas_are_counted_by_the_same_sizes() -> None:
    assert [str(one) for one in quota_differences() if one.what not in KNOWN] == []


def test_ec2_tables_agree() -> None:
    assert [str(one) for one in ec2_differences() if one.what not in KNOWN] == []


def test_known_differences_are_still_there() -> None:
    found = {one.what for one in (*tpu_differences(), *quota_differences(), *ec2_differences())}
    assert set(KNOWN) <= found


def test_every_table_has_its_source_and_date() -> None:
    rows = (*google.generations().values(), *google.tpu_quotas(), *google.regional_quotas().values())
    assert all(row.source and row.date >= "2025-01-01" for row in rows)


def tpu_differences() -> Iterator[Difference]:
    catalogued = {one.name: one for one in tpu.list_generations()}
    yield from differ("generations", set(catalogued), set(google.generations()), "tpu.toml of both")
    for name, own in google.generations().items():
        one = catalogued[name]
        sources = f"catalogue: {catalogue_sources()[name]}; simulator: {own.source}, {own.date}"
        wrong = set(one.zones) - {*own.zones, *own.tenant_zones}
        yield from differ(f"{name} zones that Google does not list", wrong, set(), sources)
        yield from differ(f"{name} zones that the catalogue lacks", set(), set(own.zones) - set(one.zones), sources)
        yield from differ(f"{name} runtime", one.runtime_version, own.runtime, sources)
        yield from differ(f"{name} type in the API", one.api_type, own.api, sources)
        yield from differ(f"{name} counts", (one.counts, one.cores_per_chip), (own.counts, own.cores_per_chip), sources)
        for size in own.sizes:
            mine, theirs = google.slice_of(own, size), tpu.find_slice(f"{own.prefix}-{size}")
            assert theirs is not None
            shape = (theirs.chips, theirs.hosts, theirs.chips_per_host)
            yield from differ(mine.name, shape, (mine.chips, mine.hosts, mine.chips_per_host), sources)
        for machine, chips in own.machine_types.items():
            yield from differ(f"{name} machine type", one.machine_type.format(chips=chips), machine, sources)


def catalogue_sources() -> dict[str, str]:
    text = (Path(tpu.__file__).parent / "data/tpu.toml").read_text(encoding="utf-8")
    return {row["name"]: f"{row['source']}, {row['as_of']}" for row in tomllib.loads(text)["generation"]}


def quota_differences() -> Iterator[Difference]:
    """What `orch check` reads of a metric is what the vendor counts against it."""
    for own in google.tpu_quotas():
        generation = next(one for one in tpu.list_generations() if one.name == own.generation)
        families = [name for name, pattern in generation.quota_metrics.items() if search(pattern, own.metric)]
        if own.generation in ("v2", "v3"):  # their metrics' names are modelled
            continue
        sizes = own.sizes or [size for size in google.generations()[own.generation].sizes if size not in serving(own)]
        counted = sorted({generation.quota_family(size) for size in sizes})
        yield from differ(f"sizes of {own.metric}", families, counted, f"simulator: {own.source}, {own.date}")


def serving(own: google.TpuQuota) -> set[int]:
    others = [one for one in google.tpu_quotas() if one.generation == own.generation and one.market == own.market]
    return {size for one in others for size in one.sizes}


def ec2_differences() -> Iterator[Difference]:
    catalogued, stated = load_zones_by_region(), ec2.zones_by_region()
    for region in sorted({*catalogued, *stated}):
        yield from differ(f"{region} zones", catalogued.get(region), stated.get(region), EC2_SOURCE)
    for name, one in load_instances().items():
        own = ec2.instance_types().get(name)
        if own is None:
            yield Difference(name, "there", "missing", EC2_SOURCE)
            continue
        yield from instance_differences(one, own)


def instance_differences(one: Ec2Instance, own: ec2.InstanceType) -> Iterator[Difference]:
    device = own.device
    facts = {
        "vCPUs": (one.vcpus, own.vcpus),
        "memory": (one.ram_gib, own.memory / GIB),
        "network cards": (one.network_cards, own.cards),
        "interfaces a card": (one.enis_per_card, own.interfaces),
        "EFA interfaces": (one.efa_max, own.efa),
        "EFA on card 0": (one.efa_on_card0, own.efa_on_card0),
        "on demand": (one.on_demand, own.on_demand),
        "Capacity Blocks": (one.capacity_block, "capacity-block" in own.usage),
        "chips": (one.chips_per_host, device.count if device else 0),
        "regions": (set(one.regions), set(own.zones)),
    }
    for what, (theirs, mine) in facts.items():
        yield from differ(f"{one.name} {what}", theirs, mine, EC2_SOURCE)


def differ(what: str, catalogue: object, simulator: object, sources: str) -> Iterator[Difference]:
    if catalogue != simulator:
        yield Difference(what, catalogue, simulator, sources)
