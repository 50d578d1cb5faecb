"""The page `/new`: the questions of `orch init`, one after the other, up to the text field of the launch page.

Each step is a form that the browser sends as a query, with all answers before it. So the server keeps nothing, the page
needs no script, and the address of a step can be kept. What the answers mean is in orchestrator/setup_guide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from orchestrator.engine.preparation.local_uses import THIS_COMPUTER
from orchestrator.errors import AccessError, OrchError
from orchestrator.service.order_pages import LaunchForm
from orchestrator.service.route import Answer, Call, Role
from orchestrator.setup_guide.document import write_task
from orchestrator.setup_guide.draft import Draft, take
from orchestrator.setup_guide.machines import find_machines
from orchestrator.setup_guide.questions import (
    QUESTIONS,
    Proposal,
    Question,
    Step,
    check_answers,
    find_question,
    propose,
)
from orchestrator.setup_guide.surroundings import THIS_PLACE, FoundPlace, Surroundings, find_clouds, make_label
from orchestrator.task.infra import LOCAL

# In the order of the questions. `other` is a machine that no row shows.
KEYS = (
    "infra", "program", "model", "tokens", "flops", "memory", "budget", "by", "other", "machine", "market", "bucket",
    "max_cost",
)  # fmt: skip
_MEANT = {"other": "machine"}


@dataclass(kw_only=True)
class _Answers:
    """The answers of a query: those that are taken, and what is wrong with the first other one."""

    draft: Draft = field(default_factory=lambda: Draft(workdir=""))  # folders travel with the command line
    taken: dict[str, str] = field(default_factory=dict[str, str])
    error: OrchError | None = None


def show_guide(call: Call) -> Answer:
    """Show the next question, or the task file in the form of a launch."""
    around = _find_surroundings(call)
    answers = _read_answers(call.query, around)
    question = find_question(answers.draft)
    if question is None:
        try:
            text = write_task(answers.draft, find_machines(answers.draft)).text
        except OrchError as error:
            answers, question = _leave_out_machine(answers, error), _get_machines_question()
        else:
            form: dict[str, Any] = {"form": LaunchForm(task=text), "error": None, "form_token": call.form_token}
            return Answer(template="launch.html", values=form)
    try:
        proposal = propose(question, answers.draft, around)
    except OrchError as error:
        answers.error, proposal = answers.error or error, Proposal(default="")
    values: dict[str, Any] = {
        "question": question,
        "number": list(Step).index(question.step) + 1,
        "count": len(Step),
        "proposal": proposal,
        "taken": [(key, value, _link_back(answers.taken, key)) for key, value in answers.taken.items()],
        "error": answers.error,
        "limits": answers.draft.rents and question.step is Step.MACHINES,
        "limit_fields": _list_limit_fields(answers),
        "titles": {key: one.title for one in QUESTIONS for key in one.keys} | {"other": "Which machines?"},
        "tried": {key: call.query[key] or "" for key in KEYS},
    }
    return Answer(template="new.html", values=values, status=400 if answers.error else 200)


def _list_limit_fields(answers: _Answers) -> list[tuple[str, str, str]]:
    """Return name, label and value of the fields that limit which machines are shown, and answer no question."""
    needs = (("flops", "FLOPs of your program in all (1e21)"), ("memory", "GiB that all its chips need"))
    limits = (("budget", "At most so many US dollars"), ("by", "Done within (12h, 3d)"))
    fields = (*(() if answers.draft.model else needs), *limits)
    return [(name, label, answers.taken.get(name, "")) for name, label in fields]


def _find_surroundings(call: Call) -> Surroundings:
    """Return what a member may see of the server: its clouds. Where they were found is for administrators."""
    role = call.person.role if call.person is not None else Role.ANYONE
    places = tuple(find_clouds(os.environ, Path.home()))
    if role < Role.ADMIN:
        places = tuple(FoundPlace(infra=one.infra, title=one.title, source="set up on this server") for one in places)
    if role >= Role.ADMIN or THIS_COMPUTER in call.site.member_rules.allowed:
        places = (*places, THIS_PLACE)
    name = f"{call.project}-{call.person.name if call.person is not None else ''}"
    return Surroundings(places=places, home=Path.home(), label=make_label(name), explains_logins=role >= Role.ADMIN)


def _read_answers(query: Mapping[str, Any], around: Surroundings) -> _Answers:
    answers = _Answers()
    for key in KEYS:
        text = query[key]
        if (
            not text
            or (key == "model" and "program" in answers.taken)
            or (key == "machine" and "other" in answers.taken)
        ):
            continue
        try:
            draft = take(answers.draft, _MEANT.get(key, key), text)
            _refuse_place(draft, around)
            check_answers(draft)
        except OrchError as error:
            answers.error = error
            break
        answers.draft = draft
        answers.taken[key] = text
    return answers


def _refuse_place(draft: Draft, around: Surroundings) -> None:
    """Raise AccessError for a place that this server does not offer to the member."""
    place = draft.place.provider
    if draft.infra is not None and place not in {one.infra for one in around.places}:
        what = (
            "this computer is not for tasks of members" if place == LOCAL else f"{place} is not set up on this server"
        )
        raise AccessError(what, "", "choose another place, or ask who runs the service")


def _leave_out_machine(answers: _Answers, error: OrchError) -> _Answers:
    """Return the answers up to the machine, which the error is about."""
    before = {key: value for key, value in answers.taken.items() if KEYS.index(key) < KEYS.index("other")}
    draft = Draft(workdir="")
    for key, text in before.items():
        draft = take(draft, key, text)
    return _Answers(draft=draft, taken=before, error=error)


def _get_machines_question() -> Question:
    return next(one for one in QUESTIONS if one.step is Step.MACHINES)


def _link_back(taken: Mapping[str, str], key: str) -> str:
    """Return the address of the step that asks for `key`, with the answers before it."""
    before = {name: value for name, value in taken.items() if KEYS.index(name) < KEYS.index(key)}
    return f"/new?{urlencode(before)}" if before else "/new"
