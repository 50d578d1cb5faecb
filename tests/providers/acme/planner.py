"""The pure half of the invented cloud."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acme.options import OPTIONS, AcmeOptions
from orchestrator.options import decode_options, encode_options
from orchestrator.providers.protocol import Place
from orchestrator.slices import Candidate, HostFacts, Market, Request, SliceSpec


class AcmePlanner:
    """One request makes all machines."""

    name = "acme"

    def list_places(self, task: Any, choice: Any, market: Market) -> list[Place]:
        return [Place(choice.infra.region, zone) for zone in (choice.infra.zone or "fra1", "fra2")]

    def list_details(self, task: Any, choice: Any, market: Market, place: Place, *, only: bool) -> Any:
        from orchestrator.task.driver_sections import build_options

        options = build_options(AcmeOptions, task.settings("acme"), choice.accelerator_args)
        return encode_options(replace(options, image=dict(choice.image_id).get("", "")))

    def create_request(self, spec: SliceSpec) -> Request:
        options = decode_options(AcmeOptions, OPTIONS.owner, spec.candidate.details)
        body: dict[str, object] = {"tenant": options.tenant, "count": spec.candidate.hosts, "hours": options.hours}
        return Request(service="acme", method="POST", target=spec.name, body=body)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        return Request(service="acme", method="DELETE", target=name)

    stop_request = start_request = end_request

    def host_facts(self, candidate: Candidate) -> HostFacts:
        return HostFacts()

    def list_notes(self, task: Any, candidates: Any) -> tuple[str, ...]:
        return (f"Acme is tried in {len(candidates)} zones",)


PLANNER = AcmePlanner()
