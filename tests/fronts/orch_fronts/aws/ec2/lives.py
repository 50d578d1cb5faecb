"""The state of each instance, from the phase of the resource it belongs to and from what befell it alone.

A launch of N instances is one resource of the neutral cloud, which lives and ends as a whole; on EC2 each instance has
a life of its own. So what ended one of them is kept: "alone" has by uid and rank the state, the cause and the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orch_fronts.aws.ec2.visit import kept
from orchestrator.simulator import lifecycle
from orchestrator.simulator.calls import Look
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.state import Phase, Resource

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
SHOWN_FOR = 3600.0  # seconds that a terminated instance is shown; rule terminated_instance_is_shown_for_a_while
_STATES = {
    Phase.CREATING: "pending",
    Phase.READY: "running",
    Phase.MAINTENANCE: "running",
    Phase.STOPPING: "stopping",
    Phase.STOPPED: "stopped",
    Phase.STARTING: "pending",
    Phase.ENDING: "shutting-down",
    Phase.ABSENT: "terminated",
}
_ONE_TAKEN = re.compile(r"host (\d+) of \d+ was preempted")
_ONE_DEAD = re.compile(r"host (\d+) of \d+ is dead")
BY_USER = "Client.UserInitiatedShutdown"
REASONS: Mapping[str, str] = {  # StateReason (EC2 API reference, read November 2026)
    BY_USER: "User initiated shutdown",
    "Client.InstanceInitiatedShutdown": "Instance initiated shutdown",
    "Server.SpotInstanceTermination": "Spot instance termination",
    "Server.InsufficientInstanceCapacity": "Insufficient capacity available to satisfy the launch request",
    "Server.InternalError": "Internal error on launch",
    "Server.ScheduledStop": "Stopped due to scheduled retirement",
    "Server.CapacityBlockExpired": "The capacity block is about to end",
}


@dataclass(frozen=True, slots=True)
class Life:
    """cause: a key of REASONS, "" while nothing is wrong."""

    state: str
    cause: str = ""

    @property
    def over(self) -> bool:
        return self.state == "terminated"


def life_of(cloud: SimulatedCloud, look: Look, rank: int) -> Life:
    alone = kept(cloud, "alone").get(look.uid, {}).get(str(rank))
    if alone and look.phase not in (Phase.ENDING, Phase.ABSENT):
        going = alone["state"] == "terminated" and cloud.state.now - alone["at"] < cloud.scenario.durations.end
        return Life("shutting-down" if going else str(alone["state"]), str(alone["cause"]))
    cause = str(alone["cause"]) if alone else str(kept(cloud, "causes").get(look.uid, BY_USER))
    if look.phase in (Phase.PREEMPTED, Phase.FAILED):  # another of them was taken, or is dead
        return Life("running")
    half_made = look.phase is Phase.CREATING and cloud.state.resources[look.uid].phase is Phase.CREATING
    if half_made and look.hosts[rank].up:  # others of its launch never come up
        return Life("running")
    state = _STATES[look.phase]
    return Life(state, cause if state in ("shutting-down", "terminated", "stopping", "stopped") else "")


def pass_time(cloud: SimulatedCloud, resource: Resource) -> None:
    """Let the phase of a launch become what EC2 makes of it: nobody has to end what has ended by itself."""
    if resource.phase not in (Phase.PREEMPTED, Phase.FAILED):
        return
    cause = _cause(resource)
    one = (_ONE_TAKEN if resource.phase is Phase.PREEMPTED else _ONE_DEAD).fullmatch(resource.reason)
    if one is None or (len(resource.hosts) == 1 and resource.phase is Phase.PREEMPTED):
        kept(cloud, "causes")[resource.uid] = cause
        lifecycle.begin_end(cloud.host_world(), resource)
        return
    if one[1] not in kept(cloud, "alone").get(resource.uid, {}):
        if resource.phase is Phase.PREEMPTED:
            leave(cloud, resource, int(one[1]), "terminated", cause)
        else:
            leave(cloud, resource, int(one[1]), "stopped", "Server.ScheduledStop")


def leave(cloud: SimulatedCloud, resource: Resource, rank: int, state: str, cause: str) -> None:
    """One instance stops or ends and the others go on; with the last one the whole launch has."""
    alone: dict[str, Any] = kept(cloud, "alone").setdefault(resource.uid, {})
    alone[str(rank)] = {"state": state, "cause": cause, "at": cloud.state.now}
    lifecycle.take_down(cloud.host_world(), resource.hosts[rank])
    if len(alone) < len(resource.hosts) or resource.phase in (Phase.ENDING, Phase.ABSENT):
        return
    world = cloud.host_world()
    if all(one["state"] == "terminated" for one in alone.values()):
        kept(cloud, "causes")[resource.uid] = cause
        lifecycle.begin_end(world, resource)
    elif resource.phase is Phase.READY and all(one["state"] == "stopped" for one in alone.values()):
        kept(cloud, "causes")[resource.uid] = cause
        kept(cloud, "alone").pop(resource.uid)  # they can be started again as a whole
        lifecycle.move(world, resource, Phase.STOPPING)
        lifecycle.arrive(world, resource, 0.0, Phase.STOPPED)


def power_off(cloud: SimulatedCloud, resource: Resource, rank: int) -> None:
    """The machine was shut down from inside. Rule shutdown_from_inside_does_what_the_launch_said."""
    behaviour = str(resource.extra.get("ec2", {}).get("shutdown", "stop"))
    state = "terminated" if behaviour == "terminate" else "stopped"
    leave(cloud, resource, rank, state, "Client.InstanceInitiatedShutdown")


def _cause(resource: Resource) -> str:
    if resource.phase is Phase.PREEMPTED:
        return "Server.SpotInstanceTermination" if resource.market == "spot" else "Server.InternalError"
    was_ready = any(phase == Phase.READY.value for _, phase in resource.past)
    return "Server.InternalError" if was_ready else "Server.InsufficientInstanceCapacity"
