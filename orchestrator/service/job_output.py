"""The route of the output of jobs: what this computer keeps of it, and what it copies from hosts for its readers."""

from __future__ import annotations

from orchestrator.engine.operations.kept_output import KeptOutput, read_kept_output
from orchestrator.engine.operations.log_sources import FROM_BEGINNING, LogStart
from orchestrator.errors import NotFoundError, UserError
from orchestrator.hosts import HostOutcome
from orchestrator.service.output_marks import mark_output
from orchestrator.service.route import Answer, Call
from orchestrator.store.lookup import cluster_not_found, find_current_job
from orchestrator.store.records import ClusterRecord, JobRecord


def show_output(call: Call) -> Answer:
    """Answer with a part of the output, and where the next part begins. Where hosts are asked, it is not waited for."""
    record, job = _find_job(call)
    query = call.query
    is_setup = query["setup"] == "yes"
    mark = mark_output(job, call.site.copies)  # before it is read: what comes later differs from it
    copy = None if is_setup else call.site.copies.request(record, job)
    positions = dict(map(_parse_position, query["begin"]))
    start = LogStart(tail=query["tail"], seconds=query["since"])
    found = KeptOutput(parts=(), complete=False, setup_of=0, ranks=())
    if copy is None or copy.has_come or positions or start == FROM_BEGINNING:  # else the last lines are not known yet
        found = read_kept_output(record, job, setup=is_setup, ranks=query["host"], start=start, positions=positions)
    if copy is not None and copy.has_come and copy.error is not None and not found.ranks:
        raise copy.error
    document = {
        "version": 1,
        "kind": "job-output",
        "cluster": record.name,
        "job": job.id,
        "run_id": job.run_id or None,
        "ended": job.state == "ended",
        "setup_of": found.setup_of or None,
        "ranks": list(found.ranks),
        "complete": found.complete and (copy is None or copy.has_come),
        "unread": [
            _describe_unread(one)
            for one in (copy.failed if copy is not None else ())
            if not query["host"] or one.rank in query["host"]
        ],
    }
    is_new = bool(found.parts) or (job.state == "ended" and document["complete"])
    return Answer(document=document, parts=found.parts, unchanged=None if is_new else mark)


def _describe_unread(outcome: HostOutcome) -> dict[str, object]:
    return {
        "rank": outcome.rank,
        "failure": outcome.failure.value if outcome.failure is not None else None,
        "status": outcome.status or 0,
        "why": outcome.detail,
        "next_step": outcome.remedy,
    }


def _find_job(call: Call) -> tuple[ClusterRecord, JobRecord]:
    """Return the job, as it was before its output is read: after its end nothing more comes."""
    name, uid, number = call.path["name"], call.query["uid"], call.query["job"]
    with call.open_reader() as store:
        named = store.cluster(name) or store.deleted_cluster(name)
        record = store.clusters_by_uid([uid]).get(uid) if uid else named
        if record is None or record.name != name:
            raise cluster_not_found(store, name)
        job = find_current_job(one for one in store.jobs(record) if number in (None, one.id))
    if job is None:
        raise NotFoundError(f"no job {number or ''} on '{name}'".replace("  ", " "), "", f"orch status {name}")
    return record, job


def _parse_position(text: str) -> tuple[str, int]:
    """Return the file and the byte of `attempt-0001/0.log:1200`."""
    file, _, byte = text.rpartition(":")
    if not file or not byte.isascii() or not byte.isdigit() or len(byte) > 18:
        raise UserError(f"`begin={text[:40]}` is not taken", "`begin` is FILE:BYTE, as parts have them", "leave it out")
    return file, int(byte)
