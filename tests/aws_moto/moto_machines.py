"""Real sshd hosts behind the instances of moto: what moto shows of a launch decides what its hosts do."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orch_fronts.aws.ec2.keys import with_keys
from orch_fronts.aws.ec2.machines import PORT_TAG
from orch_fronts.ending import end_hosts
from orchestrator.providers.aws.states import GOING, STILL
from orchestrator.simulator.bodies import LocalBodies
from orchestrator.simulator.calls import HostLook, Look
from orchestrator.simulator.state import Phase
from orchestrator.slices import SliceState


@dataclass
class Machines:
    """The hosts of all accounts of one moto.

    Attributes:
        folder: Where they live.
        user_data: That of each launch, by its reservation.
        places: Address and port of the sshd of each running instance, by its id.
    """

    folder: Path
    user_data: dict[str, str] = field(default_factory=dict[str, str])
    places: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])

    def __post_init__(self) -> None:
        self._bodies = LocalBodies(self.folder)
        self._looks: dict[str, Look] = {}

    def follow(self, ec2: Any) -> None:
        """Let the hosts be as moto shows the instances of one account and region; tag them with their ports."""
        launches = {one["ReservationId"]: one["Instances"] for one in ec2.describe_instances()["Reservations"]}
        known = {name: instances for name, instances in launches.items() if name in self.user_data}
        self._looks |= {name: _look(name, instances, self.user_data[name]) for name, instances in known.items()}
        self._bodies.sync_hosts(list(self._looks.values()))
        for name, instances in known.items():
            if self._looks[name].phase is Phase.READY:
                self._show(ec2, self._looks[name], instances)

    def _show(self, ec2: Any, look: Look, instances: Sequence[Mapping[str, Any]]) -> None:
        view = self._bodies.view(look)
        if view.state is not SliceState.READY:
            return  # a host of it has ended
        for host, instance in zip(view.hosts, _by_rank(instances), strict=True):
            self.places[instance["InstanceId"]] = (host.host, host.port)
            tag = {"Key": PORT_TAG, "Value": str(host.port)}
            ec2.create_tags(Resources=[instance["InstanceId"]], Tags=[tag])

    def end(self) -> None:
        end_hosts(self._bodies, "moto")


def _look(name: str, instances: Sequence[Mapping[str, Any]], user_data: str) -> Look:
    ranked = _by_rank(instances)
    states = [one["State"]["Name"] for one in ranked]
    hosts = tuple(
        HostLook(rank=rank, address="", alias="", up=state not in GOING | STILL) for rank, state in enumerate(states)
    )
    return with_keys(
        Look(
            uid=f"{zlib.crc32(name.encode()):08x}",
            name="moto",
            zone=ranked[0]["Placement"]["AvailabilityZone"],
            accelerator=ranked[0]["InstanceType"],
            market="",
            phase=_phase(states),
            reason="",
            labels={},
            extra={"ec2": {"user_data": user_data}},
            created=0.0,
            size=len(hosts),
            hosts=hosts,
        )
    )


def _phase(states: Sequence[str]) -> Phase:
    if set(states) <= GOING:
        return Phase.ABSENT
    return Phase.STOPPED if set(states) <= GOING | STILL else Phase.READY


def _by_rank(instances: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(instances, key=lambda one: int(one["AmiLaunchIndex"]))
