"""Where buckets are and how much lies in them, as far as this computer was told: a file, so a preview needs no network.

Written when orch really talks to a bucket's service, read by every plan. It may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.errors import OrchError
from orchestrator.paths import paths

Ask: TypeAlias = Callable[[str], BucketPlace]
"""Where the bucket of this name is. Raises OrchError."""

SERVICES = {"gs": "orchestrator.providers.google.buckets", "s3": "orchestrator.providers.aws.buckets"}

FILE = "buckets.json"
MOST_OBJECTS = 20_000  # a folder with more is not measured: counting it would cost time and requests


@dataclass(frozen=True, slots=True)
class Told:
    """places: by `gs://name` or `s3://name`. sizes: bytes, by the address of a folder or an object."""

    places: Mapping[str, BucketPlace] = field(default_factory=dict[str, BucketPlace])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


def bucket_of(uri: str) -> str:
    """`gs://name` or `s3://name` of any address below it, "" for what is not such a bucket."""
    scheme, _, rest = uri.partition("://")
    name = rest.partition("/")[0]
    return f"{scheme}://{name}" if scheme in SERVICES and name else ""


def told(state: Path | None = None) -> Told:
    """All that is on record. What cannot be read is not known."""
    try:
        read = json.loads((state or paths().state).joinpath(FILE).read_text(encoding="utf-8"))
        places = {
            str(uri): BucketPlace(str(one["location"]), tuple(str(region) for region in one.get("regions", ())))
            for uri, one in cast("dict[str, Any]", read["buckets"]).items()
        }
        return Told(places, {str(uri): int(size) for uri, size in read.get("sizes", {}).items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Told()


def remember(uri: str, place: BucketPlace, state: Path | None = None) -> None:
    """Keep where the bucket of `uri` is."""
    known = told(state)
    _save(replace(known, places={**known.places, bucket_of(uri): place}), state or paths().state)


def learn(uris: Iterable[str], ask: Ask | None = None, state: Path | None = None) -> None:
    """Ask where the buckets of these addresses are, and how much lies below those that name more than a bucket.

    What is on record is not asked for again. Who does not tell is left out: nothing depends on it.
    """
    wanted = [uri.rstrip("/") for uri in dict.fromkeys(uris) if bucket_of(uri)]
    for uri in wanted:
        try:
            if bucket_of(uri) not in told(state).places:
                remember(uri, (ask or _asker(uri))(bucket_of(uri).partition("://")[2]), state)
            if uri != bucket_of(uri) and uri not in told(state).sizes:
                _measure(uri, state)
        except (OrchError, OSError):
            continue


def _measure(uri: str, state: Path | None) -> None:
    from orchestrator.storage.bucket import Bucket

    objects = list(islice(Bucket.open(uri).list(), MOST_OBJECTS + 1))
    if 0 < len(objects) <= MOST_OBJECTS:
        known = told(state)
        sizes = {**known.sizes, uri: sum(one.size for one in objects)}
        _save(replace(known, sizes=sizes), state or paths().state)


def _save(known: Told, folder: Path) -> None:
    """Whole or not at all. Two writers at once may lose what one of them learnt; it is then asked for again."""
    places = {
        name: {"location": one.location, "regions": list(one.regions)} for name, one in sorted(known.places.items())
    }
    shown = {"format": 1, "buckets": places, "sizes": dict(sorted(known.sizes.items()))}
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=FILE, dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(shown, indent=2) + "\n")
    Path(name).replace(folder / FILE)


def _asker(uri: str) -> Ask:
    """By the service's own library, which is loaded only now."""
    return cast(Ask, import_module(SERVICES[uri.partition("://")[0]]).place_of)
