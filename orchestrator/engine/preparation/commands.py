"""From a command and its arguments to a PreparedCommand: everything read, rendered and checked, nothing sent.

It uses no network, no credentials and no SDK. The same value is previewed or fulfilled.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.engine.preparation import host_inputs
from orchestrator.engine.preparation.budget_review import review_budgets
from orchestrator.engine.preparation.cluster_name import choose_cluster_name
from orchestrator.engine.preparation.ownership import choose_default_name, describe_forced_change, refuse_other_owner
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.preparation.runs import make_facts, next_job_number, prepare_run
from orchestrator.engine.preparation.tree_notes import describe_command_workdir
from orchestrator.engine.preparation.trees import DescribedTree, read_trainer_tree, read_workdir_tree
from orchestrator.engine.state.names import (
    INSTALLATION,
    RUN_ID,
    UID,
    slice_stem,
)
from orchestrator.engine.state.recorded import load_observed, open_reader
from orchestrator.errors import CannotStopError, NotFoundError, UserError
from orchestrator.open_files import too_many_hosts_error
from orchestrator.plan.desired import Cancel, Down, JobSpec, Run, Start, Stop
from orchestrator.plan.observed import Intent
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.remote.host_folder import WORKDIR
from orchestrator.render.scripts import RunInputs, render_run
from orchestrator.slices import Candidate, HostFacts
from orchestrator.store.lookup import RUNNING, cluster_not_found, find_cluster, find_new_owner, taken_over_error
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, NewJob
from orchestrator.task.model import Task
from orchestrator.task.sent_tree import SentTree
from orchestrator.values import Secret, Text, to_text


def prepare_launch(
    task: Task,
    *,
    cluster: str | None,
    after: TeardownPolicy,
    force_setup: bool = False,
    kept: Mapping[str, str | DescribedTree] = MappingProxyType({}),
    project: str = "",
) -> PreparedCommand:
    """Prepare a new run of `task`, or the same one when an earlier command was interrupted.

    Args:
        task: The task.
        cluster: The cluster's name, or None for the task's.
        after: What happens to the machines when the job ends.
        force_setup: Whether setup runs even if it is up to date.
        kept: The digests of kept trees to send in place of the originals, or what is known of such, by label.
        project: The cluster's project; "" for that of the environment.
    """
    name, note = choose_cluster_name(task, cluster), ""
    if not cluster:
        with open_reader(project) as reader:
            name, note = choose_default_name(reader, name, task)
    ready = prepare_run(task, name, "launch", after, force_setup=force_setup, kept=kept, project=project)
    return replace(ready, notes=(note, *ready.notes)) if note else ready


def prepare_continuation(cluster: str, job: JobRecord, *, project: str = "") -> PreparedCommand:
    """Prepare a recorded, unfinished launch or resume again, from the record alone.

    Args:
        cluster: The cluster's name.
        job: Its job.
        project: The cluster's project; "" for that of the environment.

    Raises:
        UserError: A secret of it is not in this environment.
    """
    from orchestrator.engine.state.shared_trees import fetch_trees  # it opens the store, which plans do not

    task = add_secrets_from_environment(Task.from_json(job.task))
    wished: dict[str, Any] = json.loads(job.launch_request) if job.launch_request else {}
    return prepare_run(
        task,
        cluster,
        job.kind,
        TeardownPolicy(job.after_end),
        run_id=job.run_id,
        first_attempt=job.attempt,
        resume_from="latest" if job.kind == "resume" else None,
        force_setup=False,
        kept=fetch_trees(wished.get("trees", {}), project),
        again=job,
        accept_host_keys=wished.get("accept_host_keys", False),
        project=project,
    )


def prepare_watch(cluster: str, number: int | None) -> PreparedCommand:
    """Prepare a recorded job that is not over: the given one, or the first in the cluster's queue."""
    with open_reader() as reader:
        record = find_cluster(reader, cluster)
        jobs = [job for job in reader.jobs(record) if job.state != "ended" and job.kind != "exec"]
    chosen = [job for job in jobs if number is None or job.id == number]
    if not chosen:
        raise NotFoundError(
            f"no job {number if number is not None else 'that is not over'} on '{cluster}'",
            "commands (exec) cannot be watched" if number is not None else "",
            f"orch queue {cluster} --all",
        )
    return prepare_continuation(cluster, chosen[0])


