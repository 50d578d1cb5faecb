"""A profile of a training that runs: asked for on its hosts, waited for, brought home, made one trace.

The request and its answers are files in the job's folder on each host: see trainer/profiling.py.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.engine import traces
from orchestrator.engine.identity import host_job
from orchestrator.engine.known import open_reader
from orchestrator.errors import ConflictError, HostError, NotFoundError, OrchError, SetupError, UserError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.remote.files import fetch_tree
from orchestrator.remote.fleet import Fleet, FleetResult
from orchestrator.remote.scripts import shell_command
from orchestrator.spec.task import Task
from orchestrator.store.records import ClusterRecord, JobRecord

MERGED = "all-ranks.trace.json.gz"
MOST_STEPS = 1000  # as trainer/profiling.py has it
_PAUSE = 1.0  # seconds between two looks
_UNTIL_ALL_KNOW, _HOSTS_A_SECOND = 1.5, 50  # how long it takes until every rank has seen the request
_CLEARED = 10.0  # seconds that a host gets to forget a profile that is given up
_LOOKS = 5  # looks in a row that a host may not answer


@dataclass(frozen=True, slots=True)
class Wanted:
    """steps: to be recorded. first_only: rank 0 alone. into: the folder that gets `<cluster>-<id>`. wait: seconds."""

    cluster: str
    steps: int
    first_only: bool
    into: Path
    wait: float


@dataclass(frozen=True, slots=True)
class Profile:
    """folder: holds rank-N for each rank. failed: "head: why" for each rank that recorded nothing."""

    folder: Path
    ranks: tuple[int, ...]
    merged: traces.Merged | None
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Host:
    """How far one host is. ranks: processes that train on it."""

    address: HostAddress
    ranks: int = 1
    done: int = 0
    failed: int = 0
    ended: bool = False
    silent: int = 0  # looks in a row without an answer
    why: list[str] = field(default_factory=list[str])

    def answered(self, first_only: bool) -> bool:
        return self.done + self.failed >= (1 if first_only else self.ranks)


def profile(wanted: Wanted, progress: Callable[[int, int], None]) -> Profile:
    """Record, wait, fetch, merge. progress: told ranks that are done, of all. Raises OrchError."""
    record, job = _running(wanted.cluster)
    name, folder = time.strftime("%Y%m%d-%H%M%S", time.gmtime()), host_job(record.uid, f"{job.id}-a{job.attempt}")
    chosen = record.hosts[:1] if wanted.first_only else record.hosts
    with Fleet(chosen) as fleet:
        made = record_on(fleet, folder, name, wanted, progress)
    if not made.ranks:
        raise SetupError("no rank recorded a profile", "; ".join(made.failed), f"orch logs {wanted.cluster}")
    return made


def record_on(fleet: Fleet, folder: str, name: str, wanted: Wanted, progress: Callable[[int, int], None]) -> Profile:
    """The same of the job in this folder. However it ends, its hosts keep neither request nor traces."""
    clear = shell_command("profile-clear.sh", folder, name)
    try:
        made = _recorded(fleet, folder, name, wanted, progress)
    except BaseException:  # Ctrl-C too: nobody would come for what the hosts still record
        with suppress(OrchError):
            fleet.run(clear, timeout=_CLEARED)
        raise
    left = fleet.run(clear).failed
    notes = tuple(f"the traces on rank {one.rank}'s host could not be removed: {one.verdict}" for one in left)
    return replace(made, notes=(*made.notes, *notes))


def _recorded(fleet: Fleet, folder: str, name: str, wanted: Wanted, progress: Callable[[int, int], None]) -> Profile:
    """Asked for, waited for, brought home and made one; the hosts still have theirs."""
    # At one moment, or quick steps of different ranks would not be the same ones.
    at = time.time() + _UNTIL_ALL_KNOW + len(fleet.hosts) / _HOSTS_A_SECOND
    words = (str(wanted.steps), f"{at:.3f}", *(["0"] if wanted.first_only else []))
    _check(fleet.run(shell_command("profile-ask.sh", folder, name, *words)), "ask for a profile")
    hosts = _wait(fleet, folder, name, wanted, progress)
    place = wanted.into / f"{wanted.cluster}-{name}"
    ranks = _fetch(fleet, f".orch/jobs/{folder}/profiles/{name}", place, wanted.first_only)
    failed = tuple(f"{host.address.label}: {why}" for host in hosts for why in host.why)
    notes: list[str] = []
    merged = None
    if ranks:
        try:
            merged = traces.merge(place, place / MERGED, notes.append)
        except OSError as error:
            notes.append(f"the traces could not be made one: {error}")
    return Profile(place, ranks, merged, failed, tuple(notes))


def _running(cluster: str) -> tuple[ClusterRecord, JobRecord]:
    """The job whose program runs now. Raises NotFoundError, ConflictError and UserError."""
    with open_reader() as reader:
        record = reader.cluster(cluster)
        if record is None:
            raise NotFoundError(f"there is no cluster '{cluster}'", next_step="orch status   lists them")
        jobs = [job for job in reader.jobs(record) if job.kind != "exec" and job.started and job.state == "running"]
    if not record.hosts or not jobs:
        raise ConflictError(f"no job runs on '{cluster}'", "there is nothing to profile", f"orch status {cluster}")
    job = jobs[-1]
    if Task.from_json(job.task).train is None:
        raise UserError(
            f"job {job.id} on '{cluster}' is not the bundled trainer",
            "a program of your own has to record its profile itself",
            f"orch cp {cluster}:PATH . brings home what it writes",
        )
    return record, job


def _wait(
    fleet: Fleet, folder: str, name: str, wanted: Wanted, progress: Callable[[int, int], None]
) -> tuple[_Host, ...]:
    hosts = tuple(_Host(address) for address in fleet.hosts)
    end = time.monotonic() + wanted.wait
    while True:
        result = fleet.run(shell_command("profile-look.sh", folder, name), timeout=30.0)
        for host, answer in zip(hosts, result.hosts, strict=True):
            _take(host, answer.outcome, answer.output)
        done = sum(host.done + host.failed for host in hosts)
        progress(done, sum(1 if wanted.first_only else host.ranks for host in hosts))
        late = [host for host in hosts if not host.answered(wanted.first_only)]
        if not late:
            return hosts
        _refuse(late, wanted, time.monotonic() >= end)
        time.sleep(_PAUSE)


def _take(host: _Host, outcome: HostOutcome, output: bytes) -> None:
    """What one look told. What a login shell may say comes before our line."""
    text = output.decode("utf-8", "replace")
    _, found, rest = text.partition("orch-profile ")
    words = rest.partition("\n")[0].split()
    if not outcome.ok or not found or len(words) != 4:
        host.silent += 1
        return
    host.silent = 0
    host.ranks, host.done, host.failed = max(1, int(words[0])), int(words[1]), int(words[2])
    host.ended = words[3] == "ended"
    host.why = [_why(line) for line in rest.splitlines()[1:] if line.strip()]


def _why(line: str) -> str:
    try:
        answer = json.loads(line)
        return f"rank {answer['rank']}: {answer['why']}"
    except (ValueError, KeyError, TypeError):
        return line.strip()[:300]


def _refuse(late: Sequence[_Host], wanted: Wanted, over: bool) -> None:
    """Raises OrchError when waiting on is of no use."""
    names = ", ".join(host.address.label for host in late[:5]) + ("" if len(late) <= 5 else ", ...")
    if any(host.silent >= _LOOKS for host in late):
        gone = next(host for host in late if host.silent >= _LOOKS)
        what = f"{gone.address.label} ({gone.address.host}) does not answer any more"
        raise HostError(what, "its part of the profile is missing", f"orch status {wanted.cluster} --refresh")
    if any(host.ended for host in late):
        what = f"the program ended before {wanted.steps} steps were recorded on {names}"
        raise ConflictError(what, "", f"fewer of them: orch profile {wanted.cluster} --steps 2")
    if over:
        what = f"{names} recorded no {wanted.steps} steps within {wanted.wait / 60:g} min"
        why = "its steps take long, it compiles, or it stands still"
        step = f"orch status {wanted.cluster}   tells its step; then fewer steps, or more time: --wait MINUTES"
        raise OrchError(what, why, step)


def _fetch(fleet: Fleet, path: str, place: Path, first_only: bool) -> tuple[int, ...]:
    """Each rank's folder as `place/rank-N`, whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".orch-profile-", dir=place.parent) as folder:
        _check(fetch_tree(fleet, path, lambda host: Path(folder) / host.label), "bring the profile home")
        made = Path(folder) / "all"
        made.mkdir()
        for found in sorted(Path(folder).glob("*/*/rank-*")):
            if any(found.iterdir()) and (not first_only or found.name == "rank-0"):
                shutil.move(found, made / found.name)
        ranks = tuple(sorted(int(found.name.removeprefix("rank-")) for found in made.iterdir()))
        if ranks:
            made.rename(place)
    return ranks


def _check(result: FleetResult, step: str) -> None:
    """Every host must have done it."""
    failed = result.failed
    if not failed:
        return
    first = failed[0]
    label = "head" if first.rank == 0 else f"worker{first.rank}"
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    what = f"cannot {step} on {label} ({first.host}){others}"
    kind = HostError if first.failure is not None else SetupError
    raise kind(what, first.last_line or first.detail or first.verdict, "orch status --refresh")
