"""What the engine does on hosts, as one protocol: over SSH for real, in memory for simulated hosts.

Every method returns an outcome for every host of `ranks` (None: all hosts); a failure of a host is an outcome and
raises nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from orchestrator.hosts import EndedBy, Failure, HostAddress, HostJob, HostOutcome
from orchestrator.remote.deadlines import SCRIPT_SECONDS, SHORT, Stall, beat_while
from orchestrator.remote.marks import parse_marks, read_marks_command, write_mark_command

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.remote.fleet import FleetResult, HostResult
    from orchestrator.remote.identities import KeyRing
    from orchestrator.remote.tree import Tree
    from orchestrator.remote.trust import HostPins

Sink = Callable[[HostAddress, bytes], None]
EnvFile = Callable[[HostAddress], bytes]


@dataclass(frozen=True, slots=True)
class JobReport:
    """The state of one job: jobs of the hosts that answered, outcomes of those that failed."""

    jobs: tuple[HostJob, ...]
    failed: tuple[HostOutcome, ...]


@dataclass(frozen=True, slots=True)
class MarksReport:
    """The marks of hosts: rank -> name of the mark -> digest (marks.py)."""

    held: Mapping[int, Mapping[str, str]]
    failed: tuple[HostOutcome, ...]


@dataclass(frozen=True, slots=True)
class StacksReport:
    """The stacks of a job's processes as text: at most 256 KiB by rank, and outcomes of the hosts that failed."""

    stacks: Mapping[int, bytes]
    failed: tuple[HostOutcome, ...]


