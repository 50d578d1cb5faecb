#!/usr/bin/env python3
"""Print the size of each driver, of the provider core, and of the modules that all providers share.

scripts/driver_lines.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROVIDERS = ROOT / "orchestrator" / "providers"


def list_drivers(providers: Path = PROVIDERS) -> dict[str, list[Path]]:
    """Return the modules of each driver by its folder, such as "aws" and "google/compute".

    A folder with a planner is a driver. One inside of another driver's folder is separate from it.
    """
    folders = {path.parent for path in providers.rglob("planner.py")}
    found: dict[str, list[Path]] = {folder.relative_to(providers).as_posix(): [] for folder in sorted(folders)}
    for module in sorted(providers.rglob("*.py")):
        owner = next((folder for folder in module.parents if folder in folders), None)
        if owner is not None:
            found[owner.relative_to(providers).as_posix()].append(module)
    return found


def make_table(providers: Path = PROVIDERS) -> str:
    """Return a table of all drivers, with the number of their modules and lines."""
    drivers = list_drivers(providers)
    rows = {**drivers, "core": sorted((providers / "core").glob("*.py")), "shared": sorted(providers.glob("*.py"))}
    lines = [f"{'driver':<16}{'modules':>8}{'lines':>8}"]
    lines += [f"{name:<16}{len(modules):>8}{count_lines(modules):>8}" for name, modules in rows.items()]
    return "\n".join(lines)


def count_lines(modules: Iterable[Path]) -> int:
    """Return the number of lines of some modules."""
    return sum(len(module.read_text(encoding="utf-8").splitlines()) for module in modules)


if __name__ == "__main__":
    print(make_table())
