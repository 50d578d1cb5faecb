"""The table of steps of an acceptance run: what is sent to orch, and what must hold afterwards. No I/O."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass

SENT = "sent.txt"  # the file that is copied to hosts and buckets and back
SENT_TEXT = "acceptance: this text comes back unchanged\n"
MARK = "acceptance-program-ran"
NO_CLUSTERS = r'"clusters": \[\]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """When a command is interrupted.

    Attributes:
        pattern: Regular expression; the signal is sent as soon as the output matches.
        signal: What is sent.
    """

    pattern: str
    signal: signal.Signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must hold after a step.

    Attributes:
        meaning: The same for people.
        statuses: Exit statuses that are right; empty for any.
        pattern: Regular expression that the output must match; "" for none.
        received: A file in the folder of the run that must equal the one that was sent; "" for none.
        listed: The output lists so many slices of each of these clusters in the cloud, over all its places.
        same_slice: A cluster that must still be served by the slice that served it before; "" for none.
    """

    meaning: str
    statuses: tuple[int, ...] = (0,)
    pattern: str = ""
    received: str = ""
    listed: tuple[tuple[str, int], ...] = ()
    same_slice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of orch.

    Attributes:
        argv: The words after `orch`; files are in the folder of the run.
        needs: Steps that must have passed; otherwise this one is not run.
        minutes: How long it usually takes on a real cloud, for the estimate of the price.
        most_minutes: After so long it is ended, and has failed.
        rents: The cluster whose machines it creates; "" for none.
        ends: The cluster whose machines it deletes; "" for none.
        interruption: When it is interrupted on purpose; None for a command that runs to its end.
    """

    name: str
    argv: tuple[str, ...]
    expects: Expectation
    needs: tuple[str, ...] = ()
    minutes: float = 0.2
    most_minutes: float = 5.0
    rents: str = ""
    ends: str = ""
    interruption: Interruption | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asks for.

    Attributes:
        cloud: Name of the driver.
        place: As `infra` writes it; the cloud alone lets orch choose.
        name: Of the first cluster; all other names begin with it.
        bucket: A new folder in the user's bucket; "" leaves out what needs one.
        accelerators: To launch one after the other.
        max_cost: US dollars.
        max_minutes: For all steps together.
    """

    cloud: str
    place: str
    name: str
    bucket: str = ""
    accelerators: tuple[str, ...] = ()
    max_cost: float = 3.0
    max_minutes: float = 60.0

    @property
    def second(self) -> str:
        """The cluster whose launch is killed."""
        return f"{self.name}-kill"

    def accelerator_cluster(self, number: int) -> str:
        """Return the name of the cluster of an accelerator."""
        return f"{self.name}-acc{number}"


def write_files(request: Request) -> dict[str, str]:
    """Return the files of a run by name: task files, and the one that is copied. JSON is YAML, too."""
    limits = {"max_hours": round(request.max_minutes / 60 + 0.25, 2), "max_cost": request.max_cost}
    small = {"cpus": "2+", "memory": "4+", "disk_size": 20}
    sizes = {"model.dim": 32, "model.layers": 1, "model.heads": 2, "model.kv_heads": 1}
    program = f'echo "{MARK} on rank $ORCH_RANK of $ORCH_NUM_HOSTS"'
    common = {"name": request.name, "limits": limits, "recovery": {"max_preemptions": 1, "capacity_wait_hours": 0}}
    training = {
        "backend": "cpu",
        "args": {"model": "tiny", "steps": 1_000_000, "batch": 8, "threads": 1, **sizes},
    }
    tasks = {
        "cpu.yaml": {**common, "resources": small, "run": program},
        "train.yaml": {**common, "resources": small, "train": training, "checkpoint": {"every": 20}},
        "accelerator.yaml": {**common, "run": program},
    }
    return {name: json.dumps(task, indent=1) + "\n" for name, task in tasks.items()} | {SENT: SENT_TEXT}


def list_steps(request: Request) -> tuple[Step, ...]:
    """Return all steps in the order in which they are run."""
    return (
        Step(
            name="check",
            argv=("check", *_infra(request)),
            expects=Expectation(meaning="nothing needs fixing"),
        ),
        *(_bucket_steps(request) if request.bucket else ()),
        *_machine_steps(request),
        *_kill_steps(request),
        *(_training_steps(request) if request.bucket else ()),
        *_power_steps(request),
        *(step for number, name in enumerate(request.accelerators, 1) for step in _chips(request, number, name)),
        *_last_steps(request),
    )


