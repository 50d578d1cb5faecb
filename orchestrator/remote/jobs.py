"""Detached jobs: one folder per job and rank on the host, jobs/JOB, that outlives every connection.

run.sh the script; env its environment, deleted once read; log append only, so that byte offsets stay valid; claim names
the process that runs the job (templates/remote/claim.sh); job process numbers; heartbeat, heartbeat.1 … the progress
that the program reports, if it does; ran for how long it ran; rc the exit status, by rename, last; ended-by why orch or
the limits timer ended it, before they send a signal.
The state is a function of the folder. Needs sh, setsid, grep, GNU tail and mv on the host; no agent.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import secrets
import signal as signals
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import UserError
from orchestrator.hosts import NO_STORAGE, EndedBy, Failure, HostAddress, HostJob, HostOutcome, JobPhase
from orchestrator.remote.chips import chip_report_command, parse_chip_report
from orchestrator.remote.deadlines import Stall
from orchestrator.remote.error_lines import READ, find_cause, find_storage_error, split_next_step
from orchestrator.remote.fence import REFUSED
from orchestrator.remote.fleet import Fleet, FleetResult, HostCall, HostResult, ending_timeout
from orchestrator.remote.scripts import shell_command, shell_source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STATUS = re.compile(
    rb"^orch-job (\S{1,128}) (absent|running|finished|lost) (\d{1,3}|-) +(\d{1,15}) (\d{1,15}|-) (\d{1,15}|-) "
    rb"([a-z-]{1,40}) ([a-z-]{1,20}) ?(.*)$",
    re.MULTILINE,
)
# Of the log of a failed job: its sum, and the text where the sum was not known.
_TAIL = re.compile(rb"^orch-tail (\S{1,128}) ([0-9a-f]{32})(?: ([A-Za-z0-9+/=]{1,100000}))?$", re.MULTILINE)
_MOST_KNOWN = 256  # sums that a request names
_RAN = re.compile(rb"^orch-ran (\S{1,128}) (\d{1,11})$", re.MULTILINE)  # hundredths of a second
_GZIP = 31  # zlib's window bits for gzip
_CONNECTION_FAILURES = (Failure.LOST, Failure.FROZEN, Failure.REFUSED, Failure.UNREACHABLE)
# A log may be silent for days, and a host that runs no command is silent too: its job's state is asked for then.
_FIRST_SILENCE = 30.0  # seconds without output
_LATER_SILENCE = 600.0  # the same on a host that has answered before
_PATIENCE = 10.0  # seconds in which `follow` tries to come back to a host that it lost


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of one job: jobs of the hosts that answered; result.failed has the others."""

    job: str
    jobs: tuple[HostJob, ...]
    result: FleetResult


@dataclass(frozen=True, slots=True)
class FollowedHost:
    """The log of one host.

    Attributes:
        offset: bytes of the log given to the sink, counted from its beginning; the next call resumes there.
        outcome: how the job ended there, or why the host is given up; None when following was stopped before.
    """

    rank: int
    offset: int
    outcome: HostOutcome | None


@dataclass(frozen=True, slots=True)
class FollowResult:
    """The logs of all hosts."""

    hosts: tuple[FollowedHost, ...]

    @property
    def offsets(self) -> dict[int, int]:
        """The `offsets` of the next `follow_job`."""
        return {host.rank: host.offset for host in self.hosts}

    @property
    def outcomes(self) -> tuple[HostOutcome, ...]:
        """The outcomes of the hosts on which the job ended or that were given up."""
        return tuple(host.outcome for host in self.hosts if host.outcome is not None)

    @property
    def ok(self) -> bool:
        return all(host.outcome is not None and host.outcome.ok for host in self.hosts)


