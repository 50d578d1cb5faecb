"""Offerings that were found from here, so that one can be bought by its id alone: a file for each seller.

A vendor may report nothing about an offering by its id. The file is no record of anything that exists.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import CloudError
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.providers.block_market import Offering


def remember(state: Path, seller: str, offerings: Sequence[Offering], now: float) -> None:
    """Keep offerings beside those of earlier searches, and drop what has ended by `now`.

    Raises:
        CloudError: They cannot be kept.
    """
    kept = {**{one.id: one for one in _read(state, seller)}, **{one.id: one for one in offerings}}
    rows = [{**asdict(one), "fee": str(one.fee)} for one in kept.values() if one.end > now]
    try:
        make_private_folder(state)
        write_whole(_file(state, seller), json.dumps(rows))
    except OSError as error:
        raise CloudError("the offerings that were found cannot be kept", str(error), f"see {state}") from error


def recall(state: Path, seller: str, name: str) -> Offering | None:
    """Return the offering with this id that was found, or None."""
    return next((one for one in _read(state, seller) if one.id == name), None)


def _file(state: Path, seller: str) -> Path:
    return state / f"{seller}-offerings.json"


def _read(state: Path, seller: str) -> list[Offering]:
    """Return what was found; what cannot be read can be found again."""
    try:
        rows = cast(list[dict[str, Any]], json.loads(_file(state, seller).read_text(encoding="utf-8")))
        for row in rows:
            row["fee"] = Decimal(row["fee"])
        return [Offering(**row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError):
        return []
