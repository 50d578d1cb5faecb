"""Progress of a command in words: what a terminal draws, and what an engine keeps for clients of a service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, TypeGuard, cast

from orchestrator.engine.action_text import describe_action, describe_success, is_record_change
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.plan.actions import Action, RunSetup
from orchestrator.plan.ranks import describe_failed_hosts
from orchestrator.plan.steps import Wait, WaitFor

_LARGEST = 2**53  # up to which floats hold every whole number


class ProgressKind(StrEnum):
    """Kinds of progress."""

    BEGUN = "begun"  # an action begins
    ENDED = "ended"  # it succeeded
    FAILED = "failed"
    WAIT = "wait"  # something is waited for, so long already
    MOVED = "moved"  # bytes or items of one long step are done
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a command: a single thing that happens while it works.

    Attributes:
        kind: Of which kind it is.
        words: The action, the reason of the wait, the long step, or the note.
        result: How the action ended.
        setup: Whether hosts print the output of their setup until the action ends.
        instant: Whether the action only changes records, and takes no time.
        seconds: For how long it is waited already.
        done: Bytes or items.
        total: All of them; 0 where not known.
        of_program: Whether the program is waited for, whose output is the better sign of life.
        pauses: Whether it continues by itself after `until`, and does not give up.
        repeats: Whether a log repeats the line while the reason stays the same.
        until: Epoch seconds of the wait's deadline; 0 for none.
        due: Epoch seconds at which the event is expected; 0 where not known.
        stops: Epoch seconds at which requests for machines stop; 0 for other waits.
    """

    kind: ProgressKind
    words: str = ""
    result: str = ""
    setup: bool = False
    instant: bool = False
    seconds: float = 0.0
    done: int = 0
    total: int = 0
    of_program: bool = False
    pauses: bool = False
    repeats: bool = True
    until: float = 0.0
    due: float = 0.0
    stops: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the fields that have another value than their default."""
        usual = {one.name: one.default for one in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != usual[name]}


def parse_progress(document: object) -> Progress | None:
    """Return what `as_json` gave, or None for anything else: a service may be of another kind, or hostile."""
    if not isinstance(document, dict):
        return None
    given = cast("dict[str, object]", document)
    if given.get("kind") not in [*ProgressKind]:
        return None
    found: dict[str, Any] = {"kind": ProgressKind(str(given["kind"]))}
    for one in fields(Progress):
        value = given.get(one.name)
        if one.name == "kind" or value is None:
            continue
        if isinstance(one.default, int | float) and not isinstance(one.default, bool):
            if not _is_number(value):
                return None
            value = type(one.default)(value)
        if type(value) is not type(one.default):
            return None
        found[one.name] = value
    return Progress(**found)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


class DescribedNarrator(ABC):
    """An engine.narrator.Narrator that gets everything but output in words."""

    @abstractmethod
    def show(self, progress: Progress) -> None:
        """Take one thing that happened; return immediately."""

    @abstractmethod
    def output(self, host: HostAddress, block: bytes) -> None:
        """Report raw output of the user's setup or program on one host, in order for that host."""

    def setup_output(self, host: HostAddress, block: bytes) -> None:
        """Report raw output of the user's setup, where it is known to be that."""
        self.output(host, block)

    def starting(self, action: Action) -> None:
        """Report that an action begins."""
        self.show(_describe(ProgressKind.BEGUN, action))

    def finished(self, action: Action, seconds: float) -> None:
        """Report that an action succeeded, and how many seconds it took."""
        self.show(_describe(ProgressKind.ENDED, action, describe_success(action, seconds)))

    def failed(self, action: Action, outcomes: tuple[HostOutcome, ...]) -> None:
        """Report that an action failed on these hosts; empty when it was not about hosts."""
        self.show(_describe(ProgressKind.FAILED, action, f" on {describe_failed_hosts(outcomes)}" if outcomes else ""))

    def waiting(self, wait: Wait, seconds: float) -> None:
        """Report a wait that lasts, about once a second, with the seconds waited so far."""
        self.show(
            Progress(
                kind=ProgressKind.WAIT,
                words=wait.reason,
                seconds=seconds,
                of_program=wait.on is WaitFor.JOB,
                pauses=wait.on is WaitFor.PAUSE,
                repeats=wait.repeat,
                until=wait.until or 0.0,
                due=wait.due or 0.0,
                stops=wait.stops or 0.0,
            )
        )

    def progress(self, what: str, done: int, total: int) -> None:
        """Report the bytes or items done of one long step."""
        self.show(Progress(kind=ProgressKind.MOVED, words=what, done=done, total=total))

    def note(self, words: str) -> None:
        """Report one line for the user, such as how to resume after a detach."""
        self.show(Progress(kind=ProgressKind.NOTE, words=words))


def _describe(kind: ProgressKind, action: Action, result: str = "") -> Progress:
    setup = isinstance(action, RunSetup)
    instant = is_record_change(action)
    return Progress(kind=kind, words=describe_action(action), result=result, setup=setup, instant=instant)
