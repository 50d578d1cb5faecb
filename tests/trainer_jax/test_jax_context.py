"""Rows whose tokens are divided over devices on JAX: the numbers of one device, also for windows and bounded scores."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import pytest
from jax_cases import give, jax_engine, run, settings, state_of, torch_engine

from trainer.engine import FloatArray
from trainer.errors import ConfigError
from trainer.jax_engine.grid import arrange_devices, detect_topology
from trainer.jax_engine.step import build_step
from trainer.shape import attention_chunks
from trainer.shape.mesh import assign_rows, resolve_mesh

pytestmark = [pytest.mark.jax]

GEMMA = (
    "model.window=5 model.full_every=2 model.local_rope_theta=100 model.attention_softcap=0.5 model.qk_norm=true "
    "model.qkv_bias=true model.tied=false optim.ema=0.9 accumulate=2"
)


@pytest.fixture(scope="module")
def plain() -> tuple[list[tuple[float, float]], Mapping[str, FloatArray]]:
    """Return the torch engine's results of four steps on one device."""
    engine = torch_engine()
    return run(engine), state_of(engine)


@pytest.mark.promise("P31")
@pytest.mark.parametrize(
    ("words", "devices"),
    [
        ("mesh.data=2 mesh.context=2", 2),
        ("mesh.fsdp=2 mesh.tensor=2 mesh.context=2 remat=selective", 4),
        pytest.param("mesh.data=2 mesh.fsdp=2 mesh.context=2", 4, marks=pytest.mark.slow),
        pytest.param("mesh.fsdp=4 mesh.context=4 remat=full", 4, marks=pytest.mark.slow),
    ],
)
def test_rows_divided_over_devices_have_the_losses_and_the_state_of_one(
    words: str, devices: int, plain: tuple[list[tuple[float, float]], Mapping[str, FloatArray]]
) -> None:
    engine = jax_engine(words, devices)
    assert "context" in engine.headline() and "ring attention" in engine.headline()
    _assert_alike(run(engine, words), plain[0])
    found = state_of(engine)
    assert found.keys() == plain[1].keys()
    for name, values in plain[1].items():
        if not name.endswith("embedding.weight"):  # rare tokens: AdamW divides rounding errors by themselves
            np.testing.assert_allclose(found[name], values, rtol=2e-2, atol=2e-4, err_msg=name)


@pytest.mark.promise("P31")
@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 34], ids=["unrolled", "scanned"])
def test_windows_bounded_scores_and_micro_batches_are_those_of_one_device(layers: int) -> None:
    words = f"{GEMMA} model.layers={layers} model.dim=16"
    expected = run(torch_engine(words), words, steps=2)
    _assert_alike(run(jax_engine(f"{words} mesh.fsdp=4 mesh.context=4", 4), words, steps=2), expected)


@pytest.mark.slow
def test_queries_are_computed_a_chunk_at_a_time(
    monkeypatch: pytest.MonkeyPatch, plain: tuple[list[tuple[float, float]], Mapping[str, FloatArray]]
) -> None:
    monkeypatch.setattr(attention_chunks, "ATTENTION_CHUNK", 2)
    monkeypatch.setattr(attention_chunks, "_LEAST_DIVISOR", 1)
    assert attention_chunks.choose_ring_chunk(4) == 2
    _assert_alike(run(jax_engine("mesh.data=2 mesh.context=2", 2)), plain[0])


@pytest.mark.promise("P32")
@pytest.mark.slow
def test_a_state_moves_to_torch_on_one_device_and_back() -> None:
    divided, there = jax_engine("mesh.fsdp=2 mesh.context=2", 2), torch_engine()
    run(divided)
    give(there, state_of(divided))
    _assert_alike(run(there, first=4, steps=2), run(divided, first=4, steps=2))
    give(divided, state_of(there))
    _assert_alike(run(divided, first=6, steps=2), run(there, first=6, steps=2))


def test_a_mesh_that_cannot_divide_rows_is_refused() -> None:
    def build(words: str) -> None:
        config = settings(words)
        mesh = resolve_mesh(config.mesh, detect_topology(jax.devices()), config.model)
        build_step(config, mesh, arrange_devices(jax.devices(), mesh))

    with pytest.raises(ConfigError, match=r"mesh.context=4 does not divide mesh.data=1 x mesh.fsdp=2, whose devices"):
        build("mesh.fsdp=2 mesh.tensor=2 mesh.context=4")
    with pytest.raises(ConfigError, match="seq_len=20 does not divide into 8 parts, two for each device"):
        build("mesh.context=4 seq_len=20")


def test_processes_that_divide_rows_read_the_same_ones() -> None:
    config = settings("mesh.fsdp=4 mesh.tensor=2 mesh.context=2").mesh
    mesh = resolve_mesh(config, detect_topology(jax.devices() * 4), settings().model)
    assert (mesh.devices, mesh.data, mesh.shards) == (16, 2, 4)
    assert [assign_rows(mesh, process, 16).rows(8) for process in (0, 3, 4, 15)] == [(0, 2), (0, 2), (2, 2), (6, 2)]
    assert [assign_rows(mesh, process, 2).rows(8) for process in (0, 1)] == [(0, 4), (4, 4)]
    assert [mesh.get_context_index(device) for device in range(5)] == [0, 0, 1, 1, 0]


def _assert_alike(found: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    np.testing.assert_allclose([loss for loss, _ in found], [loss for loss, _ in expected], rtol=1e-5)
    np.testing.assert_allclose([norm for _, norm in found], [norm for _, norm in expected], rtol=1e-3)
