"""From a verb and its arguments to a Ready: everything read, rendered and checked, nothing sent anywhere.

No network, no credentials, no SDK: the same value is previewed or fulfilled.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.catalog.machines import LocalHosts, TpuSlice
from orchestrator.engine import wish
from orchestrator.engine.bucket_notes import bucket_notes
from orchestrator.engine.bucket_places import told
from orchestrator.engine.candidates import candidates
from orchestrator.engine.doomed import doomed
from orchestrator.engine.ec2_notes import ec2_notes
from orchestrator.engine.identity import INSTALLATION, RUN_ID, UID
from orchestrator.engine.known import known, open_reader
from orchestrator.engine.ready import Ready
from orchestrator.engine.suits import surplus
from orchestrator.errors import ConflictError, NotFoundError, UserError
from orchestrator.plan.desired import After, Cancel, Down, JobWanted, Run, Start, Stop
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Intent
from orchestrator.providers.registry import Planners
from orchestrator.render.scripts import RunInputs, render_run
from orchestrator.slices import Candidate, HostFacts
from orchestrator.spec.task import Task
from orchestrator.spec.trainer import path_notes
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, NewJob
from orchestrator.values import Secret, Text, text


def launch(
    task: Task,
    *,
    cluster: str | None,
    after: After,
    force_setup: bool = False,
    kept: Mapping[str, str] = MappingProxyType({}),
) -> Ready:
    """A new run of `task`, or the same one gone on with when an earlier command was cut off. kept: see _run."""
    name = wish.cluster_name(task, cluster)
    return _run(task, name, "launch", after, force_setup=force_setup, kept=kept)


def resume(
    name_or_run_id: str, *, cluster: str | None = None, bucket: str | None = None, after: After, force: bool = False
) -> Ready:
    """The same run again, from its newest complete checkpoint, on the same cluster name or another."""
    with open_reader() as reader:
        where, job = _find_run(reader, name_or_run_id)
    if job is None:
        task, run_id, attempt, where = _run_from_bucket(name_or_run_id, bucket)
    else:
        task, run_id, attempt = Task.from_json(job.task), job.run_id, job.attempt
        _refuse_finished(job, name_or_run_id, force)
    if not task.checkpoint.bucket:
        raise UserError(
            f"run {run_id} has no bucket, so there is nothing to resume from",
            "checkpoints are kept only when the task names a bucket",
            "launch it again with --bucket URI",
        )
    task = with_secrets(task)
    name = cluster or where
    return _run(
        task, name, "resume", after, run_id=run_id, first_attempt=attempt + 1, resume_from="latest", force_setup=False
    )


def go_on(cluster: str, job: JobRecord) -> Ready:
    """A launch or resume that is on record and not over, prepared anew from the record alone: nobody typed it again.

    Raises UserError when a secret of it is not in this shell.
    """
    task = with_secrets(Task.from_json(job.task))
    wished: dict[str, Any] = json.loads(job.wish) if job.wish else {}
    return _run(
        task,
        cluster,
        job.kind,
        After(job.after),
        run_id=job.run_id,
        first_attempt=job.attempt,
        resume_from="latest" if job.kind == "resume" else None,
        force_setup=False,
        kept=wished.get("trees", {}),
        again=job,
    )


def watch(cluster: str, number: int | None) -> Ready:
    """A job of a living cluster that is not over: the asked one, or the first in its queue."""
    with open_reader() as reader:
        record = _record(reader, cluster)
        jobs = [job for job in reader.jobs(record) if job.state != "ended" and job.kind != "exec"]
    chosen = [job for job in jobs if number is None or job.id == number]
    if not chosen:
        raise NotFoundError(
            f"no job {number if number is not None else 'that is not over'} on '{cluster}'",
            "commands (exec) cannot be watched" if number is not None else "",
            f"orch queue {cluster} --all",
        )
    return go_on(cluster, chosen[0])


def exec_(
    cluster: str,
    command: str,
    *,
    hosts: tuple[int, ...] | None,
    workdir: Path | None,
    env: tuple[tuple[str, Text], ...] = (),
    devices: bool = False,
) -> Ready:
    """One command on an existing cluster: nothing is created or set up. workdir: sent first when given.

    devices: the bundled trainer goes along, in a place of its own, for DEVICES to look at the machines with.
    """
    with open_reader() as reader:
        record, intent = _living(reader, cluster)
        number = _next_number(reader, record)
        now = known(reader, cluster)
    candidate = intent.candidate
    _check_ranks(cluster, candidate.hosts, hosts)
    facts = wish.host_facts(candidate)
    sent = wish.sent_workdir(workdir) if workdir is not None else ()
    sent = (*sent, *wish.sent_trainer()) if devices else sent
    place = (
        wish.WORKDIR
        if workdir is not None or any(label == "workdir" for host in now.hosts for label, _ in host.trees)
        else None
    )
    script = render_run(RunInputs("cpu", user_run=command, workdir=place, python=facts.python, clear_holders=False))
    desired = Run(
        cluster=cluster,
        uid=text(UID),
        run_id=text(RUN_ID),
        installation=_installation(),
        candidates=(candidate,),
        trees=sent,
        job=JobWanted(number, text(script)),
        job_id=number,
        accelerator=candidate.accelerator,
        env=(*((key, text(value)) for key, value in facts.env), *env),
        create=False,
        ranks=hosts,
    )
    digest = hashlib.sha256(f"{cluster}\0{command}\0{secrets.token_hex(8)}".encode()).hexdigest()
    job = NewJob("exec", "", digest, "", "", hosts, After.KEEP)
    return Ready(cluster, "exec", record.summary, desired, now, _facts(), job)


def down(cluster: str) -> Ready:
    with open_reader() as reader:
        record = _record(reader, cluster)
        now = known(reader, cluster, _last_started(reader, record), running=True)
    return Ready(cluster, "down", record.summary, Down(cluster), now, _facts())


def stop(cluster: str) -> Ready:
    with open_reader() as reader:
        record, _ = _living(reader, cluster)
        return Ready(cluster, "stop", record.summary, Stop(cluster), known(reader, cluster), _facts())


def start(cluster: str) -> Ready:
    with open_reader() as reader:
        record, _ = _living(reader, cluster)
        return Ready(cluster, "start", record.summary, Start(cluster), known(reader, cluster), _facts())


def cancel(cluster: str, job: int | None) -> Ready:
    """End a job's program on all hosts; the cluster stays. job None: the newest that runs, else that waits."""
    with open_reader() as reader:
        record = _record(reader, cluster)
        jobs = reader.jobs(record)
        chosen = [one for one in jobs if (one.id == job if job is not None else one.state != "ended")]
        if not chosen:
            raise NotFoundError(
                f"no job {job if job is not None else 'that runs'} on '{cluster}'",
                next_step=f"orch status {cluster}",
            )
        one = ([begun for begun in chosen if begun.started] or chosen)[-1]
        now = known(reader, cluster, one, running=one.state != "ended")
    return Ready(cluster, "cancel", record.summary, Cancel(cluster, f"{one.id}-a{one.attempt}"), now, _facts())


