"""A Task as JSON and back: the JSON is itself a task file, every short form written out, secrets by name only."""

from __future__ import annotations

import dataclasses
import json
from typing import cast

from orchestrator.catalog.machines import CpuMachine, Ec2Instance, LocalHosts
from orchestrator.spec.build import Builder
from orchestrator.spec.dialect import TASK
from orchestrator.spec.errors import Problem, TaskError
from orchestrator.spec.infra import Where
from orchestrator.spec.schema import Json
from orchestrator.spec.task import (
    AutoStop,
    AwsSettings,
    Checkpoint,
    GcpSettings,
    GitSource,
    Limits,
    Order,
    Recovery,
    Resources,
    Task,
    UserHost,
)
from orchestrator.spec.yaml_reader import Value

NAME = "task.json"


def to_json(task: Task) -> str:
    return json.dumps(_document(task), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str) -> Task:
    """Raises TaskError when the text is not what `to_json` writes."""
    try:
        data = cast("Value", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise TaskError(NAME, None, "is not JSON", str(error)) from error
    issues = list(TASK.check(data, ()))
    if not issues and isinstance(data, dict):
        builder = Builder(data, {}, {}, restored=True)
        task = builder.task()
        if task is not None:
            return task
        issues = builder.issues
    raise TaskError.of([Problem(NAME, None, issue.what, issue.why, issue.next_step) for issue in issues])


def _document(task: Task) -> Json:
    return _some(
        {
            "name": task.name,
            "workdir": _workdir(task),
            "num_nodes": None if _counted_elsewhere(task) else task.num_nodes,
            "resources": _resources(task),
            "envs": dict(task.envs),
            "secrets": dict.fromkeys(task.secret_names),
            "file_mounts": {mount.target: {"source": mount.source, "mode": mount.mode} for mount in task.file_mounts},
            "setup": task.setup,
            "run": task.run,
            "train": _train(task),
            "checkpoint": _fields(task.checkpoint),
            "recovery": _some({**_fields(task.recovery), "strategy": None}),
            "limits": _fields(task.limits),
            "hosts": _some({"addresses": [_host(host) for host in task.hosts]}),
            "config": _some({"gcp": _gcp(task.gcp), "aws": _fields(task.aws)}),
        }
    )


def _some(pairs: Json) -> Json:
    """The pairs that say something. Maps of the user's own words are not looked into: an empty env is a value."""
    return {key: value for key, value in pairs.items() if value is not None and value not in ("", {}, [], ())}


def _fields(value: Checkpoint | Recovery | Limits | GcpSettings | AwsSettings | UserHost | AutoStop) -> Json:
    return _some(dataclasses.asdict(value))


def _flags(values: Json) -> Json:
    """Without the flags that are not set."""
    return _some({key: None if value is False else value for key, value in values.items()})


def _gcp(settings: GcpSettings) -> Json:
    made = _flags(dataclasses.asdict(settings))
    return {key: value for key, value in made.items() if key != "firewall"} | (
        {} if settings.firewall else {"firewall": False}
    )


def _workdir(task: Task) -> Json | str | None:
    return _some(dataclasses.asdict(task.workdir)) if isinstance(task.workdir, GitSource) else task.workdir


def _train(task: Task) -> Json | None:
    if task.train is None:
        return None
    smoke: Json = {"smoke": True} if task.train.smoke else {}
    return {"backend": task.train.backend, "args": dict(task.train.args), **smoke}


def _host(host: UserHost) -> Json:
    return {**_fields(host), "host": f"[{host.host}]" if ":" in host.host else host.host}


def _counted_elsewhere(task: Task) -> bool:
    return bool(task.hosts) or any(choice.infra.shape.isdigit() for choice in task.choices)


def _resources(task: Task) -> Json:
    candidates = [_candidate(choice) for choice in task.choices]
    shared: Json = {"job_recovery": {"strategy": task.recovery.strategy}}
    if task.autostop:
        shared["autostop"] = _fields(task.autostop)
    plain = len(candidates) == 1 and task.order is Order.GIVEN
    return {**shared, **candidates[0]} if plain else {**shared, str(task.order): candidates}


def _accelerators(choice: Resources) -> str | None:
    """None where `infra` says it all."""
    plain = isinstance(choice.machine, LocalHosts | CpuMachine)
    return None if plain and choice.infra.provider is not Where.SIMULATED else choice.machine.name


def _candidate(choice: Resources) -> Json:
    machine = choice.machine
    name_key = "instance_type" if isinstance(machine, Ec2Instance) else "accelerators"
    images = dict(choice.images)
    return _some(
        {
            "infra": str(choice.infra),
            name_key: _accelerators(choice),
            "accelerator_args": _flags(dataclasses.asdict(choice.args)),
            "use_spot": choice.use_spot,
            "disk_size": choice.disk_gib,
            "network_tier": choice.network_tier,
            "image_id": images.get("", images),
            "labels": dict(choice.labels),
            "max_hourly_cost": choice.max_hourly_cost,
        }
    )
