"""Slices made by rule against published rows (Cloud TPU documentation 2025, facts sheet sections 7 and 8)."""

import pytest

from orchestrator.catalog import tpu
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.machines import TpuSlice

# name: hosts, chips per host, topology, machine type, runtime version
PUBLISHED = {
    "v2-8": (1, 4, "", "", "tpu-ubuntu2204-base"),
    "v3-2048": (256, 4, "32x32", "", "tpu-ubuntu2204-base"),
    "v4-8": (1, 4, "2x2x1", "ct4p-hightpu-4t", "tpu-ubuntu2204-base"),
    "v4-16": (2, 4, "2x2x2", "ct4p-hightpu-4t", "tpu-ubuntu2204-base"),
    "v4-32": (4, 4, "2x2x4", "ct4p-hightpu-4t", "tpu-ubuntu2204-base"),
    "v4-64": (8, 4, "2x4x4", "ct4p-hightpu-4t", "tpu-ubuntu2204-base"),
    "v4-128": (16, 4, "4x4x4", "ct4p-hightpu-4t", "tpu-ubuntu2204-base"),
    "v5litepod-1": (1, 1, "1x1", "ct5lp-hightpu-1t", "v2-alpha-tpuv5-lite"),
    "v5litepod-4": (1, 4, "2x2", "ct5lp-hightpu-4t", "v2-alpha-tpuv5-lite"),
    "v5litepod-8": (1, 8, "2x4", "ct5lp-hightpu-8t", "v2-alpha-tpuv5-lite"),
    "v5litepod-16": (4, 4, "4x4", "ct5lp-hightpu-4t", "v2-alpha-tpuv5-lite"),
    "v5litepod-32": (8, 4, "4x8", "ct5lp-hightpu-4t", "v2-alpha-tpuv5-lite"),
    "v5litepod-128": (32, 4, "8x16", "ct5lp-hightpu-4t", "v2-alpha-tpuv5-lite"),
    "v5litepod-256": (64, 4, "16x16", "ct5lp-hightpu-4t", "v2-alpha-tpuv5-lite"),
    "v5p-8": (1, 4, "2x2x1", "ct5p-hightpu-4t", "v2-alpha-tpuv5"),
    "v5p-512": (64, 4, "4x8x8", "ct5p-hightpu-4t", "v2-alpha-tpuv5"),
    "v5p-1536": (192, 4, "8x8x12", "ct5p-hightpu-4t", "v2-alpha-tpuv5"),
    "v5p-12288": (1536, 4, "16x16x24", "ct5p-hightpu-4t", "v2-alpha-tpuv5"),
    "v6e-1": (1, 1, "1x1", "ct6e-standard-1t", "v2-alpha-tpuv6e"),
    "v6e-8": (1, 8, "2x4", "ct6e-standard-8t", "v2-alpha-tpuv6e"),
    "v6e-16": (4, 4, "4x4", "ct6e-standard-4t", "v2-alpha-tpuv6e"),
    "v6e-256": (64, 4, "16x16", "ct6e-standard-4t", "v2-alpha-tpuv6e"),
    "tpu7x-8": (1, 4, "2x2x1", "tpu7x-standard-4t", ""),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_rule_gives_the_published_row(name: str) -> None:
    found = resolve(name)
    assert isinstance(found, TpuSlice)
    row = (found.hosts, found.chips_per_host, found.topology, found.machine_type, found.runtime_version)
    assert row == PUBLISHED[name]


# Counts of hosts that are often written wrong.
OFTEN_WRONG = {"v5p-16": 2, "v5p-32": 4, "v5p-64": 8, "v5p-128": 16, "v5litepod-16": 4, "v6e-16": 4, "v6e-32": 8}


@pytest.mark.parametrize(("name", "hosts"), OFTEN_WRONG.items())
def test_hosts_that_are_often_counted_wrong(name: str, hosts: int) -> None:
    assert resolve(name).hosts == hosts


def test_the_suffix_counts_cores_or_chips_by_generation() -> None:
    assert resolve("v4-32").chips == 16
    assert resolve("v5p-128").chips == 64
    assert resolve("v5litepod-16").chips == 16
    assert resolve("v6e-32").chips == 32
    assert resolve("v5p-128").cores == 128


SINGLE_HOSTS = {
    "v2": {"v2-8"},
    "v3": {"v3-8"},
    "v4": {"v4-8"},
    "v5e": {"v5litepod-1", "v5litepod-4", "v5litepod-8"},
    "v5p": {"v5p-8"},
    "v6e": {"v6e-1", "v6e-4", "v6e-8"},
    "tpu7x": {"tpu7x-8"},
}


@pytest.mark.parametrize("generation", SINGLE_HOSTS)
def test_only_these_are_single_hosts(generation: str) -> None:
    of_generation = [found for found in map(resolve, tpu.list_common_names()) if isinstance(found, TpuSlice)]
    found = {one.name for one in of_generation if one.generation == generation and one.hosts == 1}
    assert found == SINGLE_HOSTS[generation]


def test_every_slice_is_whole_and_its_topology_holds_its_chips() -> None:
    checked = 0
    for generation in tpu.list_generations():
        sizes = [n for n in range(1, 2049) if generation.has(n)]
        assert sizes[: len(generation.sizes)] == list(generation.sizes)
        for size in sizes:
            found = resolve(f"{generation.prefix}-{size}")
            assert isinstance(found, TpuSlice)
            assert found.chips == generation.chips(size)
            sides = [int(side) for side in found.topology.split("x")] if found.topology else []
            product = 1
            for side in sides:
                product *= side
            assert not sides or product == found.chips
            assert sides == sorted(sides) or size == 8
            checked += 1
    assert checked > 60


def test_a_size_whose_shape_would_be_too_long_does_not_exist() -> None:
    generation = tpu.generations_by_alias()["v5p"]
    assert generation.has(61 * 128)  # 4x4x244
    assert not generation.has(67 * 128)  # 67 is prime: 4x4x268
    assert generation.has(95 * 128)  # 4x20x76


def test_the_tpu_api_does_not_know_tpu7x() -> None:
    ironwood, v6e = resolve("tpu7x-8"), resolve("v6e-8")
    assert isinstance(ironwood, TpuSlice)
    assert isinstance(v6e, TpuSlice)
    assert (ironwood.in_tpu_api, v6e.in_tpu_api) == (False, True)


@pytest.mark.parametrize("name", [name for name, row in PUBLISHED.items() if row[3]])
def test_a_machine_type_names_the_part_of_a_slice_that_one_machine_is(name: str) -> None:
    found = tpu.find_slice(name)
    assert found is not None
    machine = tpu.find_by_machine_type(found.machine_type)
    assert machine is not None
    assert (machine.generation, machine.hosts) == (found.generation, 1)
    assert machine.chips_per_host == found.chips_per_host


@pytest.mark.parametrize("machine_type", ["", "p5.48xlarge", "n2-standard-8"])
def test_a_machine_type_of_another_kind_is_no_tpu(machine_type: str) -> None:
    assert tpu.find_by_machine_type(machine_type) is None
