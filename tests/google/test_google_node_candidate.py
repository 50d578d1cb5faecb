"""The candidate that a node of the TPU API describes, from which a take-over makes its record."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud import tpu_v2
from google_bench import PLACE

from orchestrator.errors import UserError
from orchestrator.providers.google.node_candidate import describe_node
from orchestrator.slices import OnDemand, Reservation, Spot


def node(hosts: int, *, external: bool = False, **fields: Any) -> tpu_v2.Node:
    one = {"access_config": {"external_ip": "203.0.113.1"}} if external else {}
    return tpu_v2.Node({"name": f"{PLACE}/nodes/n", "network_endpoints": [one] * hosts, **fields})


def test_a_type_or_a_topology_names_the_machines() -> None:
    found = describe_node(node(1, accelerator_type="v5litepod-8"), None)
    assert (found.accelerator, found.hosts, found.market, found.where) == (
        "v5litepod-8",
        1,
        OnDemand(),
        "gcp/us-west4/us-west4-a",
    )
    assert (found.detail("internal_ips"), found.detail("topology")) == ("yes", "")
    shaped = node(2, external=True, accelerator_config={"type_": "V4", "topology": "2x2x2"})
    found = describe_node(shaped, None)
    assert (found.accelerator, found.hosts, found.chips_per_host) == ("v4-16", 2, 4)
    assert (found.detail("internal_ips"), found.detail("topology")) == ("", "2x2x2")


def test_the_market_is_that_of_the_node_or_of_its_request() -> None:
    kind: dict[str, Any] = {"accelerator_type": "v5litepod-8"}
    assert describe_node(node(1, scheduling_config={"spot": True}, **kind), None).market == Spot()
    assert describe_node(node(1, **kind), tpu_v2.QueuedResource({"spot": {}})).market == Spot()
    held = tpu_v2.QueuedResource({"reservation_name": "r"})
    assert describe_node(node(1, **kind), held).market == Reservation("r")


def test_a_node_that_the_catalogue_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match="is a v99-8"):
        describe_node(node(1, accelerator_type="v99-8"), None)
    with pytest.raises(UserError, match="has 3 hosts"):
        describe_node(node(3, accelerator_type="v5litepod-16"), None)
