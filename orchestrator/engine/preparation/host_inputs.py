"""From a task to what its hosts get: trees, mounts, setup script and program, all rendered."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast

from orchestrator.catalog.installs import host_tool
from orchestrator.catalog.machines import LocalHosts
from orchestrator.drivers import get_driver
from orchestrator.engine.preparation.bucket_locations import region_variable
from orchestrator.errors import UserError
from orchestrator.plan.desired import (
    Budgets,
    JobSpec,
    Limits,
    MountSpec,
    SetupSpec,
    Strategy,
    TimerSpec,
    TreeSpec,
)
from orchestrator.providers.registry import load_planner
from orchestrator.remote.tree import Tree, read_snapshot, read_tree
from orchestrator.render.checkout import render_git_checkout
from orchestrator.render.limits import LimitsSpec, render_limits
from orchestrator.render.mounts import (
    MountInputs,
    bucket_path,
    render_copy_mount,
    render_link_mount,
    render_mount,
    render_scratch,
)
from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup
from orchestrator.slices import Candidate, HostFacts
from orchestrator.task.conda import expects_conda
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.likely_secrets import hide_likely_secret
from orchestrator.task.model import GitSource, MountMode, Task
from orchestrator.task.stacks import Stack, StackRequest, choose_stack, choose_stand_in_stack
from orchestrator.values import Text, to_text

WORKDIR = "orch_workdir"
DIALECT_WORKDIR = "sky_workdir"  # a link to WORKDIR (templates/run/workdir.sh.j2)
TAKEN_OVER = 6  # trainer/errors.py: another start of the run has claimed it
STORAGE_RESTARTS = 5  # of the bundled trainer, which has repeated its requests for minutes before it ends with 10
TRAINER = ".orch/trainer/trainer"
DEVICE_PROBE = ".orch/devices/trainer"
DEPENDENCY_FILES = ("requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment.y*ml", "*.lock")
_IS_DEPENDENCY_FILE = re.compile("|".join(map(fnmatch.translate, DEPENDENCY_FILES))).match
LONGEST_CLUSTER_NAME = 40


def choose_cluster_name(task: Task, requested: str | None) -> str:
    """Return the name the user gave, or the task's name, or "train" or "task", made valid.

    Raises:
        UserError: It cannot be made valid, or the name that the user gave is not valid as it is: another one could be
            that of a cluster that runs.
    """
    name = (requested or task.name or ("train" if task.train is not None else "task")).lower()
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in name).strip("-")
    if requested and len(clean) > LONGEST_CLUSTER_NAME:
        raise UserError(
            f"'{clean}' is too long for a cluster's name",
            f"it has {len(clean)} characters; at most {LONGEST_CLUSTER_NAME} are allowed",
            f"give a shorter one: -c {clean[:LONGEST_CLUSTER_NAME].rstrip('-')}",
        )
    clean = clean[:LONGEST_CLUSTER_NAME].rstrip("-")
    if requested and clean and clean[0].isalpha() and clean != requested:
        raise UserError(
            f"'{requested}' cannot be a cluster's name",
            "it starts with a letter and holds lower-case letters, digits and dashes",
            f"give another one: -c {clean}",
        )
    if not clean or not clean[0].isalpha():
        raise UserError(
            f"'{requested or task.name}' cannot be a cluster's name",
            "it starts with a letter and holds letters, digits and dashes",
            "give one: -c NAME",
        )
    return clean


def read_trees(
    task: Task, kept: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[TreeSpec, ...], tuple[Tree, ...]]:
    """Read what is sent from here: the workdir, local file mounts and the bundled trainer.

    Args:
        task: The task.
        kept: Snapshots to send in place of the originals, by label.

    Returns:
        The trees as `decide` needs them, and the same trees with their files.
    """
    specs: list[tuple[str, Path, str]] = []
    if isinstance(task.workdir, str):
        specs.append(("workdir", _expand_home(task.workdir), WORKDIR))
    local = (mount for mount in task.file_mounts if not mount.from_bucket)
    specs += [(mount.target, _expand_home(mount.source), _on_host(mount.target)) for mount in local]
    if task.train is not None:
        specs.append(("trainer", _trainer_package(), TRAINER))
    read = [_read_labelled_tree(label, source, destination, kept.get(label)) for label, source, destination in specs]
    requested = tuple(
        TreeSpec(
            label=label,
            source=str(source),
            destination=destination,
            digest=tree.digest,
            files=len(tree.files),
            total_bytes=tree.total_bytes,
        )
        for label, source, destination, tree in read
    )
    return requested, tuple(tree for *_, tree in read)


def _read_labelled_tree(label: str, source: Path, destination: str, kept: str | None) -> tuple[str, Path, str, Tree]:
    if kept is not None:
        return label, Path(kept), destination, read_snapshot(Path(kept))
    return label, source.absolute(), destination, read_tree(source)


def read_workdir_tree(folder: Path) -> tuple[TreeSpec, ...]:
    """Read a working directory alone, for exec."""
    tree = read_tree(folder)
    return (
        TreeSpec(
            label="workdir",
            source=str(folder.absolute()),
            destination=WORKDIR,
            digest=tree.digest,
            files=len(tree.files),
            total_bytes=tree.total_bytes,
        ),
    )


def read_trainer_tree() -> tuple[TreeSpec, ...]:
    """Read the bundled trainer alone, for listing devices beside a training that may be running."""
    package = _trainer_package()
    tree = read_tree(package)
    return (
        TreeSpec(
            label="devices",
            source=str(package),
            destination=DEVICE_PROBE,
            digest=tree.digest,
            files=len(tree.files),
            total_bytes=tree.total_bytes,
        ),
    )


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
                digest=_digest(script),
                script=to_text(script),
            )
        )
    if isinstance(task.workdir, GitSource):
        script = render_git_checkout(task.workdir.url, task.workdir.ref, WORKDIR)
        source = f"{task.workdir.url}@{task.workdir.ref or 'HEAD'}"
        specs.append(
            MountSpec(
                label="workdir", source=source, destination=WORKDIR, digest=_digest(script), script=to_text(script)
            )
        )
    for mount in task.file_mounts:
        if mount.from_bucket:
            place = _in_workdir(mount.target) or mount.target
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
                    digest=_digest(script),
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
    )
    script = render_setup(inputs)
    if script is None:
        return None
    manifests = [
        f"{file.path}={file.sha256}"
        for tree in sent
        for file in tree.files
        if (name := file.path.rpartition("/")[2]) in task.setup or _IS_DEPENDENCY_FILE(name)
    ]
    decides = json.dumps([script, sorted(manifests), sorted(task.envs), sorted(task.secret_names), force])
    return SetupSpec(_digest(decides), to_text(script))


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
    pairs += [(name, hide_likely_secret(name, value)) for name, value in task.envs]
    pairs += [(secret.name, to_text(secret)) for secret in task.secrets]
    return tuple(pairs)


def _fixed_names(task: Task, facts: HostFacts) -> tuple[str, ...]:
    """Return the names of the variables that the host's own ~/.bashrc does not change."""
    return tuple(dict.fromkeys(name for name, _ in build_environment(task, facts)))


