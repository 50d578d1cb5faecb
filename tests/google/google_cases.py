"""Candidates and specs for the tests of Google: every family, market, path and option."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.catalog.tpu import find_slice
from orchestrator.slices import Candidate, Market, OnDemand, Reservation, SliceKeys, SliceSpec, Spot
from orchestrator.values import Text

PROJECT = "project-of-tests"
INSTALLATION = "inst-0123456789abcdef"
TOKEN = "5f0c91aa7be24d10a7b0c3d2e1f00001-1"
LABELS = (
    ("orch-installation", Text.of(INSTALLATION)),
    ("orch-cluster", Text.of("demo")),
    ("orch-intent", Text.of(TOKEN)),
)


def candidate(
    accelerator: str = "v5litepod-16",
    market: Market | None = None,
    slices: int = 1,
    zone: str = "us-west4-a",
    disk_gib: int | None = None,
    **details: str,
) -> Candidate:
    tpu = find_slice(accelerator)
    assert tpu is not None
    given = {"project": PROJECT} | details
    return Candidate(
        provider="gcp",
        accelerator=tpu.name,
        hosts=tpu.hosts * slices,
        chips_per_host=tpu.chips_per_host,
        market=market or OnDemand(),
        region=zone.rpartition("-")[0],
        zone=zone,
        disk_gib=disk_gib,
        details=tuple((key, value) for key, value in given.items() if value),
    )


def spec(of: Candidate | None = None, name: str = "demo-1", token: str = TOKEN) -> SliceSpec:
    labels = (*LABELS[:2], ("orch-intent", Text.of(token)))
    return SliceSpec("demo", name, Text.of(token), of or candidate(), labels)


def matrix() -> dict[str, SliceSpec]:
    """By a name in words. Those that end in [curl] are beyond what the released gcloud can say."""
    found: dict[str, SliceSpec] = {}
    families = ("v2-8", "v3-32", "v4-8", "v5litepod-16", "v5p-128", "v6e-8")
    markets: dict[str, Market] = {
        "on demand": OnDemand(),
        "spot": Spot(),
        "any reservation": Reservation("-"),
        "a named reservation [curl]": Reservation("my-reservation"),
    }
    for family in families:
        for word, market in markets.items():
            found[f"{family}, {word}"] = spec(candidate(family, market))
        found[f"{family}, queued"] = spec(candidate(family, queued="yes"))
        found[f"{family}, two slices"] = spec(candidate(family, slices=2))
    found["five slices, spot"] = spec(candidate("v5litepod-256", Spot(), slices=5))
    found["three slices, any reservation"] = spec(candidate("v6e-256", Reservation("-"), slices=3))
    options: dict[str, dict[str, str]] = {
        "a network": {"network": "net-1"},
        "a network and a subnetwork": {"network": "net-1", "subnetwork": "sub-1"},
        "a subnetwork by path": {"subnetwork": f"projects/{PROJECT}/regions/us-west4/subnetworks/sub-1"},
        "internal addresses": {"internal_ips": "yes"},
        "a service account": {"service_account": "tpu@project-of-tests.iam.gserviceaccount.com"},
        "tags": {"tags": "a-tag,b-tag"},
        "secure boot": {"secure_boot": "yes"},
        "a runtime version": {"runtime_version": "tpu-ubuntu2204-base"},
        "a short wait": {"valid_hours": "0.5"},
    }
    options["all of them"] = {
        key: value
        for word, details in options.items()
        if word not in ("a network", "a subnetwork by path", "tags", "a short wait")
        for key, value in details.items()
    } | {"tags": "a-tag", "valid_hours": "24"}
    for word, details in options.items():
        found[f"node with {word}"] = spec(candidate(**details))
        found[f"spot with {word}"] = spec(candidate(market=Spot(), **details))
    for path, more in (("node", {}), ("queued", {"queued": "yes"})):
        found[f"{path} of a v4 topology"] = spec(candidate("v4-16", topology="2x2x2", **more))
        found[f"{path} of a v5p topology [curl]"] = spec(candidate("v5p-128", topology="4x4x4", **more))
        found[f"{path} with no project"] = spec(candidate(project="", **more))
        found[f"{path} with odd labels"] = replace(
            spec(candidate(**more), token="Token/1"),
            labels=(
                ("orch-installation", Text.of("An Installation, of Some Length; " * 5)),
                ("orch-cluster", Text.of("demo")),
                ("orch-intent", Text.of("Token/1")),
                ("Team", Text.of("ML, Research = us")),
                ("empty", Text.of("")),
            ),
        )
    return found


def keys(hosts: int, folder: str = "/nowhere") -> SliceKeys:
    """Real keys for the hosts; the user's are named only."""
    from orchestrator.remote.keys import make_host_key

    pairs = [make_host_key() for _ in range(hosts)]
    return SliceKeys(
        user_public="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFakeFakeFakeFakeFakeFakeFakeFakeFakeFakeFake orch",
        identity_file=f"{folder}/id_ed25519",
        known_hosts=f"{folder}/known_hosts",
        host_private=tuple(private for private, _ in pairs),
        host_public=tuple(public for _, public in pairs),
    )
