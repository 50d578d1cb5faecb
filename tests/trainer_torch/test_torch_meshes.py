"""One model and one data order on every mesh: the same losses, norms and weights, each element written once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from torch_cases import (
    SMALL,
    STEPS,
    Outcome,
    compiled_on,
    continued,
    left_alone,
    left_waiting,
    on_meshes,
    put_together,
    stopped_and_resumed,
    with_small_buckets,
)
from torch_worlds import in_world

from trainer.config import Config, RematLevel
from trainer.engine import FloatArray
from trainer.shape.mesh import Mesh

# One worker computes all cases, once: each other would compute them again.
pytestmark = [pytest.mark.xdist_group("meshes"), pytest.mark.timeout(600)]

change = dataclasses.replace

ADAFACTOR = change(SMALL, optim=change(SMALL.optim, kind="adafactor"))
MUON = change(SMALL, optim=change(SMALL.optim, kind="muon"))
IN_TWO = change(SMALL, accumulate=2)
IN_FOUR = change(SMALL, accumulate=4, remat="full", model=change(SMALL.model, layers=4))
REMAT = change(SMALL, remat="full")
SELECTIVE = change(SMALL, remat="selective")
GROUPED = change(SMALL, model=change(SMALL.model, kv_heads=2, tied=False))
NARROW = change(SMALL, dtype="bf16")
FAMILY = change(
    GROUPED,
    model=change(
        GROUPED.model, qkv_bias=True, qk_norm=True, window=7, rope_scaling="llama3", rope_context=64, rope_theta=500.0
    ),
)
GEMMA = change(
    GROUPED,
    model=change(
        GROUPED.model,
        window=7,
        full_every=2,
        local_rope_theta=100.0,
        activation="gelu_tanh",
        qk_norm=True,
        post_norm=True,
        norm_offset=True,
        embed_scale=True,
        query_scale=24.0,
        attention_softcap=0.5,
        softcap=1.5,
    ),
)
# A pipeline needs several micro-batches.
NARROW_IN_TWO, FAMILY_IN_TWO, GEMMA_IN_TWO = (change(one, accumulate=2) for one in (NARROW, FAMILY, GEMMA))
EXPERTS = change(SMALL, model=change(SMALL.model, experts=4, experts_per_token=2, expert_hidden=24, router_loss=0.1))
MESHES: Mapping[int, list[Mesh]] = {
    1: [Mesh()],
    2: [Mesh(2), Mesh(1, 2), Mesh(2, 1, 1, 2), Mesh(1, 2, 1, 2), Mesh(1, 1, 2)],
    4: [
        *(Mesh(4), Mesh(1, 4), Mesh(2, 2), Mesh(1, 1, 4), Mesh(1, 2, 2), Mesh(2, 1, 2)),
        *(Mesh(1, 4, 1, 4), Mesh(2, 2, 1, 2), Mesh(1, 2, 2, 2)),
    ],
}
EXTRA: Mapping[int, list[tuple[Config, Mesh]]] = {
    1: [
        *((c, Mesh()) for c in (ADAFACTOR, MUON, IN_TWO, REMAT, SELECTIVE, GROUPED, NARROW, FAMILY, GEMMA, EXPERTS)),
        *((c, Mesh()) for c in (IN_FOUR, NARROW_IN_TWO, FAMILY_IN_TWO, GEMMA_IN_TWO)),
    ],
    2: [
        (MUON, Mesh(2)),
        (MUON, Mesh(1, 2)),
        (MUON, Mesh(1, 1, 2)),
        (IN_TWO, Mesh(2)),
        (IN_TWO, Mesh(1, 2)),
        (REMAT, Mesh(1, 2)),
        (SELECTIVE, Mesh(1, 2)),
        (SELECTIVE, Mesh(1, 1, 2)),
        (GROUPED, Mesh(1, 1, 2)),
        (FAMILY, Mesh(1, 2)),
        (FAMILY, Mesh(1, 1, 2)),
        (GEMMA, Mesh(1, 2)),
        (GEMMA, Mesh(1, 1, 2)),
        (EXPERTS, Mesh(2)),
        (EXPERTS, Mesh(1, 2)),
        (EXPERTS, Mesh(1, 1, 2)),
        (EXPERTS, Mesh(2, 1, 1, 2)),
        (EXPERTS, Mesh(1, 2, 1, 2)),
        (NARROW, Mesh(1, 2)),
        (NARROW, Mesh(1, 1, 2)),
        (MUON, Mesh(1, 2, 1, 2)),
        (IN_TWO, Mesh(2, 1, 1, 2)),
        (REMAT, Mesh(1, 2, 1, 2)),
        (SELECTIVE, Mesh(1, 2, 1, 2)),
        (GROUPED, Mesh(1, 2, 1, 2)),
        (FAMILY, Mesh(2, 1, 1, 2)),
        (GEMMA, Mesh(1, 2, 1, 2)),
        (NARROW, Mesh(1, 2, 1, 2)),
        *((c, Mesh(pipeline=2)) for c in (IN_TWO, IN_FOUR, NARROW_IN_TWO, FAMILY_IN_TWO, GEMMA_IN_TWO)),
    ],
    4: [
        (ADAFACTOR, Mesh(1, 2, 2)),
        (MUON, Mesh(1, 2, 2)),
        (MUON, Mesh(2, 2)),
        (IN_TWO, Mesh(2, 2)),
        (GROUPED, Mesh(2, 1, 2)),
        (SELECTIVE, Mesh(1, 2, 2)),
        (FAMILY, Mesh(2, 1, 2)),
        (FAMILY, Mesh(1, 2, 2)),
        (GEMMA, Mesh(1, 2, 2)),
        (EXPERTS, Mesh(1, 2, 2)),
        (EXPERTS, Mesh(2, 1, 2)),
        (EXPERTS, Mesh(1, 1, 4)),
        (EXPERTS, Mesh(1, 2, 2, 2)),
        (GEMMA, Mesh(1, 4, 1, 4)),
        (FAMILY, Mesh(1, 2, 2, 2)),
        (IN_TWO, Mesh(fsdp=2, pipeline=2)),
        (IN_TWO, Mesh(fsdp=2, context=2, pipeline=2)),
        (IN_TWO, Mesh(tensor=2, pipeline=2)),
        (IN_FOUR, Mesh(data=2, pipeline=2)),
        (IN_FOUR, Mesh(fsdp=2, pipeline=2)),
        (IN_FOUR, Mesh(pipeline=4)),
        (GEMMA_IN_TWO, Mesh(tensor=2, pipeline=2)),
        (NARROW_IN_TWO, Mesh(fsdp=2, pipeline=2)),
    ],
}
CASES = {size: [(SMALL, mesh) for mesh in MESHES[size]] + EXTRA[size] for size in MESHES}
Found = Mapping[tuple[Config, Mesh], tuple[Outcome, Mapping[str, FloatArray]]]


@pytest.fixture(scope="module")
def found() -> Found:
    """Return the numbers and the final state of every case; processes start once per world size."""
    result: dict[tuple[Config, Mesh], tuple[Outcome, Mapping[str, FloatArray]]] = {}
    for size, cases in CASES.items():
        ranks = in_world(size, on_meshes, cases)
        for index, case in enumerate(cases):
            numbers, parts = [rank[index][0] for rank in ranks], [rank[index][1] for rank in ranks]
            assert all(other == numbers[0] for other in numbers), f"ranks differ: {case}"
            result[case] = (numbers[0], put_together(parts))
    return result


@pytest.mark.promise("P31")
@pytest.mark.parametrize(
    ("config", "mesh"), [case for size in (2, 4) for case in CASES[size]], ids=lambda value: repr(value)[-60:]
)
def test_every_mesh_computes_what_one_device_computes(found: Found, config: Config, mesh: Mesh) -> None:
    numbers, state = found[config, mesh]
    alone, alone_state = found[config, Mesh()]
    near = 3e-3 if config.dtype == "bf16" else 1e-5
    assert [loss for loss, _, _ in numbers] == pytest.approx([loss for loss, _, _ in alone], abs=near)
    assert [norm for _, norm, _ in numbers] == pytest.approx([norm for _, norm, _ in alone], abs=4 * near)
    assert set(state) == set(alone_state)
    if config.dtype == "fp32":
        for name, values in state.items():
            np.testing.assert_allclose(values, alone_state[name], atol=5e-5, err_msg=name)


def test_the_model_learns_and_its_average_follows(found: Found) -> None:
    for (config, _), (numbers, state) in found.items():
        assert numbers[-1][0] < numbers[0][0] - 0.3
        assert not np.array_equal(state["average/norm.weight"], state["model/norm.weight"])
        if config is SMALL:
            assert sum(norm > SMALL.grad_clip for _, norm, _ in numbers) == STEPS  # so the limit was felt


@pytest.mark.promise("P31")
def test_recomputed_blocks_and_micro_batches_change_no_result(found: Found) -> None:
    for config in (IN_TWO, REMAT, SELECTIVE):
        losses = [loss for loss, _, _ in found[config, Mesh()][0]]
        assert losses == pytest.approx([loss for loss, _, _ in found[SMALL, Mesh()][0]], abs=1e-5)
    assert found[REMAT, Mesh()][0] == found[SELECTIVE, Mesh()][0] == found[SMALL, Mesh()][0]


@pytest.mark.promise("P34")
def test_every_stop_request_is_counted_once(found: Found) -> None:
    for (_, mesh), (numbers, _) in found.items():
        assert [stops for _, _, stops in numbers] == [mesh.devices - 1 if step == 3 else 0 for step in range(STEPS)]


def test_bf16_products_are_close_to_fp32_ones(found: Found) -> None:
    wide, narrow = found[SMALL, Mesh()][0], found[NARROW, Mesh()][0]
    assert [loss for loss, _, _ in narrow] == pytest.approx([loss for loss, _, _ in wide], abs=5e-3)
    assert narrow != wide


@pytest.mark.promise("P32")
@pytest.mark.parametrize("size", [1, 2])
def test_a_resumed_run_is_the_same_to_the_last_bit(size: int) -> None:
    cases = [(SMALL, mesh) for mesh in MESHES[size]] + [(other, MESHES[size][-1]) for other in (ADAFACTOR, MUON)]
    cases += [(IN_TWO, Mesh(pipeline=2))] if size == 2 else []
    for rank in in_world(size, stopped_and_resumed, cases):
        for through, resumed in rank:
            assert resumed == through


@pytest.mark.promise("P32")
@pytest.mark.parametrize("config", [SMALL, MUON], ids=["adamw", "muon"])
def test_a_state_can_be_continued_on_any_mesh(found: Found, config: Config) -> None:
    """Written by 4 processes (HSDP), continued by 2 (fsdp; tensor; fsdp with context) and by 1."""
    _, state = found[config, Mesh(2, 2)]
    alone = in_world(1, continued, config, Mesh(), state)[0]
    assert alone[0][0] < found[config, Mesh()][0][-1][0]
    for mesh in (Mesh(1, 2), Mesh(1, 1, 2), Mesh(1, 2, 1, 2)):
        for other in in_world(2, continued, config, mesh, state):
            assert [loss for loss, _, _ in other] == pytest.approx([loss for loss, _, _ in alone], abs=1e-5)


@pytest.mark.promise("P32")
def test_a_state_of_a_pipeline_can_be_continued_without_one_and_back(found: Found) -> None:
    """Written by 4 processes, two for each of two stages, continued by 1 and by 2; and one device's by two stages."""
    for source in (Mesh(fsdp=2, pipeline=2), Mesh()):
        _, state = found[IN_TWO, source]
        alone = in_world(1, continued, IN_TWO, Mesh(), state)[0]
        assert alone[0][0] < found[IN_TWO, Mesh()][0][-1][0]
        for mesh in (Mesh(fsdp=2), Mesh(pipeline=2)):
            for other in in_world(2, continued, IN_TWO, mesh, state):
                assert [loss for loss, _, _ in other] == pytest.approx([loss for loss, _, _ in alone], abs=1e-5)


