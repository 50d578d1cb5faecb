"""The end of an order and of its run, awaited with what happens meanwhile. The service may be away for a while."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.client.events import FollowedEvents
from orchestrator.client.http import Client
from orchestrator.client.patience import Patience
from orchestrator.client.transport import ServiceError
from orchestrator.exits import Exit
from orchestrator.formatting import format_rate
from orchestrator.messages import escape_controls
from orchestrator.next_step import NextStep
from orchestrator.project import qualify_name

if TYPE_CHECKING:
    from orchestrator.cli.execution.act import PerformMode
    from orchestrator.cli.execution.served_orders import ServedCommand
    from orchestrator.engine.preparation.prepared import CommandResult

_POLL_SECONDS = 10.0  # between two questions without an event
_Answer = TypeVar("_Answer")


@dataclass(kw_only=True)
class _Watcher:
    """Waits for something at the service, and prints the events of a cluster meanwhile.

    Attributes:
        subject: What continues when the service is away for too long.
        address: The page that shows it.
        report: Prints a line.
    """

    client: Client
    events: FollowedEvents
    cluster: str
    subject: str
    address: str
    report: Callable[[str], None] = write_stderr

    def wait_until(self, ask: Callable[[], _Answer | None]) -> _Answer:
        """Return what `ask` returns, once that is not None.

        Raises:
            OrchError: The service refuses, or is away for too long.
        """
        patience = Patience(
            report=self.report,
            subject=self.subject,
            next_step=self.address,
            pause=lambda seconds: self._show(self.events.wait(seconds)),
        )
        while (found := patience.ask(ask)) is None:
            self._show(self.events.wait(_POLL_SECONDS))
        self._show(self.events.wait(0.0))
        return found

    def _show(self, events: list[dict[str, Any]]) -> None:
        lines = [
            str(event["what"]) for event in events if event["cluster"] == self.cluster and event["kind"] != "order"
        ]
        for line in lines:
            self.report(escape_controls(line))


def await_end(
    client: Client, events: FollowedEvents, order: dict[str, Any], command: ServedCommand, mode: PerformMode
) -> int:
    """Wait for the end of an order, and of its run where the command follows it; print it, and return its status.

    Raises:
        OrchError: The service refuses, or is away for too long. The order continues.
    """
    from orchestrator.cli.drawing.outcomes import ending_as_json, print_ending
    from orchestrator.cli.execution.run_output import show_run_output

    cluster, page = order["cluster"], f"{client.url}/orders/{order['id']}"
    name = qualify_name(order["project"], cluster)
    watcher = _Watcher(client=client, events=events, cluster=name, subject="the order", address=page)
    try:
        ended = watcher.wait_until(lambda: _when_ended(client.show_order(order["id"])))
        ending, kept = _ending_of_order(ended), list[str]()
        if command.follows_run and mode.follow and ending.status == 0:
            run_id = _find_run(client, ended)
            if run_id:
                page = f"{client.url}/runs/{run_id}"
                write_stderr(str(ended["what"]), f"  {page}   shows the run")
                watcher.subject, watcher.address = "the run", page
                job = int(client.show_run(run_id)["run"]["jobs"][-1]["id"])
                with show_run_output(client.url, cluster, job, mode) as watcher.report:
                    ending = _await_run(watcher, run_id, cluster, ended, deletes=bool(command.request.get("down")))
                watcher.report = write_stderr
                kept = _kept_machines(client, ended)
    except KeyboardInterrupt:
        write_stderr(*_after_interrupt(watcher, cluster, command))
        return Exit.INTERRUPTED
    if mode.as_json:
        write_stdout(json.dumps(ending_as_json(cluster, command.verb, ending), indent=2))
    print_ending(ending)
    write_stderr(*kept)
    sys.stdout.flush()
    return ending.status


def _when_ended(order: dict[str, Any]) -> dict[str, Any] | None:
    return order if order["state"] == "ended" else None


def _ending_of_order(order: dict[str, Any]) -> CommandResult:
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.plan.steps import Done, GiveUp

    what, run_id = escape_controls(order["what"] or ""), order["run_id"] or ""
    if order["status"] == 0:
        return CommandResult(step=Done(what), run_id=run_id)
    step = GiveUp(
        code=order["code"] or "failure",
        status=int(order["status"]),
        what=what,
        why=order["why"] or "",
        next_step=NextStep.from_json(order),
    )
    return CommandResult(step=step, run_id=run_id)


def _find_run(client: Client, order: dict[str, Any]) -> str:
    """Return the run to wait for: that of the order, or the unfinished one that the same command had made before."""
    try:
        client.show_run(order["run_id"])
    except ServiceError as error:
        if error.http_status != 404:
            raise
    else:
        return str(order["run_id"])
    jobs = [job for job in _list_jobs(client, order) if job["kind"] != "exec"]
    return str(jobs[-1]["run_id"]) if jobs else ""


def _list_jobs(client: Client, order: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the unfinished jobs of the cluster of an order."""
    jobs: list[dict[str, Any]] = client.show_queue()["jobs"]
    return [job for job in jobs if (job["cluster"], job["project"]) == (order["cluster"], order["project"])]


