"""What was estimated beside what bills say, of the slices and times that bills cover."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.documents.ledger import group_bills, list_owned_charges
from orchestrator.plan.charges import (
    BILLED_PARTS,
    MACHINES,
    MINIMUM,
    BilledAmount,
    Charge,
    join_times,
    to_milliseconds,
)
from orchestrator.store.bill_records import BillRecord
from orchestrator.store.read import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """One part of what bills say.

    Attributes:
        estimated: Micro-dollars without the bill, for the same slices and times; None where a price is not known.
        billed: Micro-dollars.
        slices: How many slices it is of.
    """

    part: str
    estimated: int | None
    billed: int
    slices: int


def compare_with_bills(store: Reader, now: float, bills: Iterable[BillRecord]) -> tuple[ComparedPart, ...]:
    """Return each part that a bill has, with what was estimated for it.

    Args:
        store: Open.
        now: Epoch seconds.
        bills: What all bills say.
    """
    by_token = group_bills(bills)
    sums: dict[str, ComparedPart] = {}
    for owned in list_owned_charges(store, now, with_runs=False, with_bills=False):
        billed = by_token.get(owned.intent, [])
        for part in {one.part for one in billed}:
            _add(sums, part, owned.charges, [one for one in billed if one.part == part])
    return tuple(sums[part] for part in BILLED_PARTS if part in sums)


def _add(sums: dict[str, ComparedPart], part: str, charges: tuple[Charge, ...], billed: list[BilledAmount]) -> None:
    times = join_times((to_milliseconds(one.begin), to_milliseconds(one.until)) for one in billed)
    ours = [one for one in charges if one.part == part or (part == MACHINES and one.part == MINIMUM)]
    known = all(one.microdollars is not None for one in ours)
    estimated = sum(one.measure_cost(begin, end) for one in ours for begin, end in times) if known else None
    before = sums.get(part, ComparedPart(part=part, estimated=0, billed=0, slices=0))
    unknown = estimated is None or before.estimated is None
    sums[part] = ComparedPart(
        part=part,
        estimated=None if unknown else (before.estimated or 0) + (estimated or 0),
        billed=before.billed + sum(one.microdollars for one in billed),
        slices=before.slices + 1,
    )


def comparison_as_json(found: tuple[ComparedPart, ...]) -> list[dict[str, object]]:
    """Return the parts as in data/bills.schema.json."""
    return [
        {
            "part": one.part,
            "estimated_microdollars": one.estimated,
            "billed_microdollars": one.billed,
            "slices": one.slices,
        }
        for one in found
    ]
