"""LoRA on every mesh of the torch engine: the adapters alone are trained, with the losses of one process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from torch_cases import SMALL, Outcome, on_meshes, put_together, stopped_and_resumed
from torch_worlds import in_world

from trainer.config import Config, LoraConfig
from trainer.engine import FloatArray
from trainer.shape.box import Box
from trainer.shape.initial_values import make_initial_values
from trainer.shape.lora import list_run_parameters
from trainer.shape.mesh import Mesh

change = dataclasses.replace
LORA = change(
    SMALL,
    lora=LoraConfig(rank=4, alpha=16),
    model=change(SMALL.model, kv_heads=2, tied=False, qkv_bias=True, qk_norm=True),
)
ADAFACTOR = change(LORA, optim=change(SMALL.optim, kind="adafactor"))
IN_TWO = change(LORA, accumulate=2)
SELECTIVE = change(LORA, remat="selective", lora=LoraConfig(rank=4, alpha=16, targets="query,down"))
CASES: Mapping[int, list[tuple[Config, Mesh]]] = {
    1: [(config, Mesh()) for config in (LORA, ADAFACTOR, IN_TWO, SELECTIVE)],
    2: [
        (LORA, Mesh(2)),
        (IN_TWO, Mesh(1, 2)),
        (SELECTIVE, Mesh(1, 2)),
        (SELECTIVE, Mesh(1, 1, 2)),
        (ADAFACTOR, Mesh(1, 1, 2)),
        (SELECTIVE, Mesh(1, 2, 1, 2)),
    ],
    4: [(LORA, Mesh(2, 2)), (LORA, Mesh(1, 2, 2)), (LORA, Mesh(2, 1, 2))],
}
Found = Mapping[tuple[Config, Mesh], tuple[Outcome, Mapping[str, FloatArray]]]


@pytest.fixture(scope="module")
def found() -> Found:
    result: dict[tuple[Config, Mesh], tuple[Outcome, Mapping[str, FloatArray]]] = {}
    for size, cases in CASES.items():
        ranks = in_world(size, on_meshes, cases)
        for index, case in enumerate(cases):
            assert all(rank[index][0] == ranks[0][index][0] for rank in ranks), f"ranks differ: {case}"
            result[case] = (ranks[0][index][0], put_together([rank[index][1] for rank in ranks]))
    return result


@pytest.mark.parametrize(("config", "mesh"), [case for size in (2, 4) for case in CASES[size]])
def test_adapters_on_every_mesh_are_those_of_one_process(found: Found, config: Config, mesh: Mesh) -> None:
    numbers, state = found[config, mesh]
    alone, alone_state = found[config, Mesh()]
    for at in (0, 1):  # loss, gradient norm
        np.testing.assert_allclose([one[at] for one in numbers], [one[at] for one in alone], atol=4e-5)
    assert set(state) == set(alone_state)
    for name, values in state.items():
        np.testing.assert_allclose(values, alone_state[name], atol=5e-5, err_msg=name)


def test_only_adapters_change_and_have_a_state(found: Found) -> None:
    for (config, _), (numbers, state) in found.items():
        assert numbers[-1][0] < numbers[0][0]
        for parameter in list_run_parameters(config.model, config.lora):
            first = make_initial_values(parameter, Box.whole(parameter.shape), config.seed)
            same = np.array_equal(state[f"model/{parameter.name}"], first)
            assert same == parameter.frozen, parameter.name
            if config.optim.kind == "adamw":
                assert (f"optimizer/{parameter.name}/exp_avg" in state) == (not parameter.frozen)
            assert (f"average/{parameter.name}" in state) == (not parameter.frozen)


def test_a_resumed_run_is_the_same_to_the_last_bit_with_adapters() -> None:
    for rank in in_world(2, stopped_and_resumed, [(LORA, Mesh(1, 2))]):
        for through, resumed in rank:
            assert through == resumed
