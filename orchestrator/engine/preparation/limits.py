"""What bounds a task: restart budgets, deadlines, and the limits of time, money and idleness."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.drivers import get_driver
from orchestrator.engine.preparation.host_inputs import hash_text, host_facts
from orchestrator.errors import UserError
from orchestrator.plan.desired import Budgets, Limits, Strategy, TimerSpec
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.render.limits import LimitsSpec, render_limits
from orchestrator.slices import Candidate, HostFacts
from orchestrator.task.model import Task
from orchestrator.values import to_text

TRAINER_FINAL = (6, 16)  # trainer/errors.py: another start has claimed the run; its bucket cannot be used
STORAGE_RESTARTS = 5  # of the bundled trainer, which has repeated its requests for minutes before it ends with 10
_MOST_HOURS = 87_600  # as of limits.max_hours


def build_budgets(task: Task) -> Budgets:
    """Return the restart budgets and deadlines of a task."""
    recovery = task.recovery
    deadlines = [get_driver(choice.infra.provider).deadlines for choice in task.choices]
    contact = max((one.contact for one in deadlines if one.contact is not None), default=None)
    end = max((one.end for one in deadlines if one.end is not None), default=None)
    waits = {"contact_deadline": contact, "end_deadline": end}
    return Budgets(
        preemptions=recovery.max_preemptions,
        failures=recovery.max_failures,
        storage=STORAGE_RESTARTS if task.train is not None else 0,
        restart_on=recovery.restart_on_exit_codes,
        fail_on=recovery.fail_on_exit_codes,
        final=TRAINER_FINAL if task.train is not None else (),
        reports_steps=task.train is not None,
        strategy=Strategy(recovery.strategy),
        capacity_wait=recovery.capacity_wait_hours * 3600,
        hang_deadline=recovery.hang_minutes * 60,
        **{name: seconds for name, seconds in waits.items() if seconds is not None},
    )


def build_limits(task: Task) -> Limits:
    """Return the limits of time and money of a task."""
    return Limits(task.limits.max_hours, task.limits.max_cost)


def build_timer(task: Task, options: Sequence[Candidate], facts: HostFacts, price: float | None) -> TimerSpec | None:
    """Return the limits timer of every host, or None when the task has no limit.

    Idle machines are stopped where `autostop` says so and all candidates allow it; else they are ended.

    A limit of money is converted to hours here. What was spent before shortens it when the timer is armed: see
    `host_actions.arm_timer`.

    Args:
        task: The task.
        options: All candidates; each gets this timer.
        facts: What is known of the hosts of the first.
        price: US dollars per hour, or None when unknown.
    """
    idle = task.limits.idle_minutes or (task.autostop.idle_minutes if task.autostop is not None else None)
    stops = task.stops_when_idle and all(host_facts(option).stop_command for option in options)
    only_jobs = task.autostop is not None and task.autostop.wait_for == "jobs"
    specs = LimitsSpec(
        max_hours=_longest(task, price),
        idle_minutes=idle,
        on_limit="end" if facts.end_command else "jobs",
        stop_command=facts.end_command,
        idle_command=facts.stop_command if stops else "",
        wait_for="jobs" if only_jobs else "jobs_and_ssh",
        # Simulated hosts share this computer: only their own jobs are theirs.
        watch="machine" if facts.end_command and not facts.shares_files else "jobs",
        tick_seconds=5 if facts.shares_files else 30,
    )
    if not specs.any:
        return None
    script = render_limits(specs)
    acts = facts.end_command != ""  # elsewhere the timer only ends jobs, and idle machines have none
    return TimerSpec(
        hash_text(script),
        to_text(script),
        idle_minutes=idle if acts else None,
        stops=stops,
        only_stops=stops and facts.stop_command == facts.end_command,
    )


def find_idle_limit_error(task: Task, options: Sequence[Candidate], after: TeardownPolicy) -> UserError | None:
    """Return an error for an idle limit of machines that stay, and that orch neither stops nor ends; else None.

    Those are the user's own and this computer. An end of the cluster with its program (--down) serves the limit.
    """
    idle = task.limits.idle_minutes is not None or task.autostop is not None
    unserved = [option for option in options if not host_facts(option).end_command]
    if not idle or not unserved or after is TeardownPolicy.DOWN:
        return None
    name = "resources.autostop" if task.autostop is not None else "limits.idle_minutes"
    return UserError(
        f"`{name}` is not served on infra: {unserved[0].provider}",
        "orch neither stops nor ends machines that it did not rent",
        f"add --down: the cluster is released when its program ends   or remove `{name}` from the task",
    )


def _longest(task: Task, price: float | None) -> float | None:
    """Return the hours after which one slice alone reaches a limit of time or money."""
    limits = task.limits
    hours = [limits.max_hours] if limits.max_hours is not None else []
    if limits.max_cost is not None and price:
        hours.append(min(limits.max_cost / price, _MOST_HOURS))
    return min(hours, default=None)
