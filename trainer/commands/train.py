"""`python -m trainer key=value ...`: train, in as many processes as the environment says."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer.environment import Run, World, read_run, read_world
from trainer.errors import Exit
from trainer.options import parse

if TYPE_CHECKING:
    from trainer.engines import Opener

SUMMARY = "train (the default): key=value ..."


def run(words: Sequence[str]) -> int:
    return train_by(words)


def train_by(words: Sequence[str], opener: Opener | None = None) -> Exit:
    """opener: of the engine; None: as `engine=` and `device=` say. Raises TrainerError."""
    config = parse(words)
    run, world = read_run(os.environ), read_world(os.environ)
    # Before any library is loaded: with one device a process, each needs its share of the rows.
    # More devices a process change only by what the shares are multiplied, not that this divides them.
    config.rows_per_micro_batch(world.size // math.gcd(world.size, config.mesh.tensor))
    from trainer.stacks import offer_stacks

    offer_stacks(os.environ, world.rank)
    _say_that_it_starts(run, world)
    from trainer.loop import train

    return train(config, run, world, opener)


def _say_that_it_starts(run: Run, world: World) -> None:
    # Until the first step is done: loading libraries, meeting the others, restoring, compiling. Without a step, so that
    # nobody takes a long start for steps that no longer come.
    from trainer.console import Console
    from trainer.heartbeat import Heartbeat

    Heartbeat(run.heartbeat_file, world, Console(world)).beat(None, "starting")
