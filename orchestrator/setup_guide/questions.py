"""The seven questions, which of them is next, and what is proposed for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.drivers import get_driver, list_clouds
from orchestrator.errors import UserError
from orchestrator.formatting import format_amount
from orchestrator.offers.offer_table import list_cells, list_titles
from orchestrator.offers.offers import choose_offers
from orchestrator.offers.refusals import refuse_late_or_dear
from orchestrator.setup_guide.document import check_draft
from orchestrator.setup_guide.draft import NONE, Draft, take
from orchestrator.setup_guide.machines import (
    find_machines,
    find_market_price,
    list_cheapest_machines,
    list_possible_offers,
    make_request,
)
from orchestrator.setup_guide.surroundings import Surroundings, describe_login
from orchestrator.storage.address import Address
from orchestrator.task.automatic import AUTO
from orchestrator.task.infra import HOSTS, LOCAL
from orchestrator.task.parse import FindSourceProblem
from orchestrator.task.trainer_settings import load_settings

_DEFAULT_MODEL, _LOCAL_MODEL = "300m", "tiny"
_DEFAULT_TOKENS, _LOCAL_TOKENS = "1B", "1M"
_COST_MARGIN = 1.5  # over the highest estimate: restarts and idle minutes cost, too
_PROGRAM_HOURS = 24  # of an own program, whose length is not known


class Step(StrEnum):
    """What a question is about."""

    PLACE = "place"
    WORK = "work"
    AMOUNT = "amount"
    MACHINES = "machines"
    MARKET = "market"
    BUCKET = "bucket"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question.

    Attributes:
        step: What it is about.
        title: The question.
        help: One or two lines.
        options: How the command line answers it.
        keys: What it answers, keys of draft.KEYS.
    """

    step: Step
    title: str
    help: str
    options: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One proposed answer.

    Attributes:
        value: The answer.
        cells: It in words, as cells of a table.
    """

    value: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What is proposed for a question.

    Attributes:
        default: The answer that Enter gives.
        choices: Answers to choose from; others are possible.
        head: Titles of their cells.
        notes: Lines to read before.
    """

    default: str
    choices: tuple[Choice, ...] = ()
    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


QUESTIONS = (
    Question(
        step=Step.PLACE, title="Where are the machines?", options="--infra PLACE", keys=("infra",),
        help="A cloud, or its region as CLOUD/REGION; hosts are your own machines; local is this computer.\n"
        "orch uses the logins of the clouds' own tools. It asks for no key, and keeps none.",
    ),
    Question(
        step=Step.WORK, title="What shall run?", keys=("model", "program"),
        options="--program COMMAND or --model PRESET",
        help="The command of your program, as you type it in a shell; or a model size of the bundled trainer.\n"
        "Secrets do not belong here: orch launch --secret NAME takes them from your shell.",
    ),
    Question(
        step=Step.AMOUNT, title="On how many tokens?", options="--tokens COUNT", keys=("tokens",),
        help="Such as 500M or 1B. About 20 tokens for each parameter of the model train it well.\n"
        "The number decides steps, hours and dollars.",
    ),
    Question(
        step=Step.AMOUNT, title="Which folder has the program?", options="--workdir FOLDER", keys=("workdir",),
        help=f"It is sent to every host, without files that git ignores. {NONE}: the command needs no files.",
    ),
    Question(
        step=Step.MACHINES, title="Which machines?", keys=("machine",),
        options="--accelerators NAME or auto, --instance-type TYPE or --hosts LIST; --budget and --by leave out others",
        help="One of these, auto, or any other that orch accelerators lists. Time and cost: as in orch offers.\n"
        "For own machines: user@first,user@second. For this computer: a number of hosts.",
    ),
    Question(
        step=Step.MARKET, title="On demand, or spot?", options="--use-spot or --no-use-spot", keys=("market",),
        help="Spot machines are cheaper, and the cloud may take them away at any moment.\n"
        "orch then rents others, and a program that saves to the bucket resumes.",
    ),
    Question(
        step=Step.BUCKET, title="Which bucket keeps the checkpoints?", options="--bucket URI", keys=("bucket",),
        help=f"gs://NAME/FOLDER, s3://NAME/FOLDER or file:///FOLDER. {NONE}: all work of a lost machine is lost.\n"
        "Put it into the region of the machines: clouds charge for data that leaves a region.",
    ),
    Question(
        step=Step.LIMIT, title="How many US dollars may the run cost?", keys=("max_cost",),
        options="--max-cost DOLLARS",
        help="Then the program saves, and the machines are deleted, also when orch does not run any more.\n"
        f"{NONE}: no limit.",
    ),
)  # fmt: skip


