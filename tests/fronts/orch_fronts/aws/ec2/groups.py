"""Security groups and their rules. Nothing is filtered by them: they are there to be made, found and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.filters import chosen, page, tag_facts, tag_list
from orch_fronts.aws.ec2.network import vpc_id
from orch_fronts.aws.ec2.tags import now_of, sent
from orch_fronts.aws.ec2.visit import Visit, made_id
from orch_fronts.aws.ec2.words import missing, wrong_value

_FILTERS = frozenset({"group-id", "group-name", "vpc-id", "description", "owner-id", "tag-key"})
_WORDS = "Description"  # of a rule
_TARGETS = (("UserIdGroupPairs", "GroupId"), ("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6"))


def create(visit: Visit) -> dict[str, Any]:
    """Rules group_name_is_taken and new_group_lets_everything_out."""
    name, vpc = str(visit.params["GroupName"]), str(visit.params.get("VpcId") or vpc_id(visit.region))
    tags = sent(visit, "security-group").get("security-group", {})
    if vpc != vpc_id(visit.region):
        raise AwsRefusal("InvalidVpcID.NotFound", f"The vpc ID '{vpc}' does not exist")
    if any(one["name"] == name for one in _every(visit).values()):
        words = f"The security group '{name}' already exists for VPC '{vpc}'"
        raise AwsRefusal("InvalidGroup.Duplicate", words)

    def work() -> dict[str, Any]:
        made = visit.new_id("sg")
        visit.kept("groups")[made] = _fresh(visit, name, str(visit.params["Description"]), tags)
        return {"GroupId": made, "Tags": tag_list(tags), "SecurityGroupArn": visit.arn("security-group", made)}

    return visit.changing(name, work)


def delete(visit: Visit) -> dict[str, Any]:
    """Rule group_in_use_stays."""
    name = _named(visit)
    one = find(visit, name)
    if one["name"] == "default":
        raise AwsRefusal("CannotDelete", f'the specified group: "{name}" name: "default" cannot be deleted by a user')
    if name in groups_in_use(visit) or any(name in _references(other) for other in _others(visit, name)):
        raise AwsRefusal("DependencyViolation", f"resource {name} has a dependent object")

    def work() -> dict[str, Any]:
        visit.kept("groups").pop(name, None)
        return {"Return": True, "GroupId": name}

    return visit.changing(name, work)


def describe(visit: Visit) -> dict[str, Any]:
    visit.ask()
    asked = [str(one) for one in visit.params.get("GroupIds", ())]
    for name in asked:
        find(visit, name)
    names = [str(one) for one in visit.params.get("GroupNames", ())]
    every = [
        (name, one)
        for name, one in _every(visit).items()
        if (not asked or name in asked) and (not names or one["name"] in names)
    ]
    absent = set(names) - {one["name"] for _, one in every}
    if absent:
        raise AwsRefusal("InvalidGroup.NotFound", f"The security group '{min(absent)}' does not exist in default VPC")
    found, more = page(visit, chosen(visit, every, lambda pair: _facts(visit, *pair), _FILTERS))
    return {"SecurityGroups": [_shown(visit, name, one) for name, one in found], **more}


def authorize(visit: Visit) -> dict[str, Any]:
    """Ingress or egress, by the operation. Rule second_rule_of_the_kind_is_refused."""
    name, side = _named(visit), "egress" if visit.operation.endswith("Egress") else "ingress"
    one = find(visit, name)
    rules = [rule for permission in _permissions(visit) for rule in _single(visit, permission)]
    if not rules:
        raise missing("ipPermissions")
    for index, rule in enumerate(rules):
        if _values(rule) in [_values(other) for other in (*one[side], *rules[:index])]:
            words = f'the specified rule "peer: {_peer(rule)}, {rule["IpProtocol"]}, ALLOW" already exists'
            raise AwsRefusal("InvalidPermission.Duplicate", words)

    def work() -> dict[str, Any]:
        group = visit.kept("groups").setdefault(name, one)
        group[side] += [rule for rule in rules if _values(rule) not in [_values(held) for held in group[side]]]
        return {"Return": True, "SecurityGroupRules": [_rule_shown(visit, name, side, rule) for rule in rules]}

    return visit.changing(name, work)


def revoke(visit: Visit) -> dict[str, Any]:
    """Ingress. Rule revoked_rule_is_named_by_its_values."""
    name = _named(visit)
    one = find(visit, name)
    rules = [rule for permission in _permissions(visit) for rule in _single(visit, permission)]
    if not rules:
        raise missing("ipPermissions")
    named = [_values(rule) for rule in rules]
    unknown = [rule for rule in rules if _values(rule) not in [_values(held) for held in one["ingress"]]]

    def work() -> dict[str, Any]:
        group = visit.kept("groups").setdefault(name, one)
        group["ingress"] = [held for held in group["ingress"] if _values(held) not in named]
        return {"Return": True, "UnknownIpPermissions": _together(visit, unknown)}

    return visit.changing(name, work)


def find(visit: Visit, name: str) -> dict[str, Any]:
    """Raises AwsRefusal."""
    if not name.startswith("sg-"):
        raise AwsRefusal("InvalidGroupId.Malformed", f'Invalid id: "{name}" (expecting "sg-...")')
    found: dict[str, Any] | None = _every(visit).get(name)
    if found is None:
        raise AwsRefusal("InvalidGroup.NotFound", f"The security group '{name}' does not exist")
    return found


def default_group(visit: Visit) -> str:
    return made_id("sg", visit.region, "default")


def names_of(visit: Visit, groups: Iterable[str]) -> list[dict[str, str]]:
    """As an instance shows them; a group that has gone since has its id alone."""
    every = _every(visit)
    return [{"GroupId": one, "GroupName": every[one]["name"] if one in every else ""} for one in groups]


def tags_of(visit: Visit, name: str) -> dict[str, str]:
    one = visit.kept("groups").get(name)
    return now_of(visit, name, one["tags"] if one else {})


def groups_in_use(visit: Visit) -> set[str]:
    """By interfaces of instances that have not ended. kept "in use": by uid what a launch holds."""
    return {group for one in visit.kept("in use").values() for group in one["groups"]}


def _every(visit: Visit) -> dict[str, Any]:
    """With the group that every VPC has from the beginning."""
    default = default_group(visit)
    if default not in visit.kept("groups"):
        own = {"IpProtocol": "-1", "GroupId": default}
        fresh = _fresh(visit, "default", "default VPC security group", {}) | {"ingress": [own]}
        return {default: fresh, **visit.here("groups")}
    return visit.here("groups")


def _fresh(visit: Visit, name: str, words: str, tags: Mapping[str, str]) -> dict[str, Any]:
    everything = [{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}]
    base = {"region": visit.region, "name": name, "description": words, "tags": dict(tags)}
    return base | {"ingress": [], "egress": everything}


def _others(visit: Visit, name: str) -> Iterable[Mapping[str, Any]]:
    return (one for other, one in _every(visit).items() if other != name)


def _references(one: Mapping[str, Any]) -> set[str]:
    return {str(rule["GroupId"]) for side in ("ingress", "egress") for rule in one[side] if "GroupId" in rule}


def _named(visit: Visit) -> str:
    """Raises AwsRefusal."""
    if visit.params.get("GroupId"):
        return str(visit.params["GroupId"])
    name = str(visit.params.get("GroupName", ""))
    if not name:
        raise missing("groupId")
    for group, one in _every(visit).items():
        if one["name"] == name:
            return group
    raise AwsRefusal("InvalidGroup.NotFound", f"The security group '{name}' does not exist in default VPC")


def _permissions(visit: Visit) -> Sequence[Mapping[str, Any]]:
    """The flat form stands for one permission."""
    given: Sequence[Mapping[str, Any]] = visit.params.get("IpPermissions", ())
    if given or "IpProtocol" not in visit.params:
        return given
    plain = {name: visit.params[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in visit.params}
    return [plain | {"IpRanges": [{"CidrIp": visit.params.get("CidrIp", "")}]}]


def _single(visit: Visit, permission: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """One rule for each peer. Raises AwsRefusal."""
    protocol = str(permission.get("IpProtocol", ""))
    if not protocol:
        raise missing("ipProtocol")
    base: dict[str, Any] = {"IpProtocol": protocol}
    if protocol in ("tcp", "udp", "icmp", "6", "17", "1"):
        if "FromPort" not in permission or "ToPort" not in permission:
            raise wrong_value(f"Invalid value for portRange. Must specify both from and to ports with {protocol}")
        base |= {"FromPort": int(permission["FromPort"]), "ToPort": int(permission["ToPort"])}
    for several, name in _TARGETS:
        for peer in cast(Sequence[Mapping[str, Any]], permission.get(several, ())):
            if name == "GroupId":
                find(visit, str(peer.get("GroupId", "")))
            elif "/" not in str(peer.get(name, "")):
                raise wrong_value(f"CIDR block {peer.get(name, '')} is malformed")
            yield base | {name: str(peer[name])} | ({_WORDS: str(peer[_WORDS])} if peer.get(_WORDS) else {})


def _values(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells a rule from others: all but its description."""
    return {key: value for key, value in rule.items() if key != _WORDS}