def prepare_exec(
    cluster: str,
    command: str,
    *,
    hosts: tuple[int, ...] | None,
    workdir: Path | SentTree | None,
    env: tuple[tuple[str, Text], ...] = (),
    devices: bool = False,
    kept: DescribedTree | None = None,
    project: str = "",
) -> PreparedCommand:
    """Prepare one command on an existing cluster: nothing is created or set up.

    Args:
        cluster: The cluster's name.
        command: The shell command.
        hosts: Ranks to run it on, or None for all.
        workdir: Sent first when given.
        env: Further variables.
        devices: Whether the bundled trainer is sent too, to a separate folder, to list the devices.
        kept: What a plan knows of a workdir that was or will be sent.
        project: The cluster's project; "" for that of the environment.
    """
    with open_reader(project) as reader:
        record, intent = _require_machines(reader, cluster)
        number = next_job_number(reader, record)
        now = load_observed(reader, cluster)
        installation = to_text(reader.installation() or INSTALLATION)
    candidate = intent.candidate
    _check_ranks(cluster, candidate.hosts, hosts)
    read = [read_workdir_tree(workdir, kept)] if workdir is not None else []
    notes = [note for _, tree in read for note in describe_command_workdir(tree, command)]
    read += [read_trainer_tree()] if devices else []
    facts = host_inputs.host_facts(candidate)
    script, env = _render_command(command, candidate, facts, env, sends_workdir=workdir is not None)
    desired = Run(
        cluster=cluster,
        slice_stem=slice_stem(cluster, record.uid),
        uid=to_text(UID),
        run_id=to_text(RUN_ID),
        installation=installation,
        candidates=(candidate,),
        trees=tuple(spec for spec, _ in read),
        job=JobSpec(id=number, script=to_text(script)),
        job_id=number,
        accelerator=candidate.accelerator,
        env=env,
        create=False,
        ranks=hosts,
        one_computer=facts.shares_files,
    )
    digest = hashlib.sha256(f"{cluster}\0{command}\0{secrets.token_hex(8)}".encode()).hexdigest()
    job = NewJob(kind="exec", run_id="", digest=digest, task="", bucket="", ranks=hosts, after_end=TeardownPolicy.KEEP)
    return PreparedCommand(
        cluster=cluster,
        verb="exec",
        summary=record.summary,
        desired=desired,
        recorded=now,
        facts=make_facts(),
        job=job,
        notes=tuple(notes),
        trees=tuple(tree for _, tree in read),
        refused=too_many_hosts_error(candidate.hosts if hosts is None else len(hosts)),
    )


def _render_command(
    command: str, candidate: Candidate, facts: HostFacts, env: tuple[tuple[str, Text], ...], *, sends_workdir: bool
) -> tuple[str, tuple[tuple[str, Text], ...]]:
    """Return the script that runs a command on a host of a candidate, and its variables."""
    env = (*((key, to_text(value)) for key, value in facts.env), *env)
    script = render_run(
        RunInputs(
            backend="cpu",
            user_run=command,
            workdir=WORKDIR,
            without_workdir="fail" if sends_workdir else "home",
            python=facts.python,
            holders="leave",
            fixed=tuple(dict.fromkeys(name for name, _ in env)),
        )
    )
    return script, env


def prepare_down(cluster: str, *, abandon: bool = False, force: bool = False, project: str = "") -> PreparedCommand:
    """Prepare the teardown of a cluster; of a deleted one nothing is left to do.

    Args:
        cluster: The cluster.
        abandon: Close the record of own machines although one that does not answer may still run the program.
        force: Also when the cluster belongs to another member.
        project: The cluster's project; "" for that of the environment.
    """
    with open_reader(project) as reader:
        record = reader.cluster(cluster) or reader.deleted_cluster(cluster)
        if record is None:
            raise cluster_not_found(reader, cluster)
        if record.deleted is not None and (holder := find_new_owner(reader, record)):
            raise taken_over_error(cluster, holder)
        now = load_observed(reader, cluster, _last_started(reader, record), running=True)
        notes = _running_job_notes(reader, record)
        refused = refuse_other_owner(record, reader.member, force=force)
        forced = describe_forced_change(record, reader.member, "down", force=force)
    return PreparedCommand(
        cluster=cluster,
        verb="down",
        summary=record.summary,
        desired=Down(cluster, abandon=abandon),
        recorded=now,
        facts=make_facts(),
        notes=notes,
        refused=refused,
        project=project,
        forced=forced,
    )