def start_job(
    fleet: Fleet,
    job: str,
    script: bytes,
    *,
    env: Callable[[HostAddress], bytes] | None = None,
    ranks: Sequence[int] | None = None,
) -> FleetResult:
    """Start `script` detached on the hosts, with `env` (lines of `export NAME='value'`) sourced before it.

    Idempotent: on a host that has the job already nothing happens, and that is a success.
    """
    check_job_name(job)
    wrapper = shell_source("job-wrap.sh")
    content = {host: b"" if env is None else env(host) for host in fleet.hosts}
    return fleet.run(
        lambda host: shell_command("job-start.sh", job, str(len(script)), str(len(content[host])), wrapper),
        ranks=ranks,
        stdin=lambda host: script + content[host],
        timeout=max(30.0, fleet.deadline),
    )


def read_job_status(fleet: Fleet, job: str, *, ranks: Sequence[int] | None = None, chips: bool = False) -> JobStatus:
    """Return the state of one job on every host, in one round trip."""
    return read_job_statuses(fleet, [job], ranks=ranks, chips=chips)[0]


def read_job_statuses(
    fleet: Fleet, jobs: Sequence[str], *, ranks: Sequence[int] | None = None, chips: bool = False
) -> tuple[JobStatus, ...]:
    """Return the states of several jobs on every host, in one round trip, in the order of `jobs`.

    Args:
        fleet: the hosts.
        jobs: names of the jobs.
        ranks: the hosts to ask, None for all.
        chips: whether each state has the newest sample of the host's chips, too; the next one is taken beside it.
    """
    for job in jobs:
        check_job_name(job)
    known = fleet.known_tails
    for oldest in [*known][:-_MOST_KNOWN]:
        del known[oldest]
    command = shell_command("job-status.sh", " ".join(known), *jobs)
    if chips:
        command = f"{chip_report_command()}; {command}"
    result = fleet.run(command, ranks=ranks, timeout=fleet.deadline)
    found: dict[str, list[HostJob]] = {job: [] for job in jobs}
    for host in result.hosts:
        states = dict(parse_job_states(host, known))
        for job in jobs:
            if job in states:
                found[job].append(states[job])
    return tuple(JobStatus(job, tuple(found[job]), result) for job in jobs)


def kill_job(
    fleet: Fleet, job: str, ended_by: EndedBy, *, grace: float = 10.0, ranks: Sequence[int] | None = None
) -> FleetResult:
    """Record why, send TERM to all processes of the job, KILL after `grace` seconds, and verify that none is left.

    exit_code is 1 on a host where one is left. A job that is absent or over has none, which is a success.
    """
    check_job_name(job)
    command = shell_command("job-kill.sh", job, f"{grace:.1f}", ended_by)
    return fleet.run(command, ranks=ranks, timeout=ending_timeout(grace))


def follow_job(
    fleet: Fleet,
    job: str,
    sink: Callable[[HostAddress, bytes], None],
    *,
    offsets: Mapping[int, int] | None = None,
    ranks: Sequence[int] | None = None,
    stop: threading.Event | None = None,
    on_end: Callable[[HostOutcome], None] | None = None,
    on_away: Callable[[int], None] | None = None,
    patience: float = _PATIENCE,
) -> FollowResult:
    """Stream every host's log to `sink` until the job has ended there, or `stop` is set.

    A lost connection is opened again and the log resumes at the byte where it broke.

    Args:
        fleet: the hosts.
        job: name of the job.
        sink: called from one thread per host; its exceptions end all and are raised here.
        offsets: the first byte by rank, 0 where absent.
        ranks: the hosts to follow, None for all.
        stop: ends the following.
        on_end: gets the outcome of each host as soon as the job has ended there, or the host is given up.
        on_away: gets the rank of a host as soon as its connection breaks; it may come back.
        patience: seconds until a host that does not come back is given up with its first failure.
    """
    check_job_name(job)
    began = dict(offsets or {})
    ends: dict[int, FollowedHost] = {}

    def work(call: HostCall) -> HostResult:
        follower = _Follower(call, job, sink, began.get(call.host.rank, 0), patience, on_away)
        outcome = follower.run()
        stopped = outcome.failure is Failure.STOPPED
        ends[call.host.rank] = FollowedHost(call.host.rank, follower.offset, None if stopped else outcome)
        if on_end is not None and not stopped:
            on_end(outcome)
        return HostResult(outcome, b"")

    fleet.each(work, ranks=ranks, width=max(1, len(fleet.hosts)), stop=stop)
    return FollowResult(tuple(ends[rank] for rank in sorted(ends)))


