"""From a task to what its hosts get: mounts, setup script and program, all rendered; trees.py has what is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from orchestrator.catalog.installs import host_tool
from orchestrator.catalog.machines import LocalHosts
from orchestrator.engine.preparation.bucket_locations import region_variable
from orchestrator.engine.preparation.trees import decides_about_setup, gets_library, place_in_workdir
from orchestrator.errors import UserError
from orchestrator.plan.desired import JobSpec, MountSpec, SetupSpec, TreeSpec
from orchestrator.providers.registry import load_planner
from orchestrator.remote.host_folder import WORKDIR
from orchestrator.remote.tree import Tree
from orchestrator.render.checkout import render_git_checkout
from orchestrator.render.mounts import (
    MountInputs,
    bucket_path,
    render_copy_mount,
    render_link_mount,
    render_mount,
    render_scratch,
)
from orchestrator.render.packages import Backend
from orchestrator.render.scripts import Holders, RunInputs, SetupInputs, render_run, render_setup
from orchestrator.slices import Candidate, HostFacts
from orchestrator.task.conda import expects_conda
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.likely_secrets import hide_likely_secret
from orchestrator.task.model import GitSource, MountMode, Task
from orchestrator.task.resources import ResourceFields, Resources
from orchestrator.task.stacks import Stack, StackRequest, choose_stack, choose_stand_in_stack
from orchestrator.values import Text, to_text

_CHOSEN = frozenset({"use_spot", "num_nodes", "settings", "estimate"})  # of a candidate, by `accelerators: auto`


def build_mounts(task: Task, facts: HostFacts) -> tuple[MountSpec, ...]:
    """Return what hosts fetch themselves: local disks, a git workdir, bucket paths, copied or mounted."""
    specs: list[MountSpec] = []
    rented = not task.choices[0].infra.owned
    if rented and facts.scratch:
        script = render_scratch(facts.scratch)
        specs.append(
            MountSpec(
                label="scratch",
                source="local disks",
                destination=facts.scratch,
                digest=hash_text(script),
                script=to_text(script),
            )
        )
    if isinstance(task.workdir, GitSource):
        script = render_git_checkout(task.workdir.url, task.workdir.ref, WORKDIR)
        source = f"{task.workdir.url}@{task.workdir.ref or 'HEAD'}"
        specs.append(
            MountSpec(
                label="workdir", source=source, destination=WORKDIR, digest=hash_text(script), script=to_text(script)
            )
        )
    for mount in task.file_mounts:
        if mount.from_bucket:
            place = place_in_workdir(mount.target) or mount.target
            inputs = MountInputs(mount.source, place, writable=mount.in_s3 and not mount.read_only)
            copied = mount.mode is MountMode.COPY
            mounted: Callable[[MountInputs], str] = partial(render_mount, may_install=rented, scratch=facts.scratch)
            if facts.bucket_folder and not mount.source.startswith("file://"):
                inputs = replace(inputs, source=f"file://{bucket_path(Path(facts.bucket_folder), mount.source)}")
                mounted = render_link_mount
            script = render_copy_mount(inputs) if copied else mounted(inputs)
            specs.append(
                MountSpec(
                    label=mount.target,
                    source=mount.source,
                    destination=mount.target,
                    digest=hash_text(script),
                    script=to_text(script),
                )
            )
    return tuple(specs)


def build_setup(task: Task, facts: HostFacts, sent: tuple[Tree, ...], force: str) -> SetupSpec | None:
    """Render the setup script, with the digest of all that decides whether it must run again."""
    driven = choose_software(task, facts)
    inputs = SetupInputs(
        backend=driven.backend,
        user_setup=task.setup or None,
        workdir=_workdir(task),
        python=facts.python,
        bundled_trainer=task.train is not None,
        may_install=not task.choices[0].infra.owned and not facts.python,
        scratch=facts.scratch,
        neuron=_on_neuron(task),
        engine=driven.engine,
        device=driven.device,
        fixed=_fixed_names(task, facts),
        conda=host_tool("miniforge") if _needs_conda(task) else None,
        container=task.choices[0].container,
        folders=tuple(mount.target for mount in task.file_mounts if mount.target.startswith("/")),
        holders=_choose_holders(task),
    )
    script = render_setup(inputs)
    if script is None:
        return None
    manifests = [
        f"{file.path}={file.sha256}" for tree in sent for file in tree.files if decides_about_setup(task, file.path)
    ]
    decides = json.dumps([script, sorted(manifests), sorted(task.envs), sorted(task.secret_names), force])
    return SetupSpec(hash_text(decides), to_text(script))


def _choose_holders(task: Task) -> Holders:
    """Return what happens to processes that hold the accelerator: own machines have other users."""
    return "refuse" if task.choices[0].infra.owned else "end"


def _needs_conda(task: Task) -> bool:
    """Return whether rented machines get conda: the task calls it, and does not install it itself."""
    first = task.choices[0]
    return not first.infra.owned and not first.container and expects_conda(f"{task.setup}\n{task.run}")


def build_job(task: Task, facts: HostFacts, job_id: int) -> JobSpec | None:
    """Render the program, or return None for a task that runs nothing."""
    if not task.run and task.train is None:
        return None
    driven, machine = choose_software(task, facts), task.choices[0].machine
    inputs = RunInputs(
        backend=driven.backend,
        user_run=task.run or None,
        trainer_args=_trainer_args(task),
        workdir=_workdir(task),
        python=facts.python,
        scratch=facts.scratch,
        neuron=_on_neuron(task),
        engine=driven.engine,
        device=driven.device,
        smoke=task.train is not None and task.train.smoke,
        topology=machine.topology,
        fixed=_fixed_names(task, facts),
        container=task.choices[0].container,
        library=gets_library(task),
        holders=_choose_holders(task),
    )
    return JobSpec(id=job_id, script=to_text(render_run(inputs)))


def build_environment(task: Task, facts: HostFacts) -> tuple[tuple[str, Text], ...]:
    """Return the variables of the job; later ones win: the provider's, the user's envs, the secrets."""
    pairs = [(name, to_text(value)) for name, value in facts.env]
    if task.train is not None and choose_software(task, facts).device == "xla" and _is_plain(task):
        pairs.append(("PJRT_DEVICE", to_text("CPU")))
    if task.checkpoint.every is not None:
        pairs.append(("ORCH_CHECKPOINT_EVERY", to_text(str(task.checkpoint.every))))
    pairs += region_variable(task.checkpoint.bucket)
    if task.git is not None:
        pairs += [(name, to_text(value)) for name, value in task.git.list_variables()]
    pairs += [(name, hide_likely_secret(name, value)) for name, value in task.envs]
    pairs += [(secret.name, to_text(secret)) for secret in task.secrets]
    return tuple(pairs)


def _fixed_names(task: Task, facts: HostFacts) -> tuple[str, ...]:
    """Return the names of the variables that the host's own ~/.bashrc does not change.

    Those of orch are left out, as it never changes them: which there are depends on the shell that launches, and the
    digest of the setup script must not.
    """
    names = (name for name, _ in build_environment(task, facts))
    return tuple(dict.fromkeys(name for name in names if not name.startswith("ORCH_")))


@dataclass(frozen=True, slots=True)
class SoftwareStack:
    """The software for which the scripts are rendered.

    Attributes:
        backend: The kind of setup and start scripts.
        engine: Of the bundled trainer, "" for a program of the user's.
        device: Of the bundled trainer, "" for a program of the user's, except JAX on CUDA.
    """

    backend: Backend
    engine: str = ""
    device: str = ""


def choose_software(task: Task, facts: HostFacts) -> SoftwareStack:
    """Return what drives the accelerator: the trainer's stack, else what the image contains, else the usual."""
    if task.train is not None:
        chosen = choose_trainer_stack(task, facts)
        return SoftwareStack(cast(Backend, chosen.backend), chosen.engine, chosen.device)
    word = facts.backend or task.choices[0].machine.backend
    on_gpu = word == "jax" and "cuda" in task.choices[0].machine.backends
    return SoftwareStack(cast(Backend, word), device="cuda" if on_gpu else "")


