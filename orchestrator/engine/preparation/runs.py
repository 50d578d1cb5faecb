"""A launch, a resume, or the continuation of either, prepared: from a task to a PreparedCommand."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypedDict

from orchestrator.catalog.machines import LocalHosts
from orchestrator.engine.preparation import host_inputs
from orchestrator.engine.preparation.bucket_record import record_digest, refuse_large_record
from orchestrator.engine.preparation.budget_review import review_budgets
from orchestrator.engine.preparation.candidates import (
    explain_order,
    have_equal_prices,
    list_candidates,
    restore_offer,
)
from orchestrator.engine.preparation.cluster_match import surplus_hosts_note
from orchestrator.engine.preparation.git_state import add_git_state
from orchestrator.engine.preparation.limits import (
    build_budgets,
    build_limits,
    build_timer,
    find_idle_limit_error,
)
from orchestrator.engine.preparation.local_hosts import find_local_error
from orchestrator.engine.preparation.notes import plan_notes
from orchestrator.engine.preparation.ownership import refuse_other_owner
from orchestrator.engine.preparation.preflight import preflight_error
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.preparation.tree_notes import describe_trees
from orchestrator.engine.preparation.trees import DescribedTree, list_own_trees, read_trees
from orchestrator.engine.state.identities import act_for_project, find_settings
from orchestrator.engine.state.names import (
    INSTALLATION,
    RUN_ID,
    RUN_KEY,
    UID,
    member_label,
    plan_slice_stem,
)
from orchestrator.engine.state.own_capacity import read_own_capacity
from orchestrator.engine.state.recorded import load_observed, open_reader
from orchestrator.engine.state.tree_size import find_too_large, read_keep_bytes
from orchestrator.errors import OrchError, UserError
from orchestrator.offers.capacity import CapacityFigures, CapacityKey
from orchestrator.plan.desired import AutomaticChoice, Run, Variant
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Observed
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.registry import Planners
from orchestrator.remote.tree import Tree
from orchestrator.slices import Candidate
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, NewJob
from orchestrator.task.model import Task
from orchestrator.values import Text, to_text


def prepare_run(
    task: Task,
    name: str,
    verb: str,
    after: TeardownPolicy,
    *,
    run_id: str = "",
    first_attempt: int = 1,
    resume_from: str | None = None,
    force_setup: bool = False,
    kept: Mapping[str, str | DescribedTree] = MappingProxyType({}),
    again: JobRecord | None = None,
    accept_host_keys: bool = False,
    record: str = "",
    project: str = "",
) -> PreparedCommand:
    """Prepare a launch or resume.

    `kept` holds the kept trees to send, by label; `again` is the recorded job to continue, whatever its digest;
    `record` is the task as it is on record: the same bytes over all resumes, so that its digest stays; `project` is
    the cluster's project, "" for that of the environment.
    """
    _refuse_missing_secret(task)
    if not {"workdir"} & kept.keys() and again is None:
        task = add_git_state(task)
    trees, sent = read_trees(task, kept)
    described = describe_trees(task, list_own_trees(task, trees, sent, kept))
    digest = again.digest if again is not None else host_inputs.job_digest(name, f"{verb}:{run_id}", task, trees)
    recorded = _read_recorded(name, verb, digest, again, project)
    same, now = recorded.same, recorded.observed
    if same is not None and task.auto is not None:  # the choice stands that the unfinished job was launched with
        task = Task.from_json(same.task).with_secrets(task.secrets)
    planned, options, order_notes = _choose_candidates(task, project)
    facts = host_inputs.host_facts(options[0])
    record = again.task if again is not None else record or task.to_json()
    job = _make_job(task, verb, run_id, digest, record, after, first_attempt)
    run = _make_run(planned, name, recorded, options, sent, secrets.token_hex(4) if force_setup else "")
    saving = _name_checkpoints(task, record, same.run_id if same is not None else run_id)
    desired = replace(
        run, **saving, trees=trees, resume_from=to_text(resume_from) if resume_from else None, teardown=after
    )
    if same is None and first_attempt > 1:
        now = replace(now, attempt=first_attempt)
    budgets = review_budgets(name, options, now, same.run_id if same is not None else run_id, project)
    new_refusal = (
        find_idle_limit_error(planned, options, after)
        or find_local_error(options, project)
        or budgets.refused
        or find_too_large(sent, read_keep_bytes())
    )
    more = surplus_hosts_note(name, budgets.observed, options)
    return PreparedCommand(
        cluster=name,
        verb=verb,
        summary=f"{options[0].accelerator} on {options[0].where}",
        desired=desired,
        recorded=budgets.observed,
        facts=make_facts(),
        job=job,
        notes=(*([more] if more else []), *order_notes, *plan_notes(planned, facts), *budgets.notes, *described.notes),
        doubts=described.doubts,
        refused=recorded.refused or preflight_error(planned, facts) or (new_refusal if again is None else None),
        accept_host_keys=accept_host_keys,
        project=project,
        trees=sent,
    )


def _make_job(
    task: Task, verb: str, run_id: str, digest: str, record: str, after: TeardownPolicy, first_attempt: int
) -> NewJob:
    """Return the job as it is recorded. Raises UserError for a record that is too large for its bucket."""
    bucket = task.checkpoint.bucket.rstrip("/")
    if bucket:
        refuse_large_record(record)
    return NewJob(
        kind=verb,
        run_id=run_id,
        digest=digest,
        task=record,
        bucket=bucket,
        ranks=None,
        after_end=after,
        first_attempt=first_attempt,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """What the store says about the name of a cluster and about the job of a command.

    Attributes:
        same: The unfinished job that the same command left, or that is continued.
        number: The number that the job has or will have.
        refused: Why the cluster is not this member's to use.
    """

    same: JobRecord | None
    number: int
    observed: Observed
    stem: str
    project: str
    member: str
    refused: OrchError | None


def _read_recorded(name: str, verb: str, digest: str, again: JobRecord | None, project: str) -> _Recorded:
    with open_reader(project) as reader:
        same, number = (again, again.id) if again is not None else _same_job(reader, name, verb, digest)
        known = reader.cluster(name)
        return _Recorded(
            same=same,
            number=number,
            observed=load_observed(reader, name, same),
            stem=plan_slice_stem(reader, name),
            project=reader.project,
            member=member_label((known.owner if known is not None else "") or reader.member),
            refused=refuse_other_owner(known, reader.member) if again is None else None,
        )


def _choose_candidates(task: Task, project: str) -> tuple[Task, tuple[Candidate, ...], tuple[str, ...]]:
    """Return the task as it is planned in its project, its candidates, and what a plan says of their order."""
    with open_reader(project) as reader:
        planned = act_for_project(task, find_settings(reader, project))
    options = list_candidates(planned)
    # The events of weeks are read only where they can change something.
    capacity: Mapping[CapacityKey, CapacityFigures] = read_own_capacity(project) if have_equal_prices(options) else {}
    if capacity:
        options = list_candidates(planned, capacity)
    return planned, options, explain_order(options, capacity)


class _Checkpoints(TypedDict):
    """Fields of Run: the run, and where it saves."""

    run_id: Text
    checkpoint_uri: Text | None
    record: str
    run_key: Text | None


def _name_checkpoints(task: Task, record: str, run_id: str) -> _Checkpoints:
    bucket, run = task.checkpoint.bucket.rstrip("/"), to_text(run_id or RUN_ID)
    return _Checkpoints(
        run_id=run,
        checkpoint_uri=Text.of(f"{bucket}/", run, "/checkpoints") if bucket else None,
        record=record_digest(record).partition(":")[2] if bucket else "",
        run_key=to_text(RUN_KEY) if bucket else None,
    )


def _make_run(
    task: Task, name: str, recorded: _Recorded, options: tuple[Candidate, ...], sent: tuple[Tree, ...], force: str
) -> Run:
    """Return what a task asks for by itself."""
    parts = task.split()
    variants = [_make_variant(part, recorded.number, sent, force, alone=len(parts) == 1) for part in parts]
    first, auto = variants[0], task.auto
    run = Run(
        cluster=name,
        slice_stem=recorded.stem,
        project=recorded.project,
        member=recorded.member,
        uid=to_text(UID),
        run_id=to_text(RUN_ID),
        installation=read_installation(),
        candidates=options,
        setup=first.setup,
        mounts=first.mounts,
        job=first.job,
        job_id=recorded.number,
        accelerator=first.accelerator,
        num_slices=first.num_slices,
        env=first.env,
        budgets=build_budgets(task),
        limits=build_limits(task),
        timer=first.timer,
        one_computer=first.one_computer,
        labels=task.choices[0].labels,
        variants=tuple(variants) if task.differs_by_choice else (),
        grow=task.grow,
        automatic=AutomaticChoice(budget=task.limits.max_cost, by=auto.by) if auto is not None else None,
    )
    return run.adapt(options[0])


def _make_variant(task: Task, number: int, sent: tuple[Tree, ...], force: str, *, alone: bool) -> Variant:
    """Return what a task asks for on candidates that have one number of nodes and one set of settings."""
    options = list_candidates(task, alone=alone)
    facts = host_inputs.host_facts(options[0])
    return Variant(
        candidates=options,
        setup=host_inputs.build_setup(task, facts, sent, force),
        mounts=host_inputs.build_mounts(task, facts),
        job=host_inputs.build_job(task, facts, number),
        accelerator=options[0].accelerator,
        num_slices=task.num_nodes if _nodes_are_slices(task) else 1,
        env=host_inputs.build_environment(task, facts),
        timer=build_timer(task, options, facts, _cheapest(options)),
        one_computer=facts.shares_files,
        nodes=task.num_nodes,
        offer=restore_offer(task),
    )


def _refuse_missing_secret(task: Task) -> None:
    if task.missing_secrets:
        name = task.missing_secrets[0]
        raise UserError(f"secret {name} has no value", "", f"export it, or: --secret {name}")


def _nodes_are_slices(task: Task) -> bool:
    """Return whether each node is a separate slice; other machines are one slice together."""
    machine = task.choices[0].machine
    real = machine.stands_for if isinstance(machine, LocalHosts) else machine
    return real is not None and real.node_is_slice


def _cheapest(options: tuple[Candidate, ...]) -> float | None:
    """Return the lowest known price in US dollars per hour, or None."""
    return min((one.price_per_hour for one in options if one.price_per_hour is not None), default=None)


def _same_job(reader: Reader, name: str, verb: str, digest: str) -> tuple[JobRecord | None, int]:
    """Return the unfinished job that the same command left, and the number this one has or will have."""
    record = reader.cluster(name)
    if record is None:
        return None, 1
    for job in reader.jobs(record):
        if job.state != "ended" and job.kind == verb and job.digest == digest:
            return job, job.id
    return None, next_job_number(reader, record)


def next_job_number(reader: Reader, record: ClusterRecord) -> int:
    """Return the number of the next job on a cluster."""
    return max((job.id for job in reader.jobs(record)), default=0) + 1


def read_installation() -> Text:
    """Return the installation's id; its placeholder before the first change of the store."""
    with open_reader() as reader:
        return to_text(reader.installation() or INSTALLATION)


def make_facts() -> Facts:
    """Return what `decide` knows of providers: how their requests look."""
    return Facts(Planners())