def _peer(rule: Mapping[str, Any]) -> str:
    return str(next(rule[name] for _, name in _TARGETS if name in rule))


def _facts(visit: Visit, name: str, one: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    plain = {
        "group-id": [name],
        "group-name": [one["name"]],
        "vpc-id": [vpc_id(visit.region)],
        "owner-id": [visit.account],
    }
    return plain | {"description": [one["description"]]} | tag_facts(now_of(visit, name, one["tags"]))


def _shown(visit: Visit, name: str, one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "GroupId": name,
        "GroupName": one["name"],
        "Description": one["description"],
        "OwnerId": visit.account,
        "VpcId": vpc_id(visit.region),
        "SecurityGroupArn": visit.arn("security-group", name),
        "IpPermissions": _together(visit, one["ingress"]),
        "IpPermissionsEgress": _together(visit, one["egress"]),
        "Tags": tag_list(now_of(visit, name, one["tags"])),
    }


def _together(visit: Visit, rules: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rules of one protocol and port range are one permission, as EC2 shows them."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rule in rules:
        ports = {name: rule[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in rule}
        empty: dict[str, Any] = dict.fromkeys((*(several for several, _ in _TARGETS), "PrefixListIds"), ())
        one = found.setdefault(tuple(ports.values()), ports | empty)
        for several, name in _TARGETS:
            if name in rule:
                peer = {name: rule[name]} | ({"UserId": visit.account} if name == "GroupId" else {})
                peer |= {_WORDS: rule[_WORDS]} if _WORDS in rule else {}
                one[several] = [*one[several], peer]
    return list(found.values())


def _rule_shown(visit: Visit, group: str, side: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {name: rule[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in rule}
    if "GroupId" in rule:
        shown["ReferencedGroupInfo"] = {"GroupId": rule["GroupId"], "UserId": visit.account}
    if "CidrIp" in rule:
        shown["CidrIpv4"] = rule["CidrIp"]
    if "CidrIpv6" in rule:
        shown["CidrIpv6"] = rule["CidrIpv6"]
    own = {
        "SecurityGroupRuleId": made_id("sgr", group, side, repr(rule)),
        "GroupId": group,
        "GroupOwnerId": visit.account,
    }
    return own | {"IsEgress": side == "egress"} | shown