def choose_trainer_stack(task: Task, facts: HostFacts) -> Stack:
    """Return engine, device and software of the bundled trainer on the first choice.

    Raises:
        UserError: A recorded task that this version does not serve; rules.py refuses it in a new one.
    """
    choice = task.choices[0]
    requested = (
        task.train.stack_request(choice.accelerator_args.framework) if task.train is not None else StackRequest()
    )
    stands_in = not facts.has_accelerator and not isinstance(choice.machine, LocalHosts)
    try:
        return (
            choose_stand_in_stack(choice.machine, requested) if stands_in else choose_stack(choice.machine, requested)
        )
    except InvalidValueError as error:
        raise UserError(error.what, error.why, error.next_step) from error


def _is_plain(task: Task) -> bool:
    """Return whether the hosts have no accelerator that XLA could use."""
    return task.choices[0].machine.backend == "cpu"


def _on_neuron(task: Task) -> bool:
    return "neuron" in task.choices[0].machine.backends


def host_facts(candidate: Candidate) -> HostFacts:
    """Return what the candidate's provider knows of its hosts in advance."""
    return load_planner(candidate.provider).host_facts(candidate)


def job_digest(cluster: str, kind: str, task: Task, trees: tuple[TreeSpec, ...]) -> str:
    """Return a digest that is equal when the same command is given again.

    An unfinished job with the same digest is resumed.
    """
    written: set[str] = set()
    if task.auto is not None:  # the choice depends on the time of the command
        written = {_format_written(choice) for choice in task.choices}
        task = task.model_copy(update={"choices": ()})
    parts = [
        cluster,
        kind,
        task.to_compared(),
        *sorted(f"{tree.label}={tree.digest}" for tree in trees),
        *sorted(written),
    ]
    return hash_text(json.dumps(parts))


def _format_written(choice: Resources) -> str:
    """Return what the user wrote of a candidate whose machine orch chose; `auto.only` has the cloud and market."""
    fields = choice.model_dump(mode="json", include=ResourceFields.model_fields.keys() - _CHOSEN)
    return json.dumps([choice.infra.region, choice.infra.zone, fields])


def _trainer_args(task: Task) -> tuple[tuple[str, str], ...] | None:
    """Return the trainer's settings without engine and device, which the stack gives."""
    if task.train is None:
        return None
    words = (word.partition("=") for word in task.train.format_args(task.checkpoint))
    return tuple((key, value) for key, _, value in words if key not in ("device", "engine"))


def _workdir(task: Task) -> str | None:
    mounted = any(place_in_workdir(mount.target) for mount in task.file_mounts)
    return WORKDIR if task.workdir is not None or mounted else None


def hash_text(content: str) -> str:
    """Return the SHA-256 by which a script or request is compared with one on record."""
    return hashlib.sha256(content.encode()).hexdigest()
