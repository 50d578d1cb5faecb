"""Read the tables of the simulated vendors: TOML files in the folder `data` of each."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return a data file by its path below this package, such as `google/data/tpu.toml`."""
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))