def prepare_stop(cluster: str, *, force: bool = False, project: str = "") -> PreparedCommand:
    """Prepare stopping a cluster's machines; `force` also those of another member.

    Raises:
        CannotStopError: They cannot be stopped and kept.
    """
    with open_reader(project) as reader:
        record, _ = _require_machines(reader, cluster)
        recorded, facts = load_observed(reader, cluster), make_facts()
        refused = refuse_other_owner(record, reader.member, force=force)
        if refused is None and (intent := recorded.current) is not None:
            try:
                facts.requests[intent.candidate.provider].stop_request(intent.name, intent.candidate)
            except CannotStopError as error:
                raise error.name_next_step(
                    cluster, with_bucket=any(job.bucket for job in reader.jobs(record))
                ) from None
        return PreparedCommand(
            cluster=cluster,
            verb="stop",
            summary=record.summary,
            desired=Stop(cluster),
            recorded=recorded,
            facts=facts,
            notes=_running_job_notes(reader, record),
            refused=refused,
            forced=describe_forced_change(record, reader.member, "stop", force=force),
            project=project,
        )


def prepare_start(cluster: str, *, force: bool = False, project: str = "") -> PreparedCommand:
    """Prepare starting a stopped cluster's machines, which cost money again; `force` also those of another member."""
    with open_reader(project) as reader:
        record, _ = _require_machines(reader, cluster)
        budgets = review_budgets(cluster, (), load_observed(reader, cluster), None, project)
        return PreparedCommand(
            cluster=cluster,
            verb="start",
            summary=record.summary,
            desired=Start(cluster),
            recorded=budgets.observed,
            facts=make_facts(),
            notes=budgets.notes,
            refused=refuse_other_owner(record, reader.member, force=force) or budgets.refused,
            forced=describe_forced_change(record, reader.member, "start", force=force),
            project=project,
        )


def prepare_cancel(cluster: str, job: int | None, *, force: bool = False, project: str = "") -> PreparedCommand:
    """Prepare ending a job's program on all hosts; the cluster stays.

    Args:
        cluster: The cluster's name.
        job: The job's number; None for the newest running job, else the newest waiting one.
        force: Also when the cluster belongs to another member.
        project: The cluster's project; "" for that of the environment.
    """
    with open_reader(project) as reader:
        record = find_cluster(reader, cluster)
        jobs = reader.jobs(record)
        chosen = [one for one in jobs if (one.id == job if job is not None else one.state != "ended")]
        if not chosen:
            raise NotFoundError(
                f"no job {job if job is not None else 'that runs'} on '{cluster}'",
                next_step=f"orch status {cluster}",
            )
        one = ([begun for begun in chosen if begun.started] or chosen)[-1]
        now = load_observed(reader, cluster, one, running=one.state != "ended")
        refused = refuse_other_owner(record, reader.member, force=force)
        forced = describe_forced_change(record, reader.member, "cancel", force=force)
    return PreparedCommand(
        cluster=cluster,
        verb="cancel",
        summary=record.summary,
        desired=Cancel(cluster=cluster, folder=f"{one.id}-a{one.attempt}"),
        recorded=now,
        facts=make_facts(),
        refused=refused,
        forced=forced,
        project=project,
    )


def add_secrets_from_environment(task: Task) -> Task:
    """Return the task with those of its secrets that this environment has."""
    given = tuple(Secret(name, os.environ[name]) for name in task.secret_names if name in os.environ)
    return task.with_secrets(given)


def _require_machines(reader: Reader, name: str) -> tuple[ClusterRecord, Intent]:
    record = find_cluster(reader, name)
    current = load_observed(reader, name).current
    if current is None:
        raise NotFoundError(f"cluster '{name}' has no machines", next_step=f"orch resume {name}   or: orch launch")
    return record, current


def _last_started(reader: Reader, record: ClusterRecord) -> JobRecord | None:
    started = [job for job in reader.jobs(record) if job.started and job.state != "ended"]
    return started[-1] if started else None


def _running_job_notes(reader: Reader, record: ClusterRecord) -> tuple[str, ...]:
    running = [job for job in reader.jobs(record) if job.state in RUNNING]
    return tuple(
        f"job {job.id} ({job.kind}) is running on '{record.name}'; it ends with the machines" for job in running
    )


def _check_ranks(cluster: str, count: int, ranks: tuple[int, ...] | None) -> None:
    wrong = [rank for rank in ranks or () if not 0 <= rank < count]
    if wrong:
        raise UserError(f"'{cluster}' has no host {wrong[0]}", f"its hosts are 0 to {count - 1}", "orch status -o json")
