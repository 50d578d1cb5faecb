"""Lines of counts that proofs print (pytest -rP shows them), and append to the file that ORCH_PROOF_REPORT names."""

from __future__ import annotations

import os
from pathlib import Path


def report(line: str) -> None:
    print(line)
    place = os.environ.get("ORCH_PROOF_REPORT", "")
    if place:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
