"""Where a bucket is relative to its readers: whether reading is free, and what a GiB costs otherwise.

Cloud Storage documentation, "Bucket locations" (2026): reading is free within a region, and from a dual-region in
either of its two; from a multi-region it is always charged. Amazon S3 user guide (2026): a bucket is in one region, and
reading is free there. Prices: data/buckets.toml.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.catalog.tables import read_rows


class Reach(StrEnum):
    """How a host reaches the data of a bucket, and so whether reading is charged."""

    SAME = "same"  # the data is in the reader's region: free
    COVERED = "covered"  # a multi-region around the reader: near, and charged
    CROSSES = "crosses"  # elsewhere: far, and charged


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """The location of a bucket.

    Attributes:
        location: As the service names it, such as US-WEST4, US or NAM4; for S3 its region, us-west-2.
        regions: The pair of a configured dual-region, whose location is then that of the continent.
    """

    location: str
    regions: tuple[str, ...] = ()

    def __str__(self) -> str:
        if _in_s3(self):
            return self.location
        return "+".join(self.regions).upper() if self.regions else self.location.upper()


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """The price of reading, in US dollars per GiB.

    Attributes:
        as_of: ISO date of the price.
    """

    usd_per_gib: float
    as_of: str


def classify_access(place: BucketPlace, region: str) -> Reach:
    """Return how a host in `region` reaches the data."""
    name = place.location.upper()
    known = next((row for row in read_rows("buckets", "location") if row.text("name") == name), None)
    regions = [one.lower() for one in place.regions] or (list(known.texts("regions")) if known else [name.lower()])
    if region in regions:
        return Reach.SAME
    multi = known is not None and not place.regions and region not in known.texts("but")
    around = multi and known is not None and region.startswith(known.texts("begins") or ("\0",))
    return Reach.COVERED if around else Reach.CROSSES


def transfer_price(place: BucketPlace, region: str) -> TransferPrice | None:
    """Return what reading one GiB into `region` costs where it is charged; None when not known."""
    if _in_s3(place):
        return _s3_price(place.location, region)
    from_, to = _continent_of(place), _continent(region)
    for row in read_rows("buckets", "transfer"):
        if (row.text("from"), row.text("to")) == (from_, to):
            return TransferPrice(row.number("usd"), row.text("as_of"))
    return None


def _in_s3(place: BucketPlace) -> bool:
    """Return whether the bucket is in S3: Amazon's regions end in -NUMBER, Google's do not."""
    return re.search(r"-\d+$", place.location) is not None


def _s3_price(from_: str, to: str) -> TransferPrice | None:
    for row in read_rows("buckets", "s3_transfer"):
        if from_.startswith(row.texts("from")) and to.startswith(row.texts("to")):
            return TransferPrice(row.number("usd"), row.text("as_of"))
    return None


def _continent_of(place: BucketPlace) -> str:
    name = place.location.upper()
    for row in read_rows("buckets", "location"):
        if row.text("name") == name:
            return _continent((*place.regions, *row.texts("regions"), *row.texts("begins"))[0].lower())
    return _continent(name.lower())


def _continent(region: str) -> str:
    """Return the continent of a region; "" for one without a known price."""
    found = (row.text("name") for row in read_rows("buckets", "continent") if region.startswith(row.texts("begins")))
    return next(found, "")
