"""The route of the output of jobs, as the engine beside the service has kept it. No host is asked."""

from __future__ import annotations

from base64 import b64encode

from orchestrator.engine.operations.kept_output import read_kept_output
from orchestrator.engine.operations.log_sources import LogStart
from orchestrator.errors import NotFoundError, UserError
from orchestrator.service.route import Answer, Call
from orchestrator.store.lookup import cluster_not_found, find_current_job
from orchestrator.store.records import ClusterRecord, JobRecord


def show_output(call: Call) -> Answer:
    """Answer with a part of what is kept, and where the next part begins."""
    record, job, driver = _find_job(call)
    query = call.query
    found = read_kept_output(
        record,
        job,
        setup=query["setup"] == "yes",
        ranks=query["host"],
        start=LogStart(tail=query["tail"], seconds=query["since"]),
        positions=dict(map(_parse_position, query["begin"])),
    )
    parts = [
        {"file": one.file, "rank": one.rank, "end": one.end, "content": b64encode(one.content).decode()}
        for one in found.parts
    ]
    document = {
        "version": 1,
        "kind": "job-output",
        "cluster": record.name,
        "job": job.id,
        "run_id": job.run_id or None,
        "ended": job.state == "ended",
        "setup_of": found.setup_of or None,
        "ranks": list(found.ranks),
        "complete": found.complete,
        "parts": parts,
        "driven_by": driver or None,
    }
    return Answer(document=document)


def _find_job(call: Call) -> tuple[ClusterRecord, JobRecord, str]:
    """Return the job, as it was before its output is read: after its end nothing more comes. And who drives it now."""
    name, uid, number = call.path["name"], call.query["uid"], call.query["job"]
    with call.open_reader() as store:
        named = store.cluster(name) or store.deleted_cluster(name)
        record = store.clusters_by_uid([uid]).get(uid) if uid else named
        if record is None or record.name != name:
            raise cluster_not_found(store, name)
        job = find_current_job(one for one in store.jobs(record) if number in (None, one.id))
        driver = store.lease_holder(f"watch:{record.uid}/{job.id}") if job is not None else ""
    if job is None:
        raise NotFoundError(f"no job {number or ''} on '{name}'".replace("  ", " "), "", f"orch status {name}")
    return record, job, driver


def _parse_position(text: str) -> tuple[str, int]:
    """Return the file and the byte of `attempt-0001/0.log:1200`."""
    file, _, byte = text.rpartition(":")
    if not file or not byte.isascii() or not byte.isdigit() or len(byte) > 18:
        raise UserError(
            f"`begin={text[:40]}` is not taken", "`begin` is FILE:BYTE, as `parts` has them", "leave it out"
        )
    return file, int(byte)
