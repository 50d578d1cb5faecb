"""All that the engine does on hosts, as one protocol: over SSH for real, in memory in a simulated world.

Every method tells of every host that was asked: an outcome per host, failures included, nothing raised for what a host
does. ranks: None = all hosts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.hosts import HostAddress, HostJob, HostOutcome
from orchestrator.remote.marks import READ_MARKS, parse_marks, write_mark

if TYPE_CHECKING:
    from orchestrator.remote.tree import Tree

Sink = Callable[[HostAddress, bytes], None]
EnvFile = Callable[[HostAddress], bytes]


@dataclass(frozen=True, slots=True)
class HostsLook:
    """The state of one job. jobs: of the hosts that answered; failed: those that could not be asked."""

    jobs: tuple[HostJob, ...]
    failed: tuple[HostOutcome, ...]


@dataclass(frozen=True, slots=True)
class MarksLook:
    """What hosts hold: rank -> mark file name -> digest (see marks.py)."""

    held: Mapping[int, Mapping[str, str]]
    failed: tuple[HostOutcome, ...]


@dataclass(frozen=True, slots=True)
class StacksLook:
    """Where the processes of a job stand, as text for a person. stacks: rank -> at most 256 KiB; failed: not asked."""

    stacks: Mapping[int, bytes]
    failed: tuple[HostOutcome, ...]


class Hands(Protocol):
    """See the module's words. Made for one set of hosts; `close` gives the connections back."""

    @property
    def hosts(self) -> tuple[HostAddress, ...]: ...

    def look(self, job: str, ranks: Sequence[int] | None = None) -> HostsLook:
        """The state of one job on every host."""
        ...

    def marks(self, ranks: Sequence[int] | None = None) -> MarksLook: ...

    def mark(self, label: str, digest: str, ranks: Sequence[int] | None = None) -> tuple[HostOutcome, ...]:
        """Note on the hosts that they hold `digest` under `label`."""
        ...

    def sync(
        self, tree: Tree, destination: str, ranks: Sequence[int], on_progress: Callable[[int, int], None]
    ) -> tuple[HostOutcome, ...]:
        """Make the destination on the hosts equal to the tree."""
        ...

    def script(self, content: bytes, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """Run a short bash script to its end; it travels on standard input."""
        ...

    def start(self, job: str, script: bytes, env: EnvFile, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """Start a detached job. A host that knows the job already does nothing, and that is a success."""
        ...

    def follow(
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

        on_away: told a rank when the connection to it breaks; it may come back.
        """
        ...

    def kill(self, job: str, grace: float, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """TERM, `grace` seconds, KILL, and a look that nobody is left."""
        ...

    def stacks(self, job: str, ranks: Sequence[int] | None = None) -> StacksLook:
        """The stacks of all processes of a job: what a program that does not move waits for. Changes nothing."""
        ...

    def close(self) -> None: ...


class SshHands:
    """The real ones: a fleet of SSH connections."""

    def __init__(self, hosts: tuple[HostAddress, ...]) -> None:
        from orchestrator.remote.fleet import Fleet
        from orchestrator.remote.keys import write_known_hosts

        pinned = [host for host in hosts if host.host_key is not None]
        if pinned:
            write_known_hosts(pinned[0].known_hosts, pinned)
        self._fleet = Fleet(hosts)

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._fleet.hosts

    def look(self, job: str, ranks: Sequence[int] | None = None) -> HostsLook:
        from orchestrator.remote.jobs import status

        report = status(self._fleet, job, ranks=ranks)
        return HostsLook(report.jobs, report.result.failed)

    def marks(self, ranks: Sequence[int] | None = None) -> MarksLook:
        result = self._fleet.run(READ_MARKS, ranks=ranks)
        held = {host.outcome.rank: parse_marks(host.output) for host in result.hosts if host.outcome.ok}
        return MarksLook(held, result.failed)

    def mark(self, label: str, digest: str, ranks: Sequence[int] | None = None) -> tuple[HostOutcome, ...]:
        return self._fleet.run(write_mark(label, digest), ranks=ranks).outcomes

    def sync(
        self, tree: Tree, destination: str, ranks: Sequence[int], on_progress: Callable[[int, int], None]
    ) -> tuple[HostOutcome, ...]:
        from orchestrator.remote.sync import sync

        return sync(self._fleet, tree, destination, ranks=ranks, on_progress=on_progress).result.outcomes

    def script(self, content: bytes, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        return self._fleet.run("bash -s", ranks=ranks, stdin=content).outcomes

    def start(self, job: str, script: bytes, env: EnvFile, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        from orchestrator.remote.jobs import start

        return start(self._fleet, job, script, env=env, ranks=ranks).outcomes

    def follow(
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
        from orchestrator.remote.jobs import follow

        return follow(
            self._fleet, job, sink, offsets=offsets, ranks=ranks, stop=stop, on_end=on_end, on_away=on_away
        ).outcomes

    def kill(self, job: str, grace: float, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        from orchestrator.remote.jobs import kill

        return kill(self._fleet, job, grace=grace, ranks=ranks).outcomes

    def stacks(self, job: str, ranks: Sequence[int] | None = None) -> StacksLook:
        from orchestrator.remote.dumps import collect

        return StacksLook(*collect(self._fleet, job, ranks=ranks))

    def close(self) -> None:
        self._fleet.close()