def _run(
    task: Task,
    name: str,
    verb: str,
    after: After,
    *,
    run_id: str = "",
    first_attempt: int = 1,
    resume_from: str | None = None,
    force_setup: bool = False,
    kept: Mapping[str, str] = MappingProxyType({}),
    again: JobRecord | None = None,
) -> Ready:
    """kept: snapshots of what is sent, by label. again: the job that is gone on with, whatever its digest says."""
    if task.missing_secrets:
        raise UserError(
            f"secret {task.missing_secrets[0]} has no value", "", f"export it, or: --secret {task.missing_secrets[0]}"
        )
    options = candidates(task)
    facts = wish.host_facts(options[0])
    wanted, sent = wish.trees(task, kept)
    digest = again.digest if again is not None else wish.job_digest(name, f"{verb}:{run_id}", task, wanted)
    with open_reader() as reader:
        same, number = (again, again.id) if again is not None else _same_job(reader, name, verb, digest)
        now = known(reader, name, same)
    bucket = task.checkpoint.bucket.rstrip("/")
    shown_run = text(same.run_id if same is not None else run_id or RUN_ID)
    desired = Run(
        cluster=name,
        uid=text(UID),
        run_id=shown_run,
        installation=_installation(),
        candidates=options,
        trees=wanted,
        mounts=wish.mounts(task, facts),
        setup=wish.setup(task, facts, sent, secrets.token_hex(4) if force_setup else ""),
        job=wish.program(task, facts, number),
        job_id=number,
        accelerator=options[0].accelerator,
        num_slices=task.num_nodes if _is_tpu(task) else 1,
        env=wish.environment(task, facts),
        checkpoint_uri=Text.of(f"{bucket}/", shown_run, "/checkpoints") if bucket else None,
        resume_from=text(resume_from) if resume_from else None,
        after=after,
        budgets=wish.budgets(task),
        limits=wish.limits(task),
        timer=wish.timer(task, facts, _cheapest(options)),
        labels=task.choices[0].labels,
    )
    job = NewJob(verb, run_id, digest, task.to_json(), bucket, None, after, first_attempt)
    summary = f"{options[0].accelerator} on {options[0].where}"
    if same is None and first_attempt > 1:
        from dataclasses import replace

        now = replace(now, attempt=first_attempt)
    refused = doomed(task, facts)
    more = surplus(name, now, options)
    notes = (*([more] if more else []), *_notes(task), *_of_trainer(task, facts))
    return Ready(name, verb, summary, desired, now, _facts(), job, notes, refused=refused)


def _is_tpu(task: Task) -> bool:
    """Whether each node is a slice of its own. EC2 instances are one slice together, however many they are."""
    machine = task.choices[0].machine
    return isinstance(machine.stands_for if isinstance(machine, LocalHosts) else machine, TpuSlice)


