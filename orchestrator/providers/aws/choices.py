"""What a candidate asks of EC2: which type, where, with which interfaces, image, groups and way to the hosts. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.catalog import ec2
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import UserError
from orchestrator.providers.aws import access, images, interfaces, market, userdata
from orchestrator.providers.aws.access import Access
from orchestrator.providers.aws.images import Image
from orchestrator.providers.aws.requests import Place
from orchestrator.slices import Candidate, CapacityBlock, Market, Reservation

DISK_GIB = 200
NEURON_DISK_GIB = 512  # what the Neuron documentation asks for ("Update PyTorch on a Deep Learning AMI", October 2026)
LARGEST_DISK_GIB = 16_384  # of gp3 as every region has it (Amazon EBS User Guide, 2026)
LONGEST_HOURS = 24 * 366
NETWORKS = ("", "standard", "best")
_DETAILS = frozenset(
    (
        *("access", "framework", "image", "instance_profile", "jump", "max_hours", "network", "placement_group"),
        *("profile", "security_group", "ssh_cidr", "subnet", "user"),
    )
)
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2}")
_IN_REGION = re.compile(r"[a-z]|-[a-z]+-[0-9]+[a-z]")  # the rest of a zone's name: `a`, or `-lax-1a` of a local zone
_NO_CLUSTER = re.compile(r"t\d|mac\d?|[a-z0-9]+-flex\.")  # types that no cluster placement group takes (EC2, 2026)
_WORDS = {
    "subnet": re.compile(r"subnet-[0-9a-f]{8,17}"),
    "security_group": re.compile(r"sg-[0-9a-f]{8,17}"),
    "instance_profile": re.compile(r"[\w+=,.@-]{1,128}", re.ASCII),
    "profile": re.compile(r"[A-Za-z0-9_.@/+][A-Za-z0-9 _.@/+-]{0,127}"),
    "placement_group": re.compile(r"[A-Za-z0-9_][ -~]{0,254}"),
    "user": re.compile(r"[a-z_][a-z0-9_-]{0,31}"),
}
_EXAMPLES = {
    "subnet": "aws ec2 describe-subnets   lists them, such as subnet-0123456789abcdef0",
    "security_group": "aws ec2 describe-security-groups   lists them, such as sg-0123456789abcdef0",
    "instance_profile": "aws iam list-instance-profiles   lists their names",
    "profile": "aws configure list-profiles",
    "placement_group": "aws ec2 describe-placement-groups   lists their names",
    "user": "a login name of the image: ubuntu",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """A candidate, read once.

    instance: None for a type that the table does not have. efa: (card, device) of its EFA-only interfaces, () for one
    plain interface. subnet, security_group, instance_profile: "" when the user named none. placement_group: one that
    exists; makes_placement_group: whether one is made. max_hours: None without a limit. why: in words for the plan.
    """

    place: Place
    zone: str
    instance_type: str
    instance: Ec2Instance | None
    hosts: int
    market: Market
    efa: tuple[tuple[int, int], ...]
    access: Access
    image: Image
    subnet: str
    security_group: str
    instance_profile: str
    placement_group: str
    makes_placement_group: bool
    disk_gib: int
    user: str
    max_hours: float | None
    why: str

    @property
    def local_nvme(self) -> bool:
        return self.instance is not None and bool(self.instance.local_nvme)


def read(candidate: Candidate) -> Choices:
    """Raises UserError for what EC2 cannot give, with the reason. A type is never refused because it is not known."""
    detail, hosts = candidate.detail, candidate.hosts
    _check_words(candidate)
    name = candidate.accelerator
    if not _TYPE.fullmatch(name):
        raise UserError(
            f"'{name}' is not an instance type of EC2", "expected a type such as p5.48xlarge", "orch accelerators"
        )
    instance = ec2.load_instances().get(name)
    market.check(name, instance, candidate.market, hosts)
    _check_hosts(hosts)
    efa, why_efa = _efa(name, instance, candidate)
    way = access.read(candidate, several=bool(efa))
    image = images.choose(name, detail("framework"), detail("image"))
    makes_group, why_group = _group(name, candidate)
    reasons = (way.why, why_efa, image.why, why_group)
    return Choices(
        place=Place(_region(candidate), detail("profile")),
        zone=_zone(candidate),
        instance_type=name,
        instance=instance,
        hosts=hosts,
        market=candidate.market,
        efa=efa,
        access=way,
        image=image,
        subnet=detail("subnet"),
        security_group=detail("security_group"),
        instance_profile=detail("instance_profile"),
        placement_group=detail("placement_group"),
        makes_placement_group=makes_group,
        disk_gib=_disk(candidate),
        user=detail("user") or userdata.USER,
        max_hours=_max_hours(candidate),
        why="; ".join(reason for reason in reasons if reason),
    )


def _check_words(candidate: Candidate) -> None:
    unknown = sorted(key for key, _ in candidate.details if key not in _DETAILS)
    if unknown:
        raise UserError(
            f"EC2 has no option '{unknown[0]}'", f"known: {', '.join(sorted(_DETAILS))}", f"remove {unknown[0]}"
        )
    for key, allowed in _WORDS.items():
        word = candidate.detail(key)
        if word and not allowed.fullmatch(word):
            raise UserError(f"{key} is '{word}'", "AWS has no such name", _EXAMPLES[key])


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


def _zone(candidate: Candidate) -> str:
    zone, region = candidate.zone, candidate.region
    if not zone and not candidate.detail("subnet"):
        raise UserError(
            "neither a zone nor a subnet is named", "EC2 needs one of them", f"--infra aws/{region}/{region}a"
        )
    if zone and not (zone.startswith(region) and _IN_REGION.fullmatch(zone.removeprefix(region))):
        raise UserError(f"'{zone}' is not a zone of {region}", "", f"write one like {region}a")
    return zone


def _efa(name: str, instance: Ec2Instance | None, candidate: Candidate) -> tuple[tuple[tuple[int, int], ...], str]:
    """The places of the EFA-only interfaces, and why so."""
    network, hosts = candidate.detail("network"), candidate.hosts
    if network not in NETWORKS:
        raise UserError(f"network is '{network}'", "it is standard or best", "network_tier: best")
    if instance is None:
        return (), f"one network interface: what network cards {name} has is not in orch's tables"
    places = interfaces.efa_places(instance)
    if not places:
        return (), f"one network interface: {name} has no EFA"
    if network == "standard":
        return (), "one network interface, without EFA: network_tier is standard"
    if hosts == 1 and network != "best":
        return (), "one network interface: a single machine needs no EFA"
    return places, f"{1 + len(places)} network interfaces: {len(places)} for EFA, on every card that has it"


def _group(name: str, candidate: Candidate) -> tuple[bool, str]:
    """Whether a cluster placement group is made, and why so."""
    if named := candidate.detail("placement_group"):
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


def _disk(candidate: Candidate) -> int:
    usual = NEURON_DISK_GIB if images.is_neuron(candidate.accelerator) else DISK_GIB
    size = candidate.disk_gib if candidate.disk_gib is not None else usual
    if not 1 <= size <= LARGEST_DISK_GIB:
        raise UserError(
            f"a disk of {size} GiB is not possible",
            f"a gp3 volume has 1 to {LARGEST_DISK_GIB:,} GiB",
            f"disk_size: {usual}",
        )
    return size


def _max_hours(candidate: Candidate) -> float | None:
    word = candidate.detail("max_hours")
    if not word:
        return None
    try:
        hours = float(word)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= LONGEST_HOURS:
        raise UserError(
            f"max_hours is '{word}'", f"a number of hours above 0, at most {LONGEST_HOURS:,}", "max_hours: 6"
        )
    return hours