def find_question(draft: Draft) -> Question | None:
    """Return the first question that the draft does not answer; None when it is complete."""
    if draft.infra is None:
        return _get(Step.PLACE)
    if draft.model is None:
        return _get(Step.WORK)
    if draft.model and draft.tokens is None:
        return _get(Step.AMOUNT, "tokens")
    if not draft.model and draft.workdir is None:
        return _get(Step.AMOUNT, "workdir")
    if draft.machine is None or (draft.place.provider == HOSTS and not draft.hosts):
        return _get(Step.MACHINES)
    if draft.rents and draft.use_spot is None and draft.machine != AUTO:
        return _get(Step.MARKET)
    if draft.bucket is None:
        return _get(Step.BUCKET)
    return _get(Step.LIMIT) if draft.rents and draft.max_cost is None else None


def _get(step: Step, key: str = "") -> Question:
    return next(one for one in QUESTIONS if one.step is step and (not key or key in one.keys))


def answer(draft: Draft, question: Question, text: str, find_source_problem: FindSourceProblem | None = None) -> Draft:
    """Return the draft with the answer to a question, checked with all answers before it.

    Args:
        draft: The answers before.
        question: The question.
        text: What was typed, or the value of a choice.
        find_source_problem: Says what is wrong with a local folder.

    Raises:
        UserError: It cannot be the answer.
    """
    key = question.keys[0]
    if question.step is Step.WORK and text.strip() not in load_settings().presets:
        key = "program"
    found = take(draft, key, text)
    check_answers(found, find_source_problem)
    return found


def check_answers(draft: Draft, find_source_problem: FindSourceProblem | None = None) -> None:
    """Refuse answers that do not fit each other.

    Raises:
        UserError: With what is wrong.
    """
    check_draft(draft, find_source_problem)
    if draft.infra is None:
        return
    if draft.machine == AUTO and not draft.rents:
        step = "   or: ".join(f"--infra {one.name}" for one in list_clouds())
        raise UserError("`auto` chooses among rented machines", f"nothing is rented on {draft.infra}", step)
    if not draft.bucket:
        return
    scheme, own = Address.parse(draft.bucket).scheme, get_driver(draft.place.provider).bucket_scheme
    if own and scheme != own:
        other = next((one.vendor for one in list_clouds() if one.bucket_scheme == scheme), "")
        why = f"they have no credentials for {other}" if other else "it would be a folder on each rented machine"
        raise UserError(
            f"machines of {get_driver(draft.place.provider).vendor} cannot use {draft.bucket}",
            why,
            f"{own}://NAME/runs",
        )


def propose(question: Question, draft: Draft, around: Surroundings) -> Proposal:
    """Return what is proposed for a question.

    Args:
        question: The question.
        draft: The answers before it.
        around: What this computer has.

    Raises:
        OrchError: The machines cannot be estimated, or none fits.
    """
    return _PROPOSE[question.step](draft, around)


def _propose_place(_draft: Draft, around: Surroundings) -> Proposal:
    found = {one.infra for one in around.places}
    missing = [driver for driver in list_clouds() if driver.name not in found and around.explains_logins]
    lines = [line for driver in missing for line in describe_login(driver)]
    choices = tuple(Choice(value=one.infra, cells=(one.infra, f"{one.title}: {one.source}")) for one in around.places)
    notes = ("not set up here:", *(f"  {line}" for line in lines)) if lines else ()
    return Proposal(default=choices[0].value if choices else LOCAL, choices=choices, notes=notes)


def _propose_work(draft: Draft, around: Surroundings) -> Proposal:
    folder, default = around.folder, _DEFAULT_MODEL if draft.rents else _LOCAL_MODEL
    choices = [Choice(value=name, cells=(name, "the bundled trainer")) for name in load_settings().presets]
    notes: list[str] = []
    if folder is not None and folder.program:
        choices.insert(0, Choice(value=folder.program, cells=(folder.program, "your program in this folder")))
        default = folder.program
    if folder is not None:
        notes = [f"{one} looks like a task file: orch import {one}   shows what changes" for one in folder.tasks]
    return Proposal(default=default, choices=tuple(choices), notes=tuple(notes))


def _propose_amount(draft: Draft, around: Surroundings) -> Proposal:
    if draft.model:
        return Proposal(default=_DEFAULT_TOKENS if draft.rents else _LOCAL_TOKENS)
    folder = around.folder
    return Proposal(default=folder.path if folder is not None and folder.holds_files else NONE)


