"""Candidates and specs for the tests of Google: every family, market, path and option."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.providers.google import sending
from orchestrator.providers.google.planner import PLANNER
from orchestrator.providers.google.rented import find_rented
from orchestrator.slices import Candidate, FlexStart, Market, OnDemand, Request, Reservation, SliceKeys, SliceSpec, Spot
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
    machine = find_rented(accelerator)
    assert machine is not None
    given = {"project": PROJECT} | details
    return Candidate(
        provider="gcp",
        accelerator=machine.name,
        hosts=machine.hosts * slices,
        chips_per_host=machine.chips_per_host,
        market=market or OnDemand(),
        region=zone.rpartition("-")[0],
        zone=zone,
        disk_gib=disk_gib,
        details=tuple((key, value) for key, value in given.items() if value),
    )


def spec(of: Candidate | None = None, name: str = "demo-1", token: str = TOKEN) -> SliceSpec:
    labels = (*LABELS[:2], ("orch-intent", Text.of(token)))
    return SliceSpec(cluster="demo", name=name, token=Text.of(token), candidate=of or candidate(), labels=labels)


def matrix() -> dict[str, SliceSpec]:
    """By a name in words. Those that end in [curl] are beyond what gcloud can say."""
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
        found[f"{path} with odd labels"] = odd_labels(**more)
    return found | _tiers_and_durations() | _disks()


def odd_labels(**details: str) -> SliceSpec:
    return replace(
        spec(candidate(**details), token="Token/1"),
        labels=(
            ("orch-installation", Text.of("An Installation, of Some Length; " * 5)),
            ("orch-cluster", Text.of("demo")),
            ("orch-intent", Text.of("Token/1")),
            ("Team", Text.of("ML, Research = us")),
            ("empty", Text.of("")),
        ),
    )


def _tiers_and_durations() -> dict[str, SliceSpec]:
    """What a queued resource may be beside spot, and how long it may run."""
    shared = "projects/another-project/locations/us-west4-a/reservations/theirs"
    found: dict[str, SliceSpec] = {}
    for family in ("v4-8", "v5litepod-16", "v5p-128", "v6e-8"):
        found[f"{family}, guaranteed"] = spec(candidate(family, tier="guaranteed"))
        found[f"{family}, best effort"] = spec(candidate(family, tier="best-effort"))
        found[f"{family}, flex-start"] = spec(candidate(family, FlexStart(4.0)))
    bound = {"reservation_bound": "yes"}
    cases: dict[str, Candidate] = {
        "flex-start for a week, waits a day": candidate("v6e-8", FlexStart(168.0), valid_hours="24"),
        "flex-start of two slices": candidate("v6e-8", FlexStart(0.5), slices=2),
        "flex-start of a topology": candidate("v5p-128", FlexStart(1.5), topology="4x4x4"),
        "flex-start of a v5e topology": candidate("v5litepod-8", FlexStart(1.0), topology="2x4"),
        "flex-start with no project": candidate("v6e-8", FlexStart(1.0), project=""),
        "flex-start with internal addresses": candidate("v6e-8", FlexStart(1.0), internal_ips="yes", network="net-1"),
        "flex-start by an IAP tunnel": candidate("v6e-8", FlexStart(1.0), access="iap", secure_boot="yes", tags="a,b"),
        "on demand for ten hours": candidate(max_run_hours="10"),
        "spot for ten hours [curl]": candidate(market=Spot(), max_run_hours="10"),
        "two slices on demand for an hour": candidate(slices=2, max_run_hours="1"),
        "guaranteed for a quarter of an hour": candidate(tier="guaranteed", max_run_hours="0.25"),
        "guaranteed, two slices": candidate(slices=2, tier="guaranteed"),
        "best effort, three slices": candidate(slices=3, tier="best-effort", network="net-1"),
        "any reservation for an hour": candidate(market=Reservation("-"), max_run_hours="1"),
        "bound to any reservation": candidate(market=Reservation("-"), **bound),
        "bound to a named reservation": candidate(market=Reservation("my-reservation"), **bound),
        "bound to a shared reservation, two slices": candidate("v6e-8", Reservation(shared), slices=2, **bound),
        "a shared reservation [curl]": candidate(market=Reservation(shared)),
    }
    return found | {word: spec(of) for word, of in cases.items()}


def _disks() -> dict[str, SliceSpec]:
    """Disks that are attached, and the size of the one that hosts boot from."""
    path = "projects/another-project/zones/us-west4-a/disks/theirs"
    one, many = candidate("v5litepod-8"), "v5litepod-16"
    cases: dict[str, Candidate] = {
        "node with a disk to write": replace(one, details=(*one.details, ("data_disks", "scratch"))),
        "node with disks to read": candidate(many, data_disks=f"data-1:ro,{path}:ro"),
        "node with a disk and no project": candidate(many, data_disks="data-1:ro", project=""),
        "spot with disks": candidate("v6e-8", Spot(), data_disks=f"scratch,{path}:ro"),
        "two slices with a disk": candidate(slices=2, data_disks="data-1:ro"),
        "flex-start with a disk": candidate("v6e-8", FlexStart(2.0), data_disks="scratch"),
        "best effort with a disk": candidate("v6e-8", tier="best-effort", data_disks="scratch"),
        "node with a small boot disk": candidate(disk_gib=100),
        "node with a large boot disk [curl]": candidate(disk_gib=500),
        "node with a large boot disk and no project [curl]": candidate(disk_gib=500, project="", data_disks="data:ro"),
        "spot with a large boot disk [curl]": candidate(market=Spot(), disk_gib=101),
        "two slices with large boot disks [curl]": candidate(slices=2, disk_gib=200),
        "flex-start with a large boot disk [curl]": candidate("v6e-8", FlexStart(2.0), disk_gib=200),
        "a named reservation with a large boot disk [curl]": candidate(market=Reservation("r-1"), disk_gib=200),
        "guaranteed with a large boot disk [curl]": candidate(tier="guaranteed", disk_gib=200, max_run_hours="3"),
    }
    return {word: spec(of) for word, of in cases.items()}


def filled(of: SliceSpec, its: SliceKeys) -> Request:
    """Return the create as it is sent."""
    return sending.fill(PLANNER.create_request(sending.with_project(of, PROJECT)), sending.list_known(its))


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
