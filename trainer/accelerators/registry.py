"""Chooses engine and device from the words of `engine=` and `device=`, and opens the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, TypeAlias

from trainer.accelerators.base import NativeAccelerator, NativeName
from trainer.accelerators.device import Device
from trainer.config import Config, DeviceName
from trainer.errors import ConfigError, DeviceError

if TYPE_CHECKING:
    from trainer.environment import World

EngineFamily: TypeAlias = Literal["torch", "jax"]
DeviceWord: TypeAlias = Literal["cpu", "cuda", "tpu", "neuron", "xla"]


def open_native_device(name: NativeName, world: World) -> NativeAccelerator:
    """Open the device of this rank.

    Raises:
        DeviceError: It is missing or unusable; the message says what to do.
    """
    from trainer.accelerators.native import TorchDevice

    return TorchDevice(name, world)


def is_installed(package: str) -> bool:
    """Return whether a package could be imported, without importing it."""
    return find_spec(package) is not None


def is_torch_neuron() -> bool:
    """Return whether torch-neuronx is TorchNeuron, torch's own device, and not the older PyTorch/XLA of the same name.

    The version decides: TorchNeuron began with 2.13 (AWS, "Troubleshooting: TorchNeuron", Neuron 2.33, October 2026).
    """
    try:
        major, minor = version("torch-neuronx").split(".")[:2]
    except (PackageNotFoundError, ValueError):
        return False
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= (2, 13)


def choose_engine(
    config: Config,
    devices: Sequence[Device],
    has: Callable[[str], bool] = is_installed,
    native: Callable[[], bool] = is_torch_neuron,
) -> tuple[EngineFamily, DeviceWord]:
    """Resolve `engine=` and `device=` on a machine with these devices; an explicit word wins.

    Args:
        config: Of the run.
        devices: From trainer.accelerators.discovery.
        has: Returns whether a package is installed.
        native: As `is_torch_neuron`.

    Raises:
        ConfigError: The words exclude each other.
        DeviceError: Nothing that is installed can use the device.
    """
    device = _device(config.device, devices)
    if config.engine == "jax" or (config.engine == "auto" and _prefers_jax(device, has)):
        return "jax", _for_jax(config, device, has)
    return "torch", _for_torch(config, device, has, native)


def _device(name: DeviceName, devices: Sequence[Device]) -> DeviceWord:
    if name != "auto":
        return name
    kinds = {device.kind for device in devices}
    order: tuple[NativeName, ...] = ("cuda", "neuron", "tpu")
    for kind in order:
        if kind in kinds:
            return kind
    return "cpu"


def _prefers_jax(device: DeviceWord, has: Callable[[str], bool]) -> bool:
    if device in ("cpu", "cuda"):
        return not has("torch") and has("jax")
    if device == "tpu":
        return has("jax")
    # AWS's images carry one framework each; where torch knows the chips, it is the one that AWS keeps for training.
    return device == "neuron" and has("jax") and not has("torch_neuronx") and not has("torch_xla")


def _for_jax(config: Config, device: DeviceWord, has: Callable[[str], bool]) -> DeviceWord:
    if device == "xla":
        raise ConfigError("device=xla is torch_xla's: with engine=jax say device=tpu, neuron, cuda or cpu")
    if not has("jax"):
        what = {"tpu": "jax[tpu]", "cuda": "jax[cuda12]"}.get(device, "jax")
        raise DeviceError(f"engine={config.engine}: JAX is not installed; `pip install '{what}'`, or engine=torch")
    return device


def _for_torch(
    config: Config, device: DeviceWord, has: Callable[[str], bool], native: Callable[[], bool]
) -> DeviceWord:
    if not has("torch"):
        raise DeviceError(f"engine={config.engine}: torch is not installed; `pip install torch`, or engine=jax")
    if device == "neuron" and has("torch_xla") and not native():
        return "xla"  # Trn1, whose last PyTorch is the lazy one, and images up to Neuron 2.31 on the others
    if config.device == "auto" and device == "tpu" and not has("torch_tpu"):
        if has("torch_xla"):
            return "xla"
        raise DeviceError(
            "device=auto: this machine has TPUs, but none of jax, torch_tpu and torch_xla is installed: "
            "`pip install 'jax[tpu]'`, or train on the processor with device=cpu"
        )
    return device
