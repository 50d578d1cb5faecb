"""Zones in which the TPU API serves this project, and which of them offer what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from orchestrator.catalog.machines import ComputeType, TpuSlice
from orchestrator.exits import Exit
from orchestrator.messages import join_some
from orchestrator.providers.checks import Ask, Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google.check_asked import machine_of
from orchestrator.providers.google.check_calls import Calls
from orchestrator.providers.google.retries import explain

AT_ONCE = 8  # zones are asked, of some forty that serve a project


def zones(calls: Calls, ask: Ask) -> Outcome:
    """By projects.locations and acceleratorTypes of the TPU API, version 2. Raises UserError."""
    tpu = machine_of(ask)
    if isinstance(tpu, ComputeType):
        words = f"{tpu.name} is listed in {join_some(tpu.zones)}; Compute Engine is not asked"
        return ok("zones", words)
    if tpu is not None and not tpu.in_tpu_api:
        words = f"the TPU API does not list {tpu.name}: only Compute Engine has it"
        return unknown("zones", words, "a plan shows the zones that are listed: orch plan")
    try:
        served = _locations(calls)
        if ask.zone and ask.zone not in served:
            return _not_served(ask.zone, served)
        if tpu is None:
            return ok("zones", f"{ask.zone} is served" if ask.zone else f"{len(served)} zones are served")
        return _offers(calls, ask, tpu, _candidates(ask, tpu, served))
    except Refused as refused:
        return finding_from_error("zones", explain("list", "the TPU zones", refused.answer, calls.project))


def _candidates(ask: Ask, tpu: TpuSlice, served: Sequence[str]) -> list[str]:
    if ask.zone:
        return [ask.zone]
    listed = [one for one in tpu.zones if one in served]
    return [one for one in dict.fromkeys((*listed, *sorted(served))) if ask.region in ("", one.rpartition("-")[0])]


def _offers(calls: Calls, ask: Ask, tpu: TpuSlice, asked: Sequence[str]) -> Outcome:
    """Google's own answer counts; the catalogue's is for plans, which ask no one."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        has = list(pool.map(partial(_has, calls, name=tpu.name), asked))
    offering = [zone for zone, found in zip(asked, has, strict=True) if found]
    if offering:
        words = f"{tpu.name} is offered in {', '.join(offering)}"
        new = [zone for zone in offering if zone not in tpu.zones]
        if new and not ask.zone:
            first = f"gcp/{new[0].rpartition('-')[0]}/{new[0]}"
            words += f"; orch's table of {tpu.zones_as_of} lacks {', '.join(new)}: name such a zone, --infra {first}"
        return ok("zones", words)
    where = ", ".join(asked) if ask.zone or ask.region else "any zone that serves this project"
    listed = ", ".join(zone for zone in tpu.zones if zone not in asked) or "none"
    mend = f"take another zone (listed: {listed}) or another accelerator: orch accelerators"
    return fix("zones", f"{tpu.name} is not offered in {where}", mend, Exit.CAPACITY)


def _not_served(zone: str, served: Sequence[str]) -> Outcome:
    near = [one for one in served if one.rpartition("-")[0] == zone.rpartition("-")[0]] or list(served[:5])
    words = f"the TPU API does not serve this project in {zone}"
    return fix("zones", words, f"take another: --zone {near[0]}" if near else "ask for TPU quota", Exit.CAPACITY)


def _locations(calls: Calls) -> list[str]:
    """Raises Refused."""

    def ask(service: Any, token: str) -> Any:
        return service.projects().locations().list(name=f"projects/{calls.project}", pageSize=500, pageToken=token)

    return [str(one["locationId"]) for page in calls.pages("tpu", "v2", ask) for one in page.get("locations", ())]


def _has(calls: Calls, zone: str, name: str) -> bool:
    """Raises Refused; a zone that is closed to the project has nothing to offer."""
    where = f"projects/{calls.project}/locations/{zone}"

    def ask(service: Any, token: str) -> Any:
        return service.projects().locations().acceleratorTypes().list(parent=where, pageSize=500, pageToken=token)

    try:
        pages = calls.pages("tpu", "v2", ask)
        return any(one.get("type") == name for page in pages for one in page.get("acceleratorTypes", ()))
    except Refused as refused:
        if refused.answer.kind is Kind.NOT_OFFERED:
            return False
        raise
