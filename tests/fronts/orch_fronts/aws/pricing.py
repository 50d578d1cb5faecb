"""The Price List Query API: GetProducts, whose products come as JSON in strings, page by page.

Sources: AWS Price List Query API reference (service model of botocore 1.44.5); the attributes and the nesting of terms
are those of public recordings (aws/karpenter-provider-aws, pkg/fake/pricingapi.go, and the Price List of August 2026):
of one type there are also products of reservations, which cost nothing, of Capacity Blocks, and of other systems.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from orch_fronts.aws.asking import ask
from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.tables import instance_types, list_price
from orchestrator.simulator.access import Access

REGIONS = frozenset({"ap-south-1", "eu-central-1", "us-east-1"})  # where it is served (botocore 1.44.5)
_MOST = 100
_TYPES = frozenset({"TERM_MATCH", "EQUALS"})


class PricingFront:
    """page: products of an answer, at most 100."""

    def __init__(self, access: Access | None = None, page: int = _MOST) -> None:
        self._access = access
        self.page = page

    def handle(self, call: AwsCall) -> AwsAnswer:
        ask(self._access, call, str(call.params.get("ServiceCode", "")))
        if call.operation != "GetProducts":
            raise AwsRefusal("UnknownOperationException", f"{call.operation} is not served")
        if call.region not in REGIONS:
            raise AwsRefusal("UnknownOperationException", f"there is no Price List in {call.region}", 404)
        if call.params.get("ServiceCode") != "AmazonEC2":
            raise AwsRefusal("InvalidParameterException", "Invalid ServiceCode")
        wanted = _filters(call.params)
        found = [one for one in _all_products() if _fits(one["product"]["attributes"], wanted)]
        start, size = _start(call.params), min(int(call.params.get("MaxResults", _MOST)), self.page)
        listed = [json.dumps(one) for one in found[start : start + size]]
        more = {"NextToken": f"page-{start + size}"} if start + size < len(found) else {}
        return AwsAnswer.of_json({"FormatVersion": "aws_v1", "PriceList": listed} | more)


@cache
def _all_products() -> tuple[dict[str, Any], ...]:
    return tuple(list_products())


def list_products() -> Iterator[dict[str, Any]]:
    """Yield the products of every type in every region that sells it."""
    for name, kind in instance_types().items():
        for region in kind.zones:
            usd = list_price(name, region)
            tenancy = "Dedicated" if name.endswith(".metal") else "Shared"
            if usd:
                yield _product(name, region, usd, tenancy=tenancy)
                yield _product(name, region, f"{2 * float(usd):.10f}", tenancy=tenancy, operatingSystem="Windows")
                yield _product(
                    name, region, "0.0000000000", tenancy=tenancy, capacitystatus="AllocatedCapacityReservation"
                )
            if "capacity-block" in kind.usage:
                yield _product(name, region, "0.0000000000", tenancy=tenancy, marketoption="CapacityBlock")


def _product(name: str, region: str, usd: str, **other: str) -> dict[str, Any]:
    attributes = {
        "servicecode": "AmazonEC2",
        "instanceType": name,
        "regionCode": region,
        "locationType": "AWS Region",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        **other,
    }
    metal = name.endswith(".metal")
    sku = hashlib.sha256(repr((name, region, other)).encode()).hexdigest()[:16].upper()
    return {
        "product": {
            "productFamily": "Compute Instance (bare metal)" if metal else "Compute Instance",
            "attributes": attributes,
            "sku": sku,
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {f"{sku}.JRTCKXETXF": _term(sku, "JRTCKXETXF", usd, "Hrs")},
            "Reserved": {f"{sku}.38NPMPTW36": _term(sku, "38NPMPTW36", f"{float(usd) / 3:.10f}", "Hrs")},
        },
        "version": "20261120000000",
        "publicationDate": "2026-11-20T00:00:00Z",
    }


def _term(sku: str, code: str, usd: str, unit: str) -> dict[str, Any]:
    rate = f"{sku}.{code}.6YS6EN2CT7"
    dimension: dict[str, Any] = {
        "unit": unit,
        "endRange": "Inf",
        "beginRange": "0",
        "rateCode": rate,
        "description": f"${usd} per hour",
        "appliesTo": [],
        "pricePerUnit": {"USD": usd},
    }
    return {
        "priceDimensions": {rate: dimension},
        "sku": sku,
        "offerTermCode": code,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "termAttributes": {},
    }


def _filters(params: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in params.get("Filters", ()):
        if one.get("Type") not in _TYPES:
            raise AwsRefusal("InvalidParameterException", f"Filter type {one.get('Type')} is not served here")
        found[str(one["Field"])] = str(one["Value"])
    return found


def _fits(attributes: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(attributes.get(field) == value for field, value in wanted.items())


def _start(params: Mapping[str, Any]) -> int:
    token = str(params.get("NextToken") or "page-0")
    if not token.startswith("page-") or not token[5:].isdecimal():
        raise AwsRefusal("InvalidNextTokenException", "The NextToken is invalid.")
    return int(token[5:])