def build_budgets(task: Task) -> Budgets:
    """Return the restart budgets and deadlines of a task."""
    recovery = task.recovery
    deadlines = [get_driver(choice.infra.provider).deadlines for choice in task.choices]
    contact = max((one.contact for one in deadlines if one.contact is not None), default=None)
    end = max((one.end for one in deadlines if one.end is not None), default=None)
    waits = {"contact_deadline": contact, "end_deadline": end}
    return Budgets(
        preemptions=recovery.max_preemptions,
        failures=recovery.max_failures,
        storage=STORAGE_RESTARTS if task.train is not None else 0,
        restart_on=recovery.restart_on_exit_codes,
        fail_on=(*recovery.fail_on_exit_codes, *((TAKEN_OVER,) if task.train is not None else ())),
        strategy=Strategy(recovery.strategy),
        capacity_wait=recovery.capacity_wait_hours * 3600,
        hang_deadline=recovery.hang_minutes * 60,
        **{name: seconds for name, seconds in waits.items() if seconds is not None},
    )


def build_limits(task: Task) -> Limits:
    """Return the limits of time and money of a task."""
    return Limits(task.limits.max_hours, task.limits.max_cost)


def build_timer(task: Task, options: Sequence[Candidate], facts: HostFacts, price: float | None) -> TimerSpec | None:
    """Return the limits timer of every host, or None when the task has no limit.

    Idle machines are stopped where `autostop` says so and all candidates allow it; else they are ended.

    A limit of money is converted to hours here. What was spent before shortens it when the timer is armed: see
    `host_actions.arm_timer`.

    Args:
        task: The task.
        options: All candidates; each gets this timer.
        facts: What is known of the hosts of the first.
        price: US dollars per hour, or None when unknown.
    """
    idle = task.limits.idle_minutes or (task.autostop.idle_minutes if task.autostop is not None else None)
    stops = task.stops_when_idle and all(host_facts(option).stop_command for option in options)
    only_jobs = task.autostop is not None and task.autostop.wait_for == "jobs"
    specs = LimitsSpec(
        max_hours=_longest(task, price),
        idle_minutes=idle,
        on_limit="end" if facts.end_command else "jobs",
        stop_command=facts.end_command,
        idle_command=facts.stop_command if stops else "",
        wait_for="jobs" if only_jobs else "jobs_and_ssh",
        # Simulated hosts share this computer: only their own jobs are theirs.
        watch="machine" if facts.end_command and not facts.shares_files else "jobs",
        tick_seconds=5 if facts.shares_files else 30,
    )
    if not specs.any:
        return None
    script = render_limits(specs)
    acts = facts.end_command != ""  # elsewhere the timer only ends jobs, and idle machines have none
    return TimerSpec(
        _digest(script),
        to_text(script),
        idle_minutes=idle if acts else None,
        stops=stops,
        only_stops=stops and facts.stop_command == facts.end_command,
    )


