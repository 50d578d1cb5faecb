"""Opens the engine that `engine=` and `device=` name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from trainer.arithmetic import multiplies_in_bf16, resolve_arithmetic
from trainer.config import BYTE_VOCAB, Config
from trainer.engine import Engine
from trainer.environment import World
from trainer.errors import ConfigError, DataError
from trainer.shape.float8 import refuse_float8
from trainer.team import Team

if TYPE_CHECKING:
    from trainer.data.corpus import Corpus

_TILE = 128

Opener: TypeAlias = Callable[[Config, World, Team], Engine]


def choose_engine_and_device(config: Config) -> Config:
    """Resolve `auto` for the engine, the device and the arithmetic, from what this machine shows.

    No device is touched and no library is loaded.

    Raises:
        DeviceError: Nothing that is installed can use the device.
        ConfigError: The engine and the device exclude each other, or the arithmetic.
    """
    from trainer.accelerators.discovery import discover_devices
    from trainer.accelerators.registry import choose_engine

    # nvidia-smi takes seconds where no daemon keeps the driver loaded.
    asks = config.device == "auto" or (config.device == "cuda" and config.dtype == "auto")
    found = discover_devices() if asks else ()
    engine, device = choose_engine(config, found)
    gpus = [one.name for one in found if one.kind == "cuda"] if device == "cuda" else []
    config = replace(config, engine=engine, device=device)
    config = resolve_arithmetic(config, device, has_bf16=multiplies_in_bf16(gpus))
    refuse_float8(config, device)
    return config


def set_vocabulary_size(config: Config, tokens: int, largest: int | None = None) -> Config:
    """Resolve `model.vocab`: `auto` is all tokens of the tokenizer, rounded up to whole tiles.

    A tokenizer may name more tokens than a given vocabulary has, as long as the data has none of them.

    Args:
        config: As given.
        tokens: Number of the tokenizer's tokens.
        largest: The largest token that the data has; None for the last one of the tokenizer.

    Raises:
        ConfigError: The data has tokens beyond the given vocabulary.
    """
    if not config.model.vocab:
        # A whole number of tiles for matrix units, and divisible by any tensor axis; bytes stay bytes.
        padded = -(-tokens // _TILE) * _TILE if tokens > BYTE_VOCAB else tokens
        return replace(config, model=replace(config.model, vocab=padded))
    last = tokens - 1 if largest is None else largest
    if config.model.vocab <= last:
        raise ConfigError(
            f"model.vocab={config.model.vocab}, but the data has tokens up to {last}: leave it out, or give at least "
            f"{last + 1}; for tokens added to a model: python -m trainer import FOLDER PLACE resize=auto"
        )
    return config


def resolve_loss(config: Config, corpora: Sequence[Corpus]) -> Config:
    """Resolve `data.loss`: with `auto`, that of marked tokens where one of the corpora has marks.

    Args:
        config: As given.
        corpora: What is trained on, and what is evaluated.

    Raises:
        DataError: `data.loss=marked`, and what is trained on has no marks.
    """
    if config.data.loss == "marked" and not corpora[0].marked:
        raise DataError(
            f"data.loss=marked, but data={corpora[0].source} marks no tokens: prepare chat data with chat=auto, or "
            "leave data.loss out"
        )
    if config.data.loss != "auto":
        return config
    marked = any(corpus.marked for corpus in corpora)
    return replace(config, data=replace(config.data, loss="marked" if marked else "all"))


def open_engine(config: Config, world: World, team: Team) -> Engine:
    """Open the engine, with the weights at their first values.

    Libraries are imported here, and only those of the chosen engine.

    Args:
        config: With engine, device and vocabulary resolved.
        world: Which rank this process is.
        team: All ranks of the run.

    Raises:
        DeviceError: The device is missing or does not open.
        ConfigError: The settings do not fit the devices.
        PeerError: Another rank was lost.
    """
    if config.engine == "jax":
        from trainer.jax_engine.engine import open_jax_engine

        return open_jax_engine(config, world, team)
    if config.device == "xla":
        from trainer.xla_engine.engine import open_xla_engine

        return open_xla_engine(config, world, team)
    from trainer.torch_engine.engine import open_torch_engine

    return open_torch_engine(config, world, team)
