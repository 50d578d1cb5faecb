"""The command that an order stands for, and what it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.ownership import describe_forced_change, refuse_other_owner
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.preparation.trees import DescribedTree
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.training.advice import add_advice
from orchestrator.errors import NotFoundError, UserError
from orchestrator.formatting import format_duration
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.lookup import find_cluster
from orchestrator.store.read import Reader
from orchestrator.task.model import Task
from orchestrator.task.sent_tree import parse_sent_tree
from orchestrator.values import to_text


def prepare_order(
    verb: str,
    cluster: str,
    arguments: Mapping[str, Any],
    project: str = "",
    kept: Mapping[str, DescribedTree] = MappingProxyType({}),
) -> PreparedCommand:
    """Prepare the command of an order, to preview or to carry it out.

    Args:
        verb: One of ORDER_VERBS.
        cluster: The name of the cluster; "" for a launch, whose task names it.
        arguments: `task` as JSON and `down` of a launch, `down` of a resume, `job` of a cancel, `force` of what an
            owner does to a cluster of another member, `abandon` of a down; `command`, `hosts`, `env`, `workdir` and
            `devices` of an exec; `uid` of the cluster and `run` of a resume, so that an order that is carried out late
            is not about another one of the same name.
        project: The project of the cluster; "" for that of the environment.
        kept: What a plan of a launch knows of files that were or will be sent, by label.

    Raises:
        OrchError: There is no such cluster, job or run, or the command cannot be prepared.
    """
    force = bool(arguments.get("force"))
    _refuse_other_cluster(cluster, arguments.get("uid", ""), project)
    after = TeardownPolicy.DOWN if arguments.get("down") else TeardownPolicy.KEEP
    if verb == "launch":
        task = commands.add_secrets_from_environment(Task.from_json(arguments["task"]))
        ready = commands.prepare_launch(task, cluster=cluster or None, after=after, kept=kept, project=project)
        return add_advice(ready, task, project=project)
    if verb == "cancel":
        return commands.prepare_cancel(cluster, arguments.get("job"), force=force, project=project)
    if verb == "exec":
        return _prepare_exec(cluster, arguments, project, kept, force=force)
    made: Mapping[str, Callable[[], PreparedCommand]] = {
        "stop": lambda: commands.prepare_stop(cluster, force=force, project=project),
        "start": lambda: commands.prepare_start(cluster, force=force, project=project),
        "down": lambda: commands.prepare_down(
            cluster, abandon=bool(arguments.get("abandon")), force=force, project=project
        ),
        "resume": lambda: prepare_resume(
            arguments.get("run") or cluster,
            cluster=cluster or None,
            after=TeardownPolicy.DOWN if arguments.get("down") else None,
            project=project,
        ),
    }
    if verb not in made:
        raise UserError(f"an order cannot be `{verb}`", "", f"one of: launch, cancel, exec, {', '.join(made)}")
    return made[verb]()


def _prepare_exec(
    cluster: str, arguments: Mapping[str, Any], project: str, kept: Mapping[str, DescribedTree], *, force: bool
) -> PreparedCommand:
    hosts, written = arguments.get("hosts"), arguments.get("workdir", "")
    ready = commands.prepare_exec(
        cluster,
        arguments["command"],
        hosts=None if hosts is None else tuple(hosts),
        workdir=parse_sent_tree(written) if written else None,
        env=tuple((name, to_text(value)) for name, value in arguments.get("env", {}).items()),
        devices=bool(arguments.get("devices")),
        kept=kept.get("workdir"),
        project=project,
    )
    with open_reader(project) as reader:
        record = find_cluster(reader, cluster)
        refused = refuse_other_owner(record, reader.member, force=force)
        forced = describe_forced_change(record, reader.member, "exec", force=force)
    return replace(ready, refused=refused or ready.refused, forced=forced)


def _refuse_other_cluster(cluster: str, uid: str, project: str) -> None:
    """Refuse what was ordered for a cluster that was deleted since. One of the same name may be anybody's work."""
    if not uid:
        return
    with open_reader(project) as reader:
        present = reader.cluster(cluster)
    if present is not None and present.uid != uid:
        raise NotFoundError(
            f"the cluster '{cluster}' of this order is deleted", "another one has its name now", "order it again"
        )


def list_jobs_that_end(store: Reader, ready: PreparedCommand, now: float) -> tuple[str, ...]:
    """Return the running jobs that end with the machines of a command, a line each.

    Args:
        store: Open, for the project of the command.
        ready: The command.
        now: Epoch seconds.
    """
    if ready.verb not in ("stop", "down"):
        return ()
    record = store.cluster(ready.cluster)
    return tuple(
        f"job {job.id} ({job.kind}, for {format_duration(now - job.created)}) is running on '{ready.cluster}'"
        for job in (store.jobs(record) if record is not None else ())
        if job.state == "running"
    )
