"""Mistakes in a file that a person wrote: each with its place, what is wrong, why, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import UserError

SHOWN = 5  # problems printed; the rest is counted


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. file: the file, or the flag or variable that carries the value; line: from 1, None without one."""

    file: str
    line: int | None
    what: str
    why: str = ""
    next_step: str = ""

    @property
    def place(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


class FileError(UserError):
    """One or more problems in one file. The first speaks through `what`, `why` and `next_step`."""

    code = "file"

    def __init__(
        self,
        file: str,
        line: int | None,
        what: str,
        why: str = "",
        next_step: str = "",
        more: Sequence[Problem] = (),
    ) -> None:
        first = Problem(file, line, what, why, next_step)
        super().__init__(str(first), why, next_step)
        self.problems: tuple[Problem, ...] = (first, *more)

    def lines(self) -> list[str]:
        """One problem with its reason and next step; several as `file:line: what`, the first five of them."""
        if len(self.problems) == 1:
            return super().lines()
        shown = [f"  {problem}" for problem in self.problems[:SHOWN]]
        left = len(self.problems) - len(shown)
        steps = [problem.next_step for problem in self.problems if problem.next_step]
        return [
            f"error[{self.code}]: {len(self.problems)} problems",
            *shown,
            *([f"  and {left} more"] if left else []),
            *([f"  next: {steps[0]}"] if steps else []),
        ]


class TaskError(FileError):
    """The task file, or what was laid over it by flags and variables, cannot be."""

    code = "task-file"

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> TaskError:
        """All problems, in the order of their lines. There must be at least one."""
        first, *more = sorted(problems, key=lambda problem: (problem.line or 0, problem.what))
        return cls(first.file, first.line, first.what, first.why, first.next_step, more)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A task file for TPU VMs instead of TPU Nodes. remarks: what it cannot know, one sentence each."""

    path: str
    before: str
    after: str
    remarks: tuple[str, ...] = ()

    def diff(self) -> str:
        """What changes, as a unified diff."""
        from difflib import unified_diff

        before, after = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        lines = unified_diff(before, after, self.path, f"{self.path} (for TPU VMs)")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


class TpuNodeError(TaskError):
    """The task asks for a TPU Node. rewriting: None when only a person can do it."""

    code = "tpu-node"

    def __init__(self, problem: Problem, rewriting: Rewriting | None) -> None:
        super().__init__(problem.file, problem.line, problem.what, problem.why, problem.next_step)
        self.rewriting = rewriting


class ConfigError(FileError):
    """The user's configuration, or an ORCH_ variable, cannot be."""

    code = "config"

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> ConfigError:
        first, *more = problems
        return cls(first.file, first.line, first.what, first.why, first.next_step, more)


class FormError(Exception):
    """A value has the right type and a form that means nothing. The reader of the file adds the place."""

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The known word that looks most like `word`, or ""."""
    from difflib import get_close_matches

    spelled = {item.lower(): item for item in known}
    close = get_close_matches(word.lower().replace("-", "_"), list(spelled), n=1, cutoff=0.6)
    return spelled[close[0]] if close else ""
