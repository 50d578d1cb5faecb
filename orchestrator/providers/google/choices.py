"""What a candidate asks of Google: which TPU, where, by which path, with which options. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.catalog.machines import TpuSlice
from orchestrator.catalog.tpu import find_slice
from orchestrator.errors import UserError
from orchestrator.slices import Candidate, OnDemand, Reservation, Spot
from orchestrator.values import Text, Unknown

PROJECT = Unknown("project of your gcloud configuration")
PROVIDED_DISK_GIB = 100  # size of a TPU VM's boot disk; seen in SkyPilot issue 4964 (2025), not in Google's pages
DEFAULT_VALID_HOURS = 6
ANY_RESERVATION = "-"
MOST_HOSTS = 1400  # their keys must fit into 512 KiB of metadata (Compute Engine documentation, 2025)

Kind: TypeAlias = Literal["node", "queued"]
_YES = frozenset({"1", "true", "yes"})
_FLAGS = ("internal_ips", "queued", "secure_boot", "valid_hours")
_WORDS = ("network", "project", "runtime_version", "service_account", "subnetwork", "tags", "topology")
_DETAILS = frozenset((*_FLAGS, *_WORDS))
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]+(?:-[a-z]+)+[0-9]+-[a-z]")
_NODE_ID = re.compile(r"[a-z](?:[-a-z0-9]{0,60}[a-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9@._:/-]+")


@dataclass(frozen=True, slots=True)
class Path:
    """Which of the API's two ways a request takes, and why, in words for the plan."""

    kind: Kind
    reason: str


@dataclass(frozen=True, slots=True)
class Choices:
    """A candidate, read once.

    slices: TPU slices in it, 1 or more. project: a Text, as it may be known only to gcloud. topology: "" when the
    accelerator type alone says the shape. reservation: "" for none, "-" for any. valid_seconds: how long a queued
    request may wait.
    """

    tpu: TpuSlice
    slices: int
    path: Path
    project: Text
    zone: str
    runtime_version: str
    network: str
    subnetwork: str
    internal_ips: bool
    service_account: str
    tags: tuple[str, ...]
    secure_boot: bool
    topology: str
    spot: bool
    reservation: str
    valid_seconds: int

    @property
    def hosts_per_slice(self) -> int:
        return self.tpu.hosts


def read(candidate: Candidate) -> Choices:
    """Raises UserError for what Google's TPU API cannot give, with the reason."""
    tpu = _tpu(candidate)
    detail = candidate.detail
    unknown = sorted(key for key, _ in candidate.details if key not in _DETAILS)
    if unknown:
        raise UserError(
            f"no option of Google's TPU API is called '{unknown[0]}'", f"known: {', '.join(sorted(_DETAILS))}"
        )
    for key in ("network", "subnetwork", "service_account", "runtime_version"):
        if detail(key) and not _WORD.fullmatch(detail(key)):
            raise UserError(f"'{detail(key)}' cannot be a {key}", "letters, digits, and . : / @ _ - are allowed")
    if candidate.disk_gib is not None and candidate.disk_gib > PROVIDED_DISK_GIB:
        raise UserError(
            f"disk_size {candidate.disk_gib} GB cannot be had here",
            f"version 2 of the TPU API gives every host {PROVIDED_DISK_GIB} GB and has no field for another size",
            "remove disk_size, and keep large data in a bucket",
        )
    market = candidate.market
    return Choices(
        tpu=tpu,
        slices=_slices(candidate, tpu),
        path=path_of(candidate),
        project=project_of(candidate),
        zone=zone_of(candidate),
        runtime_version=detail("runtime_version", tpu.runtime_version),
        network=detail("network", "default"),
        subnetwork=detail("subnetwork"),
        internal_ips=detail("internal_ips").lower() in _YES,
        service_account=detail("service_account"),
        tags=tuple(word for word in detail("tags").split(",") if word),
        secure_boot=detail("secure_boot").lower() in _YES,
        topology=detail("topology"),
        spot=isinstance(market, Spot),
        reservation=market.name if isinstance(market, Reservation) else "",
        valid_seconds=round(_hours(candidate) * 3600),
    )


