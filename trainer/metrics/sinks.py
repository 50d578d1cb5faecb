"""Sinks for other tools: TensorBoard, Weights & Biases, MLflow.

Libraries are imported on demand, and opened in the sink's own thread, so none of them delays the start.
"""

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
from trainer.options import flatten_config

_MLFLOW_BATCH = 1000  # most metrics per request that its server accepts
_MLFLOW_PARAMS = 100  # most parameters per request


def open_sinks(config: Config, run: Run) -> Iterator[Sink]:
    """Yield the sinks that the config names.

    Raises:
        ConfigError: A library is missing.
    """
    settings = config.metrics
    if settings.tensorboard:
        yield TensorBoard(settings.tensorboard, run)
    if settings.wandb:
        _require_library(f"metrics.wandb={settings.wandb}", "wandb")
        yield WeightsAndBiases(settings.wandb, config, run)
    if settings.mlflow:
        _require_library(f"metrics.mlflow={settings.mlflow}", "mlflow")
        yield MLflow(settings.mlflow, config, run)


class TensorBoard:
    """Event files in a local folder, one per attempt; repeated steps replace the earlier ones."""

    must_keep_all = False
    interval_s = 0.0

    def __init__(self, folder: str, run: Run) -> None:
        self.name = f"metrics.tensorboard={folder}"
        self._folder = Path(folder)
        self._suffix = f".{run.run_id}-{run.attempt:04d}"
        self._file: EventFile | None = None

    def write(self, records: Sequence[StepRecord]) -> None:
        if self._file is None:
            self._file = EventFile(self._folder, self._suffix, records[0].step)
        for record in records:
            self._file.add(record.step, record.list_scalars())
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class WeightsAndBiases:
    """One Weights & Biases run for all attempts, with our run id; WANDB_* set the server and the account.

    Its own step counter only rises, and it drops what is logged below it, such as the steps repeated after a crash. So
    our step is logged as a metric, `step`, and is the x-axis of the others.
    """

    must_keep_all = False
    interval_s = 0.0

    def __init__(self, project: str, config: Config, run: Run) -> None:
        self.name = f"metrics.wandb={project}"
        self._project = project
        self._settings = flatten_config(config)
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
            self._run.log({"step": record.step, **record.list_scalars()})

    def close(self) -> None:
        if self._run is None:
            return
        self._run.finish()
        # Its helper process would finish writing at our exit, but the trainer exits without exit handlers.
        import_module("wandb").teardown()


class MLflow:
    """One MLflow run for all attempts, found by the tag `run_id`; MLFLOW_TRACKING_URI sets the server."""

    must_keep_all = False
    interval_s = 5.0

    def __init__(self, experiment: str, config: Config, run: Run) -> None:
        self.name = f"metrics.mlflow={experiment}"
        self._experiment = experiment
        self._settings = flatten_config(config)
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
            for name, value in record.list_scalars().items()
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


def _require_library(setting: str, library: str) -> None:
    if find_spec(library) is None:
        raise ConfigError(f"{setting} needs a library that is not installed: pip install {library}")