def _await_run(watcher: _Watcher, run_id: str, cluster: str, order: dict[str, Any], *, deletes: bool) -> CommandResult:
    client = watcher.client

    def find_end() -> dict[str, Any] | None:
        if any(job["run_id"] == run_id for job in _list_jobs(client, order)):
            return None
        found = client.show_run(run_id)
        return found if found["run"]["state"] == "ended" else None

    def find_absence() -> bool | None:
        names = [(one["name"], one["project"]) for one in client.list_clusters()]
        return None if (cluster, order["project"]) in names else True

    run = watcher.wait_until(find_end)
    if deletes:
        watcher.wait_until(find_absence)
    return _ending_of_run(run)


def _ending_of_run(run: dict[str, Any]) -> CommandResult:
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.plan.causes import EndCause
    from orchestrator.plan.observed import EndedAttempt
    from orchestrator.plan.steps import Done, GiveUp

    item, outcome = run["run"], run["outcome"]
    what = escape_controls(outcome["what"])
    step: Done | GiveUp = Done(what)
    if item["status"] != 0:
        step = GiveUp(
            code=outcome["code"] or "failure",
            status=int(item["status"]),
            what=what,
            why=outcome["why"] or "",
            next_step=NextStep.from_json(outcome),
        )
    attempts = tuple(
        EndedAttempt(
            attempt=one["attempt"],
            cause=EndCause(one["cause"]),
            why=escape_controls(one["why"]),
            exit_code=one["exit_code"],
            rank=one["rank"],
            evidence=json.dumps({"step": one["step"]}),
        )
        for one in run["attempts"]
    )
    return CommandResult(step=step, job_id=item["jobs"][-1]["id"], run_id=item["run_id"], attempts=attempts)


def _kept_machines(client: Client, order: dict[str, Any]) -> list[str]:
    """Return a line about machines that exist, and maybe cost money, after a run; none when there are none."""
    from orchestrator.plan.ranks import count_hosts

    for one in client.list_clusters():
        machines = one["machines"]
        if (
            (one["name"], one["project"]) == (order["cluster"], order["project"])
            and machines
            and one["state"] != "stopped"
        ):
            price = machines["price_per_hour"]
            cost = f" at {format_rate(price)}" if price else ""
            verb = "keeps" if machines["hosts"] == 1 else "keep"
            return [f"{count_hosts(machines['hosts'])} {verb} running{cost} until: orch down {one['name']}"]
    return []


def _after_interrupt(watcher: _Watcher, cluster: str, command: ServedCommand) -> list[str]:
    """Return what continues at the service, where it is shown, and what ends it."""
    lines = [f"stopped watching; {watcher.subject} continues at the service", f"  {watcher.address}   shows it"]
    if command.verb in ("launch", "resume"):
        ends = f"orch cancel {cluster}" if watcher.subject == "the run" else f"orch down {cluster}"
        lines.append(f"  {ends}   to end it")
    return lines