class _Follower:
    """The following of one log on one host; `offset` is that of the next byte for the sink."""

    def __init__(
        self,
        call: HostCall,
        job: str,
        sink: Callable[[HostAddress, bytes], None],
        offset: int,
        patience: float,
        on_away: Callable[[int], None] | None,
    ) -> None:
        self.offset = offset
        self._on_away = on_away
        self._call, self._job, self._sink, self._patience = call, job, sink, patience
        self._began = time.monotonic()
        self._lost: HostOutcome | None = None
        self._lost_at = 0.0
        self._silence = _FIRST_SILENCE
        self._mark = f"ORCH_CALL={secrets.token_hex(8)}-{call.host.rank}"

    def run(self) -> HostOutcome:
        while True:
            before = self.offset
            outcome = self._stream()
            if self._call.halted:
                return replace(outcome, exit_code=None, signal=None, failure=Failure.STOPPED)
            progress = self.offset > before
            if outcome.exit_code in (0, REFUSED) or outcome.failure is Failure.TIMEOUT:
                result = self._call.run(shell_command("job-status.sh", "", self._job), timeout=self._patience)
                outcome = result.outcome
                state = dict(parse_job_states(result)).get(self._job)
                if state is not None:
                    self._lost, self._silence = None, _LATER_SILENCE
                    if state.phase is not JobPhase.RUNNING:
                        return self._ended(outcome, state)
                    self._call.sleep(0.2)  # the job still runs: only our tail was killed
                    continue
                progress = False  # whatever it sent was no log
                if outcome.ok:
                    detail = "its answer is not a state of the job"
                    outcome = replace(outcome, exit_code=None, failure=Failure.LOST, detail=detail)
            if outcome.failure not in _CONNECTION_FAILURES:
                return outcome
            if (given_up := self._wait_or_give_up(outcome, progress=progress)) is not None:
                return given_up

    def _stream(self) -> HostOutcome:
        left = None if self._lost is None else max(0.5, self._lost_at + self._patience - time.monotonic())
        command = shell_command("job-follow.sh", self._job, str(self.offset))
        return self._call.run(
            f"export {self._mark};{command}",
            keep=0,
            timeout=Stall(self._silence),
            mark=self._mark,
            connect_within=left,
            on_output=self._deliver,
            fenced=False,
        ).outcome

    def _deliver(self, block: bytes) -> None:
        self._sink(self._call.host, block)
        self.offset += len(block)

    def _wait_or_give_up(self, outcome: HostOutcome, *, progress: bool) -> HostOutcome | None:
        """Wait a little for a lost host, or return the outcome with which it is given up."""
        now = time.monotonic()
        if self._lost is None or progress:
            self._lost, self._lost_at = outcome, now
            if self._on_away is not None:
                self._on_away(outcome.rank)
        if now - self._lost_at >= self._patience:
            detail = self._lost.detail
            if outcome is not self._lost:
                detail += f"; then: {outcome.detail}"
            return replace(self._lost, seconds=now - self._began, detail=detail)
        self._call.sleep(0.3)
        return None

    def _ended(self, outcome: HostOutcome, state: HostJob) -> HostOutcome:
        if state.log_bytes > self.offset:
            self._stream()  # what was written between the last read of tail and the end
        seconds = time.monotonic() - self._began if state.ran is None else state.ran
        ended = replace(
            outcome,
            seconds=seconds,
            last_line=state.last_line,
            remedy=state.remedy,
            exit_code=None,
            ended_by=state.ended_by,
        )
        if state.phase is JobPhase.FINISHED and state.exit_code is not None:
            name = signal_name(state.exit_code)
            return replace(ended, signal=name) if name else replace(ended, exit_code=state.exit_code)
        detail = "the job was killed with SIGKILL or the host restarted: it left no exit status"
        if state.phase is JobPhase.ABSENT:
            detail = f"the job {self._job} was never started on this host"
        return replace(ended, failure=Failure.LOST, detail=detail)


