"""The chips of machines: as many as are rented, each once, with the links that the vendors document."""

from __future__ import annotations

from collections import Counter

import pytest

from orchestrator.catalog.accelerators import resolve_rented
from orchestrator.catalog.tpu import list_generations
from orchestrator.documents.topology import Links, describe_topology
from orchestrator.service.drawing.chips import MOST_HOSTS, HostHealth, HostState, draw_chips
from orchestrator.slices import Candidate, OnDemand

SLICES = [f"{row.prefix}-{size}" for row in list_generations() for size in row.sizes[:12]]
OTHERS = [
    "p4d.24xlarge",
    "p5.48xlarge",
    "g6.xlarge",
    "trn1.32xlarge",
    "trn2.48xlarge",
    "m7i.large",
    "g2-standard-4",
    "a2-highgpu-8g",
]


def rent(name: str, slices: int = 1) -> Candidate:
    machine = resolve_rented(name)
    return Candidate(
        provider=machine.provider, accelerator=machine.name, hosts=machine.hosts * slices,
        chips_per_host=machine.chips_per_host, market=OnDemand(),
    )  # fmt: skip


@pytest.mark.parametrize("name", [*SLICES, *OTHERS])
def test_every_chip_has_one_place_and_its_host_as_many_as_it_drives(name: str) -> None:
    candidate = rent(name)
    found = describe_topology(candidate)
    chips = [chip for number in range(found.slices) for chip in found.list_chips(number)]
    assert found.chips == candidate.hosts * candidate.chips_per_host
    if candidate.chips_per_host:
        assert len(chips) == len({(chip.rank // (candidate.hosts // found.slices), chip.position) for chip in chips})
        assert Counter(chip.rank for chip in chips) == dict.fromkeys(range(candidate.hosts), candidate.chips_per_host)


@pytest.mark.parametrize(
    ("name", "wraps"),
    [
        ("v4-128", (True, True, True)),  # 4x4x4
        ("v5p-64", (False, False, False)),  # 2x4x4
        ("v5litepod-256", (True, True, False)),  # 16x16
        ("v5litepod-128", (False, True, False)),  # 8x16
        ("v6e-64", (False, False, False)),  # 8x8
        ("trn2.48xlarge", (True, True, False)),
        ("p5.48xlarge", (False, False, False)),
    ],
)
def test_links_lead_around_where_the_vendor_says_so(name: str, wraps: tuple[bool, bool, bool]) -> None:
    assert describe_topology(rent(name)).wraps == wraps


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("p5.48xlarge", Links.SWITCH),
        ("g6e.48xlarge", Links.NONE),
        ("v6e-1", Links.NONE),
        ("v6e-8", Links.MESH),
        ("m7i.large", Links.NONE),
    ],
)
def test_only_documented_links_are_drawn(name: str, links: Links) -> None:
    assert describe_topology(rent(name)).links is links


@pytest.mark.parametrize("name", ["v5litepod-16", "v5p-128", "v5p-12288", "p5.48xlarge", "m7i.large", "trn2.48xlarge"])
@pytest.mark.parametrize("slices", [1, 3])
def test_a_drawing_has_every_host_once_and_stays_small(name: str, slices: int) -> None:
    candidate = rent(name, slices)
    drawing = draw_chips(describe_topology(candidate), {0: HostState.of(HostHealth.LOST)})
    ranks = Counter(host.rank for host in drawing.hosts)
    assert set(ranks) == set(range(min(candidate.hosts, MOST_HOSTS)))
    assert drawing.left_out == max(candidate.hosts - MOST_HOSTS, 0)
    assert sum(len(host.squares) for host in drawing.hosts) <= 1100
    assert all(host.x >= 0 and host.x + host.width <= drawing.width for host in drawing.hosts)
    assert all(host.y + host.height <= drawing.height for host in drawing.hosts)
    assert next(host for host in drawing.hosts if host.rank == 0).health is HostHealth.LOST


def test_a_machine_that_no_table_has_is_drawn_as_hosts() -> None:
    found = describe_topology(Candidate(provider="x", accelerator="z9-4", hosts=3, chips_per_host=2, market=OnDemand()))
    assert (found.links, found.hosts, found.chips) == (Links.NONE, 3, 6)
