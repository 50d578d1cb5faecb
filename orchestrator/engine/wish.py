"""From a task to what decide() needs: trees, mounts, setup and program, all rendered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast

from orchestrator.catalog.machines import LocalHosts, TpuSlice
from orchestrator.errors import UserError
from orchestrator.plan.desired import (
    Budgets,
    JobWanted,
    Limits,
    MountWanted,
    SetupWanted,
    Strategy,
    TimerWanted,
    TreeWanted,
)
from orchestrator.providers.registry import planner
from orchestrator.remote.tree import Tree, read_snapshot, read_tree
from orchestrator.render.checkout import render_git_checkout
from orchestrator.render.limits import LimitsWanted, render_limits
from orchestrator.render.mounts import MountInputs, render_copy_mount, render_mount, render_scratch
from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup
from orchestrator.slices import Candidate, HostFacts
from orchestrator.spec.errors import FormError
from orchestrator.spec.infra import Where
from orchestrator.spec.stacks import Asked, Stack, choose, stand_in
from orchestrator.spec.task import FileMount, GitSource, Mode, Task
from orchestrator.values import Text, text

WORKDIR = "orch_workdir"
TRAINER = ".orch/trainer/trainer"
LOOKER = ".orch/devices/trainer"
DEPENDENCY_FILES = ("requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment.y*ml", "*.lock")
LONGEST_NAME = 40  # room for "-<generation>" within the 63 characters that clouds allow


def cluster_name(task: Task, asked: str | None) -> str:
    """The name the user gave, or the task's, or what it is. Always the same for the same task."""
    name = (asked or task.name or ("train" if task.train is not None else "task")).lower()
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in name).strip("-")[:LONGEST_NAME]
    if not clean or not clean[0].isalpha():
        raise UserError(
            f"'{asked or task.name}' cannot be a cluster's name",
            "it starts with a letter and holds letters, digits and dashes",
            "give one: -c NAME",
        )
    return clean


def trees(
    task: Task, kept: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[TreeWanted, ...], tuple[Tree, ...]]:
    """What is sent from here: the workdir, local file mounts, the bundled trainer. kept: snapshots, by label."""
    wanted: list[tuple[str, Path, str]] = []
    if isinstance(task.workdir, str):
        wanted.append(("workdir", Path(task.workdir).expanduser(), WORKDIR))
    local = (mount for mount in task.file_mounts if not mount.from_bucket)
    wanted += [(mount.target, Path(mount.source).expanduser(), _on_host(mount.target)) for mount in local]
    if task.train is not None:
        wanted.append(("trainer", _trainer_package(), TRAINER))
    read = [_read(label, source, destination, kept.get(label)) for label, source, destination in wanted]
    asked = tuple(
        TreeWanted(label, str(source), destination, tree.digest, len(tree.files), tree.total_bytes)
        for label, source, destination, tree in read
    )
    return asked, tuple(tree for *_, tree in read)


def _read(label: str, source: Path, destination: str, kept: str | None) -> tuple[str, Path, str, Tree]:
    if kept is not None:
        return label, Path(kept), destination, read_snapshot(Path(kept))
    return label, source.absolute(), destination, read_tree(source)


def sent_workdir(folder: Path) -> tuple[TreeWanted, ...]:
    """A working directory alone, for exec."""
    tree = read_tree(folder)
    return (TreeWanted("workdir", str(folder.absolute()), WORKDIR, tree.digest, len(tree.files), tree.total_bytes),)


def sent_trainer() -> tuple[TreeWanted, ...]:
    """The trainer alone, for a look at the devices: beside the one that may be training."""
    package = _trainer_package()
    tree = read_tree(package)
    return (TreeWanted("devices", str(package), LOOKER, tree.digest, len(tree.files), tree.total_bytes),)


def mounts(task: Task, facts: HostFacts) -> tuple[MountWanted, ...]:
    """What hosts get for themselves: their local disks, a git workdir, bucket paths, copied or mounted."""
    wanted: list[MountWanted] = []
    rented = not task.choices[0].infra.owned
    if rented and facts.scratch:
        script = render_scratch(facts.scratch)
        wanted.append(MountWanted("scratch", "local disks", facts.scratch, _digest(script), text(script)))
    if isinstance(task.workdir, GitSource):
        script = render_git_checkout(task.workdir.url, task.workdir.ref, WORKDIR)
        source = f"{task.workdir.url}@{task.workdir.ref or 'HEAD'}"
        wanted.append(MountWanted("workdir", source, WORKDIR, _digest(script), text(script)))
    for mount in task.file_mounts:
        if mount.from_bucket:
            _refuse_mount(mount)
            inputs = MountInputs(mount.source, mount.target)
            copied = mount.mode is Mode.COPY
            mounted = partial(render_mount, may_install=rented, scratch=facts.scratch)
            script = render_copy_mount(inputs) if copied else mounted(inputs)
            wanted.append(MountWanted(mount.target, mount.source, mount.target, _digest(script), text(script)))
    return tuple(wanted)


