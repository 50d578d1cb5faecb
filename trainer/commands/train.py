"""`python -m trainer key=value ...`: train, in as many processes as the environment describes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer.environment import Run, World, read_run, read_world
from trainer.errors import Exit
from trainer.options import parse_config

if TYPE_CHECKING:
    from trainer.engines import Opener

SUMMARY = "train (the default): key=value ..."


def run(words: Sequence[str]) -> int:
    """Train with the engine that the settings name."""
    return train_with_engine(words)


def train_with_engine(words: Sequence[str], opener: Opener | None = None) -> Exit:
    """Train.

    Args:
        words: key=value settings.
        opener: Opens the engine; None for the one that `engine=` and `device=` name.

    Raises:
        TrainerError: The run failed.
    """
    config = parse_config(words)
    run, world = read_run(os.environ), read_world(os.environ)
    # Before any library is loaded: with one device a process, each needs its share of the rows.
    # More devices a process change only by what the shares are multiplied, not that this divides them.
    sharers = config.mesh.tensor * config.mesh.context * config.mesh.pipeline
    config.rows_per_micro_batch(world.size // math.gcd(world.size, sharers))
    from trainer.stacks import enable_stack_dumps

    enable_stack_dumps(os.environ, world.rank)
    _write_starting_heartbeat(run, world)
    from trainer.loop import run_training

    return run_training(config, run, world, opener)


def _write_starting_heartbeat(run: Run, world: World) -> None:
    # Until the first step is done: loading libraries, meeting the others, restoring, compiling. Without a step, so that
    # a long start is not mistaken for a hang.
    from trainer.console import Console
    from trainer.heartbeat import Heartbeat

    Heartbeat(run.heartbeat_file, world, Console(world).print_on_every).beat(None, "starting")
