"""What a candidate asks of Google: which machine, where, by which path, with which options. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal, TypeAlias

from orchestrator.catalog.compute import find_type
from orchestrator.catalog.machines import ComputeType, TpuSlice
from orchestrator.catalog.tpu import find_slice, get_generation, list_generations
from orchestrator.errors import UserError
from orchestrator.providers.google import disks
from orchestrator.providers.google.disks import DataDisk
from orchestrator.providers.google.options import LONGEST_RUN_HOURS, Tier, read_options
from orchestrator.slices import Candidate, FlexStart, OnDemand, Reservation, Spot
from orchestrator.values import Text, Unknown

PROJECT = Unknown("project of your gcloud configuration")
PROVIDED_DISK_GIB = 100  # size of a TPU VM's boot disk ("Attach durable block storage to a TPU VM", 2025)
DEFAULT_VALID_HOURS = 6
ANY_RESERVATION = "-"
MOST_HOSTS = 1400  # their keys must fit into 512 KiB of metadata (Compute Engine documentation, 2025)

Kind: TypeAlias = Literal["node", "queued"]
Api: TypeAlias = Literal["v2", "v2alpha1", "compute"]
_INTERNAL = frozenset({"internal", "iap"})  # ways of access that need no external address
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]+(?:-[a-z]+)+[0-9]+-(?:ai[0-9]+)?[a-z]")
_NODE_ID = re.compile(r"[a-z](?:[-a-z0-9]{0,60}[a-z0-9])?")
_RESERVATION = re.compile(r"-|[a-zA-Z0-9-]+|projects/[a-z0-9.:-]+/(?:locations/[a-z0-9-]+/)?reservations/[a-zA-Z0-9-]+")
_TOPOLOGY = re.compile(r"[1-9][0-9]*(?:x[1-9][0-9]*){1,2}")


@dataclass(frozen=True, slots=True)
class Path:
    """Which of Google's ways a request takes, and why, in words for the plan. kind: of no meaning on Compute Engine."""

    kind: Kind
    reason: str
    api: Api = "v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """A candidate, read once.

    slices: TPU slices or machines in it, 1 or more. project: a Text, as it may be known only to gcloud. topology: ""
    when the accelerator type alone says the shape. reservation: "" for none, "-" for any, a name, or a whole path;
    bound: the machines end with it. valid_seconds: how long a queued request may wait. run_seconds: after so long the
    service ends the machines, 0 = never. boot_disk_gib: 0 for what every host has anyway.
    """

    machine: TpuSlice | ComputeType
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
    oslogin: bool
    secure_boot: bool
    topology: str
    spot: bool
    flex: bool
    tier: Tier
    reservation: str
    bound: bool
    valid_seconds: int
    run_seconds: int
    boot_disk_gib: int
    data_disks: tuple[DataDisk, ...]

    @property
    def hosts_per_slice(self) -> int:
        return self.machine.hosts

    @property
    def tpu(self) -> TpuSlice:
        """The slice. Raises TypeError for a machine without TPUs: path_of keeps those from the TPU API."""
        if not isinstance(self.machine, TpuSlice):
            raise TypeError(f"{self.machine.name} has no TPUs")
        return self.machine


@lru_cache(maxsize=256)
def read(candidate: Candidate) -> Choices:
    """Raises UserError for what Google cannot give, with the reason.

    A candidate is read once, however many requests of a create ask for it.
    """
    machine, options, market = machine_of(candidate), read_options(candidate), candidate.market
    usual_runtime = machine.runtime_version if isinstance(machine, TpuSlice) else ""
    return Choices(
        machine=machine,
        slices=_slices(candidate, machine),
        path=path_of(candidate),
        project=project_of(candidate),
        zone=zone_of(candidate),
        runtime_version=options.runtime_version or usual_runtime,
        network=network_of(candidate),
        subnetwork=options.subnetwork,
        internal_ips=options.internal_ips or options.access in _INTERNAL,
        service_account=options.service_account,
        tags=options.tags,
        oslogin=options.oslogin,
        secure_boot=options.secure_boot,
        topology=_topology(candidate, machine),
        spot=isinstance(market, Spot),
        flex=isinstance(market, FlexStart),
        tier=_tier(candidate),
        reservation=_reservation(candidate),
        bound=options.reservation_bound,
        valid_seconds=round((options.valid_hours or DEFAULT_VALID_HOURS) * 3600),
        run_seconds=round(_run_hours(candidate) * 3600),
        boot_disk_gib=_boot_disk(candidate),
        data_disks=disks.parse(",".join(options.data_disks), candidate.hosts),
    )


def path_of(candidate: Candidate) -> Path:
    """Which API, and whether a node or a queued resource. Raises UserError for what none of them can give."""
    tpu = machine_of(candidate)
    market = candidate.market
    if isinstance(tpu, ComputeType):
        _check_plain(candidate, tpu)
        return Path("node", "only Compute Engine has machines without TPUs", "compute")
    if not isinstance(market, OnDemand | Spot | Reservation | FlexStart):
        raise UserError(
            f"Google sells no TPU as '{market}'",
            "it has on demand, spot, reservations and flex-start",
            "remove provisioning, or: use_spot: true",
        )
    if compute := _why_compute(candidate, tpu):
        return Path("node", compute, "compute")
    way, reason = _way(candidate, tpu)
    only = [
        words
        for words, wanted in (
            ("flex-start", isinstance(market, FlexStart)),
            ("a run duration", bool(_run_hours(candidate)) and not isinstance(market, FlexStart)),
            ("the best-effort tier", _tier(candidate) == "best-effort"),
            ("a model bound to the reservation", read_options(candidate).reservation_bound),
            ("the size of the boot disk", bool(_boot_disk(candidate))),
        )
        if wanted
    ]
    if not only:
        return Path(way, reason)
    return Path(way, f"{reason}; only version 2alpha1 of the API knows {' and '.join(only)}", "v2alpha1")


def _why_compute(candidate: Candidate, tpu: TpuSlice) -> str:
    """Why Compute Engine, "" for the TPU API."""
    api = read_options(candidate).api
    if not tpu.in_tpu_api:
        if api == "tpu":
            raise UserError(
                f"{tpu.name} is not available through the Cloud TPU API",
                "only Compute Engine and GKE have it (Cloud TPU documentation, 2026)",
                "remove 'api', or: api: compute",
            )
        return f"{tpu.name} is not in the Cloud TPU API, only on Compute Engine (Cloud TPU documentation, 2026)"
    if api != "compute":
        return ""
    if not get_generation(tpu.generation).compute_image:
        served = [each.name for each in list_generations() if each.compute_image]
        raise UserError(
            f"{tpu.name} is not available through Compute Engine",
            f"it has {', '.join(served)}",
            "remove 'api: compute'",
        )
    return "requested: api is compute"


def _way(candidate: Candidate, tpu: TpuSlice) -> tuple[Kind, str]:
    market = candidate.market
    if _slices(candidate, tpu) > 1:
        return "queued", "several slices come only as one queued resource (multislice)"
    if isinstance(market, FlexStart):
        return "queued", "flex-start comes only as a queued resource"
    if isinstance(market, Spot):
        return "queued", "spot: a queued resource waits for machines and is suspended, not lost, when they go"
    if isinstance(market, Reservation):
        return "queued", "a reservation is named only in a queued resource"
    if tier := _tier(candidate):
        return "queued", f"only a queued resource can be {tier}"
    if _run_hours(candidate):
        return "queued", "only a queued resource has a run duration"
    if read_options(candidate).queued:
        return "queued", "requested: a queued resource waits until machines are free"
    return "node", "one slice on demand: a plain node is made or refused immediately"


def project_of(candidate: Candidate) -> Text:
    project = read_options(candidate).project
    if project and not _PROJECT.fullmatch(project):
        raise UserError(
            f"'{project}' is not a project id", "6 to 30 lower-case letters, digits and dashes", "gcloud projects list"
        )
    return Text.of(project or PROJECT)


def zone_of(candidate: Candidate) -> str:
    """The zone asked for, else the first listed one of the region, or of all. Raises UserError when there is none."""
    if candidate.zone:
        if not _ZONE.fullmatch(candidate.zone):
            raise UserError(f"'{candidate.zone}' is not a zone of Google", "", "write one like us-west4-a")
        return candidate.zone
    tpu = machine_of(candidate)
    listed = [zone for zone in tpu.zones if candidate.region in ("", zone.rpartition("-")[0])]
    if not listed:
        where = f" in {candidate.region}" if candidate.region else ""
        raise UserError(
            f"no zone is known that has {tpu.name}{where}",
            f"listed: {', '.join(tpu.zones)}" if tpu.zones else "Google's tables list none for it",
            "name one: --infra gcp/REGION/ZONE",
        )
    return listed[0]


def network_of(candidate: Candidate) -> str:
    """The network of the machines."""
    return read_options(candidate).network or "default"


def check_name(name: str, slices: int = 1) -> None:
    """Raises UserError for a name that no node can have."""
    if not _NODE_ID.fullmatch(name) or (slices > 1 and len(name) > 58):
        raise UserError(
            f"'{name}' cannot name a TPU",
            "allowed: up to 62 lower-case letters, digits and inner dashes, a letter first",
            "take another name: -c NAME",
        )


def machine_of(candidate: Candidate) -> TpuSlice | ComputeType:
    """Raises UserError for a machine that Google does not have."""
    found = find_slice(candidate.accelerator) or find_type(candidate.accelerator)
    if found is None:
        raise UserError(
            f"{candidate.accelerator} is not a machine of Google",
            "orch rents TPU slices and the families e2, n2, g2 and a2 from it",
            "orch accelerators",
        )
    return found


def _check_plain(candidate: Candidate, machine: ComputeType) -> None:
    """Raises UserError for what only a TPU has, or can be asked for."""
    if not isinstance(candidate.market, OnDemand | Spot | Reservation):
        raise UserError(
            f"orch rents no {machine.name} as '{candidate.market}'",
            "it has on demand, spot and reservations",
            "remove provisioning, or: use_spot: true",
        )
    options = read_options(candidate)
    written = {"topology": bool(options.topology), "api: tpu": options.api == "tpu"}
    if found := next((key for key, asked in written.items() if asked), ""):
        raise UserError(f"'{found}' has no meaning for {machine.name}", "it has no TPUs", "remove it")


def _slices(candidate: Candidate, tpu: TpuSlice | ComputeType) -> int:
    count, rest = divmod(candidate.hosts, tpu.hosts)
    if rest or count < 1:
        raise UserError(
            f"{candidate.hosts} hosts are not a whole number of {tpu.name}",
            f"each of them has {tpu.hosts} hosts",
            f"num_nodes counts slices, each of {tpu.hosts} hosts",
        )
    if candidate.hosts > MOST_HOSTS:
        raise UserError(
            f"{candidate.hosts} hosts are too many for one request",
            f"the keys of at most {MOST_HOSTS} hosts fit into it",
            "take a smaller slice, or fewer of them",
        )
    return count


def _topology(candidate: Candidate, tpu: TpuSlice | ComputeType) -> str:
    """The shape asked for, "" for the usual one. It has as many chips as the type, and so as many hosts."""
    topology = read_options(candidate).topology
    if not topology:
        return ""
    usual = f", usually as {tpu.topology}" if tpu.topology else ""
    if not _TOPOLOGY.fullmatch(topology) or prod(int(side) for side in topology.split("x")) != tpu.chips:
        raise UserError(
            f"topology '{topology}' is not a shape of {tpu.name}",
            f"that has {tpu.chips} chips{usual}",
            f"topology: {tpu.topology}" if tpu.topology else "remove topology",
        )
    return topology


def _tier(candidate: Candidate) -> Tier:
    tier = read_options(candidate).tier
    if tier and not isinstance(candidate.market, OnDemand):
        raise UserError(
            f"'{candidate.market}' and {tier} exclude each other", "a request has one of them", "remove tier"
        )
    return tier


def _reservation(candidate: Candidate) -> str:
    market = candidate.market
    if not isinstance(market, Reservation):
        if read_options(candidate).reservation_bound:
            raise UserError("reservation_bound without a reservation", "", "name one: reservation: NAME")
        return ""
    if not _RESERVATION.fullmatch(market.name):
        raise UserError(
            f"reservation is '{market.name}'",
            "expected a name, projects/PROJECT/locations/ZONE/reservations/NAME, or - for any",
            "gcloud compute reservations list",
        )
    return market.name


def _boot_disk(candidate: Candidate) -> int:
    """GiB when more is asked for than every host has, else 0."""
    wanted = candidate.disk_gib or 0
    return wanted if wanted > PROVIDED_DISK_GIB else 0


def _run_hours(candidate: Candidate) -> float:
    """After how many hours the service is to end the machines; 0 = never."""
    market = candidate.market
    if not isinstance(market, FlexStart):
        return read_options(candidate).max_run_hours or 0.0
    if read_options(candidate).max_run_hours:
        raise UserError("max_run_hours beside flex-start", "flex-start has its own hours", "remove max_run_hours")
    if not 0.01 <= market.hours <= LONGEST_RUN_HOURS:
        raise UserError(
            f"flex-start for {market.hours:g} hours is not possible",
            f"it runs for at most {LONGEST_RUN_HOURS} hours",
            f"max_run_hours: {LONGEST_RUN_HOURS}",
        )
    return market.hours
