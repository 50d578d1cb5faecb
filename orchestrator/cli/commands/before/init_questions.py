"""The questions of `orch init` on a terminal: nothing is redrawn, so that a screen reader reads it all."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import click

from orchestrator.cli.command import current_session
from orchestrator.cli.commands.before.init_checks import check_place
from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.failures import print_error
from orchestrator.errors import OrchError, UserError
from orchestrator.providers.checks import Finding
from orchestrator.setup_guide.draft import Draft
from orchestrator.setup_guide.machines import DraftMachines, find_machines
from orchestrator.setup_guide.questions import (
    Proposal,
    Question,
    Step,
    add_setup,
    answer,
    check_answers,
    find_choice,
    find_question,
    propose,
)
from orchestrator.setup_guide.surroundings import Surroundings, inspect_program
from orchestrator.task.infra import HOSTS
from orchestrator.task.parse import find_source_problem


@dataclass(kw_only=True)
class Interview:
    """One run of the questions.

    Attributes:
        around: What this computer has.
        asks: Whether a person answers.
        yes: Whether what is proposed is taken.
        checks: Whether the place is checked.
        fix: Whether what fixes a problem is sent without a question.
        found: What the last check found.
    """

    around: Surroundings
    asks: bool
    yes: bool
    checks: bool
    fix: bool
    found: tuple[Finding, ...] = ()

    def agree_to_replace(self, path: Path, *, overwrite: bool) -> None:
        """Ask before a file is replaced, at the beginning, so that no answer is lost.

        Raises:
            UserError: No one can be asked.
            OrchError: The user does not agree.
        """
        if overwrite or not (path.exists() or path.is_symlink()):
            return
        if not self.asks:
            raise UserError(f"{path} exists", "nothing is replaced unasked", "-o OTHER.yaml   or: --overwrite")
        if not click.confirm(f"{path} exists. Replace it?", default=False, err=True):
            raise OrchError("not agreed to", f"{path} is as it was", "orch init -o OTHER.yaml")

    def complete(self, draft: Draft) -> tuple[Draft, DraftMachines]:
        """Return the draft with all answers, and the machines with the trainer's settings.

        Args:
            draft: What options answer.

        Raises:
            UserError: An answer is missing, or answers do not fit each other.
        """
        check_answers(draft, find_source_problem)
        unchecked = self.checks
        while (question := find_question(draft)) is not None:
            if not self.asks and not self.yes:
                raise UserError(
                    f"no answer to: {question.title}",
                    "there is no terminal to ask on",
                    f"add {question.options}; or --yes, which takes what is proposed",
                )
            if unchecked and question.step is not Step.PLACE and draft.place.provider != HOSTS:
                self._check(draft)
                unchecked = False
            draft = self._answer(draft, question)
        around = self.around
        if draft.workdir and around.folder is not None and draft.workdir != around.folder.path:
            around = replace(around, folder=inspect_program(draft.workdir, around.home))
        draft = add_setup(draft, around)
        if draft.setup and around.folder is not None and draft.setup == around.folder.setup:
            write_stderr(f"{around.folder.installed_by} is installed by `setup`")
        check_answers(draft, find_source_problem)
        chosen = find_machines(draft)
        if self.checks and (draft.rents or draft.hosts or unchecked):
            self._check(draft)
        return draft, chosen

    def _check(self, draft: Draft) -> None:
        self.found = check_place(draft, self.found, asks=self.asks, agreed=self.fix)

    def _answer(self, draft: Draft, question: Question) -> Draft:
        proposal = self._propose(draft, question)
        if not self.asks:
            write_stderr(f"{question.title} {proposal.default}")
            return answer(draft, question, proposal.default, find_source_problem)
        self._show(question, proposal)
        while True:
            text = str(click.prompt(_PROMPT, default=proposal.default or None, err=True))
            if text.strip() == "?":
                lines = (*question.help.splitlines(), f"as an option: {question.options}")
                write_stderr(*(part for line in lines for part in textwrap.wrap(line, _WIDTH)))
                continue
            try:
                return answer(draft, question, find_choice(proposal.choices, text), find_source_problem)
            except UserError as error:
                print_error(error, debug=current_session().debug)

    def _propose(self, draft: Draft, question: Question) -> Proposal:
        """Return what is proposed; on a terminal also where nothing fits, since any name can be typed there."""
        if question.step is Step.MACHINES and draft.rents and draft.knows_work:
            write_stderr("", "estimating memory, time and cost on each machine takes some seconds")
        try:
            return propose(question, draft, self.around)
        except UserError as error:
            if not self.asks:
                raise
            print_error(error, debug=current_session().debug)
            return Proposal(default="")

    def _show(self, question: Question, proposal: Proposal) -> None:
        number = list(Step).index(question.step) + 1
        write_stderr("", f"{number} of {len(Step)}  {question.title}", *(f"  {line}" for line in proposal.notes))
        rows = [(str(number), *choice.cells) for number, choice in enumerate(proposal.choices, 1)]
        if not rows:
            return
        draw = draw_table([("", *proposal.head), *rows], sys.stderr) if proposal.head else draw_list(rows, sys.stderr)
        write_stderr(*draw)


_WIDTH = 79  # columns of help
_PROMPT = "answer, or ? for help"
