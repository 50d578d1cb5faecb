"""Prices of what machines have attached, disks and public addresses, and the least time that is charged.

Which disks and addresses a candidate has is known to its driver: the module `attached` of its folder. Prices:
data/attached.toml.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

from orchestrator.catalog.tables import read_rows
from orchestrator.drivers import has_part, load_part
from orchestrator.errors import UserError
from orchestrator.slices import Candidate, Spot

_HOURS_A_MONTH = 730  # as both clouds' price pages count


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """What the machines of one candidate have attached. None for what is not known.

    Attributes:
        disk: Type of the boot disks, in the words of the cloud.
        disk_gib: Of all boot disks together.
        disk_iops: Operations a second beyond what is included, of all boot disks together.
        disk_mibps: MiB a second beyond what is included, of all boot disks together.
        addresses: Public addresses of all machines.
        keeps_addresses: Whether machines that are stopped keep them.
    """

    disk: str = ""
    disk_gib: int | None = None
    disk_iops: int = 0
    disk_mibps: int = 0
    addresses: int | None = None
    keeps_addresses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedPrices:
    """What a candidate's disks and addresses cost by list prices.

    Attributes:
        disks: Micro-dollars an hour; None when not known.
        addresses: The same.
        minimum_seconds: The least time that is charged for a machine; 0 where none is known.
        keeps_addresses: Whether the addresses are paid while the machines are stopped, too.
    """

    disks: int | None
    addresses: int | None
    minimum_seconds: int
    keeps_addresses: bool = False


class Describes(Protocol):
    """A driver's module `attached`."""

    def describe_attached(self, candidate: Candidate) -> Attached:
        """Return what the machines have attached.

        Raises:
            UserError: The candidate cannot be made.
        """
        ...


@lru_cache(maxsize=256)
def find_attached_prices(candidate: Candidate) -> AttachedPrices:
    """Return what disks and addresses of a candidate cost."""
    found = Attached()
    if has_part(candidate.provider, "attached"):
        with suppress(UserError):  # on record, and this orch would refuse it
            found = cast(Describes, load_part(candidate.provider, "attached")).describe_attached(candidate)
    return AttachedPrices(
        disks=_price_disks(candidate, found),
        addresses=_price_addresses(candidate, found),
        minimum_seconds=sum(
            row.whole("seconds")
            for row in read_rows("attached", "minimum")
            if row.text("provider") == candidate.provider
        ),
        keeps_addresses=found.keeps_addresses,
    )


def _price_disks(candidate: Candidate, found: Attached) -> int | None:
    if found.disk_gib is None:
        return None
    for row in read_rows("attached", "disk"):
        same = (row.text("provider"), row.text("disk")) == (candidate.provider, found.disk)
        if same and candidate.region in row.texts("regions"):
            month = found.disk_gib * row.number("usd_per_gib_month")
            month += found.disk_iops * row.number("usd_per_iops_month")
            month += found.disk_mibps * row.number("usd_per_mibps_month")
            return round(month * 1e6 / _HOURS_A_MONTH)
    return None


def _price_addresses(candidate: Candidate, found: Attached) -> int | None:
    if found.addresses is None:
        return None
    market = "spot" if isinstance(candidate.market, Spot) else "on-demand"
    for row in read_rows("attached", "address"):
        if row.text("provider") == candidate.provider and market in row.texts("markets"):
            return round(found.addresses * row.number("usd_per_hour") * 1e6)
    return None
