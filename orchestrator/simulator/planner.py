"""Planner of the provider "simulated": its requests and the facts of its hosts, without I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.paths import load_paths
from orchestrator.providers.loopback import loopback_facts
from orchestrator.providers.protocol import Place
from orchestrator.slices import Candidate, HostFacts, Market, Request, SliceSpec

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

SERVICE = "simulated"
BUCKETS = "buckets"  # below the folder of the cloud: SCHEME/NAME/KEY


class SimulatedPlanner:
    """Planner whose requests have no command-line form: only orch knows this cloud."""

    name = "simulated"

    def list_places(self, task: Task, choice: Resources, market: Market) -> tuple[Place, ...]:
        return (Place(choice.infra.region, choice.infra.zone),)

    def list_details(
        self, task: Task, choice: Resources, market: Market, place: Place, *, only: bool
    ) -> tuple[tuple[str, str], ...]:
        return (("shape", choice.infra.shape),) if choice.infra.shape else ()

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
        return Request(service=SERVICE, method="create", target=spec.name, body=body)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="end", target=name)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="stop", target=name)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service=SERVICE, method="start", target=name)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        facts = loopback_facts(candidate, end_verb="delete", stop_verb="" if candidate.hosts > 1 else "stop")
        return replace(facts, bucket_folder=str(load_paths().state / SERVICE / BUCKETS))


PLANNER = SimulatedPlanner()