def _longest(task: Task, price: float | None) -> float | None:
    """Return the hours after which one slice alone reaches a limit of time or money."""
    limits = task.limits
    hours = [limits.max_hours] if limits.max_hours is not None else []
    if limits.max_cost is not None and price:
        hours.append(limits.max_cost / price)
    return min(hours, default=None)


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
    parts = [cluster, kind, task.to_json(), *sorted(f"{tree.label}={tree.digest}" for tree in trees)]
    return _digest(json.dumps(parts))


def _trainer_args(task: Task) -> tuple[tuple[str, str], ...] | None:
    """Return the trainer's settings without engine and device, which the stack gives."""
    if task.train is None:
        return None
    words = (word.partition("=") for word in task.train.format_args(task.checkpoint))
    return tuple((key, value) for key, _, value in words if key not in ("device", "engine"))


def _workdir(task: Task) -> str | None:
    mounted = any(_in_workdir(mount.target) for mount in task.file_mounts)
    return WORKDIR if task.workdir is not None or mounted else None


def _in_workdir(target: str) -> str:
    """Return where a target below the dialect's name of the working directory is; "" for other targets."""
    head, slash, rest = target.removeprefix("~/").partition("/")
    return f"~/{WORKDIR}{slash}{rest}" if head == DIALECT_WORKDIR else ""


def _expand_home(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises for a user who does not exist


def _on_host(target: str) -> str:
    """Return a path relative to the home folder when it begins with ~/; absolute paths stay."""
    return (_in_workdir(target) or target).removeprefix("~/")


def _trainer_package() -> Path:
    """Find the bundled trainer's folder without importing it."""
    from importlib.util import find_spec

    spec = find_spec("trainer")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the bundled trainer is not installed", next_step="reinstall orch: scripts/bootstrap")
    return Path(next(iter(spec.submodule_search_locations)))


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
