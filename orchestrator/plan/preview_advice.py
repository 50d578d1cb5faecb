"""Format the trainer's advice for a plan: in full for the first kind of machine, one line for each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.formatting import format_amount_range


def advice_lines(advice: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each line."""
    for line in advice[0]["text"] if advice else ():
        label, _, text = str(line).partition(" ")
        yield label, text.strip()
    for other in dict.fromkeys(map(_summarize, advice[1:])):  # places of one machine may read the same
        yield "or on", other


def _summarize(advice: Mapping[str, Any]) -> str:
    parts = [f"{advice['hardware']['name']}: {_fits(advice['fits'])}"]
    if tokens := advice["timing"]["tokens_per_day"]:
        parts.append(f"{_billions(tokens[0])} to {_billions(tokens[1])}B tokens a day")
    if cost := advice["cost"]:
        parts.append(f"{format_amount_range(*cost['billion'])} for a billion tokens")
    return ", ".join(parts)


def _billions(count: float) -> str:
    """Return two digits that mean something, never as 1.1e+02."""
    return f"{float(f'{count / 1e9:.2g}'):,g}"


def _fits(verdict: bool | None) -> str:
    return {True: "fits", False: "does NOT fit", None: "memory not known"}[verdict]