class HostOperations(Protocol):
    """The operations on one set of hosts; `close` closes the connections."""

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        """The hosts by rank."""
        ...

    def read_job(self, job: str, ranks: Sequence[int] | None = None, *, chips: bool = False) -> JobReport:
        """Return the state of one job on every host; with `chips` also that of its chips, where it is known."""
        ...

    def read_marks(self, ranks: Sequence[int] | None = None) -> MarksReport:
        """Return the marks of every host."""
        ...

    def write_mark(self, label: str, digest: str, ranks: Sequence[int] | None = None) -> tuple[HostOutcome, ...]:
        """Record on the hosts that they hold `digest` under `label`."""
        ...

    def sync_tree(
        self, tree: Tree, destination: str, ranks: Sequence[int], on_progress: Callable[[int, int], None]
    ) -> tuple[HostOutcome, ...]:
        """Make the destination on the hosts equal to the tree. on_progress gets (bytes done, bytes in all)."""
        ...

    def run_script(self, content: bytes, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """Run a short bash script to its end; it is sent on standard input."""
        ...

    def start_job(self, job: str, script: bytes, env: EnvFile, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """Start a detached job. On a host that has the job already nothing happens, and that is a success."""
        ...

    def follow_job(
        self,
        job: str,
        sink: Sink,
        offsets: Mapping[int, int],
        ranks: Sequence[int],
        *,
        stop: threading.Event | None = None,
        on_end: Callable[[HostOutcome], None] | None = None,
        on_away: Callable[[int], None] | None = None,
    ) -> tuple[HostOutcome, ...]:
        """Give every host's log to `sink` from its byte offset, until the job has ended there or `stop` is set.

        Args:
            job: name of the job.
            sink: gets blocks of the log.
            offsets: the first byte by rank, 0 where absent.
            ranks: the hosts.
            stop: ends the following.
            on_end: gets the outcome of a host as soon as the job has ended there.
            on_away: gets a rank when the connection to it breaks; it may come back.
        """
        ...

    def kill_job(self, job: str, ended_by: EndedBy, grace: float, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """Record why, send TERM, after `grace` seconds KILL, and verify that no process is left."""
        ...

    def collect_stacks(self, job: str, ranks: Sequence[int] | None = None) -> StacksReport:
        """Return the stacks of all processes of a job, which show where a hung program waits. Changes nothing."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class SshAccess:
    """Opens the operations over SSH. A key is read, and its passphrase asked for, once for all of them."""

    def __init__(self, identity: Path | None = None) -> None:
        """Prepare. identity: The key for hosts that orch made, in place of this computer's own."""
        self._identity = identity
        self._keys: KeyRing | None = None

    def __call__(self, hosts: tuple[HostAddress, ...], pins: HostPins) -> SshHostOperations:
        """Return the operations on these hosts; pins: those of people's own machines."""
        from orchestrator.remote.identities import KeyRing

        self._keys = self._keys or KeyRing(identity=self._identity)
        return SshHostOperations(hosts, self._keys, pins)


class SshHostOperations:
    """The operations over SSH."""

    def __init__(
        self, hosts: tuple[HostAddress, ...], keys: KeyRing | None = None, pins: HostPins | None = None
    ) -> None:
        from orchestrator.remote.fleet import Fleet
        from orchestrator.remote.keys import write_known_hosts

        pinned = [host for host in hosts if host.host_key is not None]
        if pinned:
            write_known_hosts(pinned[0].known_hosts, pinned)
        self._fleet = Fleet(hosts, keys=keys, pins=pins)

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._fleet.hosts

    def read_job(self, job: str, ranks: Sequence[int] | None = None, *, chips: bool = False) -> JobReport:
        from orchestrator.remote.jobs import read_job_status

        report = read_job_status(self._fleet, job, ranks=ranks, chips=chips)
        return JobReport(report.jobs, _list_failures(report.result, {state.rank for state in report.jobs}))

    def read_marks(self, ranks: Sequence[int] | None = None) -> MarksReport:
        result = self._fleet.run(read_marks_command(), ranks=ranks, timeout=SHORT)
        held = {host.outcome.rank: parse_marks(host.output) for host in result.hosts if host.outcome.ok}
        return MarksReport(held, result.failed)

    def write_mark(self, label: str, digest: str, ranks: Sequence[int] | None = None) -> tuple[HostOutcome, ...]:
        return self._fleet.run(write_mark_command(label, digest), ranks=ranks, timeout=SHORT).outcomes

    def sync_tree(
        self, tree: Tree, destination: str, ranks: Sequence[int], on_progress: Callable[[int, int], None]
    ) -> tuple[HostOutcome, ...]:
        from orchestrator.remote.sync import sync_tree

        return sync_tree(self._fleet, tree, destination, ranks=ranks, on_progress=on_progress).result.outcomes

    def run_script(self, content: bytes, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        deadline = Stall(SHORT, longest=SCRIPT_SECONDS)
        result = self._fleet.run(beat_while("bash -s"), ranks=ranks, stdin=content, timeout=deadline)
        return tuple(map(_with_cause, result.hosts))

    def start_job(self, job: str, script: bytes, env: EnvFile, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        from orchestrator.remote.jobs import start_job

        return start_job(self._fleet, job, script, env=env, ranks=ranks).outcomes

    def follow_job(
        self,
        job: str,
        sink: Sink,
        offsets: Mapping[int, int],
        ranks: Sequence[int],
        *,
        stop: threading.Event | None = None,
        on_end: Callable[[HostOutcome], None] | None = None,
        on_away: Callable[[int], None] | None = None,
    ) -> tuple[HostOutcome, ...]:
        from orchestrator.remote.jobs import follow_job

        return follow_job(
            self._fleet, job, sink, offsets=offsets, ranks=ranks, stop=stop, on_end=on_end, on_away=on_away
        ).outcomes

    def kill_job(self, job: str, ended_by: EndedBy, grace: float, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        from orchestrator.remote.jobs import kill_job

        return kill_job(self._fleet, job, ended_by, grace=grace, ranks=ranks).outcomes

    def collect_stacks(self, job: str, ranks: Sequence[int] | None = None) -> StacksReport:
        from orchestrator.remote.stacks import collect_stacks

        return StacksReport(*collect_stacks(self._fleet, job, ranks=ranks))

    def close(self) -> None:
        self._fleet.close()


def _with_cause(result: HostResult) -> HostOutcome:
    """Return the outcome of a script; of one that failed by itself, with the lines that say why."""
    outcome = result.outcome
    if outcome.ok or outcome.failure is not None:
        return outcome
    from orchestrator.remote.error_lines import find_cause, split_next_step

    cause, remedy = split_next_step(find_cause(result.output).lines)
    return replace(outcome, last_line=cause or outcome.last_line, remedy=remedy)


def _list_failures(result: FleetResult, answered: set[int]) -> tuple[HostOutcome, ...]:
    """Return the outcomes of hosts that reported no state of a job: of those that SSH reaches, with what they show."""
    silent = (outcome for outcome in result.outcomes if outcome.rank not in answered)
    return tuple(one if one.failure is not None else describe_shell_failure(one) for one in silent)


def describe_shell_failure(outcome: HostOutcome) -> HostOutcome:
    """Return the failure of a host whose login shell ran no command: nologin, csh, or bash that execs another."""
    shown = f"`{outcome.last_line}`" if outcome.last_line else "no output"
    return replace(
        outcome,
        exit_code=None,
        signal=None,
        failure=Failure.LOST,
        detail=f"SSH works, but a command has no result: {outcome.verdict}, {shown}",
        remedy="have a login shell there that runs what SSH sends, such as bash (chsh), "
        "and no start file that execs another",
    )
