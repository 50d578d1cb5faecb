"""How the hosts of a slice are reached, and whom its security group lets in for that. Pure.

EC2 gives a machine with several network interfaces no public address (EC2 User Guide, "Assign a public IPv4 address",
2026), so hosts with EFA get Elastic IPs. With one at the head alone the others can be reached through it, but in a
subnet that leads to an internet gateway a host without a public address cannot go out itself: not for packages, and to
S3 only through a gateway endpoint (Amazon VPC User Guide, "Enable internet access using internet gateways", 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from orchestrator.errors import UserError
from orchestrator.providers.aws.options import AwsOptions
from orchestrator.providers.aws.unknowns import CALLER
from orchestrator.providers.hosts.machines import parse_address
from orchestrator.values import Text, to_text

MOST_RANGES = 50  # rules of a security group for one direction are 60 (Amazon VPC quotas, 2026)
_WIDEST = {(4, True): 8, (4, False): 16, (6, True): 7, (6, False): 32}  # by version and whether it is private


class Way(StrEnum):
    EIPS = "eips"  # each at an Elastic IP of its own
    EIP = "eip"  # the head at an Elastic IP, the others through it
    PUBLIC = "public"  # each at its own public address
    SSM = "ssm"  # through Session Manager of AWS Systems Manager
    PRIVATE = "private"  # each at its private address: this computer is in the network, or has a VPN into it
    JUMP = "jump"  # each at its private address, through a jump host of the user's


_ADDRESSED = frozenset({Way.EIPS, Way.EIP, Way.PUBLIC})
USUAL_ADDRESSES = (
    5  # Elastic IPs that an account may have in a region if it did not ask for more (Amazon VPC quotas, 2026)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """jump: hops as ssh -J takes them. ranges: CIDR that the user names, for port 22. why: in words for the plan."""

    way: Way
    jump: str = ""
    ranges: tuple[str, ...] = ()
    why: str = ""

    def elastic(self, hosts: int) -> int:
        """How many Elastic IPs so many hosts get: one at each of the first ranks."""
        return {Way.EIPS: hosts, Way.EIP: 1}.get(self.way, 0)

    @property
    def sources(self) -> tuple[Text, ...]:
        """Who may reach port 22 from outside the group, as CIDR."""
        return (Text.of(CALLER),) if self.admits_caller else tuple(to_text(one) for one in self.ranges)

    @property
    def admits_caller(self) -> bool:
        """Whether SSH is opened for the address of whoever launches, as the user names no range."""
        return self.way in _ADDRESSED and not self.ranges


def read(options: AwsOptions, hosts: int, *, several: bool) -> Access:
    """several: whether each host has more than one network interface.

    Raises UserError for options that contradict each other.
    """
    word, jump = options.access, options.jump
    elastic = Way.EIPS if hosts > 1 else Way.EIP
    usual = Way.JUMP if jump else elastic if several else Way.PUBLIC
    way = Way(word) if word else usual
    if (way is Way.JUMP) != bool(jump):
        why = "no jump host is named" if way is Way.JUMP else f"and a jump host is named, {jump}"
        raise UserError(f"access is '{way}'", why, "access: jump, with jump: user@host   or neither")
    for hop in jump.split(",") if jump else ():
        parse_address(hop)
    if way is Way.PUBLIC and several:
        raise UserError(
            "access is 'public'",
            "EC2 gives a machine with several network interfaces no public address",
            "access: eips   or network_tier: standard, which leaves out EFA",
        )
    if way is Way.SSM and not options.instance_profile:
        raise UserError(
            "access is 'ssm', and no instance profile is named",
            "Session Manager reaches only machines whose role has AmazonSSMManagedInstanceCore",
            "orch config set aws.instance_profile NAME",
        )
    if way is Way.SSM and options.role_arn:
        raise UserError(
            "access is 'ssm', and a role is assumed",
            "the `aws` command that holds the connection knows only profiles, and would ask with other credentials",
            "access: public   or a profile with that role_arn in ~/.aws/config: orch config set aws.profile NAME",
        )
    ranges = _ranges(options.ssh_cidr)
    if way in (Way.PRIVATE, Way.JUMP) and not ranges and not options.security_group:
        raise UserError(
            f"access is '{way}', and nothing would allow SSH",
            "the security group that orch makes admits only the ranges in ssh_cidr",
            "ssh_cidr: 10.0.0.0/8, or what your connections come from   or security_group: sg-…",
        )
    return Access(way=way, jump=jump, ranges=ranges, why=_why(way, hosts, asked=bool(word)))


def _why(way: Way, hosts: int, *, asked: bool) -> str:
    match way:
        case Way.EIP | Way.EIPS if hosts == 1:
            said = "the machine gets an Elastic IP"
        case Way.EIPS:
            said = "every machine gets an Elastic IP, so that all of them reach packages and buckets"
            if hosts > USUAL_ADDRESSES:
                said += f" (accounts have room for {USUAL_ADDRESSES} in a region unless it was raised)"
        case Way.EIP:
            said = "the head gets an Elastic IP, the others are reached through it, and reach S3 only by an endpoint"
        case Way.PUBLIC:
            said = "every machine has its own public address"
        case Way.SSM:
            said = "the machines are reached by Session Manager, which their instance profile must allow"
        case Way.PRIVATE:
            said = "the machines are reached at their private addresses"
        case Way.JUMP:
            said = "the machines are reached through the jump host"
    if not asked and way in (Way.EIP, Way.EIPS):
        return f"EC2 gives no public address to machines with several interfaces: {said}"
    return f"{said}, as requested" if asked else said


def _ranges(words: str) -> tuple[str, ...]:
    """The ranges of a comma list, each as AWS writes it. Raises UserError for what lets in too many, or is none."""
    found = tuple(dict.fromkeys(_range(word.strip()) for word in words.split(",") if word.strip()))
    if len(found) > MOST_RANGES:
        raise UserError(
            f"ssh_cidr names {len(found)} ranges", f"at most {MOST_RANGES} are allowed", "name fewer, larger ranges"
        )
    return found


def _range(word: str) -> str:
    try:
        found: IPv4Network | IPv6Network = ip_network(word, strict=False)
    except ValueError as error:
        raise UserError(f"ssh_cidr has '{word}'", str(error), "write ranges like 203.0.113.7/32") from error
    if found.network_address != ip_address(word.partition("/")[0]):
        raise UserError(f"ssh_cidr has '{word}'", "the address has bits beyond its length", f"ssh_cidr: {found}")
    least = _WIDEST[found.version, found.is_private]
    if found.prefixlen < least or found.is_multicast or found.is_unspecified:
        raise UserError(
            f"ssh_cidr has '{word}', which admits too many addresses, or none",
            f"the prefix length of such a range must be {least} or more",
            "ssh_cidr: YOUR.ADDRESS/32   or access: ssm",
        )
    return str(found)
