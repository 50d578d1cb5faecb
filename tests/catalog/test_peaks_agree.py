"""The catalogue, by which orch advises before money is spent, and the trainer, which prints MFU, know the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orchestrator.catalog import chips
from orchestrator.catalog.accelerators import resolve_rented
from orchestrator.catalog.tpu import CHIPS_PER_HOST, list_generations
from orchestrator.errors import UserError
from trainer.accelerators.chips import CHIPS as BY_NAME
from trainer.accelerators.device import Device
from trainer.accelerators.pci import GPUS, NEURONS, TPUS, Chip
from trainer.accelerators.peaks import find_peak_flops
from trainer.accelerators.tpu_generations import GENERATIONS as OF_TRAINER
from trainer.accelerators.tpu_generations import TpuGeneration
from trainer.jax_engine.device_names import get_peak_flops

# The catalogue's name -> what nvidia-smi or the Neuron driver's PCI id say of it.
CHIPS = {
    "T4": "Tesla T4",
    "A10G": "NVIDIA A10G",
    "L4": "NVIDIA L4",
    "L40S": "NVIDIA L40S",
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

WITHOUT_BF16 = {"T4"}  # of compute capability 7.5; bf16 begins with 8.0

DEVICES = {name: f"TPU {name}" for name in ("v2", "v3", "v4", "v5e", "v5p", "v6e")} | {"tpu7x": "TPU v7"}  # torch_tpu's

# What JAX calls the TPUs, and as how many devices it shows a chip (libtpu 0.0.51, topology descriptions).
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
    listed = {chip.name for chip in chips.load_chips().values()}
    assert set(CHIPS) == listed, "add its name to CHIPS, and its rows to peaks.py and pci.py in trainer/accelerators"
    assert {name: teraflops(known) for name, known in CHIPS.items() if name not in WITHOUT_BF16} == {
        chip.name: chip.peak_bf16_tflops for chip in chips.load_chips().values() if chip.peak_bf16_tflops
    }
    assert {chip.name for chip in chips.load_chips().values() if not chip.peak_bf16_tflops} == WITHOUT_BF16
    assert {each.name: teraflops(of_trainer(each.name).device) for each in list_generations()} == {
        each.name: each.peak_bf16_tflops for each in list_generations()
    }


def test_advice_knows_the_peak_and_memory_of_gpus_and_tpus_by_the_name_of_the_chip() -> None:
    gpus = {one.name: one for one in chips.load_chips().values() if one.vendor == "nvidia" and one.peak_bf16_tflops}
    assert {name: (found.peak_flops, found.memory_bytes >> 30) for name, found in BY_NAME.items() if name in gpus} == {
        name: (one.peak_bf16_tflops * 1e12, one.hbm_gib) for name, one in gpus.items()
    }
    for each in list_generations():
        found = BY_NAME[each.name]
        assert found.peak_flops * each.devices_per_chip == each.peak_bf16_tflops * 1e12
        assert found.memory_bytes * each.devices_per_chip == each.hbm_gib * (1 << 30)
    assert set(BY_NAME) == {*gpus, *(each.name for each in list_generations())}


def test_every_chip_that_can_be_rented_is_known_by_its_pci_id() -> None:
    known: dict[str, Chip] = {chip.name: chip for chip in (*TPUS.values(), *NEURONS.values())}
    assert {CHIPS[chip.name] for chip in chips.load_chips().values() if chip.vendor == "nvidia"} == set(GPUS.values())
    for chip in chips.load_chips().values():
        if chip.vendor == "aws":
            found = known[CHIPS[chip.name]]
            assert (found.memory, found.cores, found.devices) == (chip.hbm_gib, chip.cores, chip.logical_cores)
    for each in list_generations():
        name = of_trainer(each.name).device
        if name in known:  # one id means v2 or v3
            assert (known[name].memory, known[name].cores) == (each.hbm_gib, each.cores_per_chip)


def test_jax_has_the_same_peaks_under_its_own_names() -> None:
    for each in list_generations():
        for kind in of_trainer(each.name).jax_kinds:
            found = get_peak_flops(SimpleNamespace(device_kind=kind), "bf16")
            assert found == each.peak_bf16_tflops * 1e12 / each.devices_per_chip, kind
    for name, kind in KINDS.items():
        assert kind in of_trainer(name).jax_kinds and of_trainer(name).device == DEVICES[name]
        assert of_trainer(name).devices == (2 if name in PAIRS else 1), name


def test_a_chip_without_a_listed_type_is_an_error_with_the_step() -> None:
    with pytest.raises(UserError, match="`Trainium3:4` names no EC2 instance type"):
        resolve_rented("Trainium3:4")


def test_the_catalogue_and_the_trainer_have_the_same_generations() -> None:
    """A new generation in data/tpu.toml fails here until trainer/accelerators/tpu_generations.py has it."""
    for each in list_generations():
        theirs = of_trainer(each.name)
        largest = max(each.chips(size) for size in each.single_host)
        ours = (each.peak_bf16_tflops * 1e12, each.devices_per_chip, max(largest, CHIPS_PER_HOST))
        assert ours == (theirs.peak_flops, theirs.devices, theirs.host_chips), each.name
    assert {each.name for each in OF_TRAINER} == {each.name for each in list_generations()}


def of_trainer(name: str) -> TpuGeneration:
    found = next((each for each in OF_TRAINER if each.name == name), None)
    assert found is not None, f"add the row {name} to GENERATIONS in trainer/accelerators/tpu_generations.py"
    return found