def setup(task: Task, facts: HostFacts, sent: tuple[Tree, ...], force: str) -> SetupWanted | None:
    """The setup script and the digest of all that decides whether it must run again."""
    driven = drive(task, facts)
    inputs = SetupInputs(
        backend=driven.backend,
        user_setup=task.setup or None,
        workdir=_workdir(task),
        python=facts.python,
        bundled_trainer=task.train is not None,
        may_install_system=not task.choices[0].infra.owned and not facts.python,
        scratch=facts.scratch,
        neuron=_on_neuron(task),
        engine=driven.engine,
        device=driven.device,
    )
    script = render_setup(inputs)
    if script is None:
        return None
    manifests = [
        f"{file.path}={file.sha256}"
        for tree in sent
        for file in tree.files
        if any(Path(file.path).match(pattern) for pattern in DEPENDENCY_FILES) or Path(file.path).name in task.setup
    ]
    decides = json.dumps([script, sorted(manifests), sorted(task.envs), sorted(task.secret_names), force])
    return SetupWanted(_digest(decides), text(script))


def program(task: Task, facts: HostFacts, job_id: int) -> JobWanted | None:
    if not task.run and task.train is None:
        return None
    driven, machine = drive(task, facts), task.choices[0].machine
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
        topology=machine.topology if isinstance(machine, TpuSlice) else "",
    )
    return JobWanted(job_id, text(render_run(inputs)))


def environment(task: Task, facts: HostFacts) -> tuple[tuple[str, Text], ...]:
    """Later wins: what the provider knows, then the user's envs, then the secrets."""
    pairs = [(name, text(value)) for name, value in facts.env]
    if task.train is not None and drive(task, facts).device == "xla" and _is_plain(task):
        pairs.append(("PJRT_DEVICE", text("CPU")))
    if task.checkpoint.every is not None:
        pairs.append(("ORCH_CHECKPOINT_EVERY", text(str(task.checkpoint.every))))
    pairs += [(name, text(value)) for name, value in task.envs]
    pairs += [(secret.name, text(secret)) for secret in task.secrets]
    return tuple(pairs)


def budgets(task: Task) -> Budgets:
    recovery = task.recovery
    # Large EC2 machines boot for minutes after they are said to run, and take up to half an hour to go (packer-plugin-
    # amazon issue 682, bottlerocket-test-system issue 911, pycloudlib issue 192, 2022 to 2024).
    slow = any(choice.infra.provider is Where.AWS for choice in task.choices)
    waits = {"contact_deadline": 900.0, "end_deadline": 2400.0} if slow else {}
    return Budgets(
        preemptions=recovery.max_preemptions,
        failures=recovery.max_failures,
        restart_on=recovery.restart_on_exit_codes,
        fail_on=recovery.fail_on_exit_codes,
        strategy=Strategy(recovery.strategy),
        capacity_wait=recovery.capacity_wait_hours * 3600,
        hang_deadline=recovery.hang_minutes * 60,
        **waits,
    )


def limits(task: Task) -> Limits:
    return Limits(task.limits.max_hours, task.limits.max_cost)


def timer(task: Task, facts: HostFacts, price: float | None) -> TimerWanted | None:
    """The dead-man timer of every host; None when the task has no limit. price: US dollars an hour.

    A limit of money is a number of hours here; what was spent before shortens it when the timer is set: see
    host_actions.arm_timer.
    """
    idle = task.limits.idle_minutes or (task.autostop.idle_minutes if task.autostop is not None else None)
    wanted = LimitsWanted(
        max_hours=_longest(task, price),
        idle_minutes=idle,
        on_limit="end" if facts.end_command else "jobs",
        stop_command=facts.end_command,
        watch="machine" if facts.end_command else "jobs",
    )
    if not wanted.any:
        return None
    script = render_limits(wanted)
    return TimerWanted(_digest(script), text(script))


