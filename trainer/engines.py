"""From `engine=` and `device=` to an engine that is ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from trainer.config import BYTE_VOCAB, Config
from trainer.engine import Engine
from trainer.environment import World
from trainer.errors import ConfigError
from trainer.team import Team

_TILE = 128

Opener: TypeAlias = Callable[[Config, World, Team], Engine]


def settle(config: Config) -> Config:
    """Fill in `auto` for the engine and the device, from what this machine shows. Raises DeviceError.

    No device is touched, and no library is loaded.
    """
    from trainer.accelerators.discovery import discover
    from trainer.accelerators.registry import choose_engine

    engine, device = choose_engine(config, discover() if config.device == "auto" else ())
    return replace(config, engine=engine, device=device)


def with_vocabulary(config: Config, tokens: int) -> Config:
    """The model knows at least the corpus's tokens; `auto`: rounded up to whole tiles. Raises ConfigError."""
    if not config.model.vocab:
        # A whole number of tiles for matrix units, and divisible by any tensor axis; bytes stay bytes.
        padded = -(-tokens // _TILE) * _TILE if tokens > BYTE_VOCAB else tokens
        return replace(config, model=replace(config.model, vocab=padded))
    if config.model.vocab < tokens:
        raise ConfigError(
            f"model.vocab={config.model.vocab}, but the data has tokens up to {tokens - 1}: leave it out, or give at "
            f"least {tokens}"
        )
    return config


def open_engine(config: Config, world: World, team: Team) -> Engine:
    """Weights have their first values. Raises DeviceError, ConfigError, PeerError.

    config: settled, with its vocabulary. Libraries are imported here, and only those of the chosen engine.
    """
    if config.engine == "jax":
        from trainer.jax_engine.engine import open_jax

        return open_jax(config, world, team)
    if config.device == "xla":
        from trainer.xla_engine.engine import open_xla

        return open_xla(config, world, team)
    from trainer.torch_engine.engine import open_torch

    return open_torch(config, world, team)
