"""The names of slices, which hold the end of their cluster's uid: as on record, and as a launch will make them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from orchestrator.computer import identify_place
from orchestrator.paths import Paths, load_paths
from orchestrator.store.location import store_location
from orchestrator.store.read import open_reader_at
from orchestrator.store.uids import derive_uid_end

PROJECT = "default"


def slice_name(cluster: str, generation: int = 1, *, home: Path | None = None) -> str:
    """Return the name of a slice of the cluster's newest record; without one, the name that its launch will give.

    Args:
        cluster: The cluster's name.
        generation: Of the slice.
        home: The ORCH_HOME of the command; by default that of the environment.
    """
    state = _state(home)
    with open_reader_at(store_location(os.environ, Paths(state))) as reader:
        record = reader.cluster(cluster) or reader.deleted_cluster(cluster)
        earlier = reader.count_clusters(cluster)
    end = record.uid[-6:] if record is not None else derive_uid_end(identify_place(state), PROJECT, cluster, earlier)
    return f"{cluster}-{end}-{generation}"


def short_names(names: Iterable[str], *, home: Path | None = None) -> list[str]:
    """Return the names with the uid taken out of those that have the uid of a cluster on record: "c-1" for our first.

    Any other name stays as it is.
    """
    with open_reader_at(store_location(os.environ, Paths(_state(home)))) as reader:
        stems = {f"{record.name}-{record.uid[-6:]}-": f"{record.name}-" for record in reader.clusters_by_uid().values()}
    return [_shorten(name, stems) for name in names]


def _shorten(name: str, stems: dict[str, str]) -> str:
    stem = next((one for one in stems if name.startswith(one)), "")
    return stems[stem] + name.removeprefix(stem) if stem else name


def _state(home: Path | None) -> Path:
    return home / "state" if home is not None else load_paths().state
