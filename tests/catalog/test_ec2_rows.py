"""EC2 rows against the fact sheet, section 1 and 2.1."""

import pytest

from orchestrator.catalog import ec2
from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.machines import Ec2Instance


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
    for instance in ec2.instances().values():
        assert 0 <= instance.efa_max <= instance.network_cards
        assert instance.efa_on_card0 or instance.efa_max < instance.network_cards or instance.efa_max == 0
