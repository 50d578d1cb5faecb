"""Errors in a file that a person wrote: each with its place, what is wrong, why, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from orchestrator.errors import UserError
from orchestrator.messages import escape_controls

SHOWN = 8  # problems printed; the rest is counted
LONGEST_VALUE = 60  # characters of a value that a message shows
LONGEST_TEXT = 800  # characters of one text of a message
_LONG_WORD = re.compile(rf"\S{{{4 * LONGEST_VALUE},}}")
_VALUE = re.compile(r"`([^`]*)`")  # also short ones: else the text between two of them would pass for one


Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake in a file.

    Attributes:
        file: The file, or the flag or variable that has the value.
        line: From 1, None without one.
        column: From 1, None without one.
        what: What is wrong.
        why: Why it is wrong, or what is allowed.
        next_step: What to do about it.

    Values of the file inside the texts are shortened, and their control characters written out, whoever made the text.
    """

    file: str
    line: int | None = None
    column: int | None = None
    what: str
    why: str = ""
    next_step: str = ""

    def __post_init__(self) -> None:
        for name in ("what", "why", "next_step"):
            object.__setattr__(self, name, clean_message(getattr(self, name)))

    @property
    def place(self) -> str:
        """`file:line:column`, as far as they are known."""
        parts = (_write_out(self.file), self.line, self.column)
        return ":".join(str(part) for part in parts if part is not None)

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """Something wrong at a path inside a document."""

    path: Path
    what: str
    why: str = ""
    next_step: str = ""

    def locate(self, file: str, line: int | None = None, column: int | None = None) -> Problem:
        """Return the same with its place in a file."""
        return Problem(file=file, line=line, column=column, what=self.what, why=self.why, next_step=self.next_step)


class FileError(UserError):
    """One or more problems in one file. `what`, `why` and `next_step` are those of the first."""

    code = "file"

    def __init__(
        self,
        file: str,
        line: int | None,
        what: str,
        why: str = "",
        next_step: str = "",
        more: Sequence[Problem] = (),
        *,
        column: int | None = None,
    ) -> None:
        first = Problem(file=file, line=line, column=column, what=what, why=why, next_step=next_step)
        super().__init__(str(first), first.why, first.next_step)
        self.problems: tuple[Problem, ...] = (first, *more)

    @classmethod
    def from_problems(cls, problems: Sequence[Problem]) -> Self:
        """Return an error with all problems, in their order. There must be at least one."""
        first, *more = problems
        return cls(first.file, first.line, first.what, first.why, first.next_step, more, column=first.column)

    def lines(self) -> list[str]:
        """Return the lines to print: the first problems, two lines each at most, and how to see the others."""
        if len(self.problems) == 1:
            return super().lines()
        shown = [line for problem in self.problems[:SHOWN] for line in format_problem(problem)]
        left = len(self.problems) - SHOWN
        more = f"  and {left} more{f': {self.show_all}' if self.show_all else ''}"
        return [f"error[{self.code}]: {len(self.problems)} problems", *shown, *([more] if left > 0 else [])]

    @property
    def show_all(self) -> str:
        """The command that shows every problem, "" without one."""
        return ""


def format_problem(problem: Problem) -> Iterator[str]:
    """Yield a problem as one or two lines of a list."""
    yield f"  {problem}"
    if explained := "; ".join(filter(None, (problem.why, problem.next_step))):
        yield f"    {explained}"


def clean_message(text: str) -> str:
    """Return a text with long values in it shortened and control characters written out; line ends stay."""
    shortened = _VALUE.sub(
        lambda found: f"`{shorten_value(found[1])}`" if len(found[1]) > LONGEST_VALUE else found[0], text
    )
    shortened = _LONG_WORD.sub(lambda found: shorten_value(found[0]), shortened)
    return _write_out(shortened if len(shortened) <= LONGEST_TEXT else f"{shortened[:LONGEST_TEXT]}...")


def shorten_value(text: str) -> str:
    """Return a value on one line of at most 60 characters, control characters written out."""
    line = _write_out(text[: 2 * LONGEST_VALUE].replace("\n", " ").replace("\t", " "))
    return line if len(line) <= LONGEST_VALUE else line[: LONGEST_VALUE - 3] + "..."


def _write_out(text: str) -> str:
    """Return the text without control characters; colours, which other messages may have, are no part of these."""
    return escape_controls(text.replace("\x1b", "\\x1b"))


class TaskError(FileError):
    """The task file, or a flag or variable that overrides it, is wrong."""

    code = "task-file"

    @property
    def show_all(self) -> str:
        """The command that shows every problem."""
        from shlex import quote

        files = [problem.file for problem in self.problems if problem.line is not None]
        return f"orch import {quote(files[0])}" if files else ""

    @classmethod
    def from_problems(cls, problems: Sequence[Problem]) -> Self:
        """Return an error with all problems, in the order of their lines. There must be at least one."""
        return super().from_problems(sorted(problems, key=lambda one: (one.line or 0, one.column or 0, one.what)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRewrite:
    """A task file for what a vendor serves now, instead of what it has ended.

    Attributes:
        path: The file.
        before: Its text.
        after: The new text.
        purpose: What the new text is for, in words.
        remarks: What only a person can decide, one sentence each.
    """

    path: str
    before: str
    after: str
    purpose: str
    remarks: tuple[str, ...] = ()

    def diff(self) -> str:
        """Return the changes as a unified diff."""
        from difflib import unified_diff

        before, after = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        lines = unified_diff(before, after, self.path, f"{self.path} ({self.purpose})")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


class OutdatedTaskError(TaskError):
    """The task requests what its vendor has ended. `rewriting` is None when only a person can do it."""

    code = "outdated-task"

    def __init__(self, problem: Problem, rewriting: TaskRewrite | None) -> None:
        super().__init__(
            problem.file, problem.line, problem.what, problem.why, problem.next_step, column=problem.column
        )
        self.rewriting = rewriting


class ConfigError(FileError):
    """The user's configuration, or an ORCH_ variable, is wrong."""

    code = "config"


class InvalidValueError(ValueError):
    """A value has the right type and means nothing. The place is added by the reader of the file; so is `{path}`."""

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return the known word that looks most like `word`, or ""."""
    from difflib import get_close_matches

    if len(word) > LONGEST_VALUE:
        return ""
    spelled = {item.lower(): item for item in known}
    close = get_close_matches(word.lower().replace("-", "_"), list(spelled), n=1, cutoff=0.6)
    return spelled[close[0]] if close else ""
