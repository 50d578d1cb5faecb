"""A rehearsal: the user's own task on simulated machines of the real shape, with injected faults.

Everything is in one folder: a store, a cloud, a bucket. It does not use the user's records or buckets, and no machine
is rented. The hosts are real sshd hosts on this computer; what the cloud does to them is simulated.

The trainer computes on this computer's CPU, which accepts settings that the real devices lack. A rehearsal answers for
the real launch, so what that would refuse is refused here too.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.drivers import get_driver
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.host_inputs import host_facts
from orchestrator.engine.preparation.preflight import shared_disk_error, unsupported_hosts_error
from orchestrator.engine.rehearsal.buckets import BucketFolder, fill_buckets
from orchestrator.errors import ConflictError, StorageError, UserError
from orchestrator.plan.ranks import count_hosts
from orchestrator.task.infra import SIMULATED, Infra
from orchestrator.task.model import Task, Train
from orchestrator.task.resources import Resources

if TYPE_CHECKING:
    from orchestrator.engine.rehearsal.resumption import AttemptSteps
    from orchestrator.simulator.provider import SimulatedProvider

MOST_HOSTS = 32  # sshd hosts that a computer carries without effort
SCENARIO = """# The cloud of this rehearsal: quick, so that the task's own time dominates.
seed = {seed}
[durations]
create = 1.0
end = 0.5
stop = 0.5
start = 1.0
maintenance = 3.0
detect = 3.0
contact = 0.0
jitter = 0.0
"""
_PATTERN = "--step-pattern 'step (\\d+)'"
_STEP = re.compile(r"(?:(?:rank=)?(\d+)@)?(?:step=)?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults to inject.

    Attributes:
        preemptions: (rank, step) pairs.
        stockouts: Zones without machines.
        crashes: How often the launcher is killed.
        scenario: A TOML file of the simulator, read first; "" for a quick cloud without faults.
        seed: Of the random numbers.
        step_pattern: Of the step in a line of the log, as its first group; "" for programs that write heartbeats.
    """

    preemptions: tuple[tuple[int, int], ...] = ()
    stockouts: tuple[str, ...] = ()
    crashes: int = 0
    scenario: str = ""
    seed: int = 0
    step_pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a rehearsal ended.

    Attributes:
        status: Exit status of the launcher.
        kills: How often it was killed.
        attempts: Steps that the program's heartbeats showed, by attempt.
    """

    status: int
    kills: int
    attempts: dict[int, AttemptSteps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Folder, task, faults and notes of a rehearsal; `home` is its ORCH_HOME."""

    home: Path
    task: Task
    cluster: str
    faults: Faults
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> Path:
        """The folder of its store and its simulated cloud."""
        return self.home / "state"

    @property
    def bucket(self) -> Path:
        """The folder of its bucket."""
        return self.home / "bucket"

    @property
    def metrics(self) -> Path:
        """The file of the trainer's metrics."""
        return self.home / "metrics.jsonl"


def parse_preemption(text: str) -> tuple[int, int]:
    """Parse `rank=2@step=50`, short `2@50`; `step=50` or `50` for rank 0.

    Raises:
        UserError: The text has another form.
    """
    found = _STEP.fullmatch(text.replace(" ", ""))
    if found is None:
        raise UserError(f"--preempt {text} is not understood", next_step="write rank=2@step=50, or step=50")
    return int(found[1] or 0), int(found[2])


def check_step_pattern(text: str) -> str:
    """Return a pattern with one group, in which lines have their step.

    Raises:
        UserError: It is no pattern, or has another number of groups.
    """
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise UserError(f"--step-pattern {text} is not a regular expression", str(error), _PATTERN) from error
    if groups != 1:
        raise UserError(f"--step-pattern {text} has {groups} groups", "its one group is the step", _PATTERN)
    return text


def prepare_rehearsal(
    home: Path, task: Task, cluster: str, faults: Faults, folders: Sequence[BucketFolder] = ()
) -> Rehearsal:
    """Make the folder with its simulated cloud.

    Raises:
        UserError: The scenario or a fault is invalid, a file mount would write outside of the hosts' home folders, a
            bucket has no folder, or the trainer cannot drive so many of the real hosts.
    """
    from orchestrator.simulator.planner import BUCKETS
    from orchestrator.simulator.rehearsal import SCENARIO_FILE, folder_scenario

    hosts = max(task.count_hosts(choice) for choice in task.choices)
    if hosts > MOST_HOSTS:
        raise UserError(
            f"{hosts} hosts are too many for a rehearsal on one computer",
            f"up to {MOST_HOSTS} are made here",
            "rehearse a smaller slice of the same kind: add --accelerators",
        )
    for rank, _ in faults.preemptions:
        if rank >= hosts:
            raise UserError(
                f"there is no rank {rank} to preempt",
                f"the task has {count_hosts(hosts)}",
                f"--preempt rank={hosts - 1}@step=50",
            )
    rehearsal = Rehearsal(home=home, task=task, cluster=cluster, faults=faults)
    simulated = _simulated_task(task, rehearsal)
    error = unsupported_hosts_error(task, host_facts(list_candidates(task)[0])) or shared_disk_error(simulated)
    if error is not None:
        raise error
    folder = rehearsal.state / "simulated"
    folder.mkdir(parents=True, mode=0o700)
    rehearsal.bucket.mkdir()
    notes = fill_buckets(simulated, folders, folder / BUCKETS)
    (folder / SCENARIO_FILE).write_text(_scenario(faults), encoding="utf-8")
    folder_scenario(folder)  # read once: a mistake is reported before anything is started
    return replace(rehearsal, task=simulated, notes=notes)


