"""Resources that are only kept: firewall rules, networks, instance templates, workload policies."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orch_fronts.google import names
from orch_fronts.google.compute import machines, operations
from orch_fronts.google.compute.answers import in_use, invalid, not_found, required, taken
from orch_fronts.google.compute.visit import Visit, check_name, last
from orch_fronts.google.visit import timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """collection: as in paths. kept: as in the state. message: of the discovery document. check: of a new one."""

    collection: str
    kept: str
    message: str
    check: Callable[[Visit, str, dict[str, Any]], None]


def insert(visit: Visit, scope: str, kind: Kind) -> dict[str, Any]:
    before = operations.repeated(visit)
    if before is not None:
        return before
    given = visit.read(kind.message)
    name = str(given.get("name", ""))
    check_name(name)
    kind.check(visit, scope, given)
    path = f"{scope}/{kind.collection}/{name}"
    if path in visit.kept(kind.kept):
        raise taken(f"projects/{visit.project}/{path}")

    def work() -> None:
        visit.kept(kind.kept)[path] = given | {
            "kind": f"compute#{kind.message[0].lower()}{kind.message[1:]}",
            "id": str(visit.number()),
            "selfLink": operations.link(visit, path),
            "creationTimestamp": timestamp(visit.cloud.state.now),
        }

    visit.changing("create", name, work)
    return operations.begin(visit, scope, "insert", path)


def get(visit: Visit, scope: str, kind: Kind, name: str) -> dict[str, Any]:
    visit.cloud.ask("get", name)
    return _found(visit, scope, kind, name)


def listing(visit: Visit, scope: str, kind: Kind) -> dict[str, Any]:
    visit.cloud.ask("list", kind.collection)
    mine = [each for path, each in visit.kept(kind.kept).items() if path.startswith(f"{scope}/")]
    page, more = visit.page([each for each in mine if visit.fits(each)])
    return {"kind": f"compute#{kind.message[0].lower()}{kind.message[1:]}List", "items": page} | (
        {"nextPageToken": more} if more else {}
    )


def aggregated(visit: Visit, kind: Kind) -> dict[str, Any]:
    visit.cloud.ask("list", kind.collection)
    page, more = visit.page([each for each in visit.kept(kind.kept).values() if visit.fits(each)])
    items: dict[str, Any] = {}
    for each in page:
        scope = each["selfLink"].partition(f"/projects/{visit.project}/")[2].partition(f"/{kind.collection}/")[0]
        items.setdefault(scope, {kind.collection: []})[kind.collection].append(each)
    answer: dict[str, Any] = {"items": items, "unreachables": []}
    return answer | ({"nextPageToken": more} if more else {})


def patch(visit: Visit, scope: str, kind: Kind, name: str) -> dict[str, Any]:
    """Only of firewall rules: the fields that are given take the place of those that are there."""
    before = operations.repeated(visit)
    if before is not None:
        return before
    given = visit.read(kind.message)
    found = _found(visit, scope, kind, name)
    changed = found | given
    kind.check(visit, scope, changed)
    visit.changing("amend", name, lambda: found.update(changed))
    return operations.begin(visit, scope, "patch", f"{scope}/{kind.collection}/{name}")


def delete(visit: Visit, scope: str, kind: Kind, name: str) -> dict[str, Any]:
    before = operations.repeated(visit)
    if before is not None:
        return before
    _found(visit, scope, kind, name)
    path = f"{scope}/{kind.collection}/{name}"
    for group_path, group in visit.kept("groups").items():
        if path in (group["template"], group["policy"]):
            raise in_use(f"projects/{visit.project}/{path}", f"projects/{visit.project}/{group_path}")
    visit.changing("end", name, lambda: visit.kept(kind.kept).pop(path, None) and None)
    return operations.begin(visit, scope, "delete", path)


def network(visit: Visit, name: str) -> dict[str, Any]:
    """Rule every_network_is_there."""
    visit.cloud.ask("get", name)
    return {
        "kind": "compute#network",
        "name": name,
        "selfLink": operations.link(visit, f"global/networks/{name}"),
        "autoCreateSubnetworks": name == "default",
    }


def _found(visit: Visit, scope: str, kind: Kind, name: str) -> dict[str, Any]:
    path = f"{scope}/{kind.collection}/{name}"
    found: dict[str, Any] | None = visit.kept(kind.kept).get(path)
    if found is None:
        raise not_found(f"projects/{visit.project}/{path}")
    return found


def _check_firewall(visit: Visit, scope: str, given: dict[str, Any]) -> None:
    """Rule firewall_rule_names_its_traffic."""
    del scope
    given.setdefault("direction", "INGRESS")
    given.setdefault("priority", 1000)
    given.setdefault("network", operations.link(visit, "global/networks/default"))
    if bool(given.get("allowed")) == bool(given.get("denied")):
        raise invalid("resource", "exactly one of allowed and denied is needed")
    for each in given.get("allowed") or given.get("denied") or ():
        if not each.get("IPProtocol"):
            raise required("resource.allowed[0].IPProtocol")
    for field in ("sourceRanges", "destinationRanges"):
        for cidr in given.get(field, ()):
            try:
                ipaddress.ip_network(cidr)
            except ValueError as error:
                raise invalid(f"resource.{field}", f"'{cidr}'. Must be a valid CIDR range") from error
    if given["direction"] == "INGRESS" and not any(key.startswith("source") for key in given):
        given["sourceRanges"] = ["0.0.0.0/0"]


def _check_template(visit: Visit, scope: str, given: dict[str, Any]) -> None:
    del visit, scope
    properties: Mapping[str, Any] | None = given.get("properties")
    if properties is None:
        raise required("resource.properties")
    for field in ("machineType",):
        if "/" in str(properties.get(field, "")):
            raise invalid(f"resource.properties.{field}", "a template takes a name, not a URL")
    machines.check_properties(properties)
    names.check_labels(properties.get("labels", {}))


def _check_policy(visit: Visit, scope: str, given: dict[str, Any]) -> None:
    policy: Mapping[str, Any] | None = given.get("workloadPolicy")
    if policy is None:
        raise invalid("resource", "only workload policies are simulated")
    if policy.get("type") != "HIGH_THROUGHPUT":
        raise invalid("resource.workloadPolicy.type", "acceleratorTopology needs HIGH_THROUGHPUT")
    machines.chips_of(str(policy.get("acceleratorTopology", "")))
    given["region"] = operations.link(visit, f"regions/{last(scope)}")
    given["status"] = "READY"


FIREWALLS = Kind(collection="firewalls", kept="firewalls", message="Firewall", check=_check_firewall)
TEMPLATES = Kind(collection="instanceTemplates", kept="templates", message="InstanceTemplate", check=_check_template)
POLICIES = Kind(collection="resourcePolicies", kept="policies", message="ResourcePolicy", check=_check_policy)
