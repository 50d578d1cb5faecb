"""Where a bucket is and where its readers are: whether reading is free, and what a GiB costs otherwise.

Cloud Storage documentation, "Bucket locations" (2026): reading is free within a region, and from a dual-region in
either of its two; from a multi-region it is always charged. Amazon S3 user guide (2026): a bucket is in one region, and
reading is free there. Prices: data/buckets.toml.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.catalog.tables import rows


class Reach(StrEnum):
    SAME = "same"  # the data is in the reader's region: free
    COVERED = "covered"  # a multi-region around the reader: near, and charged
    CROSSES = "crosses"  # elsewhere: far, and charged


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """location: as the service names it, e.g. US-WEST4, US, NAM4; of S3 its region, us-west-2. regions: the pair of a
    dual-region that somebody chose, whose location is then that of the continent."""

    location: str
    regions: tuple[str, ...] = ()

    def __str__(self) -> str:
        if _in_s3(self):
            return self.location
        return "+".join(self.regions).upper() if self.regions else self.location.upper()


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """US dollars per GiB read. as_of: ISO date of the price."""

    usd_per_gib: float
    as_of: str


def reach(place: BucketPlace, region: str) -> Reach:
    """How a host in `region` reaches the data."""
    name = place.location.upper()
    known = next((row for row in rows("buckets", "location") if row.text("name") == name), None)
    regions = [one.lower() for one in place.regions] or (list(known.texts("regions")) if known else [name.lower()])
    if region in regions:
        return Reach.SAME
    multi = known is not None and not place.regions and region not in known.texts("but")
    around = multi and known is not None and region.startswith(known.texts("begins") or ("\0",))
    return Reach.COVERED if around else Reach.CROSSES


def transfer_price(place: BucketPlace, region: str) -> TransferPrice | None:
    """What reading one GiB into `region` costs where it is charged; None when the price is not known."""
    if _in_s3(place):
        return _s3_price(place.location, region)
    from_, to = _continent_of(place), _continent(region)
    for row in rows("buckets", "transfer"):
        if (row.text("from"), row.text("to")) == (from_, to):
            return TransferPrice(row.number("usd"), row.text("as_of"))
    return None


def _in_s3(place: BucketPlace) -> bool:
    """Amazon's regions end in a number of their own, us-east-1; Google's do not, us-east1."""
    return re.search(r"-\d+$", place.location) is not None


def _s3_price(from_: str, to: str) -> TransferPrice | None:
    for row in rows("buckets", "s3_transfer"):
        if from_.startswith(row.texts("from")) and to.startswith(row.texts("to")):
            return TransferPrice(row.number("usd"), row.text("as_of"))
    return None


def _continent_of(place: BucketPlace) -> str:
    name = place.location.upper()
    for row in rows("buckets", "location"):
        if row.text("name") == name:
            return _continent((*place.regions, *row.texts("regions"), *row.texts("begins"))[0].lower())
    return _continent(name.lower())


def _continent(region: str) -> str:
    """ "" for a region of a continent that no price is known for."""
    found = (row.text("name") for row in rows("buckets", "continent") if region.startswith(row.texts("begins")))
    return next(found, "")
