"""Everything that changes while training: weights, optimizer, random generators, as named tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.accelerators.base import Accelerator
from trainer.checkpoint.snapshot import shares
from trainer.config import Config, Scalar
from trainer.environment import World
from trainer.errors import ConfigError, StorageError
from trainer.model import Transformer

_MODEL, _OPTIMIZER, _RANDOM = "model", "optimizer", "random"


class TrainState:
    """model: the weights are the same on every rank, and so is the optimizer's state."""

    def __init__(self, config: Config, accelerator: Accelerator, world: World) -> None:
        self._seed = config.seed
        self._accelerator = accelerator
        self._world = world
        _seed_all(_rank_seed(config.seed, 0, world.rank))
        model = Transformer(config.model, config.seq_len)
        model.initialise(config.seed)
        self.model: nn.Module = model.to(accelerator.device)
        self.optimizer: Optimizer = _optimizer(self.model, config, accelerator)
        self._shared = self._collect()
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in self._shared.items()}
        self._mine = shares(sizes, world.size)[world.rank]

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def share(self) -> dict[str, Tensor]:
        """The tensors that this rank writes: its share of what all have, and its own random states."""
        self._accelerator.synchronize()
        own = {
            f"{_RANDOM}/{self._world.rank}/{name}": state for name, state in self._accelerator.random_states().items()
        }
        return {**{name: self._shared[name] for name in self._mine}, **own}

    @torch.no_grad()
    def load(self, parts: Iterable[Mapping[str, Tensor]], step: int) -> None:
        """Copy a checkpoint's tensors in place. Raises StorageError when some are missing or of another shape."""
        missing = set(self._shared)
        random: dict[str, Tensor] = {}
        prefix = f"{_RANDOM}/{self._world.rank}/"
        for tensors in parts:
            for name, tensor in tensors.items():
                if name.startswith(prefix):
                    random[name.removeprefix(prefix)] = tensor
                elif not name.startswith(f"{_RANDOM}/"):
                    self._copy(name, tensor)
                    missing.discard(name)
        if missing:
            raise StorageError(f"checkpoint {step} lacks {len(missing)} tensors, such as {min(missing)}")
        if random:
            self._accelerator.set_random_states(random)
        else:
            # Written by fewer ranks: a new rank gets a seed of its own.
            _seed_all(_rank_seed(self._seed, step, self._world.rank))

    def check_same_model(self, before: Mapping[str, Scalar], now: Mapping[str, Scalar]) -> None:
        """Raises ConfigError when the checkpoint is of a model with another shape."""
        for name, value in now.items():
            if name.startswith("model.") and before.get(name) != value:
                raise ConfigError(
                    f"{name}={value}, but the checkpoint was made with {name}={before.get(name)}: "
                    "give that value, or another checkpoint.uri to start afresh"
                )

    def _copy(self, name: str, tensor: Tensor) -> None:
        target = self._shared.get(name)
        if target is None or target.shape != tensor.shape or target.dtype != tensor.dtype:
            raise StorageError(f"the checkpoint's tensor {name} does not fit this model")
        target.copy_(tensor)

    def _collect(self) -> dict[str, Tensor]:
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        shared: dict[str, Tensor] = {f"{_MODEL}/{name}": p for name, p in self.model.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            for key, value in state.items():
                shared[f"{_OPTIMIZER}/{names[id(parameter)]}/{key}"] = value
        return shared


def _optimizer(model: nn.Module, config: Config, accelerator: Accelerator) -> Optimizer:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimizer = accelerator.optimizer(
        [
            {"params": matrices, "weight_decay": config.optim.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        config.optim,
    )
    # Made now, not in the first step: a checkpoint has somewhere to load into, and lazy devices trace one
    # program instead of two.
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            place = parameter.device if group.get("fused") or group.get("capturable") else "cpu"
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=place),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimizer


def _seed_all(seed: int) -> None:
    """The generators of the processor and of every device."""
    unchecked: Any = torch  # it annotates this function only in part
    unchecked.manual_seed(seed)


def _rank_seed(seed: int, step: int, rank: int) -> int:
    return (seed * 1_000_003 + step * 8191 + rank) % 2**63
