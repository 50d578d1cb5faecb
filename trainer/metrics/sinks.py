"""Other tools that take the numbers: TensorBoard, Weights & Biases, MLflow. Libraries are imported when they
are asked for, and opened in the sink's own thread: none of them holds up the start."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainer.config import Config
from trainer.environment import Run
from trainer.errors import ConfigError
from trainer.metrics.events import EventFile
from trainer.metrics.log import Sink
from trainer.metrics.record import StepRecord
from trainer.options import flat

_MLFLOW_BATCH = 1000  # the most numbers that its server takes at once
_MLFLOW_PARAMS = 100  # and settings


def open_sinks(config: Config, run: Run) -> Iterator[Sink]:
    """Those that the config names. Raises ConfigError when a library is missing."""
    wanted = config.metrics
    if wanted.tensorboard:
        yield TensorBoard(wanted.tensorboard, run)
    if wanted.wandb:
        _need(f"metrics.wandb={wanted.wandb}", "wandb")
        yield WeightsAndBiases(wanted.wandb, config, run)
    if wanted.mlflow:
        _need(f"metrics.mlflow={wanted.mlflow}", "mlflow")
        yield MLflow(wanted.mlflow, config, run)


class TensorBoard:
    """Event files in a local folder, one for each attempt; steps that are made again replace the earlier ones. Needs no
    library."""

    keeps = False
    every = 0.0

    def __init__(self, folder: str, run: Run) -> None:
        self.name = f"metrics.tensorboard={folder}"
        self._folder = Path(folder)
        self._suffix = f".{run.run_id}-{run.attempt:04d}"
        self._file: EventFile | None = None

    def write(self, records: Sequence[StepRecord]) -> None:
        if self._file is None:
            self._file = EventFile(self._folder, self._suffix, records[0].step)
        for record in records:
            self._file.add(record.step, record.numbers())
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class WeightsAndBiases:
    """One run there for all attempts: its id is ours. Where to and as whom is for WANDB_* to say.

    Its own count of steps only rises, and it drops what is logged below: steps that are made again after a crash. So
    ours is a number like the others, `step`, and the axis over which they are drawn.
    """

    keeps = False
    every = 0.0

    def __init__(self, project: str, config: Config, run: Run) -> None:
        self.name = f"metrics.wandb={project}"
        self._project = project
        self._settings = flat(config)
        self._run_id = run.run_id
        self._run: Any = None

    def write(self, records: Sequence[StepRecord]) -> None:
        if self._run is None:
            wandb: Any = import_module("wandb")
            # Every run outside a launcher is called "local": those are different runs.
            named = {} if self._run_id == "local" else {"id": self._run_id, "name": self._run_id, "resume": "allow"}
            run = wandb.init(project=self._project, config=self._settings, **named)
            run.define_metric("step")
            run.define_metric("*", step_metric="step")
            self._run = run
        for record in records:
            self._run.log({"step": record.step, **record.numbers()})

    def close(self) -> None:
        if self._run is None:
            return
        self._run.finish()
        # Its own process still writes then, and would do so at exit: ours ends without that ceremony.
        import_module("wandb").teardown()


class MLflow:
    """One run there for all attempts: found again by the tag `run_id`. Where to is for MLFLOW_TRACKING_URI to say."""

    keeps = False
    every = 5.0

    def __init__(self, experiment: str, config: Config, run: Run) -> None:
        self.name = f"metrics.mlflow={experiment}"
        self._experiment = experiment
        self._settings = flat(config)
        self._run_id = run.run_id
        self._client: Any = None
        self._run = ""

    def write(self, records: Sequence[StepRecord]) -> None:
        entities: Any = import_module("mlflow.entities")
        if self._client is None:
            client = import_module("mlflow").MlflowClient()
            self._run = self._open(client, entities)
            self._client = client
        now = int(time.time() * 1000)
        numbers = [
            entities.Metric(name, value, now, record.step)
            for record in records
            for name, value in record.numbers().items()
            if math.isfinite(value)
        ]
        for first in range(0, len(numbers), _MLFLOW_BATCH):
            self._client.log_batch(self._run, metrics=numbers[first : first + _MLFLOW_BATCH])

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run)

    def _open(self, client: Any, entities: Any) -> str:
        found = client.get_experiment_by_name(self._experiment)
        experiment = client.create_experiment(self._experiment) if found is None else found.experiment_id
        if self._run_id != "local":
            for run in client.search_runs([experiment], f"tags.run_id = '{self._run_id}'", max_results=1):
                client.update_run(run.info.run_id, status="RUNNING")  # an earlier attempt ended it
                return str(run.info.run_id)
        run = client.create_run(experiment, run_name=self._run_id, tags={"run_id": self._run_id})
        settings = [entities.Param(name, str(value)) for name, value in self._settings.items()]
        for first in range(0, len(settings), _MLFLOW_PARAMS):
            client.log_batch(run.info.run_id, params=settings[first : first + _MLFLOW_PARAMS])
        return str(run.info.run_id)


def _need(asked: str, library: str) -> None:
    if find_spec(library) is None:
        raise ConfigError(f"{asked} needs a library that is not installed: pip install {library}")
