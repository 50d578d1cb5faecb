"""How the hosts of a slice are reached, and the firewall rules that this needs: requests, each with its command. Pure.

A rule opens port 22 of this slice's hosts alone (by a network tag of the slice's name) to the caller's address, to the
ranges that the user names, or to IAP's range; never to the world. Firewall rules have no labels (compute v1, discovery
document of November 2026): whose a rule is stands in its description, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias, cast

from orchestrator.errors import UserError
from orchestrator.providers.google.body import as_json
from orchestrator.providers.google.labels import CLUSTER, INSTALLATION, INTENT
from orchestrator.providers.google.options import read_options
from orchestrator.slices import Candidate, Request, SliceSpec
from orchestrator.values import Text, Unknown, to_text

SERVICE = "compute.v1"
SLICE = "orch-slice"  # in a rule's description, beside the owner labels
IAP_RANGE = "35.235.240.0/20"  # from which IAP connects ("Using IAP for TCP forwarding", 2025)
CALLER = Unknown("address of this computer, determined at launch")
MOST_RANGES = 64  # our own limit: a list longer than that is a mistake
_LONGEST_NAME = 63  # of a firewall rule, RFC 1035 (compute v1)
_NETWORK = re.compile(r"(?:.*/)?projects/([a-z0-9.:-]+)/global/networks/([a-z0-9-]+)|(?:global/networks/)?([a-z0-9-]+)")

Network: TypeAlias = IPv4Network | IPv6Network

_ALL_OF_IPV4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))  # written as IPv6: RFC 4291, RFC 6052


class Way(StrEnum):
    EXTERNAL = "external"  # at its external address
    INTERNAL = "internal"  # at its internal address: this computer is in the network, or has a VPN into it
    IAP = "iap"  # at its internal address, through Identity-Aware Proxy
    JUMP = "jump"  # at its internal address, through a jump host


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """jump: hops as ssh -J takes them. firewall: whether orch makes the rules. ranges: CIDR that the user names."""

    way: Way
    jump: str = ""
    firewall: bool = True
    ranges: tuple[str, ...] = ()
    oslogin: bool = False

    @property
    def sources(self) -> tuple[Text, ...]:
        """Who may reach port 22, as CIDR; () for nobody new.

        From inside and through a jump host the address that arrives is not known here: without ranges of the user's no
        rule is made, and the network's own rules have to let SSH in (those of the network `default` do).
        """
        if self.way is Way.IAP:
            return (to_text(IAP_RANGE),)
        return (Text.of(CALLER, "/32"),) if self.admits_caller else tuple(to_text(one) for one in self.ranges)

    @property
    def admits_caller(self) -> bool:
        """Whether SSH is opened for the address of whoever launches, as the user names no range."""
        return self.way is Way.EXTERNAL and not self.ranges


def read(candidate: Candidate) -> Access:
    """Raises UserError for options that contradict each other."""
    options = read_options(candidate)
    jump, internal = options.jump, options.internal_ips
    usual = Way.JUMP if jump else Way.INTERNAL if internal else Way.EXTERNAL
    way = Way(options.access or usual)
    if (way is Way.JUMP) != bool(jump):
        why = "no jump host is named" if way is Way.JUMP else f"and a jump host is named, {jump}"
        raise UserError(f"access is '{way}'", why, "access: jump, with jump: user@host   or neither")
    if way is Way.EXTERNAL and internal:
        raise UserError("access is 'external'", "and internal_ips leaves the hosts no external address", "access: iap")
    return Access(
        way=way,
        jump=jump,
        firewall=options.firewall,
        ranges=ranges_of(options.ssh_cidr),
        oslogin=options.oslogin,
    )


def ranges_of(words: str) -> tuple[str, ...]:
    """The ranges of a comma list, each as Google writes it. Raises UserError for what lets in too many, or is none."""
    found = [_range(word.strip()) for word in words.split(",") if word.strip()]
    if len({one.version for one in found}) > 1:
        raise UserError(
            "ssh_cidr mixes IPv4 and IPv6",
            "a firewall rule holds one kind (Google's documentation, 2025)",
            "leave the ranges of one kind out",
        )
    if len(found) > MOST_RANGES:
        raise UserError(
            f"ssh_cidr names {len(found)} ranges", f"at most {MOST_RANGES} are allowed", "name fewer, larger ranges"
        )
    return tuple(dict.fromkeys(str(one) for one in found))


def needs_admission(candidate: Candidate) -> bool:
    """Return whether a rule of ours decides from which addresses the hosts are reached."""
    access = read(candidate)
    return access.firewall and access.admits_caller


def ssh_rule_name(slice_name: str) -> str:
    """Return the name of the rule that opens port 22."""
    return _rule_name(slice_name, "ssh")


def network_tag(slice_name: str) -> str:
    """To be among the tags of the hosts, so that the rules are about them and no other machine."""
    return slice_name


def tagged(spec: SliceSpec) -> SliceSpec:
    """The spec with the tag by which rules are about its hosts alone; as it is where no rule is made."""
    candidate = spec.candidate
    if not read(candidate).firewall:
        return spec
    wanted = ",".join(dict.fromkeys((*read_options(candidate).tags, network_tag(spec.name))))
    others = tuple(pair for pair in candidate.details if pair[0] != "tags")
    return replace(spec, candidate=replace(candidate, details=(*others, ("tags", wanted))))


def create_requests(access: Access, spec: SliceSpec, project: Text, network: str) -> tuple[Request, ...]:
    """What is to be sent before the slice is made. project: whose hosts they are, known or not."""
    owner = {**dict(spec.labels), INTENT: spec.token}
    return tuple(_create(rule) for rule in _rules(access, spec.name, project, network, owner))


def end_requests(access: Access, slice_name: str, project: Text, network: str) -> tuple[Request, ...]:
    """What is to be sent when the slice is gone. Only a rule that says that it is ours is deleted (firewall.py)."""
    return tuple(_end(rule) for rule in reversed(_rules(access, slice_name, project, network, {})))


def owner_of(description: str) -> Mapping[str, str]:
    """What the description of a rule says of its owner; empty for one that no orch made."""
    try:
        fields: object = json.loads(description)
    except ValueError:
        return {}
    if not isinstance(fields, dict):
        return {}
    found = {key: value for key, value in cast(dict[str, Any], fields).items() if isinstance(value, str)}
    return found if found.get(INTENT) and found.get(SLICE) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """ranges: who may reach port 22; () is the rule by which the hosts reach each other at all ports."""

    name: str
    project: Text
    network: Text
    tag: str
    description: Text
    ranges: tuple[Text, ...] = ()


def _rules(
    access: Access, slice_name: str, project: Text, network: str, owner: Mapping[str, Text]
) -> tuple[_Rule, ...]:
    """The network `default` lets its own machines reach each other; any other lets in nothing (Google's documentation,
    "VPC firewall rules", 2025), and a program on several hosts opens ports as it likes."""
    if not access.firewall:
        return ()
    host_project, name = _place(project, network)
    path = Text.of("projects/", host_project, f"/global/networks/{name}")
    tag, description = network_tag(slice_name), _description(slice_name, owner)
    found: list[_Rule] = []
    if access.sources:
        ssh = ssh_rule_name(slice_name)
        found.append(
            _Rule(name=ssh, project=host_project, network=path, tag=tag, description=description, ranges=access.sources)
        )
    if name != "default":
        found.append(
            _Rule(
                name=_rule_name(slice_name, "peers"),
                project=host_project,
                network=path,
                tag=tag,
                description=description,
            )
        )
    return tuple(found)


def _create(rule: _Rule) -> Request:
    body: dict[str, object] = {
        "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
        "description": rule.description,
        "direction": "INGRESS",
        "name": rule.name,
        "network": rule.network,
    }
    words: list[Text] = [*_words("create", rule), Text.of("--network=", rule.network), to_text("--direction=INGRESS")]
    if rule.ranges:
        body["sourceRanges"] = list(rule.ranges)
        words += [to_text("--allow=tcp:22"), Text.of("--source-ranges=", Text.join(",", list(rule.ranges)))]
    else:
        body["allowed"] = [{"IPProtocol": protocol} for protocol in ("tcp", "udp", "icmp")]
        body["sourceTags"] = [rule.tag]
        words += [to_text("--allow=tcp,udp,icmp"), to_text(f"--source-tags={rule.tag}")]
    body["targetTags"] = [rule.tag]
    words += [to_text(f"--target-tags={rule.tag}"), Text.of("--description=", rule.description)]
    target = Text.of("projects/", rule.project, "/global/firewalls").preview()
    return Request(service=SERVICE, method="POST", target=target, body=dict(sorted(body.items())), command=tuple(words))


def _end(rule: _Rule) -> Request:
    target = Text.of("projects/", rule.project, f"/global/firewalls/{rule.name}").preview()
    return Request(
        service=SERVICE, method="DELETE", target=target, command=(*_words("delete", rule), to_text("--quiet"))
    )


def _words(verb: str, rule: _Rule) -> tuple[Text, ...]:
    words = ("gcloud", "compute", "firewall-rules", verb, rule.name)
    project = (Text.of("--project=", rule.project),) if rule.project.is_known else ()
    return (*(to_text(word) for word in words), *project)


def _description(slice_name: str, owner: Mapping[str, Text]) -> Text:
    named: Iterable[str] = (CLUSTER, INSTALLATION, INTENT)
    return as_json({key: owner[key] for key in named if key in owner} | {SLICE: to_text(slice_name)})


def _rule_name(slice_name: str, what: str) -> str:
    whole = f"{slice_name}-{what}"
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = hashlib.sha256(slice_name.encode()).hexdigest()[:8]
    return f"{slice_name[: _LONGEST_NAME - len(what) - 10].rstrip('-')}-{digest}-{what}"


def _place(project: Text, network: str) -> tuple[Text, str]:
    """Whose network it is (a shared one is another project's), and its name. Raises UserError."""
    found = _NETWORK.fullmatch(network)
    if found is None:
        raise UserError(
            f"network is '{network}'",
            "expected a name, or projects/PROJECT/global/networks/NAME",
            "gcloud compute networks list",
        )
    return (to_text(found[1]), found[2]) if found[1] else (project, found[3])


def _overlap(one: Network, other: IPv6Network) -> bool:
    return isinstance(one, IPv6Network) and one.overlaps(other)


def _range(word: str) -> Network:
    try:
        found = ip_network(word, strict=False)
    except ValueError as error:
        raise UserError(f"ssh_cidr has '{word}'", str(error), "write ranges like 203.0.113.7/32") from error
    if found.network_address != ip_address(word.partition("/")[0]):
        raise UserError(f"ssh_cidr has '{word}'", "the address has bits beyond its length", f"ssh_cidr: {found}")
    least = (8 if found.is_private else 16) if found.version == 4 else (7 if found.is_private else 32)
    if found.prefixlen < least:
        raise UserError(
            f"ssh_cidr has '{word}', which admits too many addresses",
            f"the widest ranges allowed: /8 private or /16 public, of IPv6 /7 or /32; this needs /{least} or longer",
            "ssh_cidr: YOUR.ADDRESS/32   or access: iap",
        )
    if found.is_multicast or found.is_unspecified or any(_overlap(found, other) for other in _ALL_OF_IPV4):
        raise UserError(
            f"ssh_cidr has '{word}'", "no host on the internet has an address in it", "write ranges like 203.0.113.7/32"
        )
    return found
