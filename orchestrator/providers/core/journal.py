"""The journal of a slice: which of its steps were sent, what their answers made known, and how each is taken back.

A step is a planned request (slices.Request). Its entry is written before it is sent, so that a create that is repeated
after a crash knows which requests may have taken effect, looks for those, and sends the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from orchestrator.providers.records import RecordFiles, Records
from orchestrator.slices import Request


class StepState(StrEnum):
    """What is known of a step."""

    SENT = "sent"  # whether it took effect is not known
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """The request that takes a step back: an operation of the driver and its parameters, as JSON has them."""

    operation: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One step.

    Attributes:
        step: Names it within the slice: see `name_step`.
        state: What is known of it.
        gives: What its answer made known, by the description of the unknown.
        undo: What takes it back, in this order.
    """

    step: str
    state: StepState
    gives: tuple[tuple[str, str], ...] = ()
    undo: tuple[Undo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The steps of one slice, in the order in which they were sent first.

    Attributes:
        name: Of the slice.
        token: Of the slice; the journal of an earlier one of this name has another.
        entries: The steps that were sent.
    """

    name: str
    token: str
    entries: tuple[Entry, ...] = ()

    def find(self, step: str) -> Entry | None:
        return next((one for one in self.entries if one.step == step), None)

    def with_entry(self, entry: Entry) -> Journal:
        """Return the journal with this entry in the place of the one of the same step, or behind the others."""
        if self.find(entry.step) is None:
            return replace(self, entries=(*self.entries, entry))
        return replace(self, entries=tuple(entry if one.step == entry.step else one for one in self.entries))

    def without(self, step: str) -> Journal:
        """Return the journal without a step, which had no effect."""
        return replace(self, entries=tuple(one for one in self.entries if one.step != step))

    @property
    def known(self) -> dict[str, str]:
        """Everything that answers made known, by its description."""
        return {what: value for entry in self.entries for what, value in entry.gives}


class Journals(RecordFiles[Journal]):
    """The journals of one driver."""

    one = "the journal of '{}'"
    every = "the journals of creates"

    @classmethod
    def parsed(cls, fields: dict[str, Any]) -> Journal:
        entries = tuple(_entry(one) for one in fields["entries"])
        return Journal(name=str(fields["name"]), token=str(fields["token"]), entries=entries)

    def begin(self, name: str, token: str) -> Journal:
        """Return the journal of a slice; a new one where there is none for its token."""
        found = self.read(name)
        return found if found is not None and found.token == token else Journal(name=name, token=token)


@dataclass(slots=True)
class Cursor:
    """The journal of a slice while its steps are taken.

    Attributes:
        journals: Where it is kept.
        journal: As it is now; what a step made known is written with the next one that is sent.
        made: Whether a step of this process made something, which the cloud may not show everywhere yet.
    """

    journals: Journals
    journal: Journal
    made: bool = field(default=False)

    def begin(self, step: str) -> None:
        """Record that a step is about to be sent."""
        self.journal = self.journals.put(self.journal.with_entry(Entry(step=step, state=StepState.SENT)))

    def finish(self, step: str, gives: Sequence[tuple[str, str]], undo: Sequence[Undo] = ()) -> None:
        """Note that a step took effect."""
        done = Entry(step=step, state=StepState.DONE, gives=tuple(gives), undo=tuple(undo))
        self.journal = self.journal.with_entry(done)

    def cancel(self, step: str) -> None:
        """Note that a step was refused and had no effect."""
        self.journal = self.journal.without(step)

    def save(self) -> None:
        """Write what was noted."""
        self.journals.put(self.journal)


def open_journals(records: Records) -> Journals:
    """Return the journals that are kept beside a driver's records."""
    return Journals(records.beside("journal"))


def name_step(step: Request, at: int) -> str:
    """Return the name of the step at a place of the sequence."""
    return f"{at} {step.method} {step.target.partition('?')[0]}"


def _entry(fields: Mapping[str, Any]) -> Entry:
    return Entry(
        step=str(fields["step"]),
        state=StepState(fields["state"]),
        gives=tuple((str(what), str(value)) for what, value in fields["gives"]),
        undo=tuple(Undo(**one) for one in fields["undo"]),
    )
