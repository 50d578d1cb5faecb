"""Carry out a create: take its steps in order, each written down before it is sent; take them back after a refusal.

After a crash the same create is carried out again. A step whose answer is not on record is looked for before it is
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from orchestrator.errors import CloudError, ConflictError, OrchError
from orchestrator.providers.core.driver import Response, SliceDriver
from orchestrator.providers.core.faults import Kind, Refused, is_final
from orchestrator.providers.core.journal import Cursor, StepState, name_step
from orchestrator.providers.core.record import Phase, R, SliceRecords
from orchestrator.slices import Request, SliceKeys, SliceSpec
from orchestrator.values import Unknown


@dataclass(slots=True, kw_only=True)
class Creation(Generic[R]):
    """One run of a create.

    Attributes:
        record: As it was written last.
        steps: Those of the create by their names, the request for the machines last.
        repeated: Whether the same create was begun before, perhaps by an orch that kept no journal.
        now: Epoch seconds.
    """

    driver: SliceDriver[R]
    records: SliceRecords[R]
    cursor: Cursor
    record: R
    steps: dict[str, Request]
    repeated: bool
    now: Callable[[], float]
    known: dict[Unknown, str] = field(default_factory=dict[Unknown, str])
    _unjournaled: bool = False

    def run(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Take all steps. After a refusal nothing is left, or a CloudError says that something is.

        Raises:
            Refused: The cloud refused, or did not answer.
            OrchError: A check failed.
        """
        self._unjournaled = self.repeated and not self.cursor.journal.entries
        try:
            if changes := self.driver.prepare(self.record, spec, repeated=self.repeated):
                self.record = self.records.write(self.record, **changes)
            self.known |= self.driver.initial_known(self.record, spec, keys)
            for name, step in self.steps.items():
                self._take(name, step)
                if self.record.phase is Phase.WAITING:
                    return
        except (Refused, OrchError) as error:
            self._roll_back(error)
            raise
        self.record = self.records.write(self.record, Phase.ACCEPTED)

    def _take(self, name: str, step: Request) -> None:
        entry = self.cursor.journal.find(name)
        if entry is not None and entry.state is StepState.DONE and not self.driver.looks_first(step):
            self._learn(step, entry.gives)
        elif step.optional:
            self._check(step)
        elif self.driver.is_read(step):
            if any(unknown not in self.known for unknown, _ in step.gives) or not step.gives:
                answer = self.driver.send(self.record, self.driver.fill(self.record, step, self.known), fresh=False)
                self._finish(name, step, answer)
        else:
            self._make(name, self.driver.fill(self.record, step, self.known), sent_before=entry is not None)

    def _check(self, step: Request) -> None:
        """Ask whether the create would be refused. Of a repeated one an earlier request may have acted already."""
        if self.repeated:
            return
        try:
            answer = self.driver.send(self.record, self.driver.fill(self.record, step, self.known), fresh=False)
        except Refused as refused:
            if refused.answer.kind is Kind.CREDENTIALS:
                raise
            return
        self.driver.read_gives(self.record, step, answer)

    def _make(self, name: str, step: Request, *, sent_before: bool) -> None:
        machines = self.driver.makes_machines(step)
        if machines and (changes := self.driver.defer(self.record, step)) is not None:
            self.cursor.save()
            self.record = self.records.write(self.record, Phase.WAITING, **changes)
            return
        answer = None
        if sent_before or self._unjournaled or self.driver.looks_first(step):
            answer = self._look(name, step)
        if answer is None:
            self.cursor.begin(name)
            if machines:
                self.record = self.records.write(self.record, asked=self.now())
            answer = self._send(name, step, sent_before=sent_before)
        self._finish(name, step, answer)

    def _send(self, name: str, step: Request, *, sent_before: bool) -> Response:
        """Send a step once; after an answer that leaves its effect open, find it out.

        A refusal says nothing about an earlier request for the same step, which may still arrive.
        """
        try:
            answer = self.driver.send(self.record, step, fresh=self.cursor.made)
        except Refused as refused:
            kind = refused.answer.kind
            if kind is not Kind.TAKEN and not kind.may_have_acted:
                if not sent_before:
                    self.cursor.cancel(name)
                raise
            try:
                found = self._look(name, step)
            except Refused:  # for whatever reason: whether the step took effect stays unknown
                found = None
            if found is not None:
                return found
            if kind is Kind.TAKEN:  # perhaps by this very request, which reached the cloud twice
                raise CloudError(
                    f"create {self.record.name}: the name is taken", "what has it is not listed yet", "try again"
                ) from refused
            raise
        self.cursor.made = True
        return answer

    def _look(self, name: str, step: Request) -> Response | None:
        try:
            return self.driver.look(self.record, step, self.known)
        except ConflictError:
            self.cursor.cancel(name)
            raise

    def _finish(self, name: str, step: Request, answer: Response) -> None:
        gives = self.driver.read_gives(self.record, step, answer)
        self._learn(step, gives)
        self.cursor.finish(name, gives, self.driver.list_undo(step, answer))
        if changes := self.driver.note_answer(self.record, step, answer):
            self.record = self.records.write(self.record, **changes)

    def _learn(self, step: Request, gives: Sequence[tuple[str, str]]) -> None:
        unknowns = {unknown.what: unknown for unknown, _ in step.gives}
        self.known |= {unknowns[what]: value for what, value in gives if what in unknowns}

    def _roll_back(self, error: Refused | OrchError) -> None:
        """Take back what was made before an error that ends the create. Others leave it for the next try."""
        machines = {name for name, step in self.steps.items() if self.driver.makes_machines(step)}
        entries = self.cursor.journal.entries
        in_doubt = self._unjournaled or any(one.step in machines and one.state is StepState.SENT for one in entries)
        made = any(one.undo or one.state is StepState.SENT for one in entries)
        unanswered = isinstance(error, Refused) and error.answer.kind.may_have_acted
        if in_doubt or (not is_final(error) and (made or unanswered)):
            self.cursor.save()
            return
        if any(one.step in machines for one in entries):
            self.cursor.save()
            raise CloudError(
                f"only a part of {self.record.name} was made", str(error), "orch down   ends it"
            ) from error
        self._withdraw(error)
        self.record = self.records.write(self.record, Phase.REFUSED)

    def _withdraw(self, error: Exception) -> None:
        try:
            for entry in reversed(self.cursor.journal.entries):
                undo = entry.undo
                if entry.state is StepState.SENT and entry.step in self.steps:
                    step = self.driver.fill(self.record, self.steps[entry.step], self.known)
                    found = self.driver.look(self.record, step, self.known)
                    undo = () if found is None else tuple(self.driver.list_undo(step, found))
                for one in undo:
                    self.driver.undo(self.record, one)
                self.cursor.cancel(entry.step)
        except (Refused, OrchError) as further:
            self.cursor.save()
            raise self._partly(f"{error}; and then: {further}") from error
        self.cursor.save()

    def _partly(self, why: str) -> CloudError:
        return CloudError(f"only a part of {self.record.name} was made", why, "orch down   ends it")


def list_steps(request: Request) -> dict[str, Request]:
    """Return the steps of a create by their names: those before the request, and the request."""
    before = [step for one in request.before for step in one.in_order]
    return {name_step(step, at): step for at, step in enumerate((*before, request))}
