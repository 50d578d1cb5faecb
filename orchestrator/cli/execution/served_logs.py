"""`orch logs` through a service (ORCH_SERVER): what its engine has kept of a job's output, now or as it comes."""

from __future__ import annotations

import os
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.client.host_records import open_host_records
from orchestrator.client.http import Client, explain_refusals
from orchestrator.client.patience import Patience
from orchestrator.engine.operations.log_sources import LogStart, Sink, choose_ranks, find_logged_host
from orchestrator.engine.operations.logs import describe_absence, describe_recorded_end, find_job
from orchestrator.engine.operations.setup_logs import describe_setup
from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.errors import NotFoundError
from orchestrator.plan.steps import Done
from orchestrator.service_address import find_server
from orchestrator.slices import SliceState

if TYPE_CHECKING:
    from orchestrator.client.transport import Document
    from orchestrator.engine.narrator import Narrator
    from orchestrator.store.records import ClusterRecord, JobRecord

POLL_SECONDS = 1.0


def follow_served_logs(
    cluster: str,
    job: int | None,
    sink: Sink,
    narrator: Narrator,
    *,
    hosts: tuple[int, ...] | None,
    follow: bool,
    start: LogStart,
    setup: bool,
) -> CommandResult:
    """Give what is kept of each host's log to `sink`. The arguments are those of `follow_logs`.

    Raises:
        NotFoundError: There is no such job, or nothing of its output is kept.
        UserError: The job did not run on one of `hosts`.
    """
    with open_host_records(cluster) as reader:
        record, chosen = find_job(reader, cluster, job)
    known = {host.rank: host for host in record.hosts}
    positions: dict[str, int] = {}
    with Client.connect(find_server(os.environ)) as client, explain_refusals(client):
        noted = False

        def read_part() -> Document:
            return client.read_output(
                cluster, chosen.id, uid=record.uid, setup=setup, hosts=hosts or (), tail=start.tail,
                since=start.seconds, positions=positions,
            )  # fmt: skip

        patience = Patience(subject="the job", next_step=f"orch logs {cluster} -f", report=write_stderr)
        while True:
            found = patience.ask(read_part) if positions and follow else read_part()
            if found["ranks"]:
                choose_ranks(record, chosen, found["ranks"], hosts)
            if found["setup_of"] and not noted:
                noted = True
                narrator.note(describe_setup(chosen, found["setup_of"]))
            _give(found["parts"], sink, known, positions)
            if not found["complete"]:
                continue
            if found["ended"] or not follow:
                break
            time.sleep(POLL_SECONDS)
    if not positions:
        raise _nothing_kept_error(record, chosen, found.get("driven_by") or "")
    if not noted and (not record.hosts or record.last_state == SliceState.STOPPED):
        narrator.note(f"{describe_absence(record)}; this is the service's copy of its output")
    if not follow:
        return CommandResult(step=Done(""), outcomes=(), job_id=chosen.id, run_id=chosen.run_id)
    with open_host_records(cluster) as reader:
        ended = next((one for one in reader.jobs(record) if one.id == chosen.id), chosen)
    return CommandResult(step=describe_recorded_end(ended), outcomes=(), job_id=ended.id, run_id=ended.run_id)


def _give(parts: list[dict[str, Any]], sink: Sink, known: dict[int, Any], positions: dict[str, int]) -> None:
    for part in parts:
        positions[part["file"]] = part["end"]
        if content := b64decode(part["content"]):
            sink(known.get(part["rank"]) or find_logged_host(part["rank"]), content)


def _nothing_kept_error(record: ClusterRecord, job: JobRecord, driver: str) -> NotFoundError:
    step = f"orch status {record.name}"
    if job.bucket:
        step = f"in the bucket: orch storage ls {job.bucket}/{job.run_id}/logs/"
    why = "its engine keeps what it follows: the job has not begun, or another computer drove it"
    if driver:
        why = f"the computer keeps it that drives the job: {driver}"
    elif job.state == "ended":
        why = "it was deleted, as the oldest of too much, or another computer drove the job and keeps it"
    return NotFoundError(f"the service has no output of job {job.id} on '{record.name}'", why, step)
