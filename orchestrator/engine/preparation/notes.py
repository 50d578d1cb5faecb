"""Notes of a plan: what a user should know before agreeing, and no reason to refuse the command."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from orchestrator.catalog.prices import describe_implausible
from orchestrator.catalog.refreshed import describe_problems
from orchestrator.drivers import name_vendor
from orchestrator.engine.preparation import host_inputs
from orchestrator.engine.preparation.bucket_locations import load_known_buckets
from orchestrator.engine.preparation.bucket_notes import bucket_notes
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.program_notes import list_program_notes
from orchestrator.engine.state.identities import identity_of
from orchestrator.engine.state.recovery_key import RECOVERY_KEY, read_recovery_key
from orchestrator.messages import count_noun, join_some
from orchestrator.plan.growth import LIKELY
from orchestrator.providers.protocol import AddsNotes
from orchestrator.providers.registry import load_planner
from orchestrator.remote.launchers import list_silent_launchers
from orchestrator.slices import Candidate, HostFacts
from orchestrator.task.config import load_config
from orchestrator.task.likely_secrets import likely_secrets_note
from orchestrator.task.model import Task
from orchestrator.task.mounts import outside_targets
from orchestrator.task.trainer_settings import note_local_data


def plan_notes(task: Task, facts: HostFacts) -> tuple[str, ...]:
    """Return the notes of a launch or resume."""
    notes: list[str] = []
    candidates = list_candidates(task)
    if (task.run or task.train) and task.recovery.max_preemptions and not task.checkpoint.bucket:
        notes.append("no bucket is given: after a loss of hosts the program restarts from the first step")
    unpriced = sum(one.price_per_hour is None for one in candidates)
    if task.limits.max_cost is not None and unpriced:
        held = "; max_hours holds there" if task.limits.max_hours is not None else "; set max_hours as well"
        notes.append(
            f"limits.max_cost: {unpriced} of {count_noun(len(candidates), 'choice')} "
            f"{'has' if unpriced == 1 else 'have'} no known price, and there it cannot be enforced{held}"
        )
    if task.grow:
        notes.append(
            f"grow: where our records give better machines a chance of {100 * LIKELY:.0f} % or more, the run saves, "
            "its machines are ended, and the better ones are requested, else the same; there are never two slices"
        )
    if task.grow and task.train is None:
        notes.append(
            "grow: your program has to save with orch_run, and end when orch_run asks it to stop; without a complete "
            "checkpoint in the bucket it keeps its machines, as orch does not know what it would lose"
        )
    if task.train is not None and not task.choices[0].infra.owned:
        notes += note_local_data(task.train.args, [mount.target for mount in task.file_mounts])
    notes += describe_problems(dict.fromkeys(one.provider for one in candidates), time.time())
    notes += describe_implausible({choice.machine.name: choice.machine for choice in task.choices}.values())
    notes += _driver_notes(task, candidates)
    notes += _identity_notes(candidates)
    notes += bucket_notes(task, load_known_buckets())
    unserved = _ineffective_fields(task)
    if unserved:
        notes.append(f"{', '.join(unserved)}: no effect on {task.choices[0].infra}, where nothing is rented")
    if not task.choices[0].infra.owned and (key := read_recovery_key(load_config(os.environ))):
        notes.append(f"the hosts admit also the recovery key {key[:24]}...{key[-12:]} ({RECOVERY_KEY})")
    if facts.shares_files and task.choices[0].infra.owned and (outside := outside_targets([task])):
        notes.append(f"file_mounts write to this computer, and replace what is there: {join_some(outside)}")
    if note := likely_secrets_note(task.envs):
        notes.append(note)
    notes += _status_notes(task)
    notes += list_program_notes(task, facts, candidates[0].hosts)
    return (*notes, *_holder_notes(task, facts), *_trainer_notes(task, facts))


def _status_notes(task: Task) -> Iterator[str]:
    """Yield which launcher of the task hides the exit statuses that decide about a restart."""
    fields = {
        "restart_on_exit_codes": task.recovery.restart_on_exit_codes,
        "fail_on_exit_codes": task.recovery.fail_on_exit_codes,
    }
    used = [name for name, codes in fields.items() if codes]
    if used and (launchers := list_silent_launchers(task.run)):
        yield (
            f"{', '.join(used)}: {join_some(launchers)} reports the status of a process of the program where it called "
            "sys.exit; for any other end, such as a signal, the status of `run` itself is compared"
        )


def _driver_notes(task: Task, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield the notes that the drivers of the task's choices have."""
    for provider in dict.fromkeys(choice.infra.provider for choice in task.choices):
        planner = load_planner(provider)
        if isinstance(planner, AddsNotes):
            yield from planner.list_notes(task, candidates)


def _identity_notes(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield as whom clouds are called, where that is not this computer itself."""
    named = ((one.provider, identity_of(one.provider, one.details)) for one in candidates)
    for provider, identity in dict.fromkeys(named):
        if identity:
            yield f"{name_vendor(provider)} is called as {identity[0][1]}; the commands shown here use your own login"


def _holder_notes(task: Task, facts: HostFacts) -> Iterator[str]:
    """Yield what happens to other processes that hold the accelerator: render/scripts.py has the rule."""
    software = host_inputs.choose_software(task, facts)
    if software.backend == "cpu":
        return
    if task.choices[0].infra.owned:
        yield (
            "processes that hold the accelerator: those that this installation left behind are ended; any other "
            "refuses the start with status 6, unless envs has ORCH_HOLDERS_CHECK=0"
        )
    elif "cuda" not in (software.backend, software.device):
        yield (
            "processes that hold the accelerator on the rented machines are ended before setup and program start: "
            "SIGTERM, and SIGKILL after 10 s"
        )


def _trainer_notes(task: Task, facts: HostFacts) -> Iterator[str]:
    if task.train is None:
        return
    yield f"the trainer: {host_inputs.choose_trainer_stack(task, facts)}"
    if task.train.smoke:
        yield "smoke test: all hosts run `python -m trainer smoke` before each attempt; no start without success"


def _ineffective_fields(task: Task) -> list[str]:
    """Return the fields of the task that have no effect on machines that cost nothing."""
    first = task.choices[0]
    requested = {
        "disk_size": first.disk_size is not None,
        "network_tier": bool(first.network_tier),
        "image_id": bool(first.machine_images),
    }
    return [name for name, given in requested.items() if given and first.infra.owned]
