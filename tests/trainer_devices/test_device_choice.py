"""engine=auto and device=auto: devices and installed packages decide; an explicit word wins and is checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.accelerators.device import Device
from trainer.accelerators.registry import choose_engine, open_native_device
from trainer.environment import World
from trainer.errors import DeviceError, TrainerError
from trainer.options import parse_config
from trainer.smoke_test.stages import check_devices

CPU = Device(kind="cpu", name="c", vendor="v", index=0, total_mem_mb=1, available_mem_mb=1, topology="t")


def devices(kind: Any) -> list[Device]:
    return (
        [CPU]
        if kind == "cpu"
        else [Device(kind=kind, name="x", vendor="v", index=0, total_mem_mb=1, available_mem_mb=1, topology="t"), CPU]
    )


def only(*packages: str) -> Callable[[str], bool]:
    return lambda package: package in packages


TORCH, BOTH = ("torch",), ("torch", "jax")


@pytest.mark.parametrize(
    ("kind", "packages", "engine", "device"),
    [
        ("cpu", BOTH, "torch", "cpu"),
        ("cpu", ("jax",), "jax", "cpu"),
        ("cuda", BOTH, "torch", "cuda"),
        ("tpu", BOTH, "jax", "tpu"),
        ("tpu", (*TORCH, "torch_tpu"), "torch", "tpu"),
        ("tpu", (*TORCH, "torch_xla"), "torch", "xla"),
        ("neuron", (*BOTH, "torch_neuronx"), "torch", "neuron"),
        ("neuron", (*TORCH, "torch_neuronx", "torch_xla"), "torch", "xla"),  # Trn1, Neuron 2.28
        ("neuron", BOTH, "jax", "neuron"),
    ],
)
def test_auto(kind: str, packages: tuple[str, ...], engine: str, device: str) -> None:
    assert choose_engine(parse_config([]), devices(kind), only(*packages)) == (engine, device)


@pytest.mark.parametrize(
    ("version", "device"),
    [("2.9.0.2.15.32035", "xla"), ("2.13.3.0.1", "neuron"), ("2.14.3.0+x", "neuron"), ("odd", "xla")],
)
def test_the_two_packages_named_torch_neuronx_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, device: str
) -> None:
    """AWS's images may bring a torch_xla beside the native one."""
    metadata = tmp_path / "torch_neuronx-1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: torch-neuronx\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    has = only("torch", "torch_neuronx", "torch_xla")
    assert choose_engine(parse_config([]), devices("neuron"), has) == ("torch", device)


@pytest.mark.parametrize(
    ("words", "kind", "engine", "device"),
    [
        (["engine=torch"], "cuda", "torch", "cuda"),
        (["engine=jax"], "cuda", "jax", "cuda"),
        (["device=cpu"], "tpu", "torch", "cpu"),
        (["device=xla"], "tpu", "torch", "xla"),
        (["device=tpu"], "cpu", "jax", "tpu"),
        (["engine=torch", "device=tpu"], "tpu", "torch", "tpu"),
    ],
)
def test_an_explicit_word_wins(words: list[str], kind: str, engine: str, device: str) -> None:
    assert choose_engine(parse_config(words), devices(kind), only(*BOTH)) == (engine, device)


@pytest.mark.parametrize(
    ("words", "kind", "packages", "message"),
    [
        (["engine=jax", "device=xla"], "tpu", BOTH, "device=xla is torch_xla's"),
        (["engine=jax"], "tpu", TORCH, r"JAX is not installed; `pip install 'jax\[tpu\]'`"),
        (["engine=torch"], "cpu", ("jax",), "torch is not installed"),
        ([], "tpu", TORCH, "none of jax, torch_tpu and torch_xla is installed"),
    ],
)
def test_impossible_choice_names_what_to_do(
    words: list[str], kind: str, packages: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TrainerError, match=message):
        choose_engine(parse_config(words), devices(kind), only(*packages))


@pytest.mark.parametrize(
    ("name", "advice"), [("cuda", "nvidia-smi"), ("tpu", "pip install torch_tpu"), ("neuron", "image of AWS Neuron")]
)
def test_missing_device_is_an_error_with_advice(name: str, advice: str) -> None:
    torch = pytest.importorskip("torch")
    present = torch.accelerator.current_accelerator(check_available=True)
    if present is not None and present.type == name:
        pytest.skip(f"this machine has a {name} device")
    with pytest.raises(DeviceError, match=f"(?s)device={name}: .*{advice}.*device=cpu"):
        open_native_device(name, World())  # type: ignore[arg-type]  # a kind's name


def test_the_processor_as_a_device() -> None:
    cpu = open_native_device("cpu", World())
    assert (cpu.name, cpu.device.type, cpu.backend, cpu.compiler) == ("cpu", "cpu", "gloo", "inductor")
    assert cpu.notes(parse_config(["dtype=bf16"])) == []
    assert cpu.snapshot()["device"] == "cpu"
    assert (cpu.memory() or 0) > 50_000_000


def test_the_smoke_test_counts_the_chips_of_the_host() -> None:
    config, found = parse_config(["engine=jax", "device=tpu"]), [*devices("tpu"), CPU]
    assert check_devices(config, {"ORCH_CHIPS_PER_HOST": "1"}, found) == "1 x x: jax on tpu"
    with pytest.raises(DeviceError, match=r"this host shows 1 chips of 4: .* ORCH_TPU_CHECK=0"):
        check_devices(config, {"ORCH_CHIPS_PER_HOST": "4"}, found)
    check_devices(config, {"ORCH_CHIPS_PER_HOST": "4", "ORCH_TPU_CHECK": "0"}, found)
    check_devices(parse_config(["engine=torch", "device=cpu"]), {"ORCH_CHIPS_PER_HOST": "4"}, [CPU])
