"""What a cloud's errors mean: their kinds, the error table of a driver, and the errors that users see.

A driver keeps its table as data (errors.toml): which code, status and text mean which kind, and the next step for the
user, each row with its public source and date.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    CredentialsError,
    NotFoundError,
    OrchError,
    QuotaError,
    RefusalScope,
    RefusedError,
    UserError,
)
from orchestrator.exits import Exit


class Kind(StrEnum):
    """What an answer means for us. The value is what users read."""

    CAPACITY = "no machines"  # here and now: another zone, region or market may have them
    NOT_OFFERED = "not offered there"  # this type, in this zone, to this account: another zone may have it
    QUOTA = "no quota"
    PERMISSION = "not allowed"
    CREDENTIALS = "not logged in"
    API_DISABLED = "API not enabled"
    INVALID = "bad request"
    NOT_FOUND = "not found"
    TAKEN = "exists already"
    IN_USE = "still in use"
    WRONG_STATE = "not in this state"
    MISMATCH = "requested before with other parameters"
    NOT_YET = "not known everywhere yet"  # made a moment ago: the same request succeeds later
    THROTTLED = "too many calls"  # nothing was done
    UNAVAILABLE = "not available"  # the service says so: whether it acted is not known
    NO_ANSWER = "no answer"  # whether it acted is not known
    UNKNOWN = "refused"

    @property
    def may_have_acted(self) -> bool:
        return self in (Kind.UNAVAILABLE, Kind.NO_ANSWER)

    @property
    def worth_asking_again(self) -> bool:
        return self in (Kind.THROTTLED, Kind.UNAVAILABLE, Kind.NO_ANSWER)


_ERRORS: Mapping[Kind, type[OrchError]] = {
    Kind.CAPACITY: CapacityError,
    Kind.NOT_OFFERED: CapacityError,
    Kind.QUOTA: QuotaError,
    Kind.PERMISSION: AccessError,
    Kind.CREDENTIALS: CredentialsError,
    Kind.API_DISABLED: AccessError,
    Kind.INVALID: UserError,
    Kind.NOT_YET: UserError,  # after the driver has waited: it does not exist
    Kind.NOT_FOUND: NotFoundError,
    Kind.TAKEN: ConflictError,
}
_SCOPES: Mapping[Kind, RefusalScope] = {Kind.QUOTA: RefusalScope.MARKET}
_NEXT_ON_CREATE = frozenset({Kind.UNKNOWN, Kind.WRONG_STATE})  # not understood: another candidate may be accepted
_FINAL = (CapacityError, AccessError, UserError, ConflictError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An error as it came.

    Attributes:
        code: The vendor's own code; "" where it has none, or where there was no answer.
        words: The vendor's message, on one line.
        operation: What was requested, as the vendor names it.
        wait: Seconds that the service asks us to wait.
        scope: Where else a create would be refused; None where the kind says it.
        next_step: What the user can do, from the row of the table; "" for that of the kind.
    """

    kind: Kind
    words: str
    code: str = ""
    operation: str = ""
    wait: float | None = None
    scope: RefusalScope | None = None
    next_step: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.code or str(self.kind), self.words) if part)

    @property
    def reason(self) -> str:
        """The answer as the reason of an unclear observation."""
        return str(self) if not self.code else f"{self.kind}: {self}"


