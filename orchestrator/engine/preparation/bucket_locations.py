"""Known locations and sizes of buckets: a cache file, so that a preview needs no network.

It is written when orch talks to a bucket's service, and read by every plan. It may be deleted at any time.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.drivers import list_clouds, load_part
from orchestrator.errors import OrchError
from orchestrator.paths import load_paths
from orchestrator.private_files import make_private_folder
from orchestrator.values import Text, to_text

Ask: TypeAlias = Callable[[str], BucketPlace]
"""Where the bucket of this name is. Raises OrchError."""

FILE = "buckets.json"
BUCKET_REGION = "ORCH_BUCKET_REGION"
SIZE_AGE = 24 * 3600.0  # seconds after which a folder is measured again
MOST_OBJECTS = 20_000  # a folder with more is not measured: counting it would cost time and requests


@dataclass(frozen=True, slots=True)
class KnownBuckets:
    """What the cache file holds.

    Attributes:
        places: Locations by `gs://name` or `s3://name`.
        sizes: Bytes by the address of a folder or an object.
        measured: When they were measured, in epoch seconds.
    """

    places: Mapping[str, BucketPlace] = field(default_factory=dict[str, BucketPlace])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    measured: Mapping[str, float] = field(default_factory=dict[str, float])

    def has_recent_size(self, uri: str, now: float) -> bool:
        """Return whether the size of a folder or an object is known, and not old."""
        return uri in self.sizes and 0 <= now - self.measured[uri] < SIZE_AGE


def list_services() -> Mapping[str, str]:
    """Return the driver that knows the buckets of each scheme."""
    return {one.bucket_scheme: one.name for one in list_clouds() if one.bucket_scheme}


def bucket_of(uri: str) -> str:
    """Return `gs://name` or `s3://name` of an address below such a bucket, else ""."""
    scheme, _, rest = uri.partition("://")
    name = rest.partition("/")[0]
    return f"{scheme}://{name}" if scheme in list_services() and name else ""


def region_variable(bucket: str, state: Path | None = None) -> tuple[tuple[str, Text], ...]:
    """Return ORCH_BUCKET_REGION for the programs of a run whose bucket is in S3, where its region is known.

    It is no AWS_REGION: programs take that for the region that they run in, and Mountpoint for that of every bucket.
    """
    place = load_known_buckets(state).places.get(bucket_of(bucket)) if bucket.startswith("s3://") else None
    return ((BUCKET_REGION, to_text(place.location)),) if place is not None else ()


def load_known_buckets(state: Path | None = None) -> KnownBuckets:
    """Return all that the cache file holds; an unreadable file counts as empty."""
    try:
        read = json.loads((state or load_paths().state).joinpath(FILE).read_text(encoding="utf-8"))
        places = {
            str(uri): BucketPlace(str(one["location"]), tuple(str(region) for region in one["regions"]))
            for uri, one in cast("dict[str, Any]", read["buckets"]).items()
        }
        sizes = {str(uri): int(size) for uri, size in read["sizes"].items()}
        measured = {str(uri): float(at) for uri, at in read["measured"].items()}
        return KnownBuckets(places, sizes, measured)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return KnownBuckets()


def save_bucket_location(uri: str, place: BucketPlace, state: Path | None = None) -> None:
    """Store the location of the bucket of `uri`."""
    known = load_known_buckets(state)
    _save(replace(known, places={**known.places, bucket_of(uri): place}), state or load_paths().state)


def learn_bucket_locations(
    uris: Iterable[str],
    ask: Ask | None = None,
    state: Path | None = None,
    *,
    now: float | None = None,
    seconds: float = math.inf,
) -> None:
    """Ask where these buckets are, unless it is known, and how large the folders in them are, unless it was just read.

    Errors are ignored, and keep what is known: no decision depends on the answer.

    Args:
        uris: Of buckets, or of folders in them.
        ask: In place of the bucket's service.
        state: Folder of the cache file; None for that of the environment.
        now: Epoch seconds; None for the time of this computer.
        seconds: After these no further bucket is asked.
    """
    at, end = time.time() if now is None else now, time.monotonic() + seconds
    addresses = [uri.rstrip("/") for uri in dict.fromkeys(uris) if bucket_of(uri)]
    for uri in addresses:
        if time.monotonic() >= end:
            return
        try:
            if bucket_of(uri) not in load_known_buckets(state).places:
                save_bucket_location(uri, (ask or _asker(uri))(bucket_of(uri).partition("://")[2]), state)
            if uri != bucket_of(uri) and not load_known_buckets(state).has_recent_size(uri, at):
                _measure(uri, state, at)
        except (OrchError, OSError):
            continue


def _measure(uri: str, state: Path | None, now: float) -> None:
    from orchestrator.engine.state.identities import open_project_bucket

    objects = list(islice(open_project_bucket(uri).list(), MOST_OBJECTS + 1))
    known = load_known_buckets(state)
    sizes = {name: size for name, size in known.sizes.items() if name != uri}
    measured = {name: at for name, at in known.measured.items() if name in sizes}
    if 0 < len(objects) <= MOST_OBJECTS:
        sizes[uri], measured[uri] = sum(one.size for one in objects), now
    if (sizes, measured) != (known.sizes, known.measured):
        _save(replace(known, sizes=sizes, measured=measured), state or load_paths().state)


def _save(known: KnownBuckets, folder: Path) -> None:
    """Write the file atomically.

    Of two concurrent writers one may overwrite what the other learned; it is then asked for again.
    """
    places = {
        name: {"location": one.location, "regions": list(one.regions)} for name, one in sorted(known.places.items())
    }
    sizes, measured = dict(sorted(known.sizes.items())), dict(sorted(known.measured.items()))
    shown = {"format": 1, "buckets": places, "sizes": sizes, "measured": measured}
    make_private_folder(folder)
    handle, name = tempfile.mkstemp(prefix=FILE, dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(shown, indent=2) + "\n")
    Path(name).replace(folder / FILE)


def _asker(uri: str) -> Ask:
    """Return the query of the bucket's service; its library is imported only now."""
    return cast(Ask, load_part(list_services()[uri.partition("://")[0]], "buckets").place_of)
