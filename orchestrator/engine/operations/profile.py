"""Profiling a running training: request it on the hosts, wait, download, and merge into one trace.

The request and its answers are files in the job's folder on each host: see trainer/profiling.py.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.engine.operations import traces
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.errors import ConflictError, HostError, OrchError, SetupError, UserError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.host_version import raise_other_version
from orchestrator.received_files import ReceivingLimits
from orchestrator.remote.deadlines import SHORT
from orchestrator.remote.files import fetch_tree
from orchestrator.remote.fleet import Fleet, FleetResult
from orchestrator.remote.host_folder import HOST_FOLDER
from orchestrator.remote.scripts import shell_command, shell_text_command
from orchestrator.store.lookup import find_cluster
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.task.model import Task

MERGED = "all-ranks.trace.json.gz"
MOST_STEPS = 1000  # as trainer/profiling.py has it
_PAUSE = 1.0  # seconds between two polls
_COUNT = re.compile(r"[0-9]{1,9}")
_UNTIL_ALL_KNOW, _HOSTS_A_SECOND = 1.5, 50  # how long it takes until every rank has seen the request
_CLEARED = 10.0  # seconds that a host gets to clear an abandoned profile
_LIMITS = ReceivingLimits(entries=100_000, bytes=16 << 30)  # of one host
_LOOKS = 5  # polls in a row that a host may leave unanswered


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """What to record.

    Attributes:
        cluster: The cluster's name.
        steps: How many steps.
        first_only: Whether only rank 0 records.
        into: The folder that gets `<cluster>-<id>`.
        wait: Seconds.
    """

    cluster: str
    steps: int
    first_only: bool
    into: Path
    wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A recorded profile.

    Attributes:
        folder: Holds rank-N for each rank.
        ranks: The ranks that recorded.
        merged: The merged trace, if any.
        failed: "host: reason" for each rank that recorded nothing.
        notes: Lines for the user.
    """

    folder: Path
    ranks: tuple[int, ...]
    merged: traces.MergedTrace | None
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Host:
    """The progress of one host; `ranks` counts the processes that train on it."""

    address: HostAddress
    ranks: int = 1
    done: int = 0
    failed: int = 0
    ended: bool = False
    silent: int = 0  # polls in a row without an answer
    why: list[str] = field(default_factory=list[str])

    def answered(self, first_only: bool) -> bool:
        return self.done + self.failed >= (1 if first_only else self.ranks)


def record_profile(
    request: ProfileRequest,
    progress: Callable[[int, int], None],
    report: Callable[[str], None],
    open_records: Callable[[], AbstractContextManager[Reader]],
    enter: Callable[[Reader, ClusterRecord], tuple[HostAddress, ...]],
) -> Profile:
    """Record, wait, download, merge.

    Args:
        request: What to record.
        progress: Called with the number of finished ranks and of all ranks.
        report: Gets a line for the key of each machine that is new.
        open_records: Opens the records of the cluster.
        enter: Returns its hosts when they admit this computer.

    Raises:
        OrchError: No rank recorded a profile, or a host failed.
    """
    with open_records() as reader:
        record = find_cluster(reader, request.cluster)
        hosts = enter(reader, record)  # first: whether a job runs is for who may connect
        job = _find_running(reader, record)
    name, folder = time.strftime("%Y%m%d-%H%M%S", time.gmtime()), host_job_name(record.uid, f"{job.id}-a{job.attempt}")
    chosen = hosts[:1] if request.first_only else hosts
    with open_pins(report) as pins, Fleet(chosen, pins=pins) as fleet:
        if not job.task:
            _refuse_other_program(fleet, folder, request.cluster, job.id)
        made = record_on_hosts(fleet, folder, name, request, progress)
    if not made.ranks:
        raise SetupError("no rank recorded a profile", "; ".join(made.failed), f"orch logs {request.cluster}")
    return made


def record_on_hosts(
    fleet: Fleet, folder: str, name: str, request: ProfileRequest, progress: Callable[[int, int], None]
) -> Profile:
    """Record a profile of the job in this folder. However it ends, the hosts keep neither request nor traces."""
    clear = shell_command("profile-clear.sh", folder, name)
    try:
        made = _record_and_download(fleet, folder, name, request, progress)
    except BaseException:  # Ctrl-C too: nothing would collect what the hosts still record
        with suppress(OrchError):
            fleet.run(clear, timeout=_CLEARED)
        raise
    left = fleet.run(clear, timeout=_CLEARED).failed
    notes = tuple(f"the traces on rank {one.rank}'s host could not be removed: {one.verdict}" for one in left)
    return replace(made, notes=(*made.notes, *notes))