def _longest(task: Task, price: float | None) -> float | None:
    """Hours until a limit of time or money is reached by one slice alone."""
    limits = task.limits
    hours = [limits.max_hours] if limits.max_hours is not None else []
    if limits.max_cost is not None and price:
        hours.append(limits.max_cost / price)
    return min(hours, default=None)


@dataclass(frozen=True, slots=True)
class Driven:
    """What the scripts are rendered for. engine and device: of the bundled trainer, "" for a program of the user's."""

    backend: Backend
    engine: str = ""
    device: str = ""


def drive(task: Task, facts: HostFacts) -> Driven:
    """What drives the accelerator: the trainer's stack, else what the image brings, else what is usual."""
    if task.train is not None:
        chosen = stack(task, facts)
        return Driven(cast(Backend, chosen.backend), chosen.engine, chosen.device)
    word = facts.backend or task.choices[0].machine.backend
    on_gpu = word == "jax" and "cuda" in task.choices[0].machine.backends
    return Driven(cast(Backend, word), device="cuda" if on_gpu else "")


def stack(task: Task, facts: HostFacts) -> Stack:
    """Engine, device and software of the bundled trainer on the first choice.

    Raises UserError for a recorded task that this orch does not serve; rules.py refuses it in a new one.
    """
    choice = task.choices[0]
    asked = task.train.asked(choice.args.framework) if task.train is not None else Asked()
    played = facts.backend == "cpu" and not isinstance(choice.machine, LocalHosts)
    try:
        return stand_in(choice.machine, asked) if played else choose(choice.machine, asked)
    except FormError as error:
        raise UserError(error.what, error.why, error.next_step) from error


def backend(task: Task, facts: HostFacts) -> Backend:
    """The scripts that set the machines up and start the program."""
    return drive(task, facts).backend


def _is_plain(task: Task) -> bool:
    """Whether the hosts have no accelerator that XLA could take."""
    return task.choices[0].machine.backend == "cpu"


def _on_neuron(task: Task) -> bool:
    return "neuron" in task.choices[0].machine.backends


def host_facts(candidate: Candidate) -> HostFacts:
    return planner(candidate.provider).host_facts(candidate)


def job_digest(cluster: str, kind: str, task: Task, wanted: tuple[TreeWanted, ...]) -> str:
    """Equal for the same command given again: then an unfinished job is gone on with."""
    parts = [cluster, kind, task.to_json(), *sorted(f"{tree.label}={tree.digest}" for tree in wanted)]
    return _digest(json.dumps(parts))


def _trainer_args(task: Task) -> tuple[tuple[str, str], ...] | None:
    """The trainer's settings; engine and device are the stack's, which agrees with what the user said of them."""
    if task.train is None:
        return None
    words = (word.partition("=") for word in task.train.words(task.checkpoint))
    return tuple((key, value) for key, _, value in words if key not in ("device", "engine"))


def _refuse_mount(mount: FileMount) -> None:
    """gs:// and s3:// buckets are copied or mounted, others are copied."""
    if mount.mode is Mode.MOUNT_CACHED:
        raise UserError(
            f"file_mounts {mount.target}: mode MOUNT_CACHED is not served",
            "it uploads after the program thinks that its files are saved, and a host that is lost takes them along",
            "write mode: MOUNT, which keeps on disk what was read" if _mountable(mount) else _COPY,
        )
    if mount.mode is Mode.MOUNT and not _mountable(mount):
        raise UserError(
            f"file_mounts {mount.target}: {mount.source} cannot be mounted",
            "hosts mount gs:// buckets with gcsfuse and s3:// buckets with Mountpoint, no others",
            _COPY,
        )


def _mountable(mount: FileMount) -> bool:
    return mount.source.startswith(("gs://", "s3://"))


_COPY = "write mode: COPY"


def _workdir(task: Task) -> str | None:
    return WORKDIR if task.workdir is not None else None


def _on_host(target: str) -> str:
    """Relative to the home folder when written with ~/ ; absolute paths stay."""
    return target.removeprefix("~/")


def _trainer_package() -> Path:
    """The bundled trainer's folder, found without importing it."""
    from importlib.util import find_spec

    spec = find_spec("trainer")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the bundled trainer is not installed", next_step="install orch anew: scripts/bootstrap")
    return Path(next(iter(spec.submodule_search_locations)))


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
