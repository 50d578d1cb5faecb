"""The pure half of the provider "simulated": its requests and what it knows of its hosts."""

from __future__ import annotations

from orchestrator.providers.loopback import loopback_facts
from orchestrator.slices import Candidate, HostFacts, Request, SliceSpec

SERVICE = "simulated"


class SimulatedPlanner:
    """There is no command line for these requests: nothing but orch knows this cloud."""

    name = "simulated"

    def create_request(self, spec: SliceSpec) -> Request:
        candidate = spec.candidate
        body: dict[str, object] = {
            "cluster": spec.cluster,
            "zone": candidate.zone,
            "accelerator": candidate.accelerator,
            "hosts": candidate.hosts,
            "market": str(candidate.market),
            "token": spec.token,
            "labels": dict(spec.labels),
        }
        return Request(SERVICE, "create", spec.name, body)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return Request(SERVICE, "end", name)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return Request(SERVICE, "stop", name)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return Request(SERVICE, "start", name)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        return loopback_facts(candidate)


PLANNER = SimulatedPlanner()
