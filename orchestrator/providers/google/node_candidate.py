"""A TPU node as Google shows it, as the candidate that describes the same machines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.catalog.machines import TpuSlice
from orchestrator.catalog.prices import price_per_hour
from orchestrator.catalog.tpu import find_by_topology, find_slice, list_generations
from orchestrator.errors import UserError
from orchestrator.providers.google import choices
from orchestrator.providers.google.addresses import endpoints
from orchestrator.slices import Candidate, Market, OnDemand, Reservation, Spot


def describe_node(node: Any, queued: Any | None) -> Candidate:
    """Return the candidate that describes the machines of a node.

    Args:
        node: Of the TPU API.
        queued: The queued resource that it belongs to; None for none.

    Raises:
        UserError: The catalogue does not have this TPU.
    """
    name, (_, project, _, zone, *_) = _last(node.name), node.name.split("/")
    tpu, workers = _machine(node), endpoints(node)
    if workers and len(workers) != tpu.hosts:
        raise UserError(
            f"'{name}' has {len(workers)} hosts",
            f"{tpu.name} has {tpu.hosts}, by Google's tables",
            f"gcloud compute tpus tpu-vm describe {name} --zone={zone}",
        )
    region, market = zone.rpartition("-")[0], _market(node, queued)
    price = price_per_hour(tpu, market, region)
    details = {
        "project": project,
        **dict(_network(node, workers)),
        "runtime_version": node.runtime_version,
        "topology": "" if node.accelerator_type else tpu.topology,
    }
    return Candidate(
        provider="gcp",
        accelerator=tpu.name,
        hosts=tpu.hosts,
        chips_per_host=tpu.chips_per_host,
        market=market,
        region=region,
        zone=zone,
        price_per_hour=price.high if price is not None else None,
        price_note=price.note if price is not None else "",
        details=tuple((key, value) for key, value in details.items() if value),
    )


def _machine(node: Any) -> TpuSlice:
    """Raises UserError for a TPU that the catalogue does not have."""
    if node.accelerator_type:
        found = find_slice(node.accelerator_type)
        if found is None:
            raise UserError(
                f"'{_last(node.name)}' is a {node.accelerator_type}",
                "orch does not know this machine",
                "orch accelerators --tpu   lists those that it knows",
            )
        return found
    config = node.accelerator_config
    named = [each.name for each in list_generations() if each.api_type == config.type_.name]
    return find_by_topology(named[0] if named else config.type_.name, config.topology)


def _market(node: Any, queued: Any | None) -> Market:
    scheduling = node.scheduling_config
    if scheduling.spot or scheduling.preemptible or (queued is not None and "spot" in queued):
        return Spot()
    if queued is not None and queued.reservation_name:
        return Reservation(queued.reservation_name)
    return Reservation(choices.ANY_RESERVATION) if scheduling.reserved else OnDemand()


def _network(node: Any, workers: list[Any]) -> Iterator[tuple[str, str]]:
    yield "network", _last(node.network_config.network)
    if workers and not any(worker.access_config.external_ip for worker in workers):
        yield "internal_ips", "yes"


def _last(path: str) -> str:
    return str(path).rpartition("/")[2]
