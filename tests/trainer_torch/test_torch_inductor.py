"""torch's own compiler with a C++ compiler, as `compile=true` uses it on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor

from trainer.torch_engine.compiling import TorchCompiler
from trainer.torch_engine.float8 import list_compiler_options


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty compiler cache, so that everything is compiled, with few optimizations to save time."""
    inductor: Any = pytest.importorskip("torch._inductor.config")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")  # g++ -O0
    settings = {"cpp_cache_precompile_headers": False, "compile_threads": 1, "cpp.simdlen": 1}
    with inductor.patch(settings):
        yield tmp_path
    torch.compiler.reset()


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def values_and_slopes(function: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(5)
    leaves = [torch.randn(4, 16, generator=draw).requires_grad_() for _ in range(2)]
    values = function(*leaves)
    values.backward(torch.randn(4, 16, generator=draw))
    return [values.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_inductor_computes_the_same_and_reuses_its_cache(cache: Path) -> None:
    counters: Any = __import__("torch._dynamo.utils", fromlist=["counters"]).counters
    expected = values_and_slopes(gated)
    made: list[set[Path]] = []
    for _ in range(2):  # the second time as after a restart
        torch.compiler.reset()
        counters.clear()
        compiled = TorchCompiler("inductor")
        function = compiled(gated)
        for _ in range(2):
            for one, other in zip(values_and_slopes(function), expected, strict=True):
                torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
        assert compiled.failure == ""
        assert counters["stats"]["unique_graphs"] == 1
        made.append(set(cache.rglob("*.so")))
    assert made[0]
    assert made[0] == made[1]
    # Of the joint graph, or of its two halves.
    hits = counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"]
    assert hits, {name: dict(of) for name, of in counters.items()}


def rounded(gate: Tensor, up: Tensor) -> Tensor:
    """Round between products, as scaling to float8 does."""
    product = (gate.bfloat16() * up.bfloat16()).bfloat16()
    return (((product * 1.7).bfloat16() + product * 0.3) * up.bfloat16()).float()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("cache")
def test_inductor_rounds_as_plain_torch_does_in_what_is_compiled_for_float8_rowwise_alone() -> None:
    expected = values_and_slopes(rounded)
    torch.compiler.reset()
    compiled = TorchCompiler("inductor")
    found = values_and_slopes(compiled(rounded, list_compiler_options("rowwise")))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True)), "also backward"
    torch.compiler.reset()
    other = values_and_slopes(compiled(rounded, list_compiler_options("tensorwise")))
    assert not torch.equal(other[0], expected[0]), "values in between are not rounded"
    assert compiled.failure == ""
