"""The pure half of the local provider: its requests and what it knows of its hosts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.providers.local.layout import CLEAN_PATH
from orchestrator.providers.loopback import loopback_facts
from orchestrator.providers.protocol import Place
from orchestrator.slices import Candidate, HostFacts, Market, Request, SliceSpec

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

SERVICE = "local"


class LocalPlanner:
    """There is no command line for these requests: nothing but orch knows this cloud."""

    name = "local"

    def list_places(self, task: Task, choice: Resources, market: Market) -> tuple[Place, ...]:
        return (Place(choice.infra.region, choice.infra.zone),)

    def list_details(
        self, task: Task, choice: Resources, market: Market, place: Place, *, only: bool
    ) -> tuple[tuple[str, str], ...]:
        return (("shape", choice.infra.shape),) if choice.infra.shape else ()

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
        facts = loopback_facts(candidate)
        folder = _find_launch_folder()
        facts = replace(facts, image_python=_name_missing_python(folder))
        return replace(facts, env=(*facts.env, ("ORCH_LAUNCH_BIN", folder))) if folder else facts


def _find_launch_folder() -> str:
    """Return the folder of the interpreter that this shell finds first; "" for one that every shell finds."""
    python = Path(shutil.which("python3") or shutil.which("python") or "")
    folder = str(python.parent)  # as it is written on PATH: a link stays
    return folder if python.is_absolute() and folder not in CLEAN_PATH.split(":") else ""


def _name_missing_python(folder: str) -> str:
    """Return which interpreter a host finds where `python` or `python3` is missing; "" where it finds both."""
    path = f"{folder}:{CLEAN_PATH}"
    places = {name: shutil.which(name, path=path) for name in ("python3", "python")}
    if all(places.values()):
        return ""
    return ", ".join(f"`{name}` is {place}" if place else f"no `{name}`" for name, place in places.items())


PLANNER = LocalPlanner()