class Refused(Exception):
    """The cloud did not do it, or it is not known whether it did. Never leaves the provider."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


def is_refused_as(*kinds: Kind) -> Callable[[BaseException], bool]:
    """Return the test whether an exception is a refusal of one of these kinds."""
    return lambda error: isinstance(error, Refused) and error.answer.kind in kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """One row of a driver's error table.

    Attributes:
        kind: What the error means.
        codes: The vendor's codes; `*` stands for any characters.
        reasons: Machine-readable reasons beside the code, any of which must be in the answer.
        text: Matches the vendor's message and details; None where the code or reason alone decides.
        next_step: What the user can do, where it differs from that of the kind; the named groups of `text` fill it.
        scope: Where else a create would be refused; None where the kind says it.
        source: The public document or thread.
        date: When it was read, or when the answer was seen.
    """

    kind: Kind
    codes: tuple[str, ...]
    source: str
    date: str
    reasons: frozenset[str] = frozenset()
    text: re.Pattern[str] | None = None
    next_step: str = ""
    scope: RefusalScope | None = None

    def fits(self, code: str, words: str, reasons: frozenset[str] = frozenset()) -> bool:
        coded = not self.codes or any(fnmatchcase(code, pattern) for pattern in self.codes)
        reasoned = not self.reasons or bool(self.reasons & reasons)
        return coded and reasoned and (self.text is None or self.text.search(words) is not None)

    def fill_next_step(self, words: str) -> str:
        """Return the next step with what the text of the answer names in it, such as the quota."""
        found = self.text.search(words) if self.text is not None else None
        groups = {} if found is None else {key: value for key, value in found.groupdict().items() if value}
        filled = self.next_step
        for key, value in groups.items():
            filled = filled.replace(f"{{{key}}}", value)
        return filled


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTable:
    """The errors of one cloud. The first row that fits decides.

    Attributes:
        vendor: Its name in messages.
        rows: In the order in which they are tried.
        next_steps: What the user can do, by kind; `{name}` and other fields are filled by the driver.
        on_create: The same where a create was refused.
    """

    vendor: str
    rows: tuple[ErrorRow, ...]
    next_steps: Mapping[Kind, str]
    on_create: Mapping[Kind, str] = field(default_factory=dict[Kind, str])

    def find(self, code: str, words: str = "", reasons: frozenset[str] = frozenset()) -> ErrorRow | None:
        """Return the first row that fits."""
        return next((row for row in self.rows if row.fits(code, words, reasons)), None)

    def add_row(self, answer: Answer, row: ErrorRow | None, text: str) -> Answer:
        """Return the answer with the kind, the scope and the next step of its row; unchanged without a row."""
        if row is None:
            return answer
        return replace(answer, kind=row.kind, scope=row.scope, next_step=row.fill_next_step(text))

    def classify(self, code: str, words: str = "", *, unknown: Kind = Kind.UNKNOWN) -> Kind:
        """Return the kind of an error; `unknown` where no row fits."""
        row = self.find(code, words)
        return unknown if row is None else row.kind

    def explain(self, verb: str, name: str, answer: Answer, next_step: str = "", **fields: str) -> OrchError:
        """Return the error for the user.

        Args:
            verb: What was refused, such as "create".
            name: Of what.
            answer: The cloud's answer.
            next_step: What to do, where the driver knows better than the table.
            fields: Fill the placeholders of the table's next steps.
        """
        what = f"{verb} {name}".strip()
        kind = answer.kind
        if kind.may_have_acted:
            return CloudError(
                f"{what}: no answer from {self.vendor}",
                f"it is not known whether it acted ({answer})",
                "run the same command again",
            )
        row = self.find(answer.code, answer.words) if answer.code and not answer.next_step else None
        own = answer.next_step or (row.next_step if row is not None else "")
        advice = own or self._advice(verb, kind)
        error = _class_of(verb, answer)(
            f"{what} was refused by {self.vendor}", _why(verb, answer), next_step or advice.format(**fields)
        )
        if isinstance(error, CapacityError):
            error.scope = answer.scope or _SCOPES.get(kind, RefusalScope.ZONE)
        if isinstance(error, RefusedError) and kind not in _NEXT_ON_CREATE:
            cause = _cause_of_create(kind)
            error.code, error.exit_status = cause.code, Exit(cause.exit_status)
        return error

    def _advice(self, verb: str, kind: Kind) -> str:
        of_create = self.on_create.get(kind, "") if verb == "create" else ""
        return of_create or self.next_steps.get(kind, "run the same command again")


def is_final(error: Refused | OrchError) -> bool:
    """Return whether a create that ends so is never sent again. After a new login it continues."""
    kind = _class_of("create", error.answer) if isinstance(error, Refused) else type(error)
    return issubclass(kind, _FINAL) and not issubclass(kind, CredentialsError)


def load_error_table(package: str) -> ErrorTable:
    """Return the table in `errors.toml` of a driver's package.

    Raises:
        ValueError: A row is not complete.
    """
    data: dict[str, Any] = tomllib.loads(files(package).joinpath("errors.toml").read_text(encoding="utf-8"))
    return ErrorTable(
        vendor=str(data["vendor"]),
        rows=tuple(_row(row) for row in data["error"]),
        next_steps={Kind[key.upper()]: str(step) for key, step in data["next"].items()},
        on_create={Kind[key.upper()]: str(step) for key, step in data.get("next_on_create", {}).items()},
    )


def _row(row: Mapping[str, Any]) -> ErrorRow:
    text, reasons, scope = str(row.get("text", "")), frozenset(row.get("reasons", ())), row.get("scope")
    if not row["source"] or not row["date"] or not (row.get("codes") or text or reasons):
        raise ValueError(f"a row of an error table needs codes, reasons or text, a source and a date: {row}")
    return ErrorRow(
        kind=Kind[str(row["kind"]).upper()],
        codes=tuple(row.get("codes", ())),
        reasons=reasons,
        text=re.compile(text, re.IGNORECASE) if text else None,
        scope=None if scope is None else RefusalScope(scope),
        next_step=str(row.get("next", "")),
        source=str(row["source"]),
        date=str(row["date"]),
    )


def _why(verb: str, answer: Answer) -> str:
    """Return the answer as the cause of an error; it says so where orch does not know what the answer means."""
    if verb == "create" and answer.kind in _NEXT_ON_CREATE:
        return f"orch does not know this answer: {': '.join(filter(None, (answer.code, answer.words)))}"
    return str(answer)


def _class_of(verb: str, answer: Answer) -> type[OrchError]:
    kind = answer.kind
    if kind is Kind.NOT_OFFERED and verb != "create":
        return AccessError
    usual = _ERRORS.get(kind, CloudError)
    if verb != "create" or issubclass(usual, CapacityError):
        return usual
    if kind in _NEXT_ON_CREATE or answer.scope is not None:
        return RefusedError
    return _cause_of_create(kind)


def _cause_of_create(kind: Kind) -> type[OrchError]:
    return UserError if kind is Kind.NOT_FOUND else _ERRORS.get(kind, CloudError)  # what the task names does not exist
