"""From `engine=` and `device=` to an engine that is ready."""

from __future__ import annotations

from trainer.config import Config
from trainer.engine import Engine
from trainer.environment import World
from trainer.team import Team


def open_engine(config: Config, world: World, team: Team) -> Engine:
    """Weights have their first values. Raises DeviceError, ConfigError, PeerError.

    config.model.vocab is known here. Libraries are imported here, and only those of the chosen engine.
    """
    if config.engine == "jax":
        from trainer.jax_engine.engine import open_jax

        return open_jax(config, world, team)
    from trainer.torch_engine.engine import open_torch

    return open_torch(config, world, team)
