"""What a driver declares of its cloud: its requests as a journal, its observations, its listing, its errors.

A driver sends requests and reads answers. Which of them is sent when, what a lost answer means, and what is written
before and after, is decided by the core alone (provider.py, creation.py). A driver's method may raise Refused for an
error of its cloud, and an OrchError for everything else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeAlias

from orchestrator.errors import CannotStopError, OrchError, UserError
from orchestrator.providers.core.faults import Answer
from orchestrator.providers.core.journal import Undo
from orchestrator.providers.core.listed import ListedResource
from orchestrator.providers.core.record import R
from orchestrator.slices import Candidate, Request, SliceKeys, SliceSpec, SliceView
from orchestrator.values import Unknown

SETTLE_SECONDS = 90.0  # longer than a request may take to arrive and to be shown: before that, nothing proves absence

Response: TypeAlias = Mapping[str, Any]  # an answer as plain JSON values
Changes: TypeAlias = Mapping[str, Any]  # new values of a record's fields, by name


class SliceDriver(ABC, Generic[R]):
    """One cloud, or one of its services.

    Attributes:
        name: Of the provider.
        noun: What messages call a slice.
        listing_lags: Whether a resource that exists may be missing in one answer, so that absence takes a second one.
    """

    name: str
    noun: str = "slice"
    listing_lags: bool = False

    # Creating: a record, and steps that are looked for, sent and taken back.

    @abstractmethod
    def plan_create(self, spec: SliceSpec) -> Request:
        """Return the request for the machines, with the steps before it. Pure; raises UserError."""

    @abstractmethod
    def new_record(self, spec: SliceSpec, keys: SliceKeys, now: float) -> R:
        """Return the record of a slice that is about to be requested. Sends nothing."""

    def renew(self, old: R, new: R) -> R:
        """Return the record with which a create is repeated: the new one, with what only the old one knows."""
        return new

    def prepare(self, record: R, spec: SliceSpec, *, repeated: bool) -> Changes:
        """Check what the create depends on, before its first step; return changes of the record's fields."""
        return {}

    def initial_known(self, record: R, spec: SliceSpec, keys: SliceKeys) -> Mapping[Unknown, str]:
        """Return what is known before the first step, such as the keys of the hosts."""
        return {}

    @abstractmethod
    def fill(self, record: R, step: Request, known: Mapping[Unknown, str]) -> Request:
        """Return a step with nothing unknown in it."""

    def is_read(self, step: Request) -> bool:
        """Return whether a step changes nothing."""
        return False

    @abstractmethod
    def makes_machines(self, step: Request) -> bool:
        """Return whether machines may exist after a step."""

    def looks_first(self, step: Request) -> bool:
        """Return whether a step has no idempotency token, so that it is looked for before it is sent."""
        return False

    @abstractmethod
    def look(self, record: R, step: Request, known: Mapping[Unknown, str]) -> Response | None:
        """Return what a step would make, in the form of its answer, where it exists already; None where it does not.

        Raises:
            ConflictError: Something of another owner has its name.
        """

    @abstractmethod
    def send(self, record: R, step: Request, *, fresh: bool) -> Response:
        """Send a step once. `fresh`: what it names was made a moment ago, and may not be known everywhere."""

    def list_undo(self, step: Request, answer: Response) -> Sequence[Undo]:
        """Return the requests that take a step back."""
        return ()

    def undo(self, record: R, undo: Undo) -> None:
        """Take a step back. What does not exist any more is no error."""
        raise NotImplementedError

    def read_gives(self, record: R, step: Request, answer: Response) -> Sequence[tuple[str, str]]:
        """Return what an answer makes known: the description of each unknown, and its value.

        Raises:
            OrchError: The answer lacks it.
        """
        return ()

    def note_answer(self, record: R, step: Request, answer: Response) -> Changes:
        """Return the changes of the record's fields that an answer brings."""
        return {}

    def defer(self, record: R, step: Request) -> Changes | None:
        """Return the record's changes with which the request for the machines waits for its time; None: send it now."""
        return None

    def resume(self, record: R) -> tuple[Changes, Request]:
        """Return the record's changes and the request of a slice that waited for its time."""
        raise NotImplementedError

    # Observing.

    @abstractmethod
    def observe(self, record: R) -> SliceView | None:
        """Return the view of what the cloud shows of a slice; None where it shows nothing of it. Changes nothing."""

    def observe_pending(self, record: R) -> SliceView | None:
        """Return what the cloud says of an accepted create that it does not show yet; None where it says nothing."""
        return None

    def may_arrive(self, record: R) -> bool:
        """Return whether a request that was sent a moment ago may still make something."""
        return True

    def list_left(self, record: R) -> list[str]:
        """Return the auxiliary resources that exist when the machines are deleted, for people."""
        return []

    def note_view(self, record: R, view: SliceView) -> Changes:
        """Return the changes of the record's fields that an observation brings."""
        return {}

    def diagnose(self, record: R, ranks: Sequence[int]) -> Mapping[int, str]:
        """Return what the cloud reports of hosts that do not answer SSH, by rank; {} where it reports nothing."""
        return {}

    # Steps that are due later, and the end.

    def finish_ready(self, record: R) -> SliceView | None:
        """Take the step that running machines need; None when it is done and the slice is to be observed again."""
        return None

    def note_end(self, record: R) -> Changes:
        """Return the changes of the record's fields with which its end begins."""
        return {}

    def note_finished(self, record: R) -> Changes:
        """Return the changes of the record's fields when `finish_ready` took its step."""
        return {}

    @abstractmethod
    def end_machines(self, record: R) -> bool:
        """Request the end of the machines; return whether none is left. Also of those that are not shown yet."""

    def remove_left(self, record: R) -> list[str]:
        """Delete the auxiliary resources; return what is still in use, for people."""
        return []

    # Slices without a record here.

    @abstractmethod
    def list_resources(self, name: str = "", token: str = "", *, installation: str = "") -> Sequence[ListedResource]:
        """Return everything with our labels, or that of one slice. A place that does not answer is an error."""

    @abstractmethod
    def end_listed(self, resources: Sequence[ListedResource]) -> None:
        """Request the end of a slice without a record."""

    def remove_listed(self, resources: Sequence[ListedResource]) -> None:
        """Delete the auxiliary resources of slices whose machines are deleted."""

    @property
    def bound(self) -> bool:
        """Whether the slices can only be in the account that is asked."""
        return False

    # Power.

    def refuse_stop(self, record: R) -> UserError | None:
        """Return why such machines cannot be stopped and kept; None when they can."""
        return CannotStopError(f"'{record.name}'", f"{self.name} cannot do it")

    def observe_power(self, record: R) -> SliceView | None:
        """Return the state of the machines alone, by which it is decided; None: that of the slice decides.

        Machines that run may be no slice that is ready yet, as their hosts are still being prepared.
        """
        return None

    def note_power(self, record: R, verb: str) -> Changes:
        """Return the changes of the record's fields that are written before "stop" or "start" is requested."""
        return {}

    def change_power(self, record: R, verb: str) -> None:
        """Request "stop" or "start" of the machines."""
        raise NotImplementedError

    # Errors.

    @abstractmethod
    def explain(self, verb: str, name: str, answer: Answer, candidate: Candidate | None, record: R | None) -> OrchError:
        """Return the error for the user."""
