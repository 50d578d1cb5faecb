"""Which machines are proposed: those that `orch offers` shows for the same work, budget and deadline."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.notes import plan_notes
from orchestrator.engine.training.advice import find_misfit, list_machine_kinds
from orchestrator.engine.training.machine_advice import request_advice
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import OwnProgram, read_training
from orchestrator.errors import UserError
from orchestrator.offers.offers import MOST_SHOWN, OfferRequest, choose_offers
from orchestrator.setup_guide.document import write_task
from orchestrator.setup_guide.draft import Draft, take
from orchestrator.setup_guide.machines import find_machines, list_cheapest_machines, list_draft_offers, machine_key
from orchestrator.setup_guide.questions import QUESTIONS, Step, check_answers, find_question, propose
from orchestrator.setup_guide.surroundings import Surroundings
from orchestrator.slices import HostFacts
from orchestrator.task.automatic import AUTO, ChooseMachines, ChosenMachines
from orchestrator.task.model import TaskSection

TOKENS = 10**9
MACHINES = next(one for one in QUESTIONS if one.step is Step.MACHINES)
MODEL = Draft(infra="aws", model="1b", tokens=TOKENS)
PROGRAM = Draft(infra="gcp", model="", program="python x.py", workdir="", tokens=0, flops="1e19", memory=80.0)


@pytest.mark.parametrize("draft", [MODEL, PROGRAM, replace(MODEL, infra="gcp/us-central1", by="5d")])
def test_the_proposed_machines_are_those_of_orch_offers(draft: Draft) -> None:
    offers = list_draft_offers(draft)
    work = read_training((), model=draft.model, tokens=TOKENS) if draft.model else OwnProgram(flops=1e19, memory_gib=80)
    request = OfferRequest(
        only=(draft.place.provider,), region=draft.place.region, seconds=5 * 86400.0 if draft.by else None
    )
    assert 1 <= len(offers) <= MOST_SHOWN
    assert [(one.name, one.market) for one in offers] == [
        (one.name, one.market) for one in choose_offers(list_offers(work, request), request)
    ]
    shown = propose(MACHINES, draft, Surroundings())
    assert [one.value for one in shown.choices] == [*(f"{one.name}, {one.market}" for one in offers), AUTO]
    assert all(len(one.cells) == len(shown.head) for one in shown.choices)


@pytest.mark.parametrize("number", [0, 1])
def test_a_proposed_machine_becomes_a_task_that_fits_by_the_estimate_of_the_launch(number: int) -> None:
    proposal = propose(MACHINES, replace(MODEL, budget=200.0), Surroundings())
    draft = replace(take(MODEL, "machine", proposal.choices[number].value), bucket="s3://mine/a", max_cost=9.0)
    assert find_question(draft) is None, "the market is that of the offer"
    chosen = find_machines(draft)
    task = write_task(draft, chosen).task
    advice = request_advice(list_machine_kinds(task, list_candidates(task)[:1]))
    assert advice[0]["fits"] and find_misfit(advice) is None
    assert advice[0]["run_tokens"] >= TOKENS
    assert chosen.offer is not None and task.num_nodes == draft.num_nodes == chosen.offer.nodes
    assert task.choices[0].use_spot == draft.use_spot
    assert task.checkpoint.every == chosen.every


def test_an_offer_of_several_nodes_is_an_answer() -> None:
    draft = take(Draft(infra="aws", model=""), "machine", "4 x p5.48xlarge, on demand")
    assert (draft.machine, draft.num_nodes, draft.use_spot) == ("p5.48xlarge", 4, False)


def test_budget_and_deadline_leave_out_what_costs_or_takes_more() -> None:
    every = list_draft_offers(MODEL)
    middle = sorted(one.dollars.high for one in every)[1]
    cheap = list_draft_offers(replace(MODEL, budget=middle))
    assert cheap and all(one.dollars.high <= middle for one in cheap)
    assert list_draft_offers(replace(MODEL, budget=0.01)) == ()
    with pytest.raises(UserError, match=r"nothing runs this for \$0.01"):
        propose(MACHINES, replace(MODEL, budget=0.01), Surroundings())


def test_what_is_too_dear_or_late_is_refused_with_what_would_do() -> None:
    for draft, step in ((replace(MODEL, budget=0.1), "--budget "), (replace(MODEL, by="1m"), "--by ")):
        with pytest.raises(UserError, match="nothing runs this") as error:
            propose(MACHINES, draft, Surroundings())
        assert re.fullmatch(rf"{step}\d+[mh]?", error.value.next_step)


def test_auto_needs_a_cloud() -> None:
    for infra in ("local", "hosts"):
        with pytest.raises(UserError, match="chooses among rented machines") as error:
            check_answers(Draft(infra=infra, model="1b", tokens=TOKENS, machine=AUTO))
        assert "--infra gcp" in error.value.next_step


def test_auto_is_written_as_a_person_types_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sections: list[TaskSection] = []

    def keep(section: TaskSection) -> ChosenMachines:
        sections.append(section)
        raise UserError("enough", "", "")

    def open_chooser(clouds: tuple[str, ...]) -> ChooseMachines:
        assert not clouds
        return keep

    monkeypatch.setattr("orchestrator.setup_guide.document.open_chooser", open_chooser)
    draft = replace(take(MODEL, "machine", AUTO), budget=500.0, by="5d", bucket="", max_cost=500.0)
    assert find_question(replace(draft, max_cost=None)) is not None
    with pytest.raises(UserError, match="enough"):
        write_task(draft, find_machines(draft))
    auto = sections[0].resources.auto
    assert sections[0].resources.accelerators == AUTO and auto is not None
    assert (auto.budget, auto.by, auto.tokens) == (500, "5d", TOKENS)


def test_a_task_that_leaves_the_machines_to_orch_is_planned_among_the_offers() -> None:
    draft = replace(PROGRAM, machine=AUTO, budget=900.0, bucket="", max_cost=900.0)
    written = write_task(draft, find_machines(draft))
    assert written.document["resources"] == {
        "infra": "gcp", "accelerators": "auto", "auto": {"budget": 900.0, "flops": "1e19", "memory": 80.0},
    }  # fmt: skip
    first = list_draft_offers(draft)[0]
    assert written.task.choices[0].machine.name == first.machine.name


def test_hours_are_limited_where_a_place_has_no_known_price() -> None:
    draft = Draft(
        infra="gcp", model="300m", tokens=TOKENS, machine="v6e-1", use_spot=True, bucket="gs://mine/a", max_cost=3.0
    )
    for place, least in (("gcp", 1), ("gcp/us-central1", 0)):
        written = write_task(one := replace(draft, infra=place), find_machines(one))
        prices = [candidate.price_per_hour for candidate in list_candidates(written.task)]
        known = [price for price in prices if price is not None]
        assert prices.count(None) >= least
        hours = math.ceil(3 / min(known)) if least else None
        assert written.task.limits.max_hours == hours and written.task.limits.max_cost == 3
        limits = next(note for note in (*plan_notes(written.task, HostFacts()), "") if "max_cost" in note or not note)
        assert limits.endswith("max_hours holds there" if least else "")


@pytest.mark.parametrize("place", ["gcp", "aws", "gcp/us-central1"])
def test_a_program_of_unknown_size_gets_the_cheapest_machine_of_each_memory(place: str) -> None:
    found = list_cheapest_machines(Draft(infra=place, model=""))
    memories = [machine.hbm_gib_per_chip for machine, _ in found]
    assert len(set(memories)) == len(memories) > 4 and 0 in memories, "a machine without chips is among them"
    prices = [price for _, price in found]
    assert prices == sorted(prices)


def test_a_model_that_does_not_fit_a_machine_is_refused() -> None:
    with pytest.raises(UserError, match="the model 70b does not fit v5litepod-4"):
        find_machines(Draft(infra="gcp", model="70b", tokens=TOKENS, machine="v5e-4"))


def test_on_this_computer_rows_are_those_of_the_model_and_few() -> None:
    settings = dict(find_machines(Draft(infra="local:3", model="tiny", tokens=5000, machine="")).settings)
    assert settings == {"model": "tiny", "seq_len": "128", "batch": "33", "steps": "2"}


@pytest.mark.parametrize(
    ("infra", "name", "key"),
    [("aws", "t3.medium", "instance_type"), ("aws", "H100:8", "accelerators"), ("gcp", "v5litepod-4", "accelerators"),
     ("hosts", "H100:3", "accelerators"), ("gcp", "no-such", "accelerators")],
)  # fmt: skip
def test_a_machine_goes_into_the_field_that_takes_it(infra: str, name: str, key: str) -> None:
    assert machine_key(infra, name) == key
