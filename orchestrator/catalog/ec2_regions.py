"""Regions of EC2 and their zones (data/ec2_regions.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from orchestrator.catalog.tables import read_rows


@cache
def list_opt_in_regions() -> frozenset[str]:
    """Return the regions that an account has to enable before it can use them."""
    return frozenset(row.text("name") for row in read_rows("ec2_regions", "region") if row.flag("opt_in"))


@cache
def load_zones_by_region() -> Mapping[str, tuple[str, ...]]:
    """Return the names of the zones by region: `us-east-1` has `us-east-1a` and so on."""
    found = {row.text("name"): row.texts("zones") for row in read_rows("ec2_regions", "region")}
    return MappingProxyType({name: tuple(f"{name}{letter}" for letter in letters) for name, letters in found.items()})