def _propose_machines(draft: Draft, around: Surroundings) -> Proposal:
    if draft.place.provider == LOCAL:
        return Proposal(default="1")
    if draft.place.provider == HOSTS:
        return Proposal(
            default=",".join(around.hosts[:1]), choices=tuple(Choice(value=one, cells=(one,)) for one in around.hosts)
        )
    if not draft.knows_work:
        return _propose_cheapest(draft)
    found, request = list_possible_offers(draft), make_request(draft)
    if not found:
        raise _nothing_fits(draft)
    offers = choose_offers(found, request)
    refuse_late_or_dear(found, offers, request)
    choices = [
        Choice(value=f"{one.name}, {one.market}", cells=(f"{one.name}, {one.market}", *list_cells(one, request)[1:]))
        for one in offers
    ]
    titles = list_titles(request)
    notes = (f"{AUTO}: orch chooses among these at each launch, and again after a loss",)
    choices.append(Choice(value=AUTO, cells=(AUTO, *("" for _ in titles[1:]))))
    return Proposal(default=choices[0].value, choices=tuple(choices), head=titles, notes=notes)


def _propose_cheapest(draft: Draft) -> Proposal:
    """Return machines for a program of which nothing is known: the cheapest for each size of a chip's memory."""
    choices = tuple(
        Choice(
            value=one.name,
            cells=(
                one.name,
                f"{one.chips} {one.chip}" if one.chips else "-",
                f"{one.hbm_gib_per_chip:g}" if one.hbm_gib_per_chip else "-",
                format_amount(price),
            ),
        )
        for one, price in list_cheapest_machines(draft)
    )
    if not choices:
        raise _nothing_fits(draft)
    return Proposal(
        default=choices[0].value,
        choices=choices,
        head=("MACHINES", "CHIPS", "GIB/CHIP", "$/H"),
        notes=("time and cost are not known: --flops and --memory say what your program computes (orch offers)",),
    )


def _nothing_fits(draft: Draft) -> UserError:
    limited = draft.budget is not None and not draft.knows_work
    step = "raise --budget" if limited else "choose another region, or a smaller model"
    return UserError(f"no machine in {draft.infra} fits", "within the budget of an hour" if limited else "", step)


def _propose_market(draft: Draft, _around: Surroundings) -> Proposal:
    prices = [find_market_price(draft, spot=spot) for spot in (False, True)]
    nodes = draft.num_nodes
    words = ["price not known" if one is None else f"{format_amount(nodes * one.high)} an hour" for one in prices]
    return Proposal(
        default="on-demand",
        choices=(
            Choice(value="on-demand", cells=("on-demand", words[0], "stays until you end it")),
            Choice(value="spot", cells=("spot", words[1], "may be taken away at any moment")),
        ),
    )


def _propose_bucket(draft: Draft, around: Surroundings) -> Proposal:
    provider = draft.place.provider
    if not draft.rents:
        return Proposal(default=NONE if provider == HOSTS else f"file://{around.home}/orch-runs")
    driver = get_driver(provider)
    place = next((one for one in around.places if one.infra == provider), None)
    account = place.accounts[0] if place is not None and place.accounts and driver.place_option == "project" else ""
    return Proposal(default=f"{driver.bucket_scheme}://{account or around.label}-orch/runs")


def _propose_limit(draft: Draft, _around: Surroundings) -> Proposal:
    chosen = find_machines(draft)
    if draft.budget is not None and draft.knows_work:
        return Proposal(default=f"{draft.budget:g}")
    if chosen.offer is not None:
        return Proposal(default=f"{max(1, math.ceil(chosen.offer.dollars.high * _COST_MARGIN))}")
    if chosen.price is None:
        return Proposal(
            default=NONE, notes=("no price of this machine is known, so a limit in dollars cannot be held",)
        )
    return Proposal(default=f"{max(1, math.ceil(chosen.price * _PROGRAM_HOURS))}")


_PROPOSE: dict[Step, Callable[[Draft, Surroundings], Proposal]] = {
    Step.PLACE: _propose_place,
    Step.WORK: _propose_work,
    Step.AMOUNT: _propose_amount,
    Step.MACHINES: _propose_machines,
    Step.MARKET: _propose_market,
    Step.BUCKET: _propose_bucket,
    Step.LIMIT: _propose_limit,
}


def add_setup(draft: Draft, around: Surroundings) -> Draft:
    """Return the draft with the commands that install what the program's folder names, where nothing else is given.

    On this computer and on own machines nothing is installed unasked.
    """
    folder = around.folder
    if draft.setup is not None or not draft.program or not draft.rents or folder is None:
        return draft
    return replace(draft, setup=folder.setup) if draft.workdir == folder.path else draft


def find_choice(choices: Sequence[Choice], text: str) -> str:
    """Return the answer that a typed line means: the number of a choice, or the line itself."""
    word = text.strip()
    if word.isascii() and word.isdigit() and 1 <= int(word[:6]) <= len(choices):
        return choices[int(word) - 1].value
    return text
