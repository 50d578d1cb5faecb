"""Counts that proofs report: printed (pytest -rP shows them), and appended to the file that ORCH_PROOF_REPORT names.

`scripts/proofs.py` sums the records of one name over all parametrised cases into docs/proofs.json.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path


def report(name: str, counts: Mapping[str, int | Collection[str]], violations: int = 0) -> None:
    """Record what one test tried.

    Args:
        name: Row of the table of docs/promises.md; records of one name are added up.
        counts: Numbers are summed; names are united, and their number is reported.
        violations: How often a promise was broken.
    """
    record = {
        "name": name,
        "counts": {what: many if isinstance(many, int) else sorted(many) for what, many in counts.items()},
        "violations": violations,
    }
    line = json.dumps(record, ensure_ascii=False)
    print(line)
    path = os.environ.get("ORCH_PROOF_REPORT", "")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")  # one write call below the size of a page: lines of several workers do not mix
