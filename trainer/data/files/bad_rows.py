"""Rows that cannot be read: counted, shown, and skipped up to a number."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer.errors import DataError

EXAMPLES = 3


@dataclass(slots=True, kw_only=True)
class BadRows:
    """Rows that cannot be read: they are skipped, up to a number.

    Attributes:
        most: How many may be skipped.
        count: How many were.
        others: Whether there are good ones, too: where there are none, to skip rows is no help.
        examples: Of the first three, the place and what is wrong.
    """

    most: int = 0
    count: int = 0
    others: bool = False
    examples: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add(self, where: str, message: str) -> None:
        """Count a row, of which the message may begin with its place; see `is_exceeded`."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((where, message.removeprefix(where)))

    @property
    def is_exceeded(self) -> bool:
        return self.count > self.most

    def describe(self) -> str:
        """Return how many rows are bad, and the first of them, for people."""
        shown, before = list[str](), ""
        for where, problem in self.examples:
            shown.append(f"likewise {where}" if problem == before else f"{where}{problem}")
            before = problem
        more = f"; and {self.count - len(self.examples):,} more" if self.count > len(self.examples) else ""
        return f"{self.count:,} bad row{'s' if self.count > 1 else ''}: {'; '.join(shown)}{more}"

    def note(self) -> str:
        """Return the description for the end of a message; nothing without bad rows."""
        return f" ({self.describe()})" if self.count else ""

    def list_notes(self) -> list[str]:
        """Return the description as a line; none without bad rows."""
        return [f"skipped {self.describe()}"] if self.count else []

    def fail(self) -> DataError:
        """Return the error for too many."""
        if self.count == 1:
            advice = "; max_bad=1 (data.max_bad in a run) skips such a row" if self.others else ""
            return DataError(f"{''.join(self.examples[0])}{advice}")
        if not self.others:
            return DataError(self.describe())
        return DataError(
            f"{self.describe()}; max_bad={self.most} allows fewer: correct the rows, or skip them with a larger "
            "max_bad (data.max_bad in a run)"
        )
