"""Hosts of the simulated cloud as a connecting client finds them."""

from __future__ import annotations

from orchestrator.hosts import EndedBy, Failure, HostAddress, HostJob, JobPhase
from orchestrator.simulator import programs
from orchestrator.simulator.scenario import Happening
from orchestrator.simulator.state import Host, Phase, Resource
from orchestrator.simulator.world import World, host_alias


def reach(world: World, address: HostAddress) -> tuple[Resource, Host] | Failure:
    """Return the host that answers at this address, or why none does.

    An address that another host has by now answers with that host's key: IDENTITY, never the wrong host.
    """
    found = _at(world, address.host)
    if found is None:
        return Failure.UNREACHABLE
    resource, host = found
    if not host.up or world.state.now < host.silent_until:
        return Failure.UNREACHABLE
    if host.impostor or host_alias(resource, host.rank) != address.alias:
        return Failure.IDENTITY
    return resource, host


def look_at(world: World, host: Host, job: str) -> HostJob:
    """Return what the host reports about a job."""
    now = world.state.now
    known = host.jobs.get(job)
    if known is None:
        return HostJob(rank=host.rank, phase=JobPhase.ABSENT)
    phase, log = programs.phase(known, now), programs.log(known, host.rank, now)
    return HostJob(
        rank=host.rank,
        phase=phase,
        exit_code=known.exit_code if phase is JobPhase.FINISHED else None,
        ended_by=EndedBy.parse(known.ended_by or "-"),
        log_bytes=len(log),
        last_line=log.decode().splitlines()[-1],
        step=programs.steps(known, now),
        beat_age=programs.beat_age(known, now),
        doing="training" if phase is JobPhase.RUNNING else None,
    )


def log_of(world: World, host: Host, job: str) -> bytes:
    known = host.jobs.get(job)
    return b"" if known is None else programs.log(known, host.rank, world.state.now)


def begin(world: World, resource: Resource, host: Host, job: str) -> None:
    """Start a job, unless the host knows it (rule job_under_one_name_runs_once)."""
    if job in host.jobs:
        return
    made = programs.choose(world.state.programs, job).job(job, host.rank, world.state.now)
    host.jobs[job] = made
    for index, happening in enumerate(world.scenario.happenings):
        if _waits_for(happening, resource, host, job) and happening.step is not None:
            world.due(happening.step * made.step_seconds, "step", resource.uid, index, host.rank, job)


def kill(world: World, host: Host, job: str, ended_by: EndedBy) -> None:
    """End the job with exit status 143, as TERM does, and keep why, if it runs."""
    known = host.jobs.get(job)
    if known is not None and programs.is_running(known, world.state.now):
        known.ended_by = ended_by
        programs.stop(known, world.state.now, 143)


def next_end(world: World, host: Host) -> float | None:
    return programs.next_end(host, world.state.now)


def _waits_for(happening: Happening, resource: Resource, host: Host, job: str) -> bool:
    from orchestrator.simulator.lifecycle import matches

    mine = happening.step is not None and (happening.rank or 0) == host.rank
    return mine and "setup" not in job and matches(happening, resource)


def _at(world: World, address: str) -> tuple[Resource, Host] | None:
    for resource in world.living():
        if resource.phase in (Phase.READY, Phase.CREATING):
            for host in resource.hosts:
                if host.address == address:
                    return resource, host
    return None
