"""Runs on a GPU, where there is one, compared with the same runs on the processor.

Everywhere, each test's code also runs with device=cpu, so that it is known to work when it meets a GPU.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from cuda_cases import GPUS, NARROW, NEAR, cuda, losses, on_gpu, program, run

from trainer.accelerators.discovery import discover_devices
from trainer.accelerators.peaks import find_peak_flops

FULL = ("dtype=fp32", "exact=true", "compile=false")
either = pytest.mark.parametrize("device", ["cpu", cuda])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "sums.txt"
    path.write_text("".join(f"the sum of {i} and {i + 1} is {2 * i + 1}\n" for i in range(2000)))
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> list[float]:
    """Return the losses that the processor computes in fp32."""
    found = losses(run(tmp_path_factory.mktemp("expected"), corpus, "cpu"))
    assert found[-1] < found[0]
    return found


@either
def test_run_has_the_losses_of_the_processor_and_reports_its_device(
    device: str, tmp_path: Path, corpus: Path, expected: list[float]
) -> None:
    records = run(tmp_path, corpus, device, *FULL, "accumulate=2", "remat=true")
    assert losses(records) == pytest.approx(expected, abs=NEAR)
    assert all(record["memory"] > 1 << 18 for record in records)
    assert all(record["step_s"] > 0 for record in records)
    assert records[-1]["mfu"] is None  # fp32 has no published peak that a step could reach


@either
def test_narrow_products_are_near_and_the_same_twice(
    device: str, tmp_path: Path, corpus: Path, expected: list[float]
) -> None:
    """With exact=true they are equal to the last bit: on a GPU by the repeatable attention kernel."""
    words = ("dtype=bf16", "exact=true")
    records = run(tmp_path, corpus, device, *words)
    assert losses(records) == pytest.approx(expected, abs=NARROW)
    assert losses(records) != expected
    assert losses(run(tmp_path, corpus, device, *words)) == losses(records)
    known = device == "cuda" and find_peak_flops(GPUS[0], "bf16") is not None
    assert (records[-1]["mfu"] is not None) == known
    if known:
        assert 0 < records[-1]["mfu"] < 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cpu", "cpu"),
        pytest.param("cuda", "cuda", marks=on_gpu),
        pytest.param("cuda", "cpu", marks=on_gpu),
        pytest.param("cpu", "cuda", marks=on_gpu),
    ],
)
def test_run_resumes_on_the_same_device_and_on_the_other(first: str, second: str, tmp_path: Path, corpus: Path) -> None:
    """On the same device the losses are equal to the last bit."""
    words = ("dtype=bf16", "exact=true", "optim.schedule=constant")
    place = f"checkpoint.uri={tmp_path}/run/checkpoints"
    begun = run(tmp_path, corpus, first, *words, place, "steps=3")
    rest = run(tmp_path, corpus, second, *words, place)
    assert [record["step"] for record in rest] == [4, 5, 6]
    through = losses(run(tmp_path / "through", corpus, first, *words))
    found = losses([*begun, *rest])
    assert found == through if first == second else found == pytest.approx(through, abs=NARROW)


@on_gpu
def test_a_compiled_run_has_the_same_losses(
    tmp_path: Path, corpus: Path, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compute the loss in one piece, and in slices of 32 tokens. (tests/trainer_torch has it for a processor.)"""
    from trainer.torch_engine import build

    words = ("dtype=fp32", "exact=true", "compile=true")
    records = run(tmp_path, corpus, "cuda", *words)
    assert losses(records) == pytest.approx(expected, abs=NEAR)
    assert records[-1]["compilations"] == records[1]["compilations"] >= 2  # a block and the loss; none later
    monkeypatch.setattr(build, "LOGITS_BYTES", 32 * 256 * 4)
    assert losses(run(tmp_path, corpus, "cuda", *words)) == pytest.approx(expected, abs=NEAR)


@on_gpu
def test_an_ordinary_run_is_compiled_in_bf16(tmp_path: Path, corpus: Path, expected: list[float]) -> None:
    records = run(tmp_path, corpus, "cuda")
    assert losses(records) == pytest.approx(expected, abs=NARROW)
    assert losses(records) != pytest.approx(expected, abs=1e-5)
    assert records[-1]["compilations"] >= 2


@on_gpu
def test_float32_is_multiplied_in_tf32_unless_it_must_be_exact(
    tmp_path: Path, corpus: Path, expected: list[float]
) -> None:
    records = run(tmp_path, corpus, "cuda", "dtype=fp32", "compile=false")
    assert losses(records) == pytest.approx(expected, abs=NARROW / 10)
    assert losses(records) != losses(run(tmp_path, corpus, "cuda", *FULL))


@either
def test_device_is_listed_with_its_state(device: str) -> None:
    from trainer.accelerators.registry import open_native_device
    from trainer.environment import World

    accelerator = open_native_device(device, World())  # type: ignore[arg-type]  # a kind's name
    found, snapshot = accelerator.describe(), accelerator.snapshot()
    assert found.kind == device
    assert (found.total_mem_mb or 0) > 1000
    assert snapshot["peak_bytes"] > 0
    if device == "cuda":
        assert found.name == accelerator_name()
        assert "allocated_bytes.all.peak" in snapshot["allocator"]
    listed = [one for one in discover_devices() if one.kind == device]
    assert any(one.name == found.name or one.total_mem_mb is None for one in listed)  # None: there is no nvidia-smi


def accelerator_name() -> str:
    import torch

    return torch.cuda.get_device_name(0)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), cuda])
def test_two_devices_divide_the_weights(device: str, tmp_path: Path, corpus: Path, expected: list[float]) -> None:
    if device == "cuda" and len(GPUS) < 2:
        pytest.skip("this machine has one GPU")
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "localhost:0", "-m", "trainer"]
    records = program(tmp_path, corpus, launcher, f"device={device}", "mesh.fsdp=2", *FULL)
    assert losses(records) == pytest.approx(expected, abs=NEAR)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), cuda])
def test_jax_has_the_same_losses(device: str, tmp_path: Path, corpus: Path, expected: list[float]) -> None:
    if device == "cuda" and not any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        pytest.skip("this JAX has no CUDA")
    records = program(tmp_path, corpus, ["-m", "trainer"], f"device={device}", "engine=jax", *FULL)
    assert losses(records) == pytest.approx(expected, abs=NEAR)
