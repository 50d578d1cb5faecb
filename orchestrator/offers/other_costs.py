"""What a run costs beside its machines: disks, addresses, the bucket, and reading from another place. Pure.

The prices are those of the ledger (catalog/attached.py) and of the plan's notes (catalog/buckets.py). None is not
known, and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalog.attached import AttachedPrices
from orchestrator.catalog.buckets import BucketPlace, Reach, classify_access, is_in_s3, storage_price, transfer_price

_HOUR = 3600.0
_MONTH_HOURS = 730  # as both clouds' price pages count
GIB = 1 << 30
PARTS = ("disks", "addresses", "storage", "writes", "reads")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSizes:
    """How much of a run is stored and read; None for what is not known.

    Attributes:
        checkpoint_bytes: Of one checkpoint.
        kept: How many of them the bucket holds.
        data_bytes: Of the tokens, which are read once.
    """

    checkpoint_bytes: int | None = None
    kept: int = 3
    data_bytes: int | None = None


UNKNOWN_SIZES = RunSizes()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCosts:
    """Costs of one offer in US dollars; None for what is not known.

    Attributes:
        disks: An hour, of the boot disks of all machines.
        addresses: An hour, of their public addresses.
        storage: An hour, of the checkpoints that are kept in the bucket.
        writes: Of the requests of one checkpoint; None also where they leave the region, whose price is not known.
        data: Of reading the data once from where it is; 0 within one region.
        checkpoint: Of reading one checkpoint, likewise; that is done after each loss.
        sizes: Of what is stored and read.
    """

    disks: float | None = None
    addresses: float | None = None
    storage: float | None = None
    writes: float | None = None
    data: float | None = None
    checkpoint: float | None = None
    sizes: RunSizes = UNKNOWN_SIZES

    def measure_parts(self, seconds: float, *, interval: float, losses_per_hour: float) -> Mapping[str, float | None]:
        """Return the dollars of each of PARTS in a run.

        Args:
            seconds: Of the run.
            interval: Seconds between two checkpoints.
            losses_per_hour: After which a checkpoint is read.
        """
        hours = seconds / _HOUR
        found = {"disks": self.disks, "addresses": self.addresses, "storage": self.storage}
        reads = None if self.data is None or self.checkpoint is None else self.data
        return {
            **{part: None if rate is None else rate * hours for part, rate in found.items()},
            "writes": None if self.writes is None else self.writes * (seconds / interval + 1),
            "reads": None if reads is None else reads + (self.checkpoint or 0.0) * losses_per_hour * hours,
        }


def find_other_costs(
    attached: AttachedPrices, sizes: RunSizes, region: str, *, hosts: int, bucket: BucketPlace | None
) -> OtherCosts:
    """Return what machines in a region cost beside their own price.

    Args:
        attached: Prices of their disks and addresses.
        sizes: Of the run.
        region: Of the machines.
        hosts: Of all of them; each writes its part of a checkpoint as one object.
        bucket: Where the bucket is; None for the region of the machines.
    """
    stored = storage_price(bucket.location.lower() if bucket is not None else region)
    size = sizes.checkpoint_bytes
    known = stored is not None and size is not None
    price = _price_reads(bucket, region)
    return OtherCosts(
        disks=None if attached.disks is None else attached.disks / 1e6,
        addresses=None if attached.addresses is None else attached.addresses / 1e6,
        storage=stored.per_gib_month * (size or 0) / GIB * sizes.kept / _MONTH_HOURS if known and stored else None,
        writes=stored.per_write * (hosts + 1) if known and stored and price == 0 else None,
        data=_charge(sizes.data_bytes, price),
        checkpoint=_charge(size, price),
        sizes=sizes,
    )


def _charge(size: int | None, price: float | None) -> float | None:
    if price == 0:
        return 0.0
    return None if size is None or price is None else size / GIB * price


def _price_reads(bucket: BucketPlace | None, region: str) -> float | None:
    """Return dollars for each GiB that is read; None when not known, as between two clouds."""
    if bucket is None or classify_access(bucket, region) is Reach.SAME:
        return 0.0
    if is_in_s3(bucket) != is_in_s3(BucketPlace(region)):
        return None
    found = transfer_price(bucket, region)
    return None if found is None else found.usd_per_gib
