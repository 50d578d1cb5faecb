"""Offerings that were found from here, so that one can be bought by its id alone. One file in the state folder.

AWS tells nothing of an offering by its id; what it was found by stands here. It is no record of anything that exists.
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
from orchestrator.providers.aws.blocks import Offering

_FILE = "aws-offerings.json"


def remember(state: Path, offerings: Sequence[Offering], now: float) -> None:
    """Beside those of earlier searches; what has ended by `now` is dropped. Raises CloudError."""
    kept = {**{one.id: one for one in _read(state)}, **{one.id: one for one in offerings}}
    rows = [{**asdict(one), "fee": str(one.fee)} for one in kept.values() if one.end > now]
    try:
        make_private_folder(state)
        write_whole(state / _FILE, json.dumps(rows))
    except OSError as error:
        raise CloudError("the offerings that were found cannot be kept", str(error), f"see {state}") from error


def recall(state: Path, name: str) -> Offering | None:
    return next((one for one in _read(state) if one.id == name), None)


def _read(state: Path) -> list[Offering]:
    """What cannot be read is as if it had not been found: it can be found again."""
    try:
        rows = cast(list[dict[str, Any]], json.loads((state / _FILE).read_text(encoding="utf-8")))
        for row in rows:
            row["fee"] = Decimal(row["fee"])
        return [Offering(**row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError):
        return []
