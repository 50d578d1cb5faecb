"""What a candidate asks of EC2: which type, where, with which interfaces, image, groups and way to the hosts. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.catalog import ec2
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import UserError
from orchestrator.providers.aws import access, disks, images, interfaces, market, userdata
from orchestrator.providers.aws.access import Access
from orchestrator.providers.aws.images import Image
from orchestrator.providers.aws.options import AwsOptions, read_options
from orchestrator.providers.aws.requests import Place
from orchestrator.slices import Candidate, CapacityBlock, Market, Reservation

_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2}")
_IN_REGION = re.compile(r"[a-z]|-[a-z]+-[0-9]+[a-z]")  # the rest of a zone's name: `a`, or `-lax-1a` of a local zone
_NO_CLUSTER = re.compile(r"t\d|mac\d?|[a-z0-9]+-flex\.")  # types that no cluster placement group takes (EC2, 2026)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """A candidate, read once.

    options: as the candidate carries them. instance: None for a type that the table does not have. efa: (card, device)
    of its EFA-only interfaces, () for one plain interface. makes_placement_group: whether one is made. why: in words
    for the plan.
    """

    options: AwsOptions
    place: Place
    zone: str
    instance_type: str
    instance: Ec2Instance | None
    hosts: int
    market: Market
    efa: tuple[tuple[int, int], ...]
    access: Access
    image: Image
    makes_placement_group: bool
    disk_gib: int
    why: str

    @property
    def subnet(self) -> str:
        return self.options.subnet

    @property
    def security_group(self) -> str:
        return self.options.security_group

    @property
    def instance_profile(self) -> str:
        return self.options.instance_profile

    @property
    def placement_group(self) -> str:
        return self.options.placement_group

    @property
    def user(self) -> str:
        return self.options.user or userdata.USER

    @property
    def max_hours(self) -> float | None:
        return self.options.max_hours

    @property
    def keeps_disk(self) -> bool:
        """Whether a machine that switches itself off is stopped, and not ended."""
        return self.options.on_idle == "stop"

    @property
    def is_plain(self) -> bool:
        """Whether the machines are known to have no accelerators."""
        return self.instance is not None and not self.instance.chips

    @property
    def local_nvme(self) -> bool:
        return self.instance is not None and bool(self.instance.local_nvme)


@lru_cache(maxsize=256)
def read(candidate: Candidate) -> Choices:
    """Raises UserError for what EC2 cannot give, with the reason. A type is never refused because it is not known.

    A candidate is read once, however many requests of a create ask for it.
    """
    options, hosts = read_options(candidate), candidate.hosts
    name = candidate.accelerator
    if not _TYPE.fullmatch(name):
        raise UserError(
            f"'{name}' is not an instance type of EC2", "expected a type such as p5.48xlarge", "orch accelerators"
        )
    instance = ec2.load_instances().get(name)
    market.check(name, instance, candidate.market, hosts)
    _check_hosts(hosts)
    efa, why_efa = _efa(name, instance, options.network, hosts)
    way = access.read(options, hosts, several=bool(efa))
    image = images.choose(name, options.framework, options.image)
    makes_group, why_group = _group(name, candidate, options.placement_group)
    reasons = (way.why, why_efa, image.why, why_group)
    return Choices(
        options=options,
        place=Place(_region(candidate), options.profile),
        zone=_zone(candidate, options.subnet),
        instance_type=name,
        instance=instance,
        hosts=hosts,
        market=candidate.market,
        efa=efa,
        access=way,
        image=image,
        makes_placement_group=makes_group,
        disk_gib=disks.choose_disk(candidate, instance),
        why="; ".join(reason for reason in reasons if reason),
    )


def _check_hosts(hosts: int) -> None:
    if not 1 <= hosts <= userdata.MOST_HOSTS:
        raise UserError(
            f"{hosts} instances are not possible in one request",
            f"the keys of 1 to {userdata.MOST_HOSTS} hosts fit into EC2's user-data",
            f"num_nodes: {userdata.MOST_HOSTS}   or several clusters",
        )


def _region(candidate: Candidate) -> str:
    if not _REGION.fullmatch(candidate.region):
        raise UserError(f"'{candidate.region}' is not a region of AWS", "", "write one like us-east-1")
    return candidate.region


def _zone(candidate: Candidate, subnet: str) -> str:
    zone, region = candidate.zone, candidate.region
    if not zone and not subnet:
        raise UserError(
            "neither a zone nor a subnet is named", "EC2 needs one of them", f"--infra aws/{region}/{region}a"
        )
    if zone and not (zone.startswith(region) and _IN_REGION.fullmatch(zone.removeprefix(region))):
        raise UserError(f"'{zone}' is not a zone of {region}", "", f"write one like {region}a")
    return zone


def _efa(name: str, instance: Ec2Instance | None, network: str, hosts: int) -> tuple[tuple[tuple[int, int], ...], str]:
    """The places of the EFA-only interfaces, and why so."""
    if instance is None:
        return (), f"one network interface: what network cards {name} has is not in orch's tables"
    places = interfaces.efa_places(instance)
    if not places:
        return (), f"one network interface: {name} has no EFA"
    if network == "standard":
        return (), "one network interface, without EFA: network_tier is standard"
    if hosts == 1 and network != "best":
        return (), "one network interface: a single machine needs no EFA"
    if not instance.chips and network != "best":
        return (), "one network interface: the usual image of a machine without accelerators has no EFA driver"
    return places, f"{1 + len(places)} network interfaces: {len(places)} for EFA, on every card that has it"


def _group(name: str, candidate: Candidate, named: str) -> tuple[bool, str]:
    """Whether a cluster placement group is made, and why so."""
    if named:
        return False, f"placement group {named}, as requested"
    if candidate.hosts == 1:
        return False, ""
    if isinstance(candidate.market, CapacityBlock):
        return False, "no placement group: the machines of a Capacity Block are close together"
    if isinstance(candidate.market, Reservation):
        return False, "no placement group: the reservation says where its machines are"
    if _NO_CLUSTER.match(name):
        return False, f"no placement group: none takes {name}"
    return True, "a cluster placement group keeps the machines close together"
