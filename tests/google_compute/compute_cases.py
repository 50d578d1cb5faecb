"""Specs for Compute Engine by a name in words: every family, market and option."""

from __future__ import annotations

from dataclasses import replace

from compute_bench import spec, wanted
from google_cases import candidate

from orchestrator.slices import FlexStart, Market, Reservation, SliceSpec, Spot

FAMILIES = {
    "v5p-8": "us-east5-a",
    "v5p-32": "us-east5-a",
    "v6e-8": "us-east5-b",
    "tpu7x-8": "us-central1-c",
    "tpu7x-32": "us-central1-c",
}
MARKETS: dict[str, Market | None] = {
    "on demand": None,
    "spot": Spot(),
    "a reservation": Reservation("my-res"),
    "flex-start": FlexStart(4.0),
}
OPTIONS: dict[str, dict[str, str]] = {
    "a network": {"network": "net-1"},
    "a network and a subnetwork": {"network": "net-1", "subnetwork": "sub-1"},
    "a subnetwork alone": {"subnetwork": "sub-1"},
    "a subnetwork by path": {"subnetwork": "projects/another-project/regions/us-east5/subnetworks/sub-1"},
    "internal addresses": {"internal_ips": "yes"},
    "a service account": {"service_account": "tpu@project-of-tests.iam.gserviceaccount.com"},
    "tags": {"tags": "a-tag,b-tag"},
    "secure boot": {"secure_boot": "yes"},
    "an image": {"runtime_version": "projects/my-images/global/images/mine-1"},
    "a run duration": {"max_run_hours": "12"},
    "read-only data": {"data_disks": "corpus:ro"},
}


PLAIN = {
    "e2-standard-4": "us-east5-b",
    "n2-highmem-8": "us-east5-a",
    "g2-standard-48": "us-central1-a",
    "a2-highgpu-8g": "us-central1-f",
    "a2-ultragpu-1g": "us-east5-b",
}


def matrix() -> dict[str, SliceSpec]:
    found = {
        f"{family}, {word}": spec(wanted(family, market, zone=zone))
        for family, zone in FAMILIES.items()
        for word, market in MARKETS.items()
    }
    for word, details in OPTIONS.items():
        found[f"instance with {word}"] = spec(wanted("v6e-8", **details))
        found[f"group with {word}"] = spec(wanted("v6e-16", **details))
    found["instance of a bound reservation"] = spec(wanted("v6e-8", Reservation("my-res"), reservation_bound="yes"))
    found["group of a bound reservation"] = spec(wanted("v6e-16", Reservation("my-res"), reservation_bound="yes"))
    found["two groups"] = spec(wanted("tpu7x-16", slices=2, zone="us-central1-c"))
    found["two instances, spot"] = spec(wanted("v6e-8", Spot(), slices=2))
    for kind, zone in PLAIN.items():
        for word, market in MARKETS.items():
            if not isinstance(market, FlexStart):
                found[f"{kind}, {word}"] = spec(candidate(kind, market, zone=zone))
    plain = candidate("e2-standard-4", zone="us-east5-b", network="net-1", tags="a-tag", max_run_hours="2")
    found["two plain machines with options"] = spec(replace(plain, hosts=2))
    found["another topology"] = spec(wanted("v5p-512", topology="4x4x16", zone="us-east5-a"))
    return found
