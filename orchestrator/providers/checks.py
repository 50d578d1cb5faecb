"""Checks before money is spent: findings, what fixes them, and how many run at the same time.

A provider that can be checked has a module `check` with `checks(ask)`, a `Checker`. A check only reads. Its result may
make further checks possible, which begin immediately.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from orchestrator.drivers import has_part, list_driver_names, load_part
from orchestrator.errors import CloudError, DeadlineError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.providers.hosts.machines import OwnHost
from orchestrator.slices import Request
from orchestrator.task.infra import HOSTS

if TYPE_CHECKING:  # loads the SSH library
    from orchestrator.remote.trust import HostPins

SECONDS = 30.0  # for one check, all its calls together
_LOOK_SECONDS = 0.2  # how often the deadlines are looked at


class Verdict(StrEnum):
    """The result of a check: fine, something to fix, or inconclusive."""

    OK = "ok"
    FIX = "fix"
    UNKNOWN = "unknown"  # it could not be found out
    UNUSED = "unused"  # not set up, and not requested by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What fixes a finding, for `orch check --fix`.

    Attributes:
        plan: Reads what exists and returns the requests that are missing, in their order. Raises OrchError.
        send: Sends one of them. Raises OrchError.
        settings: Configuration keys and their values, stored when all were sent.
    """

    plan: Callable[[], tuple[Request, ...]]
    send: Callable[[Request], None]
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        check: Its short name.
        words: The result as a sentence.
        fix: One command or sentence that fixes it; "" when nothing needs fixing.
        status: The exit status that the program ends with because of it.
        repair: How orch fixes it itself, when the user asks for it; None where it cannot.
    """

    check: str
    verdict: Verdict
    words: str
    fix: str = ""
    status: int = Exit.OK
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Findings of one check.

    Attributes:
        then: Checks that have now become possible.
    """

    findings: tuple[Finding, ...]
    then: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        run: May block, and is abandoned after `seconds`. An OrchError that it raises becomes a finding.
    """

    name: str
    run: Callable[[], Outcome]
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the user wants to check; "" for what was not given.

    Attributes:
        state: The folder of this installation.
        installation: The label on all that it makes; "" before the first launch.
        named: Whether the provider was named by the user.
        nodes: Number of slices or instances; spot and reservation are their market.
        options: The options of the provider, as its module `options` declares them; None where it has none.
        hosts: The user's own machines.
        pins: Their pins.
    """

    state: Path
    installation: str = ""
    named: bool = True
    region: str = ""
    zone: str = ""
    accelerator: str = ""
    nodes: int = 1
    spot: bool = False
    reservation: str = ""
    bucket: str = ""
    options: Any = None
    hosts: tuple[OwnHost, ...] = ()
    pins: HostPins | None = None


class Checker(Protocol):
    def __call__(self, ask: Ask) -> tuple[Check, ...]: ...


class ProgressListener(Protocol):
    """Called on each change with the checks that still run, the number that is done, and the total."""

    def __call__(self, running: Sequence[str], done: int, total: int) -> None: ...


def list_checkable_providers() -> tuple[str, ...]:
    """Return the names of the providers that can be checked without a task file."""
    return tuple(name for name in _list_checkers() if name != HOSTS)


def load_checks(provider: str, ask: Ask) -> tuple[Check, ...]:
    """Return the checks of a provider.

    Raises:
        UserError: The provider has none.
    """
    if provider not in _list_checkers():
        raise UserError(f"there is no check of '{provider}'", f"there are: {', '.join(_list_checkers())}", "orch check")
    return cast(Checker, load_part(provider, "check").checks)(ask)


def _list_checkers() -> tuple[str, ...]:
    return tuple(name for name in list_driver_names() if has_part(name, "check"))


def ok(check: str, words: str) -> Outcome:
    return Outcome((Finding(check=check, verdict=Verdict.OK, words=words),))


