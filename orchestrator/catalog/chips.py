"""Accelerator chips that machines of several vendors have (data/chips.toml), and devices in machines of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from orchestrator.catalog.machines import OwnDevices
from orchestrator.catalog.tables import Row, read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    name: str
    vendor: str
    hbm_gib: float
    peak_bf16_tflops: float
    cores: int
    logical_cores: int
    backends: tuple[str, ...]

    @property
    def device(self) -> str:
        """How the trainer names it."""
        return next((device for device in ("neuron", "cuda") if device in self.backends), "cpu")

    @property
    def devices(self) -> int:
        """What a program sees of one chip: Neuron groups its cores, the other chips are one device each."""
        return self.logical_cores if self.device == "neuron" else 1

    @property
    def without_torch_neuron(self) -> bool:
        """Whether it is of the first generation, which TorchNeuron does not serve (task/stacks.py)."""
        return self.name == "Trainium"


@cache
def load_chips() -> dict[str, Chip]:
    """Return the chips by lower-case name."""
    return {row.text("name").lower(): _chip(row) for row in read_rows("chips", "chip")}


def is_rented_elsewhere(name: str) -> bool:
    """Return whether NAME or NAME:COUNT is a chip that only clouds rent out that orch does not serve."""
    chip = name.partition(":")[0].strip().lower()
    return any(chip in (one.lower() for one in row.texts("names")) for row in read_rows("chips", "elsewhere"))


def find_devices(name: str) -> OwnDevices | None:
    """Return NAME:COUNT as devices in one of the user's own machines; None when the chip is not known."""
    split = split_count(name.strip())
    if split is None:
        return None
    chip, count = split
    canonical = f"{chip.name}:{count}"
    return OwnDevices(
        name=canonical,
        hosts=1,
        chips_per_host=count,
        cores_per_chip=chip.cores,
        hbm_gib_per_chip=chip.hbm_gib,
        peak_bf16_tflops_per_chip=chip.peak_bf16_tflops,
        backends=chip.backends,
        normalised_from=None if name.strip() == canonical else name.strip(),
        chip=chip.name,
        device=chip.device,
        without_torch_neuron=chip.without_torch_neuron,
        devices_per_chip=chip.devices,
    )


def split_count(name: str) -> tuple[Chip, int] | None:
    """Split `H100:8` into chip and count; a name alone means one."""
    chip_name, _, count = name.partition(":")
    chip = load_chips().get(chip_name.strip().lower())
    count = count.strip() or "1"
    if chip is None or not count.isascii() or not count.isdigit() or not 0 < int(count[:7]) < 1_000_000:
        return None
    return chip, int(count[:7])


def _chip(row: Row) -> Chip:
    return Chip(
        name=row.text("name"),
        vendor=row.text("vendor"),
        hbm_gib=row.number("hbm_gib"),
        peak_bf16_tflops=row.number("peak_bf16_tflops"),
        cores=row.whole("cores"),
        logical_cores=row.whole("logical_cores"),
        backends=row.texts("backends"),
    )


# Of a type that has none: what drives its processor.
NO_CHIP = Chip(
    name="",
    vendor="",
    hbm_gib=0,
    peak_bf16_tflops=0,
    cores=0,
    logical_cores=0,
    backends=("cpu", "xla", "jax"),
)
