"""Reading the output of a setup: the local copy of who ran it, else the hosts' own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import admit_here
from orchestrator.engine.operations.log_sources import (
    LogStart,
    Sink,
    choose_ranks,
    explain_unread,
    find_offsets,
    follow_log,
    give_local_files,
    read_current_logs,
)
from orchestrator.engine.operations.own_key import refuse_without_key
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import NotFoundError
from orchestrator.hosts import HostOutcome
from orchestrator.paths import load_paths
from orchestrator.plan.steps import Done
from orchestrator.remote.deadlines import SHORT
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_command
from orchestrator.slices import SliceState
from orchestrator.store.records import ClusterRecord, JobRecord

_SETUP = re.compile(rb"^(\S+-setup-\d+-a\d+-[0-9a-f]+)$", re.MULTILINE)


def show_setup(
    record: ClusterRecord,
    job: JobRecord,
    sink: Sink,
    narrator: Narrator,
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    start: LogStart,
) -> CommandResult | None:
    """Give the output of the newest setup up to this job to `sink`. Return None when there is none to read.

    Args:
        record: The cluster.
        job: The job. Hosts that an earlier one set up are not set up again, so its setup is the newest then.
        sink: Receives blocks of output.
        narrator: Receives whose setup it is.
        hosts: Ranks to read, or None for all.
        follow: Whether to continue until a setup that runs has ended.
        start: Where to begin in the log of each host.
    """
    present = bool(record.hosts) and record.last_state != SliceState.STOPPED
    number, files = find_setup_files(record, job)
    if files and not (follow and present and job.state != "ended"):
        narrator.note(describe_setup(job, number))
        give_local_files(record, job, files, sink, hosts=hosts, start=start)
        return CommandResult(step=Done(""), job_id=job.id, run_id=job.run_id)
    return _read_from_hosts(record, job, sink, narrator, hosts=hosts, follow=follow, start=start) if present else None


def no_setup_error(record: ClusterRecord) -> NotFoundError:
    """Return the error for a cluster of which no output of a setup is known."""
    return NotFoundError(
        f"no setup of '{record.name}' has left output",
        "the task has no setup, or it has not begun yet, or another computer ran it on hosts that do not exist now",
        f"orch status {record.name}",
    )


def find_setup_files(record: ClusterRecord, job: JobRecord) -> tuple[int, list[Path]]:
    """Return the job of the newest setup whose output was kept here, and its files; (0, []) without one."""
    for number in range(job.id, 0, -1):
        folders = [path for path in load_paths().logs(record.uid, number).glob("setup*") if any(path.glob("*.log"))]
        if folders:
            return number, sorted(max(folders, key=lambda path: path.stat().st_mtime).glob("*.log"))
    return 0, []


def describe_setup(job: JobRecord, number: int) -> str:
    """Return whose setup it is, where the output of a setup is shown."""
    if number != job.id:
        return f"the hosts were set up by job {number}; this is the output of that setup"
    if job.state == "ended" and not job.started:
        return f"job {job.id} ended before its program started ({job.what}); this is the output of its setup"
    return f"this is the output of the setup of job {job.id}"


def _read_from_hosts(
    record: ClusterRecord,
    job: JobRecord,
    sink: Sink,
    narrator: Narrator,
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    start: LogStart,
) -> CommandResult | None:
    ranks = choose_ranks(record, job, job.ranks or range(len(record.hosts)), hosts)
    read = replace(record, hosts=tuple(host for host in record.hosts if host.rank in ranks))
    with open_reader(record.project) as reader:
        admit_here(reader, read, narrator)
        refuse_without_key(reader, read, narrator)
        fenced = fence_recorded_hosts(reader, record)
    with open_pins(narrator.note) as pins, Fleet(fenced, pins=pins) as fleet:
        folders, failed = _find_folders(fleet, record, ranks)
        if not folders and not failed:
            return None
        if folders:
            narrator.note(f"this is the output of the newest setup on the hosts of '{record.name}'")
        for folder in sorted(set(folders.values())):
            those = tuple(rank for rank, found in folders.items() if found == folder)
            if follow:
                begin = find_offsets(fleet, folder, those, start)
                followed = follow_log(fleet, folder, sink, those, begin.offsets)
                failed += tuple(one for one in followed if one.failure is not None)
            else:
                failed += read_current_logs(fleet, folder, sink, those, start)
    step = explain_unread(record.name, "no output of the setup", failed) if failed else Done("")
    return CommandResult(step=step, outcomes=failed, job_id=job.id, run_id=job.run_id)


def _find_folders(
    fleet: Fleet, record: ClusterRecord, ranks: tuple[int, ...]
) -> tuple[dict[int, str], tuple[HostOutcome, ...]]:
    """Return the name of the newest setup by rank, without hosts that had none; and the hosts that failed."""
    mine = host_job_name(record.uid, "setup-")
    result = fleet.run(shell_command("job-newest.sh", mine), ranks=ranks, timeout=SHORT)
    found = {host.outcome.rank: _SETUP.search(host.output) for host in result.hosts if host.outcome.ok}
    return {rank: match[1].decode() for rank, match in found.items() if match is not None}, result.failed