def _notes(task: Task) -> tuple[str, ...]:
    notes: list[str] = []
    if (task.run or task.train) and task.recovery.max_preemptions and not task.checkpoint.bucket:
        notes.append("no bucket is given: after a loss of hosts the program starts from its beginning")
    if task.limits.max_cost is not None and any(one.price_per_hour is None for one in candidates(task)):
        notes.append("limits.max_cost: a price is not known, so this limit cannot be held; set max_hours as well")
    if task.train is not None and not task.choices[0].infra.owned:
        notes += path_notes(task.train.args, [mount.target for mount in task.file_mounts])
    notes += ec2_notes(task)
    notes += bucket_notes(task, told())
    unserved = _unserved(task)
    if unserved:
        notes.append(f"{', '.join(unserved)}: without effect on {task.choices[0].infra}, where nothing is rented")
    return tuple(notes)


def _of_trainer(task: Task, facts: HostFacts) -> Iterator[str]:
    if task.train is None:
        return
    yield f"the trainer: {wish.stack(task, facts)}"
    if task.train.smoke:
        yield "smoke test: all hosts run `python -m trainer smoke` before each attempt; when it fails, nothing is begun"


def _unserved(task: Task) -> list[str]:
    """What the task asks for that has no meaning on machines that cost nothing."""
    first = task.choices[0]
    asked = {
        "disk_size": first.disk_gib is not None,
        "network_tier": bool(first.network_tier),
        "image_id": bool(first.images),
    }
    return [name for name, given in asked.items() if given and first.infra.owned]


def _cheapest(options: tuple[Candidate, ...]) -> float | None:
    """US dollars an hour; None when no price is known."""
    return min((one.price_per_hour for one in options if one.price_per_hour is not None), default=None)


def _same_job(reader: Reader, name: str, verb: str, digest: str) -> tuple[JobRecord | None, int]:
    """The unfinished job that the same command left, and the number this one has or will have."""
    record = reader.cluster(name)
    if record is None:
        return None, 1
    for job in reader.jobs(record):
        if job.state != "ended" and job.kind == verb and job.digest == digest:
            return job, job.id
    return None, _next_number(reader, record)


def _next_number(reader: Reader, record: ClusterRecord) -> int:
    return max((job.id for job in reader.jobs(record)), default=0) + 1


def _find_run(reader: Reader, name_or_run_id: str) -> tuple[str, JobRecord | None]:
    job = reader.last_run_of(name_or_run_id)
    if job is not None:
        return name_or_run_id, job
    found = reader.find_run(name_or_run_id)
    return found if found is not None else ("", None)


def _run_from_bucket(run_id: str, bucket: str | None) -> tuple[Task, str, int, str]:
    """A run that another computer started: its task is in the bucket."""
    if bucket is None:
        raise NotFoundError(
            f"no cluster and no run called '{run_id}' is on record here",
            "a run from another computer is found through its bucket",
            f"orch resume {run_id} --bucket URI",
        )
    from orchestrator.storage.bucket import Bucket
    from orchestrator.storage.checkpoints import get_task

    opened = Bucket.open(bucket)
    task = Task.from_json(get_task(opened, run_id).decode())
    folders = opened.list_dir(f"{run_id}/metrics").folders
    attempts = [int(name.rsplit("-", 1)[1]) for name in folders if name.rsplit("-", 1)[-1].isdigit()]
    return task, run_id, max(attempts, default=1), wish.cluster_name(task, None)


def _refuse_finished(job: JobRecord, asked: str, force: bool) -> None:
    if job.state == "ended" and job.status == 0 and not force:
        raise ConflictError(
            f"run {job.run_id} ended well; there is nothing to resume",
            "its program returned 0",
            f"to run it again from its last checkpoint: orch resume {asked} --force",
        )


def with_secrets(task: Task) -> Task:
    """The task with those of its secrets that this shell has."""
    given = tuple(Secret(name, os.environ[name]) for name in task.secret_names if name in os.environ)
    return task.with_secrets(given)


def _living(reader: Reader, name: str) -> tuple[ClusterRecord, Intent]:
    record = _record(reader, name)
    current = known(reader, name).current
    if current is None:
        raise NotFoundError(f"cluster '{name}' has no machines", next_step=f"orch resume {name}   or: orch launch")
    return record, current


def _record(reader: Reader, name: str) -> ClusterRecord:
    record = reader.cluster(name)
    if record is None:
        from difflib import get_close_matches

        near = get_close_matches(name, [cluster.name for cluster in reader.clusters()], 1)
        raise NotFoundError(
            f"there is no cluster '{name}'", f"did you mean '{near[0]}'?" if near else "", "orch status   lists them"
        )
    return record


def _last_started(reader: Reader, record: ClusterRecord) -> JobRecord | None:
    started = [job for job in reader.jobs(record) if job.started and job.state != "ended"]
    return started[-1] if started else None


def _check_ranks(cluster: str, count: int, ranks: tuple[int, ...] | None) -> None:
    wrong = [rank for rank in ranks or () if not 0 <= rank < count]
    if wrong:
        raise UserError(f"'{cluster}' has no host {wrong[0]}", f"its hosts are 0 to {count - 1}", "orch status -o json")


def _installation() -> Text:
    with open_reader() as reader:
        return text(reader.installation() or INSTALLATION)


def _facts() -> Facts:
    return Facts(Planners())