def signal_name(exit_code: int) -> str | None:
    """Return the signal behind a shell's exit status (139: "SEGV"), or None."""
    try:
        return signals.Signals(exit_code - 128).name.removeprefix("SIG") if exit_code > 128 else None
    except ValueError:
        return None


def parse_job_states(result: HostResult, known: dict[str, bytes] | None = None) -> list[tuple[str, HostJob]]:
    """Return the jobs in what job-status.sh printed on one host, with their names.

    Args:
        result: Of job-status.sh on the host.
        known: Ends of logs by their sums, which the host was not to send again; those that it sent are added.
    """
    known = {} if known is None else known
    if not result.outcome.ok:
        return []
    found: list[tuple[str, HostJob]] = []
    chips = parse_chip_report(result.output)
    tails: dict[str, bytes] = {}
    for match in _TAIL.finditer(result.output):
        total = match[2].decode()
        tail = _unpack_tail(match[3]) if match[3] else known.get(total, b"")
        if hashlib.sha256(tail).hexdigest().startswith(total):  # else a host could name the cause of another
            known[total] = tail
        tails[match[1].decode("utf-8", "replace")] = tail
    ran = {match[1].decode("utf-8", "replace"): int(match[2]) / 100 for match in _RAN.finditer(result.output)}
    for match in _STATUS.finditer(result.output):
        name, phase, code, size, step, age, doing, why, last = (
            group.decode("utf-8", "replace") for group in match.groups()
        )
        exit_code = None if code == "-" else int(code)
        last, lost_peer = "".join(c for c in last if c.isprintable()), False
        if name in tails and exit_code is not None:
            last, exit_code, lost_peer = _explain_failure(tails[name], exit_code, bucketless=doing == NO_STORAGE)
        last_line, remedy = split_next_step(last[:600])
        state = HostJob(
            rank=result.outcome.rank,
            phase=JobPhase(phase),
            exit_code=exit_code,
            ended_by=EndedBy.parse(why),
            log_bytes=int(size),
            last_line=last_line,
            step=None if step == "-" else int(step),
            beat_age=None if age == "-" else int(age) / 1000,
            doing=None if doing == "-" else doing,
            remedy=remedy,
            lost_peer=lost_peer,
            ran=ran.get(name),
            chips=chips,
        )
        found.append((name, state))
    return found


def _unpack_tail(tail: bytes) -> bytes:
    """Return the end of a log that job-status.sh printed; nothing for what is none."""
    try:
        return zlib.decompressobj(_GZIP).decompress(base64.b64decode(tail), READ)
    except (ValueError, zlib.error):
        return b""


@functools.lru_cache(maxsize=256)  # of a job that has ended, it does not change
def _explain_failure(log: bytes, exit_code: int, *, bucketless: bool) -> tuple[str, int, bool]:
    """Return why a job failed, the status of the process that failed first, and whether it only lost another one.

    Args:
        log: The end of its log.
        exit_code: Its status, which may be that of a launcher.
        bucketless: It cannot use its bucket: then its own reason counts, not what launchers and other ranks printed.
    """
    cause = find_cause(log, exit_code)
    lines = (bucketless and find_storage_error(log)) or cause.lines
    return lines, cause.exit_code or exit_code, cause.lost_peer


def check_job_name(job: str) -> None:
    """Raise UserError for a name that cannot be the name of a folder."""
    if not _NAME.fullmatch(job):
        raise UserError(
            f"{job!r} is not a job name", "letters, digits, '.', '_' and '-' are allowed, at most 128", "orch queue"
        )
