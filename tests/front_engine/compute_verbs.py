"""The commands of the crash matrix on TPUs of Compute Engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from crash_verbs import (
    ORPHANS,
    READY,
    STOPPED,
    Verb,
    down,
    failed,
    launch,
    nothing_yet,
    preempted,
    reap,
    recover,
    resume,
    start,
    stop,
    stopped,
    task,
    up,
    with_orphans,
)
from front_matrix import TWO_SLICES, Broken, FrontMatrix
from noted_afterwards import NamesNotedAfterwards
from support.compute_front import COMPUTE, GROUP, PointedCompute
from support.simulated import SimHome, sim_launch

from orchestrator.providers.google.compute import listing
from orchestrator.providers.google.compute.observing import Observer
from orchestrator.slices import FlexStart


def _launch_flex_start(home: SimHome) -> None:
    home.drive(sim_launch(task(), replace(home.candidate(GROUP), market=FlexStart(1.0))))


RECOVERED = {"c-2": "ready"}
VERBS_OF_COMPUTE = (
    Verb("launch a group", nothing_yet, partial(launch, hosts=GROUP), READY, 1, hosts=GROUP),
    Verb("launch an instance", nothing_yet, partial(launch, hosts=1), READY, 1, hosts=1),
    Verb("launch spot", nothing_yet, partial(launch, hosts=GROUP, spot=True), READY, 1, hosts=GROUP),
    Verb("launch flex-start", nothing_yet, _launch_flex_start, READY, 1, hosts=GROUP),
    Verb("resume", partial(failed, hosts=GROUP), partial(resume, hosts=GROUP), READY, 2, hosts=GROUP),
    Verb("recover a group", partial(preempted, hosts=GROUP), partial(recover, hosts=GROUP), RECOVERED, 2, hosts=GROUP),
    Verb("recover an instance", partial(preempted, hosts=1), partial(recover, hosts=1), RECOVERED, 2, hosts=1),
    Verb("launch several instances", nothing_yet, launch, {"c-1-s0": "ready", "c-1-s1": "ready"}, 1),
    Verb("recover one of several", partial(preempted, part="-s1"), recover, {"c-2-s0": "ready", "c-2-s1": "ready"}, 2),
    Verb("down several instances", up, down, {}, 1),
    # A group with a topology cannot be stopped and kept.
    Verb("stop", partial(up, hosts=1), stop, STOPPED, 1, hosts=1),
    Verb("start", partial(stopped, hosts=1), start, READY, 1, hosts=1),
    Verb("down a group", partial(up, hosts=GROUP), down, {}, 1, hosts=GROUP),
    Verb("down an instance", partial(up, hosts=1, spot=True), down, {}, 1, hosts=1),
    Verb("reap", partial(with_orphans, hosts=GROUP), reap, READY, 1, hosts=GROUP),
)
BY_NAME = {verb.name: verb for verb in VERBS_OF_COMPUTE}
LAUNCHES = tuple(verb for verb in VERBS_OF_COMPUTE if verb.name.startswith("launch"))
SENDERS = (  # the requests of the others are among theirs
    *(BY_NAME[name] for name in ("launch flex-start", "launch an instance", "stop", "start")),
    *(BY_NAME[name] for name in ("down a group", "down an instance")),
)
MATRIX = FrontMatrix(
    front=COMPUTE,
    proof="SIGKILL around every request to Compute Engine's API, over sockets",
    proof_on_server="SIGKILL around every request to Compute Engine's API, on PostgreSQL",
    verbs=VERBS_OF_COMPUTE,
    on_sqlite=2,
    points_on_server="distinct",  # an hour for all of them
    doubles=0.03,
    kills=1,
    taken_down=LAUNCHES,
    senders=SENDERS,
    requests=(  # and `setLabels`, which only `orch recover` sends
        "POST resourcePolicies",
        "POST instanceTemplates",
        "POST instanceGroupManagers",
        "POST resize",
        "POST instances",
        "POST stop",
        "POST start",
        "DELETE instances",
        "DELETE instanceGroupManagers",
        "DELETE instanceTemplates",
        "DELETE resourcePolicies",
    ),
)


class NotedAfterwards(NamesNotedAfterwards, PointedCompute):
    """On Compute Engine."""


BROKEN = (
    Broken(
        name="records names after the create",
        matrix=MATRIX,
        verb=BY_NAME["launch a group"],
        finds=TWO_SLICES,
        kind=NotedAfterwards,
        killed="answered POST instanceGroupManagers",
    ),
    Broken(
        name="leaves a template and a policy",
        matrix=MATRIX,
        verb=BY_NAME["down a group"],
        finds=("instanceTemplates/{slice} is left", "resourcePolicies/{slice} is left"),
        patches=((Observer, "list_left", lambda *_: []),),
    ),
    Broken(
        name="sweeps no templates and policies",
        matrix=MATRIX,
        verb=BY_NAME["reap"],
        finds=(f"instanceTemplates/{ORPHANS[0]} is left", f"resourcePolicies/{ORPHANS[0]} is left"),
        patches=((listing, "KINDS", (listing.GROUPS, listing.INSTANCES)),),
    ),
)