def _infra(request: Request) -> tuple[str, ...]:
    return ("--infra", request.place)


def launch_words(request: Request, file: str, cluster: str, *more: str) -> tuple[str, ...]:
    """Return the words that launch a task file of the run."""
    return ("launch", file, "-c", cluster, *_infra(request), *more, "--yes")


def _bucket_steps(request: Request) -> tuple[Step, ...]:
    """Before anything is rented: a bucket that refuses costs nothing."""
    there = f"{request.bucket}/{SENT}"
    return (
        Step(
            name="bucket-put",
            argv=("storage", "cp", SENT, there),
            expects=Expectation(meaning="a file is copied into the bucket"),
        ),
        Step(
            name="bucket-list",
            argv=("storage", "ls", request.bucket),
            expects=Expectation(meaning="the bucket lists it", pattern=SENT.replace(".", r"\.")),
            needs=("bucket-put",),
        ),
        Step(
            name="bucket-get",
            argv=("storage", "cp", there, "from-bucket.txt"),
            expects=Expectation(meaning="it comes back unchanged", received="from-bucket.txt"),
            needs=("bucket-put",),
        ),
    )


def _machine_steps(request: Request) -> tuple[Step, ...]:
    name, needs = request.name, ("launch",)
    return (
        Step(
            name="launch",
            argv=launch_words(request, "cpu.yaml", name),
            expects=Expectation(meaning="the cheapest CPU machine runs the program", pattern=MARK),
            minutes=4,
            most_minutes=20,
            rents=name,
        ),
        Step(
            name="exec",
            argv=("exec", name, "--no-prefix", "--", "echo $((6 * 7)) hosts=$ORCH_NUM_HOSTS"),
            expects=Expectation(meaning="a command runs on it", pattern="42 hosts=1"),
            needs=needs,
        ),
        Step(
            name="ssh",
            argv=("ssh", name, "--", "echo $((6 * 7)) over ssh"),
            expects=Expectation(meaning="the same through the plain ssh program", pattern="42 over ssh"),
            needs=needs,
        ),
        Step(
            name="copy-to",
            argv=("cp", SENT, f"{name}:acceptance/{SENT}"),
            expects=Expectation(meaning="a file is copied to the host"),
            needs=needs,
        ),
        Step(
            name="copy-from",
            argv=("cp", f"{name}/0:acceptance/{SENT}", "from-host.txt"),
            expects=Expectation(meaning="it comes back unchanged", received="from-host.txt"),
            needs=("copy-to",),
        ),
        Step(
            name="launch-again",
            argv=launch_words(request, "cpu.yaml", name),
            expects=Expectation(meaning="the same machine runs it again", pattern=MARK, same_slice=name),
            needs=needs,
            minutes=0.5,
            most_minutes=10,
        ),
    )


def _kill_steps(request: Request) -> tuple[Step, ...]:
    name = request.second
    again = launch_words(request, "cpu.yaml", name)
    return (
        Step(
            name="kill-launch",
            argv=again,
            expects=Expectation(meaning="orch is killed while a second machine is made", statuses=(137,)),
            needs=("launch",),
            minutes=0.5,
            rents=name,
            interruption=Interruption(pattern=r"creating [\s\S]*requested in", signal=signal.SIGKILL),
        ),
        Step(
            name="launch-after-kill",
            argv=again,
            expects=Expectation(meaning="the same command completes it", pattern=MARK),
            needs=("kill-launch",),
            minutes=4,
            most_minutes=20,
            rents=name,
        ),
        Step(
            name="no-duplicate",
            argv=("reap", "--dry-run", "-o", "json"),
            expects=Expectation(
                meaning="the cloud lists one slice of each cluster: nothing is billed twice",
                statuses=(),
                listed=((request.name, 1), (name, 1)),
            ),
            needs=("launch-after-kill",),
            minutes=0.5,
        ),
        _down("down-second", name, "launch-after-kill"),
    )


