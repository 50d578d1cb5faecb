"""EC2 rows against the fact sheet, section 1 and 2.1, and against what the API itself said in May 2026."""

import gzip
import json
from pathlib import Path
from typing import Any

import moto
import pytest

from orchestrator.catalog import ec2
from orchestrator.catalog.accelerators import resolve, resolve_instance
from orchestrator.catalog.ec2_regions import load_zones_by_region
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.catalog.prices import price_per_hour
from orchestrator.catalog.tables import read_rows
from orchestrator.errors import UserError
from orchestrator.slices import OnDemand

DUMP = Path(moto.__file__).parent / "ec2" / "resources"  # DescribeInstanceTypes and -Offerings of real accounts


@pytest.mark.parametrize(
    ("name", "chips", "hbm", "peak", "cards", "efa", "card0"),
    [
        ("p4d.24xlarge", 8, 40, 312, 4, 4, True),
        ("p5.48xlarge", 8, 80, 989, 32, 32, True),
        ("p5en.48xlarge", 8, 141, 989, 16, 16, True),
        ("p6-b300.48xlarge", 8, 268, 2250, 17, 16, False),
        ("trn1.2xlarge", 1, 32, 190, 1, 0, False),
        ("trn1.32xlarge", 16, 32, 190, 8, 8, True),
        ("trn2.48xlarge", 16, 96, 667, 16, 16, True),
    ],
)
def test_golden_rows(name: str, chips: int, hbm: float, peak: float, cards: int, efa: int, card0: bool) -> None:
    found = resolve(name)
    assert isinstance(found, Ec2Instance)
    hardware = (found.chips, found.hbm_gib_per_chip, found.peak_bf16_tflops_per_chip)
    assert hardware == (chips, hbm, peak)
    assert (found.network_cards, found.efa_max, found.efa_on_card0) == (cards, efa, card0)


def test_trainium2_memory_is_the_data_sheets_not_the_apis() -> None:
    assert resolve("trn2.48xlarge").hbm_gib_per_chip == 96


def test_cores_physical_and_as_a_program_sees_them() -> None:
    trn1, trn2 = resolve("trn1.32xlarge"), resolve("trn2.48xlarge")
    assert isinstance(trn1, Ec2Instance)
    assert isinstance(trn2, Ec2Instance)
    assert (trn1.cores, trn1.chips * trn1.logical_cores_per_chip) == (32, 32)
    assert (trn2.cores, trn2.chips * trn2.logical_cores_per_chip) == (128, 64)


def test_no_type_has_more_efa_than_cards() -> None:
    for instance in ec2.load_instances().values():
        assert 0 <= instance.efa_max <= instance.network_cards
        assert instance.efa_on_card0 or instance.efa_max < instance.network_cards or instance.efa_max == 0


def from_dump() -> set[str]:
    """Return the types whose row names the dumps as its source: those that are newer name another."""
    rows = read_rows("ec2", "instance")
    names = {row.text("name") for row in rows if "DescribeInstanceTypes" in row.text("source")}
    return {name for name in ec2.load_instances() if name in names or name.partition(".")[0] in names}


def described() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(gzip.decompress((DUMP / "instance_types.json.gz").read_bytes()))
    return {name: one for name, one in found.items() if name in ec2.load_instances()}


# The API's name of a chip, and what orch calls it.
RENAMED = {"A100": ("A100-80GB",), "Trn2": ("Trainium2",), "Inferentia": ("Trainium",)}


def test_network_of_the_families_is_the_peak_that_the_api_said() -> None:
    described_rows = described()
    families = [row for row in read_rows("ec2", "instance") if "sizes" in row.cells]
    assert len(families) == 7
    for row in families:
        for size in row.expand("sizes"):
            name = f"{row.text('name')}.{size.text('size')}"
            cards = described_rows[name]["NetworkInfo"]["NetworkCards"]
            assert sum(card["PeakBandwidthInGbps"] for card in cards) == size.number("network_gbps"), name


