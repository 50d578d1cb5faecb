"""The commands of pipelines in the crash matrix: two stages on the simulated cloud, each on its own cluster."""

from __future__ import annotations

import json
from collections.abc import Callable

from crash_matrix import Place, nothing_left, programs, sound, untracked
from crash_verbs import Verb, nothing_yet
from support.driving import Listener
from support.simulated import Points, SimHome

from orchestrator.engine.preparation import commands
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.unattended.pipeline import run_pipeline
from orchestrator.engine.unattended.pipeline_spec import PipelineSpec
from orchestrator.engine.unattended.pipeline_start import PipelineStart, choose_start
from orchestrator.engine.unattended.pipeline_stop import stop_pipeline
from orchestrator.paths import load_paths
from orchestrator.store.lookup import find_pipeline
from orchestrator.store.records import JobRecord, PipelineRecord
from orchestrator.task.model import Task

NAME = "pipe"
STAGES = ("prepare", "train")


class _Killed(BaseException):
    """The end of a process, without what it does at its end."""


class _KilledInTraining(Points):
    """Points of a launch that is killed when the program of the second stage has started."""

    def here(self, name: str) -> None:
        super().here(name)
        if name == "after start program" and self.names.count(name) == len(STAGES):
            raise _Killed


def make_spec(run: str = "true") -> PipelineSpec:
    resources = {"infra": "simulated/here/sim-a", "accelerators": "v5litepod-8"}
    tasks = ({"name": name, "resources": resources, "run": run} for name in STAGES)
    return PipelineSpec(name=NAME, tasks=tuple(Task.from_json(json.dumps(task)) for task in tasks))


def launch(home: SimHome, run: str = "true") -> None:
    spec = make_spec(run)
    with open_reader() as reader:
        start = choose_start(reader, spec)
    with home.points.commits():
        ending = run_pipeline(spec, Listener(), home.services(), start)
    assert ending.status == 0, ending


def launch_edited(home: SimHome) -> None:
    launch(home, "echo edited")


def watch(home: SimHome) -> None:
    with open_reader() as reader:
        record = find_pipeline(reader, NAME)
    if record is not None:
        start = PipelineStart(stage=record.stage, continued=record)
        with home.points.commits():
            run_pipeline(PipelineSpec.from_record(record), Listener(), home.services(), start)


def _stop(verb: str) -> Callable[[SimHome], None]:
    def act(home: SimHome) -> None:
        with open_reader() as reader:
            record = find_pipeline(reader, NAME)
        if record is not None:
            with home.points.commits(), open_store(load_paths(), home.services(), verb) as store:
                ending = stop_pipeline(store, home.services(), record, Listener(), verb)
            assert ending.status == 0, ending

    return act


cancel, down = _stop("cancel"), _stop("down")


def down_of_cluster(home: SimHome) -> None:
    """Take the cluster of the second stage down, as a service does that knows of no pipeline."""
    with open_reader() as reader:
        left = reader.cluster("pipe-2")
    if left is not None:
        home.drive(commands.prepare_down("pipe-2"))


def in_training(home: SimHome) -> None:
    """Launch it, and kill the process when its second stage runs."""
    nothing_yet(home)
    home.points = _KilledInTraining()
    try:
        launch(home)
    except _Killed:
        return
    raise AssertionError("it was not killed")


VERBS = (
    Verb("launch of a pipeline", nothing_yet, launch, {}, 1),
    Verb("watch of a pipeline", in_training, watch, {}, 1),
    Verb("cancel of a pipeline", in_training, cancel, {}, 1),
    Verb("down of a pipeline", in_training, down, {}, 1),
    Verb("launch of an edited pipeline", in_training, launch_edited, {}, 1),
)
STAGE_DOWN = Verb("down of the cluster of a stage", in_training, down_of_cluster, {}, 1)
OTHERS = {"watch": watch, "cancel": cancel, "down": down}


def finish_pipeline(place: Place, verb: Verb, where: str) -> list[str]:
    """Give the same command again, and return what is wrong then."""
    return finish_with(place, verb, where, verb.act)


def finish_with(place: Place, verb: Verb, where: str, act: Callable[[SimHome], None]) -> list[str]:
    """Give a command after the one that was killed, and return what is wrong then."""
    wrong = [f"as it was killed: {what}" for what in untracked(place, verb)]
    home = place.home()
    try:
        act(home)
        home.pass_time(1.0)
        wrong += [*nothing_left(place), *sound(place), *_list_wrong_records(), *_list_wrong_programs(place)]
    except Exception as error:  # a failure of the product is what the test looks for: it is listed with the others
        wrong.append(f"it raised {type(error).__name__}: {error}")
    return [f"{verb.name}, killed {where}: {what}" for what in wrong]


def read_pipelines() -> list[tuple[PipelineRecord, tuple[JobRecord, ...]]]:
    with open_reader() as reader:
        return [(one, reader.pipeline_jobs(one.uid)) for one in reader.pipelines(ended=True)]


def _list_wrong_records() -> list[str]:
    wrong: list[str] = []
    for record, jobs in read_pipelines():
        if record.state == "running":
            wrong.append(f"{record.uid} still runs, at {record.describe_stage()}")
        wrong += [f"job {job.id} of {record.uid} is {job.state}" for job in jobs if job.state != "ended"]
        stages = [job.stage for job in jobs]
        if len(set(stages)) != len(stages):
            wrong.append(f"a stage of {record.uid} has two jobs: {stages}")
        if record.status == 0 and {job.status for job in jobs} != {0}:
            wrong.append(f"{record.uid} succeeded, and its jobs ended {[job.status for job in jobs]}")
    return wrong


def _list_wrong_programs(place: Place) -> list[str]:
    with place.home().access.open() as cloud:
        twice = {name for name, count in programs(cloud).items() if count > len(read_pipelines()) * len(STAGES)}
    return [f"programs ran more than once: {twice}"] if twice else []
