"""The pure half of the provider "simulated": its requests and what it knows of its hosts."""

from __future__ import annotations

import sys

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
        """Behind a simulated slice stand hosts on this computer, so the facts are theirs."""
        loopback = "lo" if sys.platform == "linux" else "lo0"
        env = (
            ("GLOO_SOCKET_IFNAME", loopback),
            ("ORCH_PYTHON", sys.executable),
            ("ORCH_LOCAL_RANKS_PER_MACHINE", str(candidate.hosts)),
        )
        return HostFacts(env=env, python=sys.executable)


PLANNER = SimulatedPlanner()
