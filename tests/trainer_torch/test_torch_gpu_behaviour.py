"""Behaviour of the torch engine for GPUs, as far as a CPU can test it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch_cases import SMALL

from trainer.accelerators.registry import open_native_device
from trainer.config import LoraConfig, ModelConfig
from trainer.environment import World
from trainer.errors import DeviceError, PeerError
from trainer.options import parse_config
from trainer.shape.mesh import Mesh
from trainer.shape.rotary import make_rotary_table
from trainer.torch_engine import build, model
from trainer.torch_engine.compiling import TorchCompiler, count_compiled_graphs
from trainer.torch_engine.host_copy import HostCopier
from trainer.torch_engine.loss import compute_mean_loss
from trainer.torch_engine.model import Attention, Transformer, repeat_heads, supports_grouped_heads
from trainer.torch_engine.process_group import extract_cause, translate_errors
from trainer.torch_engine.slots import fill_initial_values, list_slots


@pytest.fixture
def _as_before() -> Iterator[None]:
    mode, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    yield
    torch.set_deterministic_debug_mode(mode)
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_as_before")
def test_on_cuda_a_nondeterministic_operation_is_an_error_with_the_next_step() -> None:
    """It must not be a warning: with warnings, torch's attention on CUDA is not deterministic."""
    accelerator = open_native_device("cpu", World())
    accelerator.set_exactness(exact=True, compiled=False)
    with pytest.warns(UserWarning, match="deterministic"):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    accelerator.name = "cuda"  # type: ignore[misc]  # an attribute of the real class
    accelerator.set_exactness(exact=True, compiled=False)
    with pytest.raises(DeviceError, match="exact=false"), translate_errors(World(), 5):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", DeviceError, "remat=full"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", DeviceError, "remat=full"),
        ("Triton Error [CUDA]: out of memory", DeviceError, "remat=full"),
        ("CUDA error: uncorrectable ECC error encountered", DeviceError, "the device failed"),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", DeviceError, "the device failed"),
        (
            (
                "NCCL error in: a.cpp:94, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
                "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
            ),
            DeviceError,
            "Cuda failure 2 'out of memory'",
        ),
        (
            (
                "NCCL error in: a.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for details)\n"
                "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
                "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 53000"
            ),
            DeviceError,
            "both on CUDA device 53000",
        ),
        (
            (
                "NCCL error in: a.cpp:94, remote process exited or there was a network error\n"
                "ncclRemoteError: A call failed possibly due to a network error.\n"
                "Last error:\nsocketProgress: Connection closed by remote peer node-1"
            ),
            PeerError,
            "Connection closed by remote peer node-1",
        ),
    ],
)
def test_gpu_errors_are_classified(text: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as found, translate_errors(World(size=2), 5):
        raise RuntimeError(text)
    assert says in str(found.value)
    assert "\n" not in extract_cause(RuntimeError(text))


@pytest.mark.parametrize("stage_bytes", [4, 28, 1 << 20])
def test_a_staged_copy_equals_a_direct_copy(stage_bytes: int) -> None:
    draw = torch.Generator().manual_seed(1)
    values = [torch.randn(shape, generator=draw) for shape in ((3, 5), (1,), (4, 4))]
    values.append(torch.randn(6, 4, generator=draw).T)  # with its numbers in another order
    targets = [torch.full(value.shape, float("nan")) for value in values]
    outward = HostCopier(torch.device("cpu"), staged=True, stage_bytes=stage_bytes)
    for factor in (1.0, 2.0):  # the second time through the same memory
        outward.copy([(value * factor, target) for value, target in zip(values, targets, strict=True)])
        for value, target in zip(values, targets, strict=True):
            assert torch.equal(target, value * factor)


def test_only_float32_on_cuda_repeats_the_heads_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA has no float32 kernel for grouped heads, and a score matrix per head would not fit."""
    assert not supports_grouped_heads("cuda", torch.float32)
    assert supports_grouped_heads("cuda", torch.bfloat16)
    assert not supports_grouped_heads("cuda", torch.bfloat16, masked=True)
    assert supports_grouped_heads("cpu", torch.float32)
    heads = torch.randn(2, 3, 4, 5)
    assert torch.equal(repeat_heads(heads, 3), heads.repeat_interleave(3, dim=2))
    attention_config = ModelConfig(dim=32, heads=4, kv_heads=2)
    attention = Attention(attention_config, LoraConfig())
    for weight in attention.parameters():
        torch.nn.init.normal_(weight)
    arguments = (torch.randn(2, 7, 32), *torch.from_numpy(make_rotary_table(attention_config, 7)))
    seen: list[tuple[int, bool]] = []

    class Seen(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.nn.functional.scaled_dot_product_attention:
                seen.append((args[1].shape[1], kwargs["enable_gqa"]))
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Seen():
        grouped = attention(*arguments)
        monkeypatch.setattr(model, "supports_grouped_heads", lambda device, dtype, masked: device != "cpu")
        torch.testing.assert_close(attention(*arguments), grouped)
    assert seen == [(2, True), (4, False)]


@pytest.mark.usefixtures("_as_before")
def test_initial_values_are_the_same_from_several_threads() -> None:
    found: list[list[Tensor]] = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        slots = list_slots(Transformer(SMALL.model, 16), SMALL.model, Mesh(), 0)
        for slot in slots:
            slot.weight.fill_(float("nan"))
        fill_initial_values(slots, seed=4)
        found.append([slot.weight for slot in slots])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("tokens", "fit", "size"), [(4096, 4096, 4096), (4096, 1000, 512), (96, 40, 32), (97, 40, 40), (8, 1, 1)]
)
def test_slices_of_the_loss_have_equal_sizes(tokens: int, fit: int, size: int) -> None:
    assert build._choose_slice(tokens, fit) == size


def test_a_compiled_slice_is_one_program_and_the_loss_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LOGITS_BYTES", 64 * SMALL.model.tokens * 4)
    loss = build._loss(SMALL, Mesh(), None, TorchCompiler("eager"))
    draw = torch.Generator().manual_seed(2)
    hidden, weight = (torch.randn(shape, generator=draw) for shape in ((8, 32, 16), (64, 16)))
    targets = torch.randint(0, 64, (8, 32), generator=draw)
    before, found = count_compiled_graphs(), []
    for function in (compute_mean_loss, loss):
        x, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        value = function(x, w, targets) * 0.5
        value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        found.append((value.detach(), x.grad, w.grad))
    for plain, sliced in zip(*found, strict=True):
        torch.testing.assert_close(sliced, plain, atol=1e-6, rtol=1e-5)
    assert count_compiled_graphs() - before == 1  # four slices


@pytest.mark.parametrize(
    ("words", "capability", "said"),
    [
        ([], None, ""),
        ([], (9, 0), "multiplies in TF32: dtype=bf16 is faster"),
        (["dtype=bf16", "exact=true"], (9, 0), "a run without it is faster"),
        (["dtype=bf16"], (9, 0), ""),
        (["dtype=bf16"], (7, 5), "dtype=fp32 is faster"),
        ([], (7, 5), ""),
    ],
)
def test_notes_name_what_would_be_faster_on_a_gpu(
    words: list[str], capability: tuple[int, int] | None, said: str
) -> None:
    from trainer.accelerators.native import _describe_slow_settings

    found = _describe_slow_settings(parse_config(words), capability)
    assert [said in line for line in found] == [True] if said else not found


def test_memory_of_a_gpu_grows_in_segments_unless_the_user_configures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.accelerators.native import _core, _open_allocator

    before = _core._accelerator_getAllocatorSettings()
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "max_split_size_mb:512")
        _open_allocator(torch.device("cpu"))
        assert _core._accelerator_getAllocatorSettings() == before
        monkeypatch.delenv(name)
    try:
        _open_allocator(torch.device("cpu"))
        assert _core._accelerator_getAllocatorSettings() == "expandable_segments:True"
    finally:
        _core._accelerator_setAllocatorSettings(before or "expandable_segments:False")


def test_nothing_is_compiled_without_the_headers_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.accelerators.native import _compiles
    from trainer.accelerators.traits import TRAITS

    monkeypatch.setenv("CXX", "c++")
    assert not _compiles(TRAITS["cpu"], tmp_path)
    (tmp_path / "Python.h").touch()
    assert _compiles(TRAITS["cpu"], tmp_path)
    assert _compiles(TRAITS["tpu"], tmp_path / "none")