@pytest.mark.promise("P35")
@pytest.mark.parametrize("mesh", [Mesh(2), Mesh(1, 2), Mesh(1, 1, 2), Mesh(2, 1, 1, 2), Mesh(pipeline=2)], ids=repr)
def test_a_rank_that_left_is_noticed_immediately(mesh: Mesh) -> None:
    (error, seconds), _ = in_world(2, left_alone, mesh, together=False)
    assert "rank 0 lost another rank" in error
    assert seconds < 10


@pytest.mark.parametrize("mesh", [Mesh(1, 2, 2), Mesh(2, 2, 1, 2)], ids=repr)
def test_groups_of_axes_wait_for_a_frozen_rank_no_longer_than_the_setting(mesh: Mesh) -> None:
    """torch's own deadline for a group is half an hour with gloo."""
    *others, _ = in_world(4, left_waiting, mesh, 2.0, together=False)
    for error, seconds in others:
        assert "lost another rank" in error and "(limit 2 s)" in error
        assert 1 < seconds < 6


def test_the_size_of_the_buffers_changes_no_result() -> None:
    """A sum over two ranks has only one order, so the bits are the same for any bucket size."""
    for rank in in_world(2, with_small_buckets, SMALL, Mesh(2), [1, 20_000, 32 << 20]):
        assert rank[0] == rank[1] == rank[2]
        assert any(any(gradient) for gradient in rank[0])