def _training_steps(request: Request) -> tuple[Step, ...]:
    name = request.name
    resumed = r"resumed from step [1-9]\d*[\s\S]*\bstep [1-9]\d*/"
    return (
        Step(
            name="kill-training",
            argv=launch_words(request, "train.yaml", name, "--bucket", request.bucket),
            expects=Expectation(meaning="a training saves a checkpoint; then orch is killed", statuses=(137,)),
            needs=("launch", "bucket-put"),
            minutes=6,
            most_minutes=20,
            interruption=Interruption(pattern=r"checkpoint \d+ written", signal=signal.SIGKILL),
        ),
        _cancel("end-training", name, "kill-training"),
        Step(
            name="resume",
            argv=("resume", name, "--yes"),
            expects=Expectation(
                meaning="it continues from the bucket; Ctrl-C leaves it running", statuses=(130,), pattern=resumed
            ),
            needs=("end-training",),
            minutes=1,
            most_minutes=15,
            interruption=Interruption(pattern=resumed, signal=signal.SIGINT),
        ),
        _cancel("end-resumed", name, "resume"),
        Step(
            name="bucket-delete",
            argv=("storage", "rm", "-r", request.bucket, "--yes"),
            expects=Expectation(meaning="everything that was written to the bucket is deleted"),
            needs=("bucket-put",),
        ),
    )


def _power_steps(request: Request) -> tuple[Step, ...]:
    name = request.name
    return (
        Step(
            name="stop",
            argv=("stop", name, "--yes"),
            expects=Expectation(meaning="the machine is stopped", pattern="is stopped"),
            needs=("launch",),
            minutes=1.5,
            most_minutes=10,
        ),
        Step(
            name="start",
            argv=("start", name, "--yes"),
            expects=Expectation(meaning="the same machine is started", same_slice=name),
            needs=("stop",),
            minutes=2,
            most_minutes=15,
        ),
        Step(
            name="exec-after-start",
            argv=("exec", name, "--no-prefix", "--", "cat acceptance/" + SENT),
            expects=Expectation(meaning="its disk is as it was", pattern=SENT_TEXT.strip()),
            needs=("start", "copy-to"),
        ),
    )


def _chips(request: Request, number: int, accelerator: str) -> tuple[Step, ...]:
    cluster, launch = request.accelerator_cluster(number), f"launch-{accelerator}"
    return (
        Step(
            name=f"check-{accelerator}",
            argv=("check", *_infra(request), "--accelerators", accelerator),
            expects=Expectation(meaning="quota and permissions suffice"),
        ),
        Step(
            name=launch,
            argv=launch_words(request, "accelerator.yaml", cluster, "--accelerators", accelerator),
            expects=Expectation(meaning="it runs the program", pattern=MARK),
            minutes=6,
            most_minutes=20,
            rents=cluster,
        ),
        Step(
            name=f"devices-{accelerator}",
            argv=("exec", cluster, "--devices"),
            expects=Expectation(meaning="its devices are found"),
            needs=(launch,),
        ),
        _down(f"down-{accelerator}", cluster, launch),
    )


def _last_steps(request: Request) -> tuple[Step, ...]:
    clusters = (request.name, request.second, *map(request.accelerator_cluster, _numbers(request.accelerators)))
    return (
        _down("down", request.name, "launch"),
        Step(
            name="reap",
            argv=("reap", "--yes", "-o", "json"),
            expects=Expectation(
                meaning="the cloud lists no machine of this run",
                statuses=(),
                listed=tuple((cluster, 0) for cluster in clusters),
            ),
            minutes=0.5,
        ),
        Step(
            name="status",
            argv=("status", "-o", "json"),
            expects=Expectation(meaning="no cluster is on record", pattern=NO_CLUSTERS),
        ),
    )


def _numbers(items: Sequence[str]) -> range:
    return range(1, len(items) + 1)


def _down(name: str, cluster: str, launch: str) -> Step:
    return Step(
        name=name,
        argv=("down", cluster, "--yes"),
        expects=Expectation(meaning="its machines are deleted"),
        needs=(launch,),
        minutes=1.5,
        most_minutes=15,
        ends=cluster,
    )


def _cancel(name: str, cluster: str, after: str) -> Step:
    return Step(
        name=name,
        argv=("cancel", cluster, "--yes"),
        expects=Expectation(meaning="the training ends, the machine stays"),
        needs=(after,),
        minutes=0.5,
    )