def _record_and_download(
    fleet: Fleet, folder: str, name: str, request: ProfileRequest, progress: Callable[[int, int], None]
) -> Profile:
    """Request, wait, download and merge; the hosts still have their copies."""
    # At one moment, or ranks would record different steps.
    at = _read_hosts_time(fleet, request.cluster) + _UNTIL_ALL_KNOW + len(fleet.hosts) / _HOSTS_A_SECOND
    fields = (str(request.steps), f"{at:.3f}", *(["0"] if request.first_only else []))
    _check(fleet.run(shell_command("profile-ask.sh", folder, name, *fields), timeout=SHORT), "ask for a profile")
    hosts = _wait(fleet, folder, name, request, progress)
    place = request.into / f"{request.cluster}-{name}"
    ranks = _fetch(fleet, f"{HOST_FOLDER}/jobs/{folder}/profiles/{name}", place, request.first_only)
    failed = tuple(f"{host.address.label}: {why}" for host in hosts for why in host.why)
    notes: list[str] = []
    merged = None
    if ranks:
        try:
            merged = traces.merge_traces(place, place / MERGED, notes.append)
        except OSError as error:
            notes.append(f"the traces could not be merged: {error}")
    return Profile(folder=place, ranks=ranks, merged=merged, failed=failed, notes=tuple(notes))


def _find_running(reader: Reader, record: ClusterRecord) -> JobRecord:
    """Return the job whose program runs now.

    Raises:
        ConflictError: No job runs on it.
        UserError: Its job is not the bundled trainer, as far as the record says.
    """
    cluster = record.name
    jobs = [job for job in reader.jobs(record) if job.kind != "exec" and job.started and job.state == "running"]
    if not record.hosts or not jobs:
        raise ConflictError(f"no job runs on '{cluster}'", "there is nothing to profile", f"orch status {cluster}")
    job = jobs[-1]
    if job.task and Task.from_json(job.task).train is None:
        raise _describe_other_program(cluster, job.id)
    return job


def _refuse_other_program(fleet: Fleet, folder: str, cluster: str, job: int) -> None:
    """Ask a host which program a job is, where its task is not on record here: a service sends no task.

    Raises:
        UserError: It is not the bundled trainer.
        HostError: The host does not answer.
    """
    outcome = fleet.run(
        shell_text_command("""grep -q -e ' -m trainer' "$ORCH_HOST_DIR/jobs/$1/run.sh" """, folder),
        ranks=[fleet.hosts[0].rank],
        timeout=SHORT,
    ).outcomes[0]
    if outcome.status == 1:
        raise _describe_other_program(cluster, job)
    if not outcome.ok:
        what = f"cannot read which program job {job} on '{cluster}' is"
        raise HostError(what, outcome.detail or outcome.last_line or outcome.verdict, "orch status --refresh")


def _describe_other_program(cluster: str, job: int) -> UserError:
    return UserError(
        f"job {job} on '{cluster}' is not the bundled trainer",
        "your own program has to record its profile itself",
        f"orch cp {cluster}:PATH . downloads what it writes",
    )


def _read_hosts_time(fleet: Fleet, cluster: str) -> float:
    """Return the epoch seconds of the hosts' clocks, their median: this computer's may be set wrong."""
    result = fleet.run("date +'orch-time %s'", timeout=_CLEARED)
    raise_other_version(cluster, result.outcomes)
    _check(result, "read the time")
    texts = [answer.output.decode("utf-8", "replace").rpartition("orch-time ")[2].split() for answer in result.hosts]
    times = [int(words[0][:12]) for words in texts if words and words[0].isascii() and words[0].isdigit()]
    if not times:
        raise HostError("cannot read the time of the hosts", "none printed it", "orch status --refresh")
    return statistics.median(times) + 1.0  # they print whole seconds


