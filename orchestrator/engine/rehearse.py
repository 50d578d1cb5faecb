"""A rehearsal: the user's own task on simulated machines of the real shape, with the faults that were asked for.

Everything lies in one folder: a store, a cloud, a bucket. Nothing of it touches the user's records or buckets, and no
machine is rented. The hosts are real sshd hosts on this computer; what the cloud does to them is simulated.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ConflictError, StorageError, UserError
from orchestrator.spec.infra import Infra, Where
from orchestrator.spec.task import Checkpoint, Resources, Task, Train

if TYPE_CHECKING:
    from orchestrator.simulator.provider import SimulatedProvider

MOST_HOSTS = 32  # sshd hosts that a computer carries without effort
SCENARIO = """# The cloud of this rehearsal: quick, so that the task's own time counts.
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
_STEP = re.compile(r"(?:rank=(\d+))?@?step=(\d+)")


@dataclass(frozen=True, slots=True)
class Faults:
    """preemptions: (rank, step). stockouts: zones without machines. crashes: how often the launcher is killed.

    scenario: a TOML file of the simulator, read first; "": a calm and quick cloud.
    """

    preemptions: tuple[tuple[int, int], ...] = ()
    stockouts: tuple[str, ...] = ()
    crashes: int = 0
    scenario: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a rehearsal takes place. home: its ORCH_HOME."""

    home: Path
    task: Task
    cluster: str
    faults: Faults

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def bucket(self) -> Path:
        return self.home / "bucket"

    @property
    def metrics(self) -> Path:
        return self.home / "metrics.jsonl"


def parse_preemption(text: str) -> tuple[int, int]:
    """`rank=2@step=50`, or `step=50` for rank 0. Raises UserError."""
    found = _STEP.fullmatch(text.replace(" ", ""))
    if found is None:
        raise UserError(f"--preempt {text} is not understood", next_step="write rank=2@step=50, or step=50")
    return int(found[1] or 0), int(found[2])


def set_up(home: Path, task: Task, cluster: str, faults: Faults) -> Stage:
    """Make the folder with its cloud. Raises UserError for a scenario or a fault that cannot be."""
    from orchestrator.simulator.rehearsal import SCENARIO_FILE, folder_scenario

    hosts = max(task.hosts_of(choice) for choice in task.choices)
    if hosts > MOST_HOSTS:
        raise UserError(
            f"{hosts} hosts are too many for a rehearsal on one computer",
            f"up to {MOST_HOSTS} are made here",
            "rehearse a smaller slice of the same kind: add --accelerators",
        )
    for rank, _ in faults.preemptions:
        if rank >= hosts:
            raise UserError(f"there is no rank {rank} to preempt", f"the task has {hosts} host(s)")
    stage = Stage(home, task, cluster, faults)
    folder = stage.state / "simulated"
    folder.mkdir(parents=True, mode=0o700)
    stage.bucket.mkdir()
    (folder / SCENARIO_FILE).write_text(_scenario(faults), encoding="utf-8")
    folder_scenario(folder)  # read once: a mistake is told before anything is started
    return replace(stage, task=_transposed(task, stage))


def play(stage: Stage, launcher: list[str], tell: Callable[[str], None], out: int | None = None) -> tuple[int, int]:
    """Run the launcher to its end, killing it as often as asked. The cloud goes on meanwhile.

    Its exit status, and how often it was killed: a short program may end before the last time. out: file descriptor
    that gets the program's output; None for standard output.
    """
    from orchestrator.simulator.provider import open_provider
    from orchestrator.simulator.pump import Pump

    provider = open_provider(stage.state)
    chance = random.Random(stage.faults.seed)  # noqa: S311  # for a play, not for a secret
    left = stage.faults.crashes
    try:
        with Pump(provider):
            while True:
                child = subprocess.Popen(launcher, stdout=out)
                try:
                    status = child.wait(chance.uniform(1.0, 5.0) if left else None)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
                    left -= 1
                    tell(f"the launcher (process {child.pid}) was killed; it is started again")
                    continue
                finally:
                    if child.poll() is None:
                        child.kill()
                        child.wait()
                return status, stage.faults.crashes - left
    finally:
        _clear(stage, provider)


def remove(stage: Stage) -> None:
    shutil.rmtree(stage.home, ignore_errors=True)  # a file that stays does no harm


def _clear(stage: Stage, provider: SimulatedProvider) -> None:
    """End every host of the rehearsal, whatever state it was left in."""
    from orchestrator.simulator.bodies import LocalBodies

    provider.settle()
    bodies = LocalBodies(stage.state / "simulated")
    for attempt in range(5):
        try:
            bodies.settle(())
        except ConflictError:
            time.sleep(0.5 * (attempt + 1))  # a launcher that was just killed may still hold a slice's lock
        else:
            return
    raise StorageError(
        "hosts of the rehearsal are still there", f"in {stage.home}", f"ORCH_HOME={stage.home} orch reap"
    )


def _scenario(faults: Faults) -> str:
    if faults.scenario:
        try:
            text = Path(faults.scenario).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"the scenario {faults.scenario} cannot be read", str(error)) from error
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


def _transposed(task: Task, stage: Stage) -> Task:
    """The same task on the simulated cloud, with a bucket in the folder and metrics of every step."""
    choices = tuple(_choice(choice) for choice in task.choices)
    train = task.train
    if train is not None:
        args = dict(train.args) | {"metrics.file": str(stage.metrics), "log_every": "1"}
        train = Train("cpu", tuple(args.items()))
    bucket = f"file://{stage.bucket}" if task.checkpoint.bucket else ""
    checkpoint = Checkpoint(bucket, task.checkpoint.every, task.checkpoint.keep)
    return replace(task, choices=choices, train=train, checkpoint=checkpoint, hosts=(), num_nodes=_nodes(task))


def _choice(choice: Resources) -> Resources:
    infra = choice.infra
    region = infra.region or (infra.provider.value if infra.provider in (Where.GCP, Where.AWS) else "here")
    zone = infra.zone or f"{region}-a"
    return replace(choice, infra=Infra(Where.SIMULATED, region, zone))


def _nodes(task: Task) -> int:
    return len(task.hosts) if task.hosts else task.num_nodes
