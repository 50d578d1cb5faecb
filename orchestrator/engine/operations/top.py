"""The hosts and chips of a cluster now, with the progress of its job: one command a host and round."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.errors import NotFoundError
from orchestrator.hosts import HostAddress
from orchestrator.plan.host_version import raise_other_version
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.samples import HostSample, sample_hosts
from orchestrator.store.lookup import RUNNING, find_cluster, find_current_job
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord

_CONNECT_SECONDS = 8.0  # until a host that does not answer is a row that says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at a cluster.

    Attributes:
        job: The job whose progress the samples have; None without one that runs.
    """

    hosts: tuple[HostAddress, ...]
    samples: tuple[HostSample, ...]
    job: JobRecord | None

    def find_lag(self, sample: HostSample) -> int | None:
        """Return how many steps a host is behind the one that is furthest; None where it reports no step."""
        steps = [one.job.step for one in self.samples if one.job is not None and one.job.step is not None]
        own = sample.job.step if sample.job is not None else None
        return max(steps) - own if own is not None else None


@contextmanager
def open_rounds(
    cluster: str,
    report: Callable[[str], None],
    open_records: Callable[[], AbstractContextManager[Reader]],
    enter: Callable[[Reader, ClusterRecord], tuple[HostAddress, ...]],
) -> Generator[Callable[[], Round]]:
    """Give a function that looks at a cluster; its connections stay open between two calls.

    Args:
        cluster: The cluster's name.
        report: Gets a line for the key of each machine that is new.
        open_records: Opens the records of the cluster.
        enter: Returns its hosts when they admit this computer; called again when a host was replaced.

    Raises:
        NotFoundError: The cluster has no hosts.
        OrchError: The folder of a host is of another version.
    """
    fleets: dict[tuple[HostAddress, ...], Fleet] = {}
    entered: dict[tuple[HostAddress, ...], tuple[HostAddress, ...]] = {}
    with open_pins(report) as pins:

        def look() -> Round:
            with open_records() as reader:
                record = find_cluster(reader, cluster)
                if record.hosts and record.hosts not in entered:
                    entered[record.hosts] = enter(reader, record)
                hosts = entered[record.hosts] if record.hosts else ()
                jobs = [job for job in reader.jobs(record) if job.started and job.state in RUNNING]
            if not hosts:
                raise NotFoundError(f"cluster '{cluster}' has no hosts now", next_step=f"orch status {cluster}")
            if hosts not in fleets:  # a host was replaced
                _close(fleets)
                fleets[hosts] = Fleet(hosts, deadline=_CONNECT_SECONDS, pins=pins)
            running = find_current_job(jobs)
            folder = host_job_name(record.uid, f"{running.id}-a{running.attempt}") if running is not None else ""
            samples = sample_hosts(fleets[hosts], folder)
            raise_other_version(cluster, (sample.outcome for sample in samples))
            return Round(hosts=hosts, samples=samples, job=running)

        try:
            yield look
        finally:
            _close(fleets)


def _close(fleets: dict[tuple[HostAddress, ...], Fleet]) -> None:
    for fleet in fleets.values():
        fleet.close()
    fleets.clear()
