"""A generation and a topology instead of a size, and the shapes that are not made (Cloud TPU documentation, 2025)."""

from __future__ import annotations

import pytest

from orchestrator.catalog import tpu
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.machines import TpuSlice
from orchestrator.errors import UserError

SHAPES = {
    ("v4", "2x2x1"): "v4-8",
    ("v4", "2x2x2"): "v4-16",
    ("tpu-v4", "2x2x4"): "v4-32",
    ("v4", "4x4x16"): "v4-512",
    ("v5p", "2x2x4"): "v5p-32",
    ("V5P", "4x8X8"): "v5p-512",
    ("v5p", "16x16x24"): "v5p-12288",
    ("v5e", "1x1"): "v5litepod-1",
    ("v5litepod", "4x4"): "v5litepod-16",
    ("tpu-v5e", "16x16"): "v5litepod-256",
    ("trillium", "2x4"): "v6e-8",
    ("v3", "4x4"): "v3-32",
    ("ironwood", "2x2x1"): "tpu7x-8",
}


@pytest.mark.parametrize(("generation", "topology", "name"), [(*key, name) for key, name in SHAPES.items()])
def test_a_shape_names_its_size(generation: str, topology: str, name: str) -> None:
    found = tpu.find_by_topology(generation, topology)
    sized = tpu.find_slice(name)
    assert sized is not None
    assert (found.name, found.hosts, found.chips) == (sized.name, sized.hosts, sized.chips)
    assert found.topology == topology.lower()
    written = resolve(f"{generation}:{topology}")
    assert (written, written.normalised_from) == (found, f"{generation}:{topology}")


def test_every_usual_shape_names_its_own_size() -> None:
    checked = 0
    for generation in tpu.list_generations():
        for size in generation.sizes if generation.topology else ():
            name = f"{generation.prefix}-{size}"
            usual = resolve(name)
            assert isinstance(usual, TpuSlice)
            assert tpu.find_by_topology(generation.prefix, usual.topology).name == name
            checked += 1
    assert checked > 30


IMPOSSIBLE = {
    ("v4", "2x2x8"): "use 2x4x4 (v4-64)",
    ("v4", "4x2x2"): "use 2x2x4 (v4-32)",
    ("v4", "8x4x4"): "use 4x4x8 (v4-256)",
    ("v4", "4x4x5"): "use 4x4x4 (v4-128) or 4x4x8 (v4-256)",
    ("v4", "4x4"): "use 2x2x4 (v4-32)",
    ("v5e", "2x8"): "use 4x4 (v5litepod-16)",
    ("v5e", "3x3"): "use 2x4 (v5litepod-8) or 4x4 (v5litepod-16)",
    ("v5e", "32x32"): "use 16x16 (v5litepod-256)",
    ("v6e", "2x2x2"): "use 2x4 (v6e-8)",
    ("v5p", "0x4x4"): "use 2x2x1 (v5p-8)",
    ("v2", "2x2"): "use v2-8",
}


@pytest.mark.parametrize(("generation", "topology", "step"), [(*key, step) for key, step in IMPOSSIBLE.items()])
def test_an_impossible_shape_names_the_nearest(generation: str, topology: str, step: str) -> None:
    with pytest.raises(UserError) as caught:
        tpu.find_by_topology(generation, topology)
    assert caught.value.next_step == step


def test_a_size_and_a_shape_must_agree() -> None:
    shaped = resolve("v4-512:4x4x16")
    assert isinstance(shaped, TpuSlice)
    assert (shaped.name, shaped.topology) == ("v4-512", "4x4x16")
    with pytest.raises(UserError) as caught:
        resolve("v4-32:2x2x2")
    assert caught.value.what == "v4-32 has 16 chips, and 2x2x2 has 8"
    assert "v4-16" in caught.value.next_step


@pytest.mark.parametrize("name", ["v4", "tpu-v5e", "trillium"])
def test_a_generation_alone_asks_for_a_size(name: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(name)
    assert "names a TPU generation and no size" in caught.value.what
    assert resolve(caught.value.next_step.removeprefix("use ")).hosts == 1


def test_an_unknown_generation_names_those_there_are() -> None:
    with pytest.raises(UserError) as caught:
        tpu.find_by_topology("v9", "2x2")
    assert "v5e" in caught.value.next_step


# Every way to write a name, with the hosts it has: v5p counts cores, so 8 of them are one host.
FORMS = {
    "tpu-v5e-16": ("v5litepod-16", 4),
    "v5e-16": ("v5litepod-16", 4),
    "v5litepod-16": ("v5litepod-16", 4),
    "tpu-v6e-8": ("v6e-8", 1),
    "v4-32": ("v4-32", 4),
    "v5p-128": ("v5p-128", 16),
    "tpu7x-16": ("tpu7x-16", 2),
    "v5p:4x4x4": ("v5p-128", 16),
    "v5p-8": ("v5p-8", 1),
    "v5p-16": ("v5p-16", 2),
    "v5p-32": ("v5p-32", 4),
    "v5p-64": ("v5p-64", 8),
}


@pytest.mark.parametrize(("form", "name", "hosts"), [(form, *value) for form, value in FORMS.items()])
def test_every_form_of_a_name_has_its_hosts(form: str, name: str, hosts: int) -> None:
    found = resolve(form)
    assert (found.name, found.hosts) == (name, hosts)
