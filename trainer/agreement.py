"""Checks before the first step that all ranks are set up for the same run.

Ranks that differ would wait for each other forever.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from trainer.config import Config
from trainer.data.fingerprints import is_same_corpus
from trainer.errors import ConfigError, DataError
from trainer.options import flatten_config
from trainer.team import Team

if TYPE_CHECKING:
    from trainer.data.state import DataState

_ABSENT = "none"
_DATA = ("total_tokens", "vocab", "fingerprint")
_PLACES = frozenset({"data.source", "data.tokenizer", "threads", "metrics.file", "metrics.tensorboard"})
_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "torch": ("numpy", "torch", "torch_xla", "torch_tpu", "torch_neuronx"),
    "jax": ("numpy", "jax", "jaxlib", "libtpu", "libneuronxla"),
}


def agree_on_run(team: Team, config: Config, data: DataState) -> None:
    """Check that all ranks have the same data, settings and versions.

    Args:
        team: All ranks of the run.
        config: As this rank has it, with `auto` resolved. Locations on a host (_PLACES) may differ: the content counts.
        data: What this rank's corpus is.

    Raises:
        DataError: A rank reads another corpus; raised on every rank.
        ConfigError: A rank has other settings or versions; raised on every rank.
    """
    settings = {name: value for name, value in flatten_config(config).items() if name not in _PLACES}
    about_data = {name: getattr(data, name) for name in _DATA}
    first, *others = team.gather({"data": about_data, "config": settings, "versions": versions(config.engine)})
    for rank, other in enumerate(others, start=1):
        changed = [name for name in _DATA if not _agrees(name, other["data"].get(name, ""), first["data"][name])]
        if changed:
            differences = "; ".join(
                f"{name} {other['data'].get(name)} instead of {first['data'][name]}" for name in changed
            )
            raise DataError(
                f"rank {rank} reads another corpus than rank 0 ({differences}): give all hosts the same files or the "
                "same Python"
            )
        _compare(rank, other["config"], first["config"])
        _compare(rank, other["versions"], first["versions"], "install the same on all hosts")


def _agrees(name: str, other: Any, first: Any) -> bool:
    """Compare a value of the data; one rank may read files, and another the same text in a bucket."""
    return is_same_corpus(other, first) if name == "fingerprint" else bool(other == first)


def agree_on_program(team: Team, program: str) -> None:
    """Check that all ranks would compute the same step.

    Args:
        team: All ranks of the run.
        program: The engine's digest of its step.

    Raises:
        ConfigError: A rank has another digest; raised on every rank.
    """
    first, *others = team.gather(program)
    for rank, other in enumerate(others, start=1):
        if other != first:
            raise ConfigError(
                f"rank {rank} would run another step ({other[:16]}) than rank 0 ({first[:16]}), although settings and "
                "versions are the same: give all hosts the same code, devices and environment"
            )


def agree_on_memory(team: Team, usable: int | None) -> int | None:
    """Return the least usable memory of all ranks' devices; None where one does not know its own.

    Raises:
        PeerError: Another rank was lost.
    """
    found: list[int | None] = team.gather(usable)
    known = [one for one in found if one is not None]
    return min(known) if len(known) == len(found) else None


def versions(engine: str) -> dict[str, str]:
    """Return the versions of Python and of the numerical libraries, without importing the libraries."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES["jax" if engine == "jax" else "torch"]:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = _ABSENT
    return found


def _compare(rank: int, other: Mapping[str, Any], first: Mapping[str, Any], advice: str = "") -> None:
    for name, value in first.items():
        theirs = other.get(name, _ABSENT)
        if theirs != value:
            end = f": {advice}" if advice else ""
            raise ConfigError(f"rank {rank} has {name}={theirs}, rank 0 has {name}={value}{end}")


def agree_on_notes(team: Team, notes: Sequence[str], report: Callable[[str], None]) -> None:
    """Report each note once, with the ranks that have it unless all do.

    Raises:
        PeerError: Another rank was lost.
    """
    owners: dict[str, list[int]] = {}
    for rank, theirs in enumerate(team.gather(list(notes))):
        for note in theirs:
            owners.setdefault(note, []).append(rank)
    for note, ranks in owners.items():
        few = "" if len(ranks) == team.world.size else f"rank {', '.join(map(str, ranks[:8]))}: "
        report(f"note: {few}{note}")
