"""From the word of `device=` to a device that is ready."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from trainer.accelerators.discovery import Device, discover
from trainer.config import DeviceName
from trainer.environment import World
from trainer.errors import DeviceError

if TYPE_CHECKING:
    from trainer.accelerators.base import Accelerator


def open_accelerator(name: DeviceName, world: World, found: Sequence[Device] | None = None) -> Accelerator:
    """Raises DeviceError when the device is not there or not usable.

    found: what `auto` chooses from; None looks at this machine.
    """
    chosen = choose(discover() if found is None else found) if name == "auto" else name
    if chosen == "neuron" and find_spec("torch_xla") is not None:
        # Trn1: its last PyTorch is the lazy one (Neuron 2.28); images with the native one, for Trn2 and later, lack it.
        os.environ.setdefault("PJRT_DEVICE", "NEURON")
        chosen = "xla"
    if chosen == "xla":
        from trainer.accelerators.xla import XlaAccelerator

        return XlaAccelerator(world)
    from trainer.accelerators.native import ROWS, NativeAccelerator

    if chosen == "auto":
        raise DeviceError("device=auto chose nothing")
    try:
        return NativeAccelerator(ROWS[chosen], world)
    except DeviceError as error:
        if name != "auto":
            raise
        # Training on the processor beside an idle accelerator would be paid for and not noticed.
        raise DeviceError(f"{error}; to train on the processor all the same: device=cpu") from error


def choose(devices: Sequence[Device]) -> DeviceName:
    """The word that device=auto stands for on a machine with these devices."""
    kinds = {device.kind for device in devices}
    if "cuda" in kinds:
        return "cuda"
    if "neuron" in kinds:
        return "neuron"
    return "xla" if "tpu" in kinds else "cpu"