def path_of(candidate: Candidate) -> Path:
    """Node or queued resource. Raises UserError for what neither can give."""
    tpu = _tpu(candidate)
    market = candidate.market
    if not isinstance(market, OnDemand | Spot | Reservation):
        raise UserError(f"Google's TPU API sells no TPU as '{market}'", "it has on demand, spot and reservations")
    if _slices(candidate, tpu) > 1:
        return Path("queued", "several slices come only as one queued resource (multislice)")
    if isinstance(market, Spot):
        return Path("queued", "spot: a queued resource waits for machines and is suspended, not lost, when they go")
    if isinstance(market, Reservation):
        return Path("queued", "a reservation is named only in a queued resource")
    if candidate.detail("queued").lower() in _YES:
        return Path("queued", "asked for: a queued resource waits until machines are free")
    return Path("node", "one slice on demand: a plain node is made at once or refused at once")


def project_of(candidate: Candidate) -> Text:
    project = candidate.detail("project")
    if project and not _PROJECT.fullmatch(project):
        raise UserError(
            f"'{project}' is no project id", "6 to 30 lower-case letters, digits and dashes", "gcloud projects list"
        )
    return Text.of(project or PROJECT)


def zone_of(candidate: Candidate) -> str:
    """The zone asked for, else the first listed one of the region, or of all. Raises UserError when there is none."""
    if candidate.zone:
        if not _ZONE.fullmatch(candidate.zone):
            raise UserError(f"'{candidate.zone}' is not a zone of Google", "", "write one like us-west4-a")
        return candidate.zone
    tpu = _tpu(candidate)
    listed = [zone for zone in tpu.zones if candidate.region in ("", zone.rpartition("-")[0])]
    if not listed:
        where = f" in {candidate.region}" if candidate.region else ""
        raise UserError(
            f"no zone is known that has {tpu.name}{where}",
            f"listed: {', '.join(tpu.zones)}",
            "name one: --infra gcp/REGION/ZONE",
        )
    return listed[0]


def check_name(name: str, slices: int = 1) -> None:
    """Raises UserError for a name that no node can have."""
    if not _NODE_ID.fullmatch(name) or (slices > 1 and len(name) > 58):
        raise UserError(
            f"'{name}' cannot name a TPU",
            "allowed: up to 62 lower-case letters, digits and inner dashes, a letter first",
        )


def _tpu(candidate: Candidate) -> TpuSlice:
    tpu = find_slice(candidate.accelerator)
    if tpu is None:
        raise UserError(
            f"{candidate.accelerator} is not a TPU",
            "of Google's machines, orch serves TPU slices now",
            "orch accelerators --tpu",
        )
    if not tpu.in_tpu_api:
        raise UserError(
            f"{tpu.name} cannot be had through the Cloud TPU API",
            "only Compute Engine and GKE have it (Cloud TPU documentation, 2026); neither is served yet",
            "take a v6e or v5p slice",
        )
    return tpu


def _slices(candidate: Candidate, tpu: TpuSlice) -> int:
    count, rest = divmod(candidate.hosts, tpu.hosts)
    if rest or count < 1:
        raise UserError(
            f"{candidate.hosts} hosts are no whole number of {tpu.name}", f"each of them has {tpu.hosts} hosts"
        )
    if candidate.hosts > MOST_HOSTS:
        raise UserError(
            f"{candidate.hosts} hosts are too many for one request",
            f"the keys of at most {MOST_HOSTS} hosts fit into it",
        )
    return count


def _hours(candidate: Candidate) -> float:
    word = candidate.detail("valid_hours", str(DEFAULT_VALID_HOURS))
    try:
        hours = float(word)
    except ValueError:
        hours = 0.0
    if not 0.01 <= hours <= 24 * 365:
        raise UserError(f"valid_hours is '{word}'", "a number of hours above 0", "valid_hours: 6")
    return hours
