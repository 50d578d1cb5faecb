"""Marked tokens: the loss is their mean over the global batch, however it is divided."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # the usual name
from torch_cases import SMALL, join_once, rows_of, take_out
from torch_worlds import in_world

from trainer.accelerators.registry import open_native_device
from trainer.config import Config, DataConfig
from trainer.data.tokens.marks import mark_tokens
from trainer.engine import TokenArray
from trainer.environment import World
from trainer.shape.mesh import Mesh
from trainer.smoke_test.reference import compute_reference_losses, make_first_weights
from trainer.team import Team
from trainer.torch_engine import build
from trainer.torch_engine.build import assemble_model, build_sharded_model
from trainer.torch_engine.engine import TorchEngine
from trainer.torch_engine.untyped import run_backward

change = dataclasses.replace
MARKED = change(SMALL, data=DataConfig(loss="marked"))
IN_TWO = change(MARKED, accumulate=2)
STEPS = 2
Outcome = list[tuple[float, float]]


def marked_rows(config: Config, step: int) -> TokenArray:
    """Mark a few tokens, as many as a row's number; the first row has none."""
    rows = rows_of(config, step)
    count, width = rows.shape
    trained = np.array([[at % 11 < row for at in range(width)] for row in range(count)])
    return mark_tokens(rows, trained, config.model.tokens)


def run_marked(engine: TorchEngine, config: Config) -> Outcome:
    first, count = engine.share.rows(config.batch)
    found: Outcome = []
    for step in range(STEPS):
        rows = marked_rows(config, step)
        evaluated = engine.evaluate(rows[first : first + count])
        engine.step(rows[first : first + count], 3e-3, False, step)
        numbers = engine.numbers()
        share = np.mean(rows[:, 1:] >= 0)
        assert evaluated == pytest.approx(numbers.loss * share, abs=2e-6)
        found.append((numbers.loss, numbers.grad_norm))
    return found


def on_meshes(world: World, team: Team, cases: list[tuple[Config, Mesh]]) -> list[tuple[Outcome, list[float]]]:
    join_once(world, team)
    found: list[tuple[Outcome, list[float]]] = []
    for config, mesh in cases:
        engine = TorchEngine(config, world, open_native_device("cpu", world), mesh)
        outcome = run_marked(engine, config)
        found.append((outcome, [float(np.abs(values).sum()) for values in take_out(engine).values()]))
    return found


def alone(config: Config) -> TorchEngine:
    torch.set_num_threads(1)
    return TorchEngine(config, World(), open_native_device("cpu", World()), Mesh())


def test_the_loss_is_the_mean_over_marked_tokens_as_without_a_framework() -> None:
    rows = marked_rows(MARKED, 0)
    weights = make_first_weights(MARKED.model, MARKED.seed)
    tokens = np.where(rows < 0, ~rows, rows)
    assert (tokens == rows_of(MARKED, 0)).all()
    losses = compute_reference_losses(MARKED.model, weights, tokens)
    expected = float(losses[rows[:, 1:] >= 0].mean(dtype=np.float64))
    assert expected != pytest.approx(float(losses.mean()), abs=1e-3)

    engine = alone(MARKED)
    engine.step(rows, 3e-3, False, 0)
    assert engine.numbers().loss == pytest.approx(expected, abs=2e-6)
    assert engine.numbers().grad_norm == pytest.approx(plain_norm(tokens, rows[:, 1:] >= 0), rel=1e-5)


def plain_norm(tokens: TokenArray, counted: npt.NDArray[np.bool_]) -> float:
    """Return the norm of the gradients of the mean over the counted tokens, by torch alone."""
    accelerator = open_native_device("cpu", World())
    built = assemble_model(SMALL, accelerator, Mesh(), build_sharded_model(SMALL, accelerator, Mesh()), 0)
    built.initialize_weights(SMALL.seed)
    model = built.model
    inputs = torch.as_tensor(tokens.astype(np.int64))
    logits = F.linear(model(inputs[:, :-1]), model.head_weight())
    losses = F.cross_entropy(logits.flatten(0, 1), inputs[:, 1:].flatten(), reduction="none")
    run_backward(losses[torch.as_tensor(counted).flatten()].mean())
    squares = [float(weight.grad.square().sum()) for weight in model.parameters() if weight.grad is not None]
    return math.sqrt(math.fsum(squares))


def test_slices_of_the_logits_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_marked(alone(IN_TWO), IN_TWO)
    monkeypatch.setattr(build, "LOGITS_BYTES", 4 * 64 * 48)
    monkeypatch.delattr(build, "compute_marked_loss")  # only the loss in slices is left
    assert run_marked(alone(IN_TWO), IN_TWO) == pytest.approx(np.array(whole), abs=1e-5)


def test_a_batch_without_a_marked_token_has_no_loss_and_no_gradient() -> None:
    engine = alone(MARKED)
    rows = ~rows_of(MARKED, 0).astype(np.int16)
    engine.step(rows, 3e-3, False, 0)
    assert (engine.numbers().loss, engine.numbers().grad_norm) == (0.0, 0.0)


def test_a_program_with_marks_is_another_than_one_without() -> None:
    assert alone(MARKED).program() != alone(SMALL).program()


@pytest.mark.slow
def test_ranks_and_micro_batches_have_the_loss_of_one_device() -> None:
    """A mean of the ranks' means would differ: the first rank's rows have fewer marks."""
    single, in_two = on_meshes(World(), None, [(MARKED, Mesh()), (IN_TWO, Mesh())])  # type: ignore[arg-type]  # alone
    assert in_two[0] == pytest.approx(np.array(single[0]), abs=1e-5)
    cases = [(MARKED, Mesh(2)), (IN_TWO, Mesh(2)), (MARKED, Mesh(1, 2)), (IN_TWO, Mesh(1, 1, 2))]
    cases += [(IN_TWO, Mesh(1, 2, 1, 2)), (IN_TWO, Mesh(pipeline=2))]
    for rank in in_world(2, on_meshes, cases):
        for (config, mesh), (outcome, _) in zip(cases, rank, strict=True):
            assert outcome == pytest.approx(np.array(single[0]), abs=1e-5), (config.accumulate, mesh)