@pytest.mark.slow
def test_compiled_blocks_compute_the_same(found: Found) -> None:
    """Also on sharded weights, and on a tensor axis, whose sums must be complete before a program reads them."""
    config = change(SMALL, compile="true")
    levels = [(change(config, remat=level), Mesh()) for level in ("none", "selective", "full")]
    alone = in_world(1, on_meshes, levels)[0]
    cut = (change(config, remat="full"), Mesh(1, 1, 2))
    ring = (change(config, remat="selective"), Mesh(1, 2, 1, 2))
    stages = (change(config, accumulate=2), Mesh(pipeline=2))
    divided = in_world(2, on_meshes, [(config, Mesh(1, 2)), (config, Mesh(2)), cut, ring, stages])[0]
    expected = found[SMALL, Mesh()][0]
    for numbers, _ in [*alone, *divided]:
        assert [loss for loss, _, _ in numbers] == pytest.approx([loss for loss, _, _ in expected], abs=1e-5)
        assert [norm for _, norm, _ in numbers] == pytest.approx([norm for _, norm, _ in expected], abs=4e-5)
    (programs, notes), _ = in_world(2, compiled_on, config, [Mesh(2), Mesh(1, 1, 2)])
    # A block, the last norm and the loss, forward with backward, and forward alone: not one for each layer.
    assert programs[0] == 6
    assert programs[1] - programs[0] == 4  # more rows on each; a divided vocabulary's loss is not compiled
    assert notes == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["none", "selective", "full"])
def test_compiled_experts_compute_the_same(found: Found, level: RematLevel) -> None:
    config = change(EXPERTS, compile="true", remat=level)
    ((numbers, _),) = in_world(1, on_meshes, [(config, Mesh())])[0]
    assert [loss for loss, _, _ in numbers] == pytest.approx(
        [loss for loss, _, _ in found[EXPERTS, Mesh()][0]], abs=1e-5
    )
    _, notes = in_world(1, compiled_on, config, [Mesh()])[0]
    assert notes == [[]], "the compiler did not fail"