def _wait(
    fleet: Fleet, folder: str, name: str, request: ProfileRequest, progress: Callable[[int, int], None]
) -> tuple[_Host, ...]:
    hosts = tuple(_Host(address=address) for address in fleet.hosts)
    end = time.monotonic() + request.wait
    while True:
        result = fleet.run(shell_command("profile-look.sh", folder, name), timeout=30.0)
        for host, answer in zip(hosts, result.hosts, strict=True):
            _parse_answer(host, answer.outcome, answer.output)
        done = sum(host.done + host.failed for host in hosts)
        progress(done, sum(1 if request.first_only else host.ranks for host in hosts))
        late = [host for host in hosts if not host.answered(request.first_only)]
        if not late:
            return hosts
        _raise_if_late(late, request, time.monotonic() >= end)
        time.sleep(_PAUSE)


def _parse_answer(host: _Host, outcome: HostOutcome, output: bytes) -> None:
    """Read one host's answer; a login shell may print lines before it."""
    text = output.decode("utf-8", "replace")
    _, found, rest = text.partition("orch-profile ")
    fields = rest.partition("\n")[0].split()
    if not outcome.ok or not found or len(fields) != 4 or not all(map(_COUNT.fullmatch, fields[:3])):
        host.silent += 1
        return
    host.silent = 0
    host.ranks, host.done, host.failed = max(1, int(fields[0])), int(fields[1]), int(fields[2])
    host.ended = fields[3] == "ended"
    host.why = [_failure_reason(line) for line in rest.splitlines()[1:] if line.strip()]


def _failure_reason(line: str) -> str:
    try:
        answer = json.loads(line)
        return f"rank {answer['rank']}: {answer['why']}"
    except (ValueError, KeyError, TypeError):
        return line.strip()[:300]


def _raise_if_late(late: Sequence[_Host], request: ProfileRequest, over: bool) -> None:
    """Raise OrchError when waiting longer is useless."""
    names = ", ".join(host.address.label for host in late[:5]) + ("" if len(late) <= 5 else ", ...")
    if any(host.silent >= _LOOKS for host in late):
        unanswering = next(host for host in late if host.silent >= _LOOKS)
        what = f"{unanswering.address.label} ({unanswering.address.host}) stopped answering"
        raise HostError(what, "its part of the profile is missing", f"orch status {request.cluster} --refresh")
    if any(host.ended for host in late):
        what = f"the program ended before {request.steps} steps were recorded on {names}"
        raise ConflictError(what, "", f"fewer of them: orch profile {request.cluster} --steps 2")
    if over:
        what = f"{names} recorded no {request.steps} steps within {request.wait / 60:g} min"
        why = "its steps are slow, it compiles, or it hangs"
        step = f"orch status {request.cluster}   shows its step; then fewer steps, or more time: --wait MINUTES"
        raise OrchError(what, why, step)


def _fetch(fleet: Fleet, path: str, place: Path, first_only: bool) -> tuple[int, ...]:
    """Download each rank's folder to `place/rank-N`, completely or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".orch-profile-", dir=place.parent) as folder:
        fetched = fetch_tree(
            fleet, path, lambda host: Path(folder) / host.label, limits=_LIMITS, skip_link=lambda _host, _name: None
        )
        _check(fetched, "download the profile")
        made = Path(folder) / "all"
        made.mkdir()
        for found in sorted(Path(folder).glob("*/*/rank-*")):
            if not traces.RANK.fullmatch(found.name) or not any(found.iterdir()):
                continue
            if (made / found.name).exists():
                raise SetupError(
                    f"two hosts sent a profile of {found.name}",
                    f"one of them is {found.parts[-3]}",
                    "orch profile   again",
                )
            if not first_only or found.name == "rank-0":
                shutil.move(found, made / found.name)
        ranks = tuple(sorted(int(found.name.removeprefix("rank-")) for found in made.iterdir()))
        if ranks:
            made.rename(place)
    return ranks


def _check(result: FleetResult, step: str) -> None:
    """Raise an error unless every host succeeded."""
    failed = result.failed
    if not failed:
        return
    first = failed[0]
    label = "head" if first.rank == 0 else f"worker{first.rank}"
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    what = f"cannot {step} on {label} ({first.host}){others}"
    kind = HostError if first.failure is not None else SetupError
    raise kind(what, first.last_line or first.detail or first.verdict, "orch status --refresh")
