"""The pure half of the local provider: its requests and what it knows of its hosts."""

from __future__ import annotations

import sys

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
        return Request(SERVICE, "create", spec.name, body)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return Request(SERVICE, "end", name)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return Request(SERVICE, "stop", name)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return Request(SERVICE, "start", name)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        """All hosts share one network interface, one interpreter and the cores of one machine."""
        loopback = "lo" if sys.platform == "linux" else "lo0"
        env = (
            ("GLOO_SOCKET_IFNAME", loopback),
            ("ORCH_PYTHON", sys.executable),
            ("ORCH_LOCAL_RANKS_PER_MACHINE", str(candidate.hosts)),
        )
        return HostFacts(env=env, python=sys.executable)


PLANNER = LocalPlanner()
