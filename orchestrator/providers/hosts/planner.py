"""The pure half of the hosts provider."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.providers.hosts.machines import from_details
from orchestrator.slices import Candidate, HostFacts, Request, SliceSpec

SERVICE = "hosts"


class HostsPlanner:
    """Nothing is sent anywhere: the requests say what is written down or forgotten on this computer."""

    name = "hosts"

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
