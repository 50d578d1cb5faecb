"""Checks before money is spent: what is found, what mends it, and how many are done at once.

A provider that can be checked has a module with `checks(ask)`, a `Checker`, and a line in `_MODULES`. A check only
looks. What it finds may make further checks possible: they are begun at once.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from orchestrator.errors import CloudError, DeadlineError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.spec.task import AwsSettings

SECONDS = 30.0  # for one check, all its calls together
_LOOK_SECONDS = 0.2  # how often the deadlines are looked at
_MODULES = {
    "local": "orchestrator.providers.local.check",
    "gcp": "orchestrator.providers.google.check",
    "aws": "orchestrator.providers.aws.check",
}


class Verdict(StrEnum):
    OK = "ok"
    FIX = "fix"
    UNKNOWN = "unknown"  # it could not be found out
    UNUSED = "unused"  # not set up, and nobody asked for it by name


@dataclass(frozen=True, slots=True)
class Finding:
    """check: its short name. words: what is so. fix: one command or sentence that mends it, "" when all is well.

    status: what the program ends with for its sake.
    """

    check: str
    verdict: Verdict
    words: str
    fix: str = ""
    status: int = Exit.OK


@dataclass(frozen=True, slots=True)
class Outcome:
    """then: checks that have now become possible."""

    findings: tuple[Finding, ...]
    then: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """run: may block, and is left alone after `seconds`. It may raise OrchError, which becomes a finding."""

    name: str
    run: Callable[[], Outcome]
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class Ask:
    """What the user wants to know; "" for what was not said.

    state: where orch keeps its own. installation: the name that is on all that it makes, "" before the first launch.
    named: this provider was asked for by name. nodes: so many slices or instances; spot, reservation: how they are got.
    project, service_account, access (external, internal, iap, jump) and firewall (whether orch is to make the rule that
    lets SSH in) are Google's; aws: of Amazon's account.
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
    aws: AwsSettings = field(default_factory=AwsSettings)
    project: str = ""
    service_account: str = ""
    access: str = ""
    firewall: bool = True


class Checker(Protocol):
    def __call__(self, ask: Ask) -> tuple[Check, ...]: ...


class Told(Protocol):
    """Called whenever something changes: what is still being checked, how many are done, of how many."""

    def __call__(self, running: Sequence[str], done: int, total: int) -> None: ...


def names() -> tuple[str, ...]:
    """Providers that can be checked."""
    return tuple(_MODULES)


def checks_of(provider: str, ask: Ask) -> tuple[Check, ...]:
    """Raises UserError for a provider without checks."""
    if provider not in _MODULES:
        raise UserError(f"there is no check of '{provider}'", f"there are: {', '.join(_MODULES)}", "orch check")
    return cast(Checker, import_module(_MODULES[provider]).checks)(ask)


def ok(check: str, words: str) -> Outcome:
    return Outcome((Finding(check, Verdict.OK, words),))


def fix(check: str, words: str, fix: str, status: int) -> Outcome:
    return Outcome((Finding(check, Verdict.FIX, words, fix, status),))


def unknown(check: str, words: str, fix: str, status: int = Exit.FAILURE) -> Outcome:
    return Outcome((Finding(check, Verdict.UNKNOWN, words, fix, status),))


def unwritable(folder: Path) -> str:
    """Why `folder` cannot be written or made, "" when it can. Nothing is tried."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        return f"{there} is not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"


def told_by(check: str, error: OrchError) -> Outcome:
    """A failure as a finding: what the user can mend, or what could not be found out."""
    words = error.what if not error.why else f"{error.what}: {error.why}"
    next_step = error.next_step or "run the same command again"
    if isinstance(error, CloudError | DeadlineError):
        return unknown(check, words, next_step, error.exit_status)
    return fix(check, words, next_step, error.exit_status)


def status_of(findings: Sequence[Finding]) -> int:
    """Of the first that has to be mended, else of the first that is not known, else 0."""
    order = (Verdict.FIX, Verdict.UNKNOWN)
    return next((one.status for verdict in order for one in findings if one.verdict is verdict), int(Exit.OK))


def run(checks: Sequence[Check], told: Told) -> tuple[Finding, ...]:
    """All checks and what follows from them, as many as possible at once; findings in the order of the checks.

    Raises what a check raises that is no OrchError: a fault of ours.
    """
    return _Round(told).whole(checks)


_Place = tuple[int, ...]  # where a check stands: (2, 0) is the first of those that check 2 has made possible


@dataclass(frozen=True, slots=True)
class _Running:
    check: Check
    until: float


class _Round:
    def __init__(self, told: Told) -> None:
        self._told = told
        self._answers: queue.SimpleQueue[tuple[_Place, Outcome | BaseException]] = queue.SimpleQueue()
        self._running: dict[_Place, _Running] = {}
        self._found: dict[_Place, tuple[Finding, ...]] = {}

    def whole(self, checks: Sequence[Check]) -> tuple[Finding, ...]:
        self._begin((), checks)
        while self._running:
            self._told([one.check.name for one in self._running.values()], len(self._found), self._total())
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
        """Threads that nobody waits for at the end: a check that hangs must not hold the program."""
        for index, check in enumerate(checks):
            place = (*above, index)
            self._running[place] = _Running(check, time.monotonic() + check.seconds)
            threading.Thread(target=self._do, args=(place, check), name=f"check {check.name}", daemon=True).start()

    def _do(self, place: _Place, check: Check) -> None:
        try:
            self._answers.put((place, check.run()))
        except OrchError as error:
            self._answers.put((place, told_by(check.name, error)))
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
                found = unknown(one.check.name, words, "see to the network, then run it again", Exit.TIMEOUT)
                self._found[place] = found.findings