def test_every_row_says_what_the_api_said() -> None:
    described_rows = described()
    assert from_dump() <= set(described_rows), "moto's dump does not have it: its row needs another `source`"
    for name, said in described_rows.items():
        row, network = ec2.load_instances()[name], said["NetworkInfo"]
        assert (row.vcpus, row.ram_gib * 1024) == (said["VCpuInfo"]["DefaultVCpus"], said["MemoryInfo"]["SizeInMiB"])
        assert row.network_cards == network["MaximumNetworkCards"], name
        assert row.efa_max == network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0), name
        assert row.enis_per_card == network["NetworkCards"][0]["MaximumNetworkInterfaces"], name
        assert row.capacity_block == ("capacity-block" in said["SupportedUsageClasses"]), name
        assert bool(row.local_nvme) == said["InstanceStorageSupported"], name
        assert said["ProcessorInfo"]["SupportedArchitectures"] == ["x86_64"], "orch knows images for it alone"
        chips = said.get("GpuInfo", {}).get("Gpus") or said.get("NeuronInfo", {}).get("NeuronDevices")
        if chips is None:
            assert not row.chip or name == "trn2u.48xlarge", "for which the API reported no chips"
            continue
        assert row.chip in (chips[0]["Name"], *RENAMED.get(chips[0]["Name"], ())), name
        assert row.chips == sum(one["Count"] for one in chips), name
        if row.chip != "Trainium2":  # the API states 512 GiB a chip
            assert chips[0]["MemoryInfo"]["SizeInMiB"] == pytest.approx(row.hbm_gib_per_chip * 1024, rel=0.03), name


def test_the_places_are_those_that_the_api_offered() -> None:
    offered: dict[str, set[str]] = {}
    for file in (DUMP / "instance_type_offerings" / "region").iterdir():
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for one in json.loads(text):
            offered.setdefault(one["InstanceType"], set()).add(one["Location"])
    for instance in ec2.load_instances().values():
        if instance.name in offered or instance.name in from_dump():
            assert set(instance.regions) == offered.get(instance.name, set()), instance.name
        assert set(instance.regions) <= set(load_zones_by_region())
    assert load_zones_by_region()["us-east-1"] == tuple(f"us-east-1{letter}" for letter in "abcdef")


def test_a_type_that_is_newer_than_the_table_is_known_by_its_name() -> None:
    new = ec2.make_unlisted_type("P9-b900.48xlarge")
    assert new is not None
    assert (new.name, new.listed, new.backend, new.chips, new.efa_max) == ("p9-b900.48xlarge", False, "cuda", 0, 0)
    neuron = ec2.make_unlisted_type("trn9.3xlarge")
    assert neuron is not None
    assert neuron.backend == "neuron"
    for other in ("m5.large", "p5", "p5.huge", "v5e-16", "p5.48xlarge; rm"):
        assert ec2.make_unlisted_type(other) is None, other
    with pytest.raises(UserError):
        resolve("p9.48xlarge")  # as an accelerator it is more likely a slip


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("p6e-gb200.36xlarge", "UltraServers in Capacity Blocks"),
        ("u-p6e-gb200x72", "UltraServers in Capacity Blocks"),
        ("GB200:4", "ARM"),
        ("g5g.xlarge", "packages for ARM have no kernels for its GPU"),
        ("V100", "AWS ended its p3 types"),
        ("V100:4", "in December 2025"),
        ("V100-32GB:8", "AWS ended its p3dn types"),
        ("p3.2xlarge", "AWS ended its p3 types"),
        ("K80:1", "AWS ended its p2 types"),
    ],
)
def test_machines_that_orch_does_not_serve_are_refused_by_name_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as caught:
        resolve(name)
    with pytest.raises(UserError, match=why):
        resolve_instance(name)
    assert name in str(caught.value) and caught.value.next_step


def test_prices_of_other_regions_are_found_by_region() -> None:
    p5, trn1 = resolve("p5.48xlarge"), resolve("trn1.32xlarge")
    prices = {region: price_per_hour(p5, OnDemand(), region) for region in ("us-east-1", "eu-north-1", "us-west-1")}
    assert [one.low for one in prices.values() if one] == [55.04, 58.8928, 68.8]
    assert price_per_hour(p5, OnDemand(), "sa-east-1") is None
    usual = price_per_hour(trn1, OnDemand())
    assert usual is not None and usual.low == 21.5 and "us-east-1" in usual.note


@pytest.mark.parametrize(
    ("name", "region", "usd"),
    [  # the amounts that Apache Libcloud 3.9.1 lists for these types; the table has one ratio for all sizes of a family
        ("g4dn.12xlarge", "eu-west-1", 4.362),
        ("g5.12xlarge", "eu-central-1", 7.09282),
        ("g6.xlarge", "sa-east-1", 1.368),
        ("g6e.48xlarge", "eu-central-1", 37.67612),
        ("c7i.xlarge", "us-west-1", 0.2226),
        ("t3.2xlarge", "eu-north-1", 0.3456),
    ],
)
def test_a_size_of_a_family_costs_in_a_region_what_the_list_says(name: str, region: str, usd: float) -> None:
    price = price_per_hour(resolve(name), OnDemand(), region)
    assert price is not None and price.low == pytest.approx(usd, rel=1e-3)
    assert price.as_of == "2025-03-02" and "Libcloud" in price.source


def test_a_region_without_a_known_ratio_has_no_price() -> None:
    assert price_per_hour(resolve("g6e.xlarge"), OnDemand(), "ap-northeast-2") is None
