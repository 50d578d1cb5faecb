"""What the store recorded last: where a preview starts. Needs no database library and asks no provider."""

from __future__ import annotations

import json
import os
from typing import Any

from orchestrator.clock import SteadyClock
from orchestrator.hosts import JobPhase
from orchestrator.paths import load_paths
from orchestrator.plan.observed import Contact, HostView, IntentState, Observed, Outcome
from orchestrator.project import read_project
from orchestrator.slices import SliceState
from orchestrator.store.location import store_location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.values import to_text


def open_reader(project: str = "", *, alone: bool = False) -> Reader:
    """Open the store that the environment names, for reading.

    Args:
        project: In which clusters are found; "" for that of the environment.
        alone: Whether only the records of this project are seen.
    """
    named = project or read_project(os.environ)
    return open_reader_at(store_location(os.environ, load_paths()), named, named if alone else "")


def load_observed(reader: Reader, name: str, job: JobRecord | None = None, *, running: bool = False) -> Observed:
    """Return what is on record of a cluster, in the form that `decide` takes.

    Args:
        reader: An open store.
        name: The cluster.
        job: The job that the command is about, if any.
        running: Whether to assume that the job's program runs (for stop, down and cancel).
    """
    now = SteadyClock(load_paths().state).now()
    cluster = reader.cluster(name)
    if cluster is None:
        return Observed(now=now)
    intents = reader.intents(cluster)
    observed = Observed(now=now, intents=intents)
    current = observed.current
    state = SliceState.UNCLEAR
    hosts: tuple[HostView, ...] = ()
    if current is not None and current.state is IntentState.ACCEPTED:
        state = SliceState(cluster.last_state) if cluster.last_state else SliceState.CREATING
        hosts = _hosts(cluster, running) if state is SliceState.READY else ()
    elif current is not None and current.state is IntentState.ENDING:
        state = SliceState.ENDING
    return Observed(
        now=now,
        intents=intents,
        slice_state=state,
        hosts=hosts,
        attempt=job.attempt if job is not None else 1,
        ended=reader.ended_attempts(cluster, job.id) if job is not None else (),
        started=job.started if job is not None else False,
        generation_at_open=job.opened_at if job is not None else max((i.generation for i in intents), default=0),
        running_job=f"{job.id}-a{job.attempt}" if job is not None else "",
        outcome=_outcome(job),
    )


def _hosts(cluster: ClusterRecord, running: bool) -> tuple[HostView, ...]:
    held: dict[str, dict[str, Any]] = json.loads(cluster.host_contents or "{}")
    phase = JobPhase.RUNNING if running else JobPhase.ABSENT
    views: list[HostView] = []
    for host in cluster.hosts:
        mine = held.get(str(host.rank), {})
        trees = tuple((str(label), str(digest)) for label, digest in mine.get("trees", {}).items())
        setup = str(mine.get("setup", ""))
        views.append(
            HostView(
                rank=host.rank,
                internal_ip=to_text(host.internal_ip),
                contact=Contact.OK,
                trees=trees,
                setup=setup,
                job=phase,
            )
        )
    return tuple(views)


def _outcome(job: JobRecord | None) -> Outcome | None:
    if job is None or job.state != "ended":
        return None
    return Outcome(status=job.status or 0, code=job.code, what=job.what, why=job.why, next_step=job.next_step)
