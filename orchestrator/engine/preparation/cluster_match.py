"""Whether the machines that a cluster has are those that a task asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orchestrator.errors import ConflictError
from orchestrator.plan.observed import IntentState, Observed
from orchestrator.slices import Candidate, SliceState

_TO_BE_REPLACED = frozenset({SliceState.PREEMPTED, SliceState.FAILED, SliceState.ABSENT, SliceState.ENDING})


def cluster_mismatch(cluster: str, now: Observed, options: Sequence[Candidate]) -> ConflictError | None:
    """Return why a program must not start on the cluster's machines, or None.

    On other machines, or too few, it would run as if they were the requested ones. None also when the cluster has more
    machines than requested, or has to create them first.
    """
    has = _usable_candidate(now)
    if has is None or any(one.hosts <= has.hosts for one in _alike(has, options)):
        return None
    return ConflictError(
        f"'{cluster}' has other machines than this asks for",
        f"it has {_describe(has)}; requested: {_describe(options[0])}",
        f"another cluster, -c NAME; or end this one first: orch down {cluster}",
    )


def option_mismatch(
    cluster: str, now: Observed, options: Sequence[Candidate], given: Mapping[str, object]
) -> ConflictError | None:
    """Return why an option of the command line cannot apply to the machines that the cluster has, or None.

    Args:
        cluster: The cluster's name.
        now: What is known of the cluster.
        options: What the task would create, with the options applied.
        given: Options by their names in `Overrides`; None for those that the command line does not contain.
    """
    has = _usable_candidate(now)
    if has is None:
        return None
    for name, fits in _MACHINE_OPTIONS.items():
        if given.get(name) is None or any(fits(one, has) for one in options):
            continue
        option = f"--{name.replace('_', '-')}"
        if given[name] is False:
            option = f"--no-{name.replace('_', '-')}"
        return ConflictError(
            f"{option} cannot apply to '{cluster}', which has machines already",
            f"it has {_describe(has)} on {has.where}, {has.market}",
            f"leave {option} out, or another cluster, -c NAME; or end this one first: orch down {cluster}",
        )
    return None


def _same_place(one: Candidate, has: Candidate) -> bool:
    return one.provider == has.provider and one.region in ("", has.region) and one.zone in ("", has.zone)


# Options that decide something only when a slice is created, and whether a candidate agrees with existing machines.
_MACHINE_OPTIONS: Mapping[str, Callable[[Candidate, Candidate], bool]] = {
    "infra": _same_place,
    "use_spot": lambda one, has: type(one.market) is type(has.market),
    "num_nodes": lambda one, has: one.hosts == has.hosts,
    "disk_size": lambda one, has: one.disk_gib == has.disk_gib,
    "image_id": lambda one, has: one.detail("image") == has.detail("image"),
}


def surplus_hosts_note(cluster: str, now: Observed, options: Sequence[Candidate]) -> str:
    """Return a note when the cluster has more hosts than the task asks for, else ""."""
    has = _usable_candidate(now)
    alike = _alike(has, options) if has is not None else []
    if has is None or not alike or any(one.hosts >= has.hosts for one in alike):
        return ""
    return f"'{cluster}' has {has.hosts} hosts; {alike[0].hosts} are requested: the program runs on all of them"


def _usable_candidate(now: Observed) -> Candidate | None:
    current = now.current
    if current is None or current.state is not IntentState.ACCEPTED or now.slice_state in _TO_BE_REPLACED:
        return None
    return current.candidate


def _alike(has: Candidate, options: Sequence[Candidate]) -> list[Candidate]:
    return [one for one in options if one.accelerator == has.accelerator]


def _describe(candidate: Candidate) -> str:
    return f"{candidate.hosts} host{'s' if candidate.hosts > 1 else ''} of {candidate.accelerator}"
