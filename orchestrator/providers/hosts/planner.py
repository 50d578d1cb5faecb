"""The pure half of the hosts provider."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from orchestrator.providers.hosts.machines import from_details
from orchestrator.providers.protocol import Place
from orchestrator.slices import Candidate, HostFacts, Market, Request, SliceSpec

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

SERVICE = "hosts"


class HostsPlanner:
    """Nothing is sent anywhere: the requests say what is written down or forgotten on this computer."""

    name = "hosts"

    def list_places(self, task: Task, choice: Resources, market: Market) -> tuple[Place, ...]:
        return (Place(choice.infra.region, choice.infra.zone),)

    def list_details(
        self, task: Task, choice: Resources, market: Market, place: Place, *, only: bool
    ) -> tuple[tuple[str, str], ...]:
        return (("hosts", json.dumps([host.model_dump(exclude_none=True) for host in task.hosts])),)

    def create_request(self, spec: SliceSpec) -> Request:
        machines = [
            {key: value for key, value in asdict(host).items() if value} for host in from_details(spec.candidate)
        ]
        body: dict[str, object] = {"cluster": spec.cluster, "token": spec.token, "hosts": machines}
        return Request(service=SERVICE, method="record", target=spec.name, body=body)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="forget", target=name)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="none", target=name)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="none", target=name)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        """Nothing is known of machines that somebody else looks after."""
        return HostFacts()


PLANNER = HostsPlanner()
