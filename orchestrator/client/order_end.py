"""The end of an order and of its run at a service, which may be away for a while."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.client.events import PROGRESS, FollowedEvents
from orchestrator.client.http import Client
from orchestrator.client.orders import PlannedOrder, StoppedWatching
from orchestrator.client.patience import Patience
from orchestrator.client.run_output import report_output
from orchestrator.client.transport import ServiceError, read_exit_status
from orchestrator.documents.queries import QueueQuery
from orchestrator.engine.progress import Progress, ProgressKind, parse_progress
from orchestrator.messages import escape_controls
from orchestrator.next_step import NextStep
from orchestrator.project import qualify_name

if TYPE_CHECKING:
    from orchestrator.documents.queries import QueueQuery
    from orchestrator.engine.preparation.prepared import CommandResult
from orchestrator.engine.progress import DescribedNarrator

_POLL_SECONDS = 10.0  # between two questions without an event
_TICK_SECONDS = 1.0  # between two lines about a wait
_MOST_HELD = 1000
_Answer = TypeVar("_Answer")


@dataclass(kw_only=True)
class _Watcher:
    """Waits for something at the service, and reports the events of a cluster meanwhile.

    Attributes:
        narrator: Receives them.
        subject: What continues when the service is away for too long.
        address: The page that shows it.
        works: The work on the cluster that is followed: "order ID", and "job NUMBER" once it is known.
        held: Progress of jobs on the cluster, before it is known which of them is followed.
        job: The command on hosts that is followed; None for another order.
        waits: The wait that was reported last; it is drawn with the seconds that pass here.
        waits_since: When that wait began, by this computer's monotonic clock.
    """

    client: Client
    events: FollowedEvents
    narrator: DescribedNarrator
    cluster: str
    subject: str
    address: str
    works: set[str]
    job: int | None = None
    held: list[tuple[str, Progress]] = field(default_factory=list[tuple[str, Progress]])
    waits: Progress | None = None
    waits_since: float = 0.0

    def wait_until(self, ask: Callable[[], _Answer | None]) -> _Answer:
        """Return what `ask` returns, once that is not None.

        Raises:
            OrchError: The service refuses, or is away for too long.
        """
        patience = Patience(
            subject=self.subject,
            next_step=self.address,
            report=self.narrator.note,
            pause=lambda seconds: self._show(self.events.wait(seconds)),
        )
        while (found := patience.ask(ask)) is None:
            until = time.monotonic() + _POLL_SECONDS
            while not (events := self.events.wait(_TICK_SECONDS)) and time.monotonic() < until:
                self._show([])
            self._show(events)
        self._show(self.events.wait(0.0))
        return found

    def _show(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            progress = parse_progress(event.get("progress")) if event["kind"] == PROGRESS else None
            if event["cluster"] == self.cluster and progress is not None:
                self.held.append((str(event["progress"].get("work", "")), progress))
        for work, progress in self.held:
            if work in self.works:
                self.narrator.show(replace(progress, setup=False))  # whose output it is comes with the output
                self.waits = progress if progress.kind is ProgressKind.WAIT else None
                self.waits_since = time.monotonic() - progress.seconds
        knows_job = len(self.works) > 1
        self.held = [] if knows_job else [one for one in self.held if one[0] not in self.works][-_MOST_HELD:]
        if self.waits is not None:
            self.narrator.show(replace(self.waits, seconds=time.monotonic() - self.waits_since))


def await_end(
    client: Client,
    events: FollowedEvents,
    order: dict[str, Any],
    planned: PlannedOrder,
    narrator: DescribedNarrator,
    *,
    follow: bool,
    deletes: bool,
) -> CommandResult:
    """Return how an order ended, and where its run is followed, how that did.

    Args:
        client: Of the service.
        events: What happens there.
        order: The order.
        planned: Its plan.
        narrator: Receives the events of the cluster.
        follow: Whether the run is awaited, too.
        deletes: Whether the machines are deleted when the run has ended, which is awaited, too.

    Raises:
        StoppedWatching: A person interrupted it. The order continues.
        OrchError: The service refuses, or is away for too long. The order continues.
    """
    cluster, page = order["cluster"], f"{client.url}/orders/{order['id']}"
    name = qualify_name(order["project"], cluster)
    watcher = _Watcher(
        client=client, events=events, narrator=narrator, cluster=name, subject="the order", address=page,
        works={f"order {order['id']}"},
    )  # fmt: skip
    try:
        if planned.verb == "exec":
            return _await_command(watcher, order, follow=follow)
        ended = watcher.wait_until(lambda: _when_ended(client.show_order(order["id"])))
        ending = _ending_of_order(ended)
        run_id = _find_run(client, ended) if planned.has_run and follow and ending.status == 0 else ""
        if run_id:
            page = f"{client.url}/runs/{run_id}"
            narrator.note(escape_controls(str(ended["what"])))
            narrator.note(f"  {page}   shows the run")
            watcher.subject, watcher.address = "the run", page
            job = int(client.show_run(run_id)["run"]["jobs"][-1]["id"])
            watcher.works.add(f"job {job}")
            with report_output(client.url, cluster, job, narrator):
                ending = _await_run(watcher, run_id, cluster, ended, deletes=deletes)
    except KeyboardInterrupt:
        raise StoppedWatching(_describe_interrupted(watcher, planned)) from None
    return ending


def _await_command(watcher: _Watcher, order: dict[str, Any], *, follow: bool) -> CommandResult:
    """Return how a command on hosts ended, with its output as it comes; not followed, as soon as it is on record."""
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.plan.steps import Done

    client, cluster = watcher.client, order["cluster"]

    def find_begin() -> dict[str, Any] | None:
        found = client.show_order(order["id"])
        jobs: list[dict[str, Any]] = client.read_queue(QueueQuery(cluster=cluster, ended=True))["jobs"]
        begun = next((job for job in jobs if job["run_id"] == order["run_id"]), None)
        return begun or _when_ended(found)

    begun = watcher.wait_until(find_begin)
    if begun.get("kind") != "exec":  # it ended before it was on record
        return _ending_of_order(begun)
    job = int(begun["id"])
    watcher.job = job
    watcher.works.add(f"job {job}")
    if not follow:
        return CommandResult(step=Done(f"job {job} runs on '{cluster}'; see: orch logs -f {cluster} {job}"), job_id=job)
    with report_output(client.url, cluster, job, watcher.narrator):
        ended = watcher.wait_until(lambda: _when_ended(client.show_order(order["id"])))
    return replace(_ending_of_order(ended), job_id=job)


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
        status=read_exit_status(order["status"]),
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
            status=read_exit_status(item["status"]),
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


def _describe_interrupted(watcher: _Watcher, planned: PlannedOrder) -> list[str]:
    """Return what continues at the service, where it is shown, and what ends it."""
    if watcher.job is not None:
        return [
            f"stopped watching; job {watcher.job} continues at the service",
            f"  orch logs -f {planned.cluster} {watcher.job}   to watch again",
            f"  orch cancel {planned.cluster} {watcher.job}   to end it",
        ]
    lines = [f"stopped watching; {watcher.subject} continues at the service", f"  {watcher.address}   shows it"]
    if planned.has_run:
        verb = "cancel" if watcher.subject == "the run" else "down"
        lines.append(f"  orch {verb} {planned.cluster}   to end it")
    return lines
