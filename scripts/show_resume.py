"""Show that a resumed run continued exactly: compare what two attempts say of the steps that both of them made.

Usage: show_resume.py FOLDER_OF_A_RUN. Exits with 1 when step, data position or loss differ, or the loss did not fall.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def attempts(run: Path) -> list[dict[int, dict[str, object]]]:
    """Per attempt: the metrics of each step it made."""
    found: list[dict[int, dict[str, object]]] = []
    for folder in sorted((run / "metrics").iterdir()):
        rows = [json.loads(line) for part in sorted(folder.iterdir()) for line in part.read_text().splitlines()]
        found.append({row["step"]: row for row in rows})
    return found


def main() -> int:
    first, second = attempts(Path(sys.argv[1]))[-2:]
    both = sorted(first.keys() & second.keys())
    print(f"attempt 1 logged the steps 1 to {max(first)}, attempt 2 the steps {min(second)} to {max(second)}")
    same = [step for step in both if all(first[step][key] == second[step][key] for key in ("loss_hex", "tokens"))]
    print(f"logged by both: {len(both)} steps; the same data position, and the same loss to the last bit: {len(same)}")
    for step in both[:3]:
        print(f"  step {step}: loss {first[step]['loss']} before, {second[step]['loss']} after")
    start, end = first[min(first)]["loss"], second[max(second)]["loss"]
    print(f"loss {start:.4f} at the first step, {end:.4f} at the last")
    return 0 if both and same == both and float(str(end)) < 0.7 * float(str(start)) else 1


if __name__ == "__main__":
    sys.exit(main())
