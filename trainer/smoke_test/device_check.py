"""Checks that the chosen device computes what a framework-free reference computes, and that all ranks agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from trainer.config import BYTE_VOCAB, Config, DTypeName
from trainer.engine import Engine, FloatArray, TokenArray
from trainer.engines import choose_engine_and_device, open_engine, set_vocabulary_size
from trainer.environment import Run, World
from trainer.errors import DeviceError
from trainer.shape.box import TensorRegion
from trainer.smoke_test.reference import compute_reference_loss, make_first_weights
from trainer.tcp_team import join_team

# Relative to the loss.
_TOLERANCE: Mapping[DTypeName, float] = MappingProxyType({"fp32": 1e-4, "bf16": 2e-2})
_STEEPER = 4.0  # a model that knows nothing yet hardly feels a wrong layer: its matrices are made larger
_SAME = 1e-5  # between ranks, which read one sum


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCheck:
    """The results of the check.

    Attributes:
        where: Engine and devices.
        ranks: Number of ranks.
        loss: Of the first step.
        after: Loss of the same rows after that step.
        norm: Of the gradients.
    """

    where: str
    ranks: int
    loss: float
    after: float
    norm: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def check_device(config: Config, run: Run, world: World) -> DeviceCheck:
    """Compute two steps of a small model and compare them with the reference.

    Raises:
        DeviceError: The numbers are wrong; also the errors of opening an engine.
    """
    team = join_team(world, config.dist, run.identity)
    config = set_vocabulary_size(choose_engine_and_device(config), BYTE_VOCAB)
    engine = open_engine(config, world, team)
    rows = _rows(config)
    weights = {
        name: values * np.float32(_STEEPER) if values.ndim > 1 else values for name, values in _first(config).items()
    }
    engine.load((piece, _value(piece, weights)) for piece in engine.needed())
    expected = compute_reference_loss(config.model, weights, rows)
    first, norm = _step(engine, config, rows, 0)
    after, _ = _step(engine, config, rows, 1)
    checked = DeviceCheck(where=engine.headline(), ranks=world.size, loss=first, after=after, norm=norm)
    _check_result(config, checked, expected)
    _check_ranks_agree(team.gather([first, norm, after]))
    engine.close()
    team.close()
    return checked


def _first(config: Config) -> Mapping[str, FloatArray]:
    return make_first_weights(config.model, config.seed)


def _value(piece: TensorRegion, weights: Mapping[str, FloatArray]) -> FloatArray:
    kind, _, name = piece.name.partition("/")
    if kind == "optimizer":
        return np.zeros(piece.box.extent, np.float32)
    return weights[name][piece.box.slices()]


def _step(engine: Engine, config: Config, rows: TokenArray, step: int) -> tuple[float, float]:
    begin, count = engine.share.rows(config.batch)
    engine.step(rows[begin : begin + count], config.optim.lr, False, step)
    numbers = engine.numbers()
    return numbers.loss, numbers.grad_norm


def _rows(config: Config) -> TokenArray:
    shape = (config.batch, config.seq_len + 1)
    return np.random.default_rng(config.seed).integers(0, config.model.tokens, shape).astype(np.int32)


def _check_result(config: Config, checked: DeviceCheck, expected: float) -> None:
    if not abs(checked.loss - expected) <= _TOLERANCE[config.products] * expected:
        raise DeviceError(f"{checked.where}: loss {checked.loss} instead of {expected}: it computes wrongly")
    if not (checked.norm > 0 and checked.after < checked.loss):
        raise DeviceError(
            f"{checked.where}: loss {checked.after} after a step that began with {checked.loss} (gradient norm "
            f"{checked.norm}): the gradients are wrong"
        )


def _check_ranks_agree(numbers: list[list[float]]) -> None:
    for rank, own in enumerate(numbers):
        if any(abs(a - b) > _SAME * max(1.0, abs(b)) for a, b in zip(own, numbers[0], strict=True)):
            raise DeviceError(
                f"rank {rank} computes loss, gradient norm and next loss {own}, rank 0 to {numbers[0]}: the sums of "
                "gradients between devices are wrong"
            )