def run_rehearsal(
    rehearsal: Rehearsal, launcher: list[str], report: Callable[[str], None], out: int | None = None
) -> Played:
    """Run the launcher to its end, killing it as often as requested; the simulated cloud continues meanwhile.

    Args:
        rehearsal: The prepared folder.
        launcher: The command line.
        report: Called with a message after each kill.
        out: File descriptor for the program's output; None for standard output.

    Returns:
        How it ended. A short program may end before the last kill.
    """
    from orchestrator.engine.rehearsal.resumption import HeartbeatWatch
    from orchestrator.providers.local.owner import own_hosts
    from orchestrator.simulator.provider import open_provider
    from orchestrator.simulator.pump import Pump

    provider = open_provider(rehearsal.state)
    pattern = re.compile(rehearsal.faults.step_pattern, re.MULTILINE) if rehearsal.faults.step_pattern else None
    chance = random.Random(rehearsal.faults.seed)  # noqa: S311  # for a play, not for a secret
    left, cloud = rehearsal.faults.crashes, rehearsal.state / "simulated"
    try:
        with own_hosts(cloud), Pump(provider), HeartbeatWatch(cloud, rehearsal.bucket, pattern) as watch:
            while True:
                child = subprocess.Popen(launcher, stdout=out)
                try:
                    status = child.wait(chance.uniform(1.0, 5.0) if left else None)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
                    left -= 1
                    report(f"the launcher (process {child.pid}) was killed; it is started again")
                    continue
                finally:
                    if child.poll() is None:
                        child.kill()
                        child.wait()
                return Played(status=status, kills=rehearsal.faults.crashes - left, attempts=watch.attempts)
    finally:
        _end_hosts(rehearsal, provider)


def remove_rehearsal(rehearsal: Rehearsal) -> None:
    """Delete the folder of a rehearsal."""
    shutil.rmtree(rehearsal.home, ignore_errors=True)  # a file that stays does no harm


def _end_hosts(rehearsal: Rehearsal, provider: SimulatedProvider) -> None:
    """End every host of the rehearsal, whatever its state."""
    from orchestrator.simulator.bodies import LocalBodies

    provider.advance()
    bodies = LocalBodies(rehearsal.state / "simulated")
    for attempt in range(5):
        try:
            bodies.sync_hosts(())
        except ConflictError:
            time.sleep(0.5 * (attempt + 1))  # a launcher that was just killed may still hold a slice's lock
        else:
            return
    raise StorageError(
        "hosts of the rehearsal still exist", f"in {rehearsal.home}", f"ORCH_HOME={rehearsal.home} orch reap"
    )


def _scenario(faults: Faults) -> str:
    if faults.scenario:
        try:
            text = Path(faults.scenario).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"the scenario {faults.scenario} cannot be read", str(error), "docs/simulator.md   has examples"
            ) from error
    else:
        text = SCENARIO.format(seed=faults.seed)
    parts = [text.rstrip()]
    parts += [f'[[event]]\ndo = "preempt"\nrank = {rank}\nstep = {step}' for rank, step in faults.preemptions]
    parts += [f'[[capacity]]\nzone = "{_place(zone)}"\naccelerator = "*"\namount = 0' for zone in faults.stockouts]
    return "\n\n".join(parts) + "\n"


def _place(zone: str) -> str:
    if re.fullmatch(r"[a-z0-9-]{1,63}", zone) is None:
        raise UserError(f"--stockout {zone} is not a zone", next_step="write one like us-west4-a")
    return zone


def _simulated_task(task: Task, rehearsal: Rehearsal) -> Task:
    """Return the same task on the simulated cloud, with a bucket in the folder and metrics of every step."""
    choices = tuple(_choice(task, choice) for choice in task.choices)
    train = task.train
    if train is not None:
        args = dict(train.args) | {"metrics.file": str(rehearsal.metrics), "log_every": "1"}
        train = Train(backend="cpu", args=tuple(args.items()), allow_misfit=train.allow_misfit)
    bucket = f"file://{rehearsal.bucket}" if task.checkpoint.bucket else ""
    checkpoint = task.checkpoint.model_copy(update={"bucket": bucket})
    changes = {"choices": choices, "train": train, "checkpoint": checkpoint, "hosts": (), "num_nodes": _nodes(task)}
    return task.model_copy(update=changes)


def _choice(task: Task, choice: Resources) -> Resources:
    """Return the choice on the simulated cloud, in the place that a real launch tries first: prices depend on it."""
    first = list_candidates(task.model_copy(update={"choices": (choice,)}))[0]
    infra = choice.infra
    region = first.region or (infra.provider if get_driver(infra.provider).vendor else "here")
    zone = first.zone or f"{region}-a"
    return choice.model_copy(update={"infra": Infra(provider=SIMULATED, region=region, zone=zone)})


def _nodes(task: Task) -> int:
    return len(task.hosts) if task.hosts else task.num_nodes
