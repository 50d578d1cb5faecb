"""The pure half of the local provider: its requests and what it knows of its hosts."""

from __future__ import annotations

from orchestrator.providers.loopback import loopback_facts
from orchestrator.slices import Candidate, HostFacts, Request, SliceSpec

SERVICE = "local"


class LocalPlanner:
    """There is no command line for these requests: nothing but orch knows this cloud."""

    name = "local"

    def create_request(self, spec: SliceSpec) -> Request:
        body: dict[str, object] = {
            "cluster": spec.cluster,
            "hosts": spec.candidate.hosts,
            "token": spec.token,
            "labels": dict(spec.labels),
        }
        return Request(service=SERVICE, method="create", target=spec.name, body=body)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="end", target=name)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="stop", target=name)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="start", target=name)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        return loopback_facts(candidate)


PLANNER = LocalPlanner()
