"""The catalogue, by which orch advises before money is spent, and the trainer, which prints MFU, know the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orchestrator.catalog import ec2
from orchestrator.catalog.accelerators import resolve_rented
from orchestrator.catalog.tables import read_rows
from orchestrator.catalog.tpu import list_generations
from orchestrator.errors import UserError
from trainer.accelerators.device import Device
from trainer.accelerators.pci import GPUS, NEURONS, TPUS, Chip
from trainer.accelerators.peaks import find_peak_flops
from trainer.accelerators.tpu_generations import GENERATIONS as OF_TRAINER
from trainer.jax_engine.device_names import get_peak_flops

# The catalogue's name -> what nvidia-smi, torch_tpu or the Neuron driver's PCI id say of it.
CHIPS = {
    "A100": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA A100-SXM4-80GB",
    "H100": "NVIDIA H100 80GB HBM3",
    "H200": "NVIDIA H200",
    "B200": "NVIDIA B200",
    "B300": "NVIDIA B300 SXM6 AC",
    "Trainium": "AWS Trainium1",
    "Trainium2": "AWS Trainium2",
    "Trainium3": "AWS Trainium3",
}
GENERATIONS = {name: f"TPU {name}" for name in ("v2", "v3", "v4", "v5e", "v5p", "v6e")} | {"tpu7x": "TPU v7"}

# What JAX calls them, and as how many devices it shows a chip (libtpu 0.0.51, topology descriptions).
KINDS = {"v2": "TPU v2", "v3": "TPU v3", "v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite"}
KINDS |= {"tpu7x": "TPU7x"}
PAIRS = ("v2", "v3", "tpu7x")


def teraflops(name: str, devices: int = 1) -> float:
    found = find_peak_flops(
        Device(
            kind="cpu",
            name=name,
            vendor="",
            index=0,
            total_mem_mb=None,
            available_mem_mb=None,
            topology=None,
            devices=devices,
        ),
        "bf16",
    )
    assert found is not None, name
    return found * devices / 1e12


def test_every_chip_that_can_be_rented_has_the_same_peak_on_both_sides() -> None:
    assert {name: teraflops(known) for name, known in CHIPS.items()} == {
        chip.name: chip.peak_bf16_tflops for chip in ec2.load_chips().values()
    }
    assert {name: teraflops(known) for name, known in GENERATIONS.items()} == {
        row.text("name"): row.number("peak_bf16_tflops") for row in read_rows("tpu", "generation")
    }


def test_every_chip_that_can_be_rented_is_known_by_its_pci_id() -> None:
    known: dict[str, Chip] = {chip.name: chip for chip in (*TPUS.values(), *NEURONS.values())}
    assert {name for name in CHIPS.values() if name.startswith("NVIDIA")} == set(GPUS.values())
    for chip in ec2.load_chips().values():
        if chip.vendor == "aws":
            found = known[CHIPS[chip.name]]
            assert (found.memory, found.cores, found.devices) == (chip.hbm_gib, chip.cores, chip.logical_cores)
    for row in read_rows("tpu", "generation"):
        name = GENERATIONS[row.text("name")]
        if name in known:  # one id means v2 or v3
            assert known[name].memory == row.number("hbm_gib")
            assert known[name].cores == row.whole("cores_per_chip")


def test_jax_has_the_same_peaks_under_its_own_names() -> None:
    for row in read_rows("tpu", "generation"):
        name = row.text("name")
        found = get_peak_flops(SimpleNamespace(device_kind=KINDS[name]), "bf16")
        assert found == row.number("peak_bf16_tflops") * 1e12 / (2 if name in PAIRS else 1), name


def test_a_chip_without_a_listed_type_is_an_error_with_the_step() -> None:
    with pytest.raises(UserError, match="`Trainium3:4` names no EC2 instance type"):
        resolve_rented("Trainium3:4")


def test_the_trainer_has_a_row_for_each_generation_of_the_catalogue() -> None:
    """A new generation in data/tpu.toml fails here until trainer/accelerators/tpu_generations.py has it."""
    of_catalogue = {
        each.name: (each.peak_bf16_tflops * 1e12, each.devices_per_chip, each.cores_per_chip)
        for each in list_generations()
    }
    of_trainer = {each.name: (each.peak_flops, each.devices, each.cores) for each in OF_TRAINER}
    assert {name: row[:2] for name, row in of_catalogue.items()} == {name: row[:2] for name, row in of_trainer.items()}
