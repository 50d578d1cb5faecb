"""`orch down`, `stop`, `start`, `cancel` and `resume` through a service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.cli.command import current_session
from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.execution.act import ActMode
from orchestrator.cli.execution.confirm_all import confirm_deletion_of_all
from orchestrator.cli.execution.served_orders import ServedCommand, carry_out_served, connect, refuse_through_service
from orchestrator.cli.failures import report_error
from orchestrator.errors import NotFoundError, OrchError

if TYPE_CHECKING:
    from orchestrator.client.http import Client, Verb


def change_served(
    verb: Verb, clusters: tuple[str, ...], mode: ActMode, *, force: bool, question: str = "", every: bool = False
) -> int:
    """Carry out one cluster after the other, and return the exit status of the first failure.

    Args:
        verb: The command.
        clusters: The clusters that were named.
        mode: Whether to show the plan or to perform it.
        force: Also clusters of other members.
        question: What is asked where a job is running.
        every: All clusters of the user, after a question, in place of named ones.

    Raises:
        OrchError: Nothing was ordered for the only cluster.
    """
    with connect() as client:
        names = confirm_deletion_of_all(_list_own_clusters(client), mode) if every else clusters
        worst = 0
        for name in dict.fromkeys(names):
            command = ServedCommand(verb=verb, request={"cluster": name}, force=force, question=question)
            try:
                status = carry_out_served(client, command, mode)
            except OrchError as error:
                if len(names) == 1:
                    raise
                status = report_error(error, current_session())
            worst = worst or status
    return worst


def cancel_served(cluster: str, job: int | None, mode: ActMode, *, force: bool, every: bool) -> int:
    """Cancel a job, or all of a cluster that run or wait, the last one first; return the highest exit status."""
    with connect() as client:
        jobs = _list_open_jobs(client, cluster) if every else [job]
        if not jobs:
            write_stderr(f"no job of '{cluster}' runs or waits")
        requests: list[dict[str, Any]] = [{"cluster": cluster, "job": one} for one in jobs]
        commands = [ServedCommand(verb="cancel", request=request, force=force) for request in requests]
        return max((carry_out_served(client, command, mode) for command in commands), default=0)


def resume_served(
    name: str, mode: ActMode, *, cluster: str | None, down: bool | None, refused: Mapping[str, object]
) -> int:
    """Resume a run of the service from its newest checkpoint, and return the exit status.

    Args:
        name: The run, or the cluster whose last run it is.
        mode: Whether to show the plan or to perform it.
        cluster: The cluster to run on, in place of the run's.
        down: Whether the machines are deleted when the program has ended; None as at its launch.
        refused: Options without meaning there, by their names on the command line: whether each was given.
    """
    refuse_through_service(refused)
    refuse_through_service({"--no-down": down is False}, "launch it again without --down, or: unset ORCH_SERVER")
    request = {"run": name, "cluster": cluster or "", "down": bool(down)}
    with connect() as client:
        return carry_out_served(client, ServedCommand(verb="resume", request=request, follows_run=True), mode)


def _list_own_clusters(client: Client) -> list[tuple[str, str]]:
    """Return name and summary of the user's clusters at the service."""
    me = client.show_member()
    return [
        (one["name"], one["summary"])
        for one in client.list_clusters()
        if one["project"] == me["project"] and one["owner"] in (None, me["member"])
    ]


def _list_open_jobs(client: Client, cluster: str) -> list[int | None]:
    """Return the jobs that run or wait, the last one first: none of them starts when the one before it ends.

    Raises:
        NotFoundError: There is no such cluster.
    """
    project = client.show_member()["project"]
    for one in client.list_clusters():
        if (one["name"], one["project"]) == (cluster, project):
            return sorted((job["id"] for job in one["jobs"] if job["state"] != "ended"), reverse=True)
    raise NotFoundError(f"no cluster '{cluster}' at {client.url}", "", "orch status")
