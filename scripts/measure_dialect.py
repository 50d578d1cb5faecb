#!/usr/bin/env python3
"""Measure how many task files of SkyPilot orch accepts: unchanged, and with only their place changed.

scripts/measure_dialect.py FOLDER...     every .yaml, .yml, .rst and .md file below the folders
scripts/measure_dialect.py FOLDER -v     with what is in the way of each file

A clone of skypilot-org/skypilot is the usual argument: its examples/, llm/ and docs/. Files are read, never copied.
"Only their place changed" means without `infra`, `cloud`, `region` and `zone`, on any cloud that orch rents from.
Variables that a user has to give count as given, and the rewrite that orch offers for a TPU Node as made.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from orchestrator.errors import OrchError
from orchestrator.task.errors import FileError, OutdatedTaskError
from orchestrator.task.parse import parse_task

_PLACE = ("infra", "cloud", "region", "zone")
_TASK = {"run", "setup", "resources", "file_mounts", "workdir", "num_nodes", "envs", "service", "secrets", "pool"}
_BLOCKS = (
    re.compile(r"\.\. code-block:: ya?ml\n(?:[ ]+:.*\n)*\n((?:[ ]+.*\n|\n)+)"),
    re.compile(r"```ya?ml\n(.*?)```", re.DOTALL),
)
_NAMES = re.compile(r"`[^`]*`")
_FULL_MACHINES = re.compile(r"(?:A100(?:-80GB)?|[HB][123]00):8|Trainium2?:\d+|trn|p4d|p5", re.IGNORECASE)


class _Given(dict[str, str]):
    """A shell in which every variable has a value."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __missing__(self, name: str) -> str:
        return "value"


@dataclass(slots=True)
class Tally:
    """Counts of one group of files."""

    files: int = 0
    unchanged: int = 0
    accepted: int = 0
    in_the_way: Counter[str] = field(default_factory=Counter[str])


def list_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of every YAML file and block."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".yaml", ".yml", ".rst", ".md") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix in (".yaml", ".yml"):
            yield str(path), text
            continue
        blocks = [textwrap.dedent(block) for form in _BLOCKS for block in form.findall(text)]
        yield from ((f"{path} block {number}", block) for number, block in enumerate(blocks))


def read_task(text: str) -> list[dict[str, Any]] | None:
    """Return the documents of a task file, None for other YAML."""
    try:
        documents: list[Any] = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError:
        return None
    if not documents or not all(isinstance(one, dict) and "apiVersion" not in one for one in documents):
        return None
    known = _TASK | {"name", "config", "volumes", "execution"}
    is_task = any(
        {"run", "setup"} & set(one) or (isinstance(one.get("resources"), dict) and set(one) <= known)
        for one in documents
    )
    return documents if is_task else None


def move(documents: list[dict[str, Any]], place: str) -> str:
    """Return the documents on another place, "" for none."""
    for document in documents:
        if not _TASK & set(document):
            continue
        found = document.setdefault("resources", {})
        if not isinstance(found, dict):
            continue
        resources = cast("dict[str, Any]", found)
        lists = {kind: cast("list[dict[str, Any]]", resources.get(kind) or []) for kind in ("any_of", "ordered")}
        for entry in (resources, *lists["any_of"], *lists["ordered"]):
            for key in _PLACE:
                entry.pop(key, None)
        for kind, entries in lists.items():
            if kept := [one for number, one in enumerate(entries) if one and one not in entries[:number]]:
                resources[kind] = kept
            else:
                resources.pop(kind, None)
        if place:
            resources["infra"] = place
    return yaml.safe_dump_all(documents, sort_keys=False)


def refusal_of(text: str, name: str) -> OrchError | None:
    """Return why orch does not accept a task; a task for a TPU Node is accepted after the rewrite that orch offers."""
    try:
        parse_task(text, file=name, env=_Given())
    except OutdatedTaskError as error:
        return refusal_of(error.rewriting.after, name) if error.rewriting is not None else error
    except OrchError as error:
        return error
    return None


def measure(name: str, text: str, groups: Mapping[str, Tally], *, verbose: bool) -> None:
    """Add one file to the counts of its groups."""
    documents = read_task(text)
    if documents is None:
        return
    first = left = refusal_of(text, name)
    for place in ("", "gcp", "aws") if first is not None else ():
        moved = refusal_of(move(_load(text), place), name)
        if moved is None or _count(moved) < _count(left):
            left = moved
        if left is None:
            break
    machines = str([one.get("resources") for one in documents])
    kinds = ["all", *(["tpu"] if "tpu" in machines.lower() else [])]
    kinds += ["eight GPUs or Trainium"] if _FULL_MACHINES.search(machines.replace("': ", ":")) else []
    for kind in kinds:
        tally = groups[kind]
        tally.files, tally.unchanged = tally.files + 1, tally.unchanged + (first is None)
        tally.accepted += left is None
        tally.in_the_way.update({_NAMES.sub("`…`", what) if "called" in what else what for what in _whats(left)})
    if verbose and left is not None:
        print(name, *(f"    {what}" for what in _whats(left)), sep="\n")


def _load(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one is not None]


def _whats(error: OrchError | None) -> list[str]:
    if error is None:
        return []
    return [problem.what for problem in error.problems] if isinstance(error, FileError) else [error.what]


def _count(error: OrchError | None) -> int:
    return len(_whats(error))


def main() -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true", help="what is in the way of each file")
    choices = parser.parse_args()
    groups = {kind: Tally() for kind in ("all", "tpu", "eight GPUs or Trainium")}
    for folder in choices.folders:
        for name, text in list_texts(folder):
            measure(name, text, groups, verbose=choices.verbose)
    for kind, tally in groups.items():
        share = f"{tally.accepted / tally.files:.0%}" if tally.files else "none"
        print(f"{kind}: {tally.files} files, {tally.unchanged} unchanged, {tally.accepted} on another place ({share})")
    print("in the way, by files:")
    for what, count in groups["all"].in_the_way.most_common(40):
        print(f"  {count:4} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
