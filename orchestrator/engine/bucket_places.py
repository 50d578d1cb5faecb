"""Where buckets are, as far as this computer was told: a small file, so that a preview needs no network.

Written when orch really talks to a bucket's service, read by every plan. It may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.errors import OrchError
from orchestrator.paths import paths

Ask: TypeAlias = Callable[[str], BucketPlace]
"""Where the bucket of this name is. Raises OrchError."""

FILE = "buckets.json"


def bucket_of(uri: str) -> str:
    """`gs://name` of any address below it, "" for what is not a bucket of Google's."""
    scheme, _, rest = uri.partition("://")
    name = rest.partition("/")[0]
    return f"gs://{name}" if scheme == "gs" and name else ""


def known_places(state: Path | None = None) -> Mapping[str, BucketPlace]:
    """By `gs://name`. What cannot be read is not known."""
    try:
        told = json.loads((state or paths().state).joinpath(FILE).read_text(encoding="utf-8"))
        return {
            str(uri): BucketPlace(str(one["location"]), tuple(str(region) for region in one.get("regions", ())))
            for uri, one in cast("dict[str, Any]", told["buckets"]).items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def remember(uri: str, place: BucketPlace, state: Path | None = None) -> None:
    """Keep where the bucket of `uri` is. Two writers at once may lose one of the two, which is then asked for again."""
    folder = state or paths().state
    every = {**known_places(folder), bucket_of(uri): place}
    shown = {name: {"location": one.location, "regions": list(one.regions)} for name, one in sorted(every.items())}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=FILE, delete=False) as file:
        file.write(json.dumps({"format": 1, "buckets": shown}, indent=2) + "\n")
    os.chmod(file.name, 0o600)  # noqa: PTH101  # an open file's name
    Path(file.name).replace(folder / FILE)


def learn(uris: Iterable[str], ask: Ask | None = None, state: Path | None = None) -> None:
    """Ask for the places that are not known yet. A bucket that does not tell is left out: nothing depends on it."""
    for name in dict.fromkeys(bucket_of(uri) for uri in uris):
        if not name or name in known_places(state):
            continue
        try:
            remember(name, (ask or _google)(name.removeprefix("gs://")), state)
        except (OrchError, OSError):
            continue


def _google(name: str) -> BucketPlace:
    ask = cast(Ask, import_module("orchestrator.providers.google.buckets").place_of)
    return ask(name)
