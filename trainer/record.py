"""What a run writes down about itself: the numbers of a step, and what it ran on."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from torch import nn

from trainer.accelerators.base import Accelerator
from trainer.checkpoint.layout import run_folder, timestamp
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.console import Console
from trainer.data import DataState
from trainer.distributed import Team
from trainer.environment import Run, World
from trainer.errors import ConfigError, DataError
from trainer.metrics import Meter, MetricsLog, StepRecord
from trainer.model import MFU_FORMULA, flops_per_token, parameter_count
from trainer.options import flat

_PACKAGES = ("torch", "numpy", "safetensors", "obstore")


class Recorder:
    """Turns the numbers of a logged step into a line; only rank 0 writes."""

    def __init__(self, config: Config, run: Run, world: World, accelerator: Accelerator, model: nn.Module) -> None:
        self._config = config
        self._run = run
        self._world = world
        self._parameters = parameter_count(model)
        self._flops = flops_per_token(config.model, self._parameters, config.seq_len)
        self._peak = accelerator.peak_flops(config.dtype)

    def headline(self, data: DataState) -> str:
        rows = f"{self._config.batch} x {self._config.seq_len} bytes a step"
        return f"{self._parameters:,} parameters; {data.source}: {data.total_bytes:,} bytes; {rows}"

    def write(
        self, metrics: MetricsLog, step: int, loss: float, norm: float, rate: float, meter: Meter, stall: float
    ) -> None:
        step_s, data_s = meter.take()
        if not self._world.is_first:
            return
        per_step = self._config.batch * self._config.seq_len
        speed = per_step / step_s
        record = StepRecord(
            step=step,
            loss=loss,
            loss_hex=loss.hex(),
            lr=rate,
            grad_norm=norm,
            tokens=step * per_step,
            tokens_per_s=speed,
            step_s=step_s,
            data_s=data_s,
            checkpoint_stall_s=stall,
            mfu=None if self._peak is None else self._flops * speed / (self._peak * self._world.size),
            mfu_formula=MFU_FORMULA,
            time=timestamp(),
            attempt=self._run.attempt,
            rank=self._world.rank,
            run_id=self._run.run_id,
        )
        Console(self._world).first(record.for_people(self._config.steps))
        metrics.write(record)


def open_metrics(
    config: Config, run: Run, world: World, checkpoints: Store | None, report: Callable[[str], None]
) -> MetricsLog:
    """The log of rank 0; the other ranks get one that goes nowhere."""
    if not world.is_first:
        return MetricsLog(None, None, run.attempt, report)
    file = Path(config.metrics.file) if config.metrics.file else None
    store = open_store(run_folder(checkpoints.uri), create=True) if checkpoints else None
    return MetricsLog(file, store, run.attempt, report)


def write_environment(
    config: Config, run: Run, team: Team, accelerator: Accelerator, checkpoints: Store | None
) -> None:
    """Write environment.json (first attempt) or environment-0002.json beside the checkpoints, once an attempt."""
    host = {
        "rank": team.world.rank,
        "host": platform.node(),
        "python": platform.python_version(),
        "device": accelerator.describe().as_json(),
    }
    hosts = team.gather(host)
    if checkpoints is None or not team.world.is_first:
        return
    content = {
        "run_id": run.run_id,
        "attempt": run.attempt,
        "time": timestamp(),
        "world": team.world.size,
        "versions": {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "ranks": hosts,
        "config": flat(config),
    }
    name = "environment.json" if run.attempt == 1 else f"environment-{run.attempt:04d}.json"
    store = open_store(run_folder(checkpoints.uri), create=True)
    store.create(name, json.dumps(content, indent=1).encode())


def check_same_everywhere(team: Team, data: DataState, config: Config) -> None:
    """Ranks that disagree would train on other data or hang. Raises DataError or ConfigError on every rank."""
    first, *rest = team.gather((replace(data, source=""), flat(config)))
    for rank, (its_data, its_config) in enumerate(rest, start=1):
        if its_data != first[0]:
            raise DataError(
                f"rank {rank} reads another corpus ({its_data.total_bytes:,} bytes) than rank 0 "
                f"({first[0].total_bytes:,} bytes): give all hosts the same files or the same Python"
            )
        for name, value in first[1].items():
            if its_config[name] != value:
                raise ConfigError(f"rank {rank} has {name}={its_config[name]}, rank 0 has {name}={value}")