def fix(check: str, words: str, fix: str, status: int, repair: Repair | None = None) -> Outcome:
    return Outcome((Finding(check=check, verdict=Verdict.FIX, words=words, fix=fix, status=status, repair=repair),))


def unknown(check: str, words: str, fix: str, status: int = Exit.FAILURE) -> Outcome:
    return Outcome((Finding(check=check, verdict=Verdict.UNKNOWN, words=words, fix=fix, status=status),))


def find_write_error(folder: Path) -> str:
    """Return why `folder` cannot be written or made; "" when it can. Nothing is written."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        return f"{there} is not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def finding_from_error(check: str, error: OrchError) -> Outcome:
    """Return a failure as a finding: something to fix, or something that could not be determined."""
    words = error.what if not error.why else f"{error.what}: {error.why}"
    next_step = error.next_step or "run the same command again"
    if isinstance(error, CloudError | DeadlineError):
        return unknown(check, words, next_step, error.exit_status)
    return fix(check, words, next_step, error.exit_status)


def choose_exit_status(findings: Sequence[Finding]) -> int:
    """Return the exit status of the first problem; 0 when nothing needs fixing, even if a check was inconclusive."""
    return next((one.status for one in findings if one.verdict is Verdict.FIX), int(Exit.OK))


def run_checks(checks: Sequence[Check], listener: ProgressListener) -> tuple[Finding, ...]:
    """Run all checks and what follows from them, as many as possible at the same time.

    Returns:
        The findings in the order of the checks.

    Raises:
        Exception: What a check raises that is no OrchError, a programming error.
    """
    return _Round(listener).whole(checks)


_Place = tuple[int, ...]  # where a check stands: (2, 0) is the first of those that check 2 has made possible


@dataclass(frozen=True, slots=True)
class _Running:
    check: Check
    until: float


class _Round:
    def __init__(self, listener: ProgressListener) -> None:
        self._listener = listener
        self._answers: queue.SimpleQueue[tuple[_Place, Outcome | BaseException]] = queue.SimpleQueue()
        self._running: dict[_Place, _Running] = {}
        self._found: dict[_Place, tuple[Finding, ...]] = {}

    def whole(self, checks: Sequence[Check]) -> tuple[Finding, ...]:
        self._begin((), checks)
        while self._running:
            self._listener([one.check.name for one in self._running.values()], len(self._found), self._total())
            try:
                place, answer = self._answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._give_up()
                continue
            self._take(place, answer)
        return tuple(finding for place in sorted(self._found) for finding in self._found[place])

    def _total(self) -> int:
        return len(self._found) + len(self._running)

    def _begin(self, above: _Place, checks: Sequence[Check]) -> None:
        """Start a thread that the program does not wait for, because a hanging check must not block its end."""
        for index, check in enumerate(checks):
            place = (*above, index)
            self._running[place] = _Running(check, time.monotonic() + check.seconds)
            threading.Thread(target=self._do, args=(place, check), name=f"check {check.name}", daemon=True).start()

    def _do(self, place: _Place, check: Check) -> None:
        try:
            self._answers.put((place, check.run()))
        except OrchError as error:
            self._answers.put((place, finding_from_error(check.name, error)))
        except BaseException as error:  # raised again by the thread that waits
            self._answers.put((place, error))

    def _take(self, place: _Place, answer: Outcome | BaseException) -> None:
        if self._running.pop(place, None) is None:
            return  # it came after its deadline
        if isinstance(answer, BaseException):
            raise answer
        self._found[place] = answer.findings
        self._begin(place, answer.then)

    def _give_up(self) -> None:
        now = time.monotonic()
        for place, one in list(self._running.items()):
            if now >= one.until:
                words = f"no answer within {one.check.seconds:.0f} s"
                del self._running[place]
                found = unknown(one.check.name, words, "check the network, then run it again", Exit.TIMEOUT)
                self._found[place] = found.findings
