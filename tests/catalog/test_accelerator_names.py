"""Names in all their spellings, and what is said when there is no such thing."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.catalog import ec2, tpu
from orchestrator.catalog.accelerators import is_gpu, nearest_names, resolve, resolve_own
from orchestrator.catalog.machines import CpuMachine, Ec2Instance, LocalHosts, OwnDevices, TpuSlice
from orchestrator.errors import UserError

SPELLINGS = {
    "tpu-v5e-16": "v5litepod-16",
    "v5e-16": "v5litepod-16",
    "V5LITEPOD-16": "v5litepod-16",
    "tpu-v5litepod-16": "v5litepod-16",
    "tpu-v5e-16:1": "v5litepod-16",
    "tpu-v6e-8": "v6e-8",
    "trillium-8": "v6e-8",
    "ironwood-8": "tpu7x-8",
    "v7x-8": "tpu7x-8",
    "H100:8": "p5.48xlarge",
    "h100:1": "p5.4xlarge",
    "H100": "p5.4xlarge",
    "A100:8": "p4d.24xlarge",
    "A100-80GB:8": "p4de.24xlarge",
    "H200:8": "p5en.48xlarge",
    "B200:8": "p6-b200.48xlarge",
    "Trainium:16": "trn1.32xlarge",
    "Trainium2:16": "trn2.48xlarge",
    "Trainium2:1": "trn2.3xlarge",
    "Trainium": "trn1.2xlarge",
    "B300:8": "p6-b300.48xlarge",
    "T4": "g4dn.xlarge",
    "T4:4": "g4dn.12xlarge",
    "T4:8": "g4dn.metal",
    "A10G:1": "g5.xlarge",
    "l4:1": "g2-standard-4",
    "L4:8": "g2-standard-96",
    "A100:4": "a2-highgpu-4g",
    "A100:16": "a2-megagpu-16g",
    "E2-Standard-4": "e2-standard-4",
    "L40S:4": "g6e.12xlarge",
    "M7i.xlarge": "m7i.xlarge",
    "CPU": "cpu",
    "local:tpu-v5e-16": "local:v5litepod-16",
    "local:04": "local:4",
}


@pytest.mark.parametrize(("written", "name"), SPELLINGS.items())
def test_another_spelling_is_normalised_and_reported(written: str, name: str) -> None:
    found = resolve(written)
    assert (found.name, found.normalised_from) == (name, written)


@pytest.mark.parametrize("name", sorted({*SPELLINGS.values(), "v4-32", "v5p-128", "p6-b300.48xlarge", "local:4"}))
def test_the_right_word_is_reported_as_nothing_new(name: str) -> None:
    found = resolve(name)
    assert (found.name, found.normalised_from) == (name, None)


def test_two_spellings_of_one_accelerator_are_equal() -> None:
    assert resolve("tpu-v5e-16") == resolve("v5litepod-16")
    assert resolve("tpu-v5e-16") != resolve("v5litepod-32")


def test_each_family_has_its_class_and_backend() -> None:
    expected = {
        "v5e-16": (TpuSlice, "jax", ("jax", "xla")),
        "H100:8": (Ec2Instance, "cuda", ("cuda",)),
        "Trainium:16": (Ec2Instance, "neuron", ("neuron", "xla", "jax")),
        "cpu": (CpuMachine, "cpu", ("cpu", "xla", "jax")),
        "local:4": (LocalHosts, "cpu", ("cpu", "xla", "jax")),
    }
    for name, (kind, backend, backends) in expected.items():
        found = resolve(name)
        assert (type(found), found.backend, found.backends) == (kind, backend, backends), name


def test_local_takes_the_shape_of_a_slice_and_runs_on_the_cpu() -> None:
    found = resolve("local:v5litepod-16")
    assert isinstance(found, LocalHosts)
    assert (found.hosts, found.chips_per_host, found.backend) == (4, 4, "cpu")
    assert found.stands_for == resolve("v5litepod-16")
    assert (resolve("local:7").hosts, resolve("local:7").chips) == (7, 0)


def test_ones_own_machine_may_hold_any_number_of_devices() -> None:
    found = resolve_own("H100:4")
    assert isinstance(found, OwnDevices)
    assert (found.name, found.chips_per_host, found.hosts, found.backend) == ("H100:4", 4, 1, "cuda")
    assert resolve_own("v5e-8").name == "v5litepod-8"


IMPOSSIBLE = {
    "v5e-12": ("v5litepod-8", "v5litepod-16"),
    "v5litepod-2": ("v5litepod-1", "v5litepod-4"),
    "v5litepod-512": ("v5litepod-256",),
    "v5p-9": ("v5p-8", "v5p-16"),
    "v5p-200": ("v5p-128", "v5p-256"),
    "v5p-12416": ("v5p-12288",),
    "v4-4": ("v4-8",),
    "v2-16": ("v2-8", "v2-32"),
    "v3-16": ("v3-8", "v3-32"),
    "H100:3": ("H100:1", "H100:8"),
}


@pytest.mark.parametrize(("name", "nearest"), IMPOSSIBLE.items())
def test_an_impossible_size_names_the_nearest_that_exist(name: str, nearest: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        resolve(name)
    assert caught.value.next_step == f"use {' or '.join(nearest)}"
    for each in nearest:
        assert resolve(each)


def test_the_counts_of_a_chip_are_those_of_all_clouds() -> None:
    with pytest.raises(UserError) as caught:
        resolve("A100:3")
    assert caught.value.next_step == "use A100:1, A100:2, A100:4, A100:8 or A100:16"


def test_several_instances_are_requested_by_num_nodes() -> None:
    with pytest.raises(UserError) as caught:
        resolve("H100:16")
    assert caught.value.next_step == "use H100:8 with num_nodes: 2"
    with pytest.raises(UserError) as caught:
        resolve("tpu-v5e-16:2")
    assert caught.value.next_step == "write accelerators: v5litepod-16 and num_nodes: 2"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("v5lightpod-16", "v5litepod-16"),
        ("p5.48xlrage", "p5.48xlarge"),
        ("tpu-v5ee-16", "v5litepod-16"),
        ("Tranium:16", "Trainium:16"),
        ("H10O:8", "H100:8"),
        ("n2-standard-6", "n2-standard-4"),
        ("L4:0.5", "L4:1"),
    ],
)
def test_an_unknown_name_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(name)
    assert caught.value.next_step == f"use {near}"
    assert near in nearest_names(name)


@pytest.mark.parametrize("place", ["local:2", "local", "local:v5litepod-16"])
def test_a_place_in_the_field_of_machines_is_named_as_one(place: str) -> None:
    with pytest.raises(UserError, match="is a place, not a machine") as caught:
        resolve_own(place)
    assert caught.value.next_step == f"write infra: {place}, without accelerators"


@given(st.text(max_size=30) | st.from_regex(r"(tpu-)?v[2-7][a-z]{0,8}-[0-9]{0,8}(:[0-9]*)?|local:.*", fullmatch=True))
@settings(deadline=None)
def test_no_name_gives_anything_but_a_machine_or_a_user_error(name: str) -> None:
    try:
        found = resolve(name)
    except UserError as error:
        assert error.what
        assert error.next_step
    else:
        assert found.hosts >= 1
        assert resolve(found.name) == found


def test_every_suggested_name_exists() -> None:
    names = (*tpu.list_common_names(), *ec2.list_common_names())
    assert len(names) > 80
    for name in names:
        assert resolve(name).hosts >= 1


def test_every_row_has_a_source_and_a_date() -> None:
    from orchestrator.catalog.tables import read_rows

    tables = [
        ("tpu", "generation"),
        ("tpu", "wrong_runtime"),
        ("tpu_prices", "price"),
        ("ec2", "instance"),
        ("ec2_prices", "price"),
        ("chips", "chip"),
    ]
    for file, table in tables:
        for row in read_rows(file, table):
            assert row.text("source"), row
            assert re.fullmatch(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", row.text("as_of")), row


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("v5litepod-16", False), ("H100:8", True), ("p5.48xlarge", True), ("trn2.48xlarge", False)],
)
def test_a_machine_rehearsed_on_this_computer_has_gpus_where_the_real_one_has_them(name: str, gpus: bool) -> None:
    assert is_gpu(resolve(name).name) is is_gpu(resolve(f"local:{name}").name) is gpus
