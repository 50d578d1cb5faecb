"""Changes of what is known about money: bills, blocks that were bought, and what was estimated for runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace

from sqlalchemy import select

from orchestrator.store.bill_records import BillRecord, BlockRecord, bill_from_row, bill_to_row, compare_bills
from orchestrator.store.change import EventDetails, Guard, RowChange, insert_row, update_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import bills, blocks, budgets, predictions


class BillChanges(Ledger):
    """The changes of bills, blocks and predictions."""

    def import_bills(self, found: Sequence[BillRecord], months: Collection[tuple[str, str, str]]) -> tuple[int, int]:
        """Replace what whole bills say, in one transaction. The same bill again changes nothing.

        Args:
            found: Every line of these bills.
            months: Source, account and month of each.

        Returns:
            How many lines are new, and how many were changed.
        """
        for at in self._tries("what bills say"):
            change = compare_bills(self.bills(), found, months)
            changes = [insert_row(bills, bill_to_row(replace(one, imported=at)), _describe(one)) for one in change.new]
            for one in change.changed:
                values = {name: getattr(one, name) for name in ("begin", "until", "microdollars")}
                changes.append(update_row(bills, {"line": one.line}, {**values, "imported": at}, _describe(one)))
            guards, moves = self._move_budgets()
            if not changes or self.change(*changes, *moves, at=at, guards=guards) is not None:
                return len(change.new), len(change.changed)
        raise AssertionError  # _tries ends with an error

    def _move_budgets(self) -> tuple[tuple[Guard, ...], list[RowChange]]:
        """Return what raises the revision of every budget: a slice that is planned meanwhile is computed again."""
        details = EventDetails(cluster="", kind="budget", what="a bill was imported")
        guards: list[Guard] = []
        moves: list[RowChange] = []
        for row in self._read_all(select(budgets), dict):
            key = {"project": row["project"], "member": row["member"]}
            guards.append(Guard(table=budgets, key=key, values={"revision": row["revision"]}))
            moves.append(update_row(budgets, key, {"revision": row["revision"] + 1}, details))
        return tuple(guards), moves

    def bills(self) -> tuple[BillRecord, ...]:
        """Return what all bills say, by line."""
        return self._read_all(select(bills).order_by(bills.c.line), bill_from_row)

    def record_block(self, block: BlockRecord) -> None:
        """Record a block that was bought. Recorded again, it changes nothing."""
        at = self._now()
        what = f"{block.block_id} bought: {block.count} x {block.machine} for {block.microdollars / 1e6:,.2f} USD"
        details = EventDetails(cluster="", kind="block", what=what)
        self.change(insert_row(blocks, asdict(replace(block, bought=at)), details), at=at)

    def record_prediction(self, run_id: str, estimate: str) -> None:
        """Record what was estimated for a run. The first estimate of a run stays."""
        at = self._now()
        details = EventDetails(cluster="", kind="prediction", what=f"estimated for {run_id}")
        values = {"run_id": run_id, "at": at, "estimate": estimate}
        self.change(insert_row(predictions, values, details), at=at)


def _describe(bill: BillRecord) -> EventDetails:
    return EventDetails(cluster="", kind="bill", what=f"{bill.line}: {bill.microdollars / 1e6:,.6f} USD")
