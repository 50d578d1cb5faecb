"""`accelerators: auto` and ranges of nodes: the candidates of a task, its plan and its record."""

from __future__ import annotations

import json
import re
import textwrap
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.prices import price_per_hour
from orchestrator.catalog.refreshed import PriceRow, Refreshed, write_refreshed
from orchestrator.cli.app import app
from orchestrator.engine.preparation.candidates import list_candidates, restore_offer
from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.engine.preparation.host_inputs import job_digest
from orchestrator.engine.training.automatic import MachineChooser
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import read_training
from orchestrator.errors import AccessError, UserError
from orchestrator.offers.offers import SURE, Offer, OfferRequest, make_offer
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import IntentState
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.service.plans import PlanRequest, describe_difference, make_order_plan
from orchestrator.slices import Candidate, Spot
from orchestrator.store.leases import Lease
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store
from orchestrator.task.errors import TaskError
from orchestrator.task.model import Task
from orchestrator.task.parse import TaskFile, parse_task

NOW = 1_800_000_000.0
OWN = """
run: python train.py
resources:
  accelerators: auto
  auto: {flops: 2e20, memory: 320, budget: 2000, by: 4d}
"""


def read(text: str, *clouds: str) -> TaskFile:
    chooser = MachineChooser(clouds=clouds, now=NOW)
    return parse_task(textwrap.dedent(text), file="task.yaml", env={}, choose_machines=chooser)


def refused(text: str) -> str:
    with pytest.raises(TaskError) as error:
        read(text)
    return str(error.value)


@pytest.mark.parametrize(("bucket", "cloud"), [("gs", "gcp"), ("s3", "aws")])
def test_clouds_whose_machines_cannot_open_the_bucket_are_left_out(bucket: str, cloud: str) -> None:
    given = OWN + f"checkpoint: {{bucket: '{bucket}://mine/runs'}}\n"
    file = read(given, "aws", "gcp")
    assert {choice.infra.provider for choice in file.only.choices} == {cloud}
    assert any(note.startswith("auto: left out: ") and f"{bucket}://mine/runs" in note for note in file.notes)
    both = read(OWN, "aws", "gcp")
    assert not any("left out: " in note and "could not open" in note for note in both.notes)


def test_a_bucket_that_no_chosen_cloud_can_open_is_refused() -> None:
    given = OWN + "checkpoint: {bucket: 'gs://mine/runs'}\n"
    with pytest.raises(AccessError, match="could not open gs://mine/runs"):
        read(given, "aws")
    assert read(given + "secrets: {GOOGLE_APPLICATION_CREDENTIALS: /x}\n", "aws").only.choices


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))
    for name in ("ORCH_STORE", "ORCH_SERVER"):
        monkeypatch.delenv(name, raising=False)


def test_the_candidates_are_those_that_orch_offers_shows_in_its_order() -> None:
    task = read(OWN).only
    words = ["offers", "--flops", "2e20", "--memory", "320", "--budget", "2000", "--by", "4d", "-o", "json"]
    shown = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)["offers"]
    chosen = [(one.machine.name, one.num_nodes, "spot" if one.use_spot else "on-demand") for one in task.choices]
    assert chosen[: len(shown)] == [(one["machine"], one["nodes"], one["market"]) for one in shown]
    assert all(one["chance_in_time"] >= SURE for one in shown)
    assert task.limits.max_cost == 2000, "the hosts enforce the budget too"


def test_only_what_the_task_limits_is_a_reason_to_be_left_out() -> None:
    (both,) = [note for note in read(OWN).notes if "left out" in note]
    assert "may cost more than the budget" in both and "may be late" in both
    (alone,) = [note for note in read(OWN.replace(", by: 4d", "")).notes if "left out" in note]
    assert "may cost more than the budget" in alone and "late" not in alone


def test_a_task_is_the_same_from_its_record() -> None:
    task = read(OWN).only
    again = Task.from_json(task.to_json())
    assert again == task
    assert again.to_json() == task.to_json()
    assert list_candidates(again) == list_candidates(task)


@pytest.mark.parametrize("flops", ["1e15", "1e16", "2e20", "2e+20"])
def test_a_task_is_the_same_when_its_json_is_read_as_a_task_file(flops: str) -> None:
    """A computer sends it so to a service. JSON has 2e+20, which YAML reads as text."""
    task = read(OWN.replace("2e20", flops)).only
    assert task.auto is not None and task.auto.flops == float(flops)
    assert read(task.to_json()).only == task


def test_no_candidate_can_cost_more_than_the_budget_and_the_cheapest_is_first() -> None:
    task = read(OWN).only
    offers = {one: restore_offer(part) for part in task.split() for one in list_candidates(part)}
    costs: list[float] = []
    for candidate in list_candidates(task):
        offer, price = offers[candidate], candidate.price_per_hour
        assert offer is not None and price is not None
        assert price * offer.seconds.high / 3600 <= 2000 * 1.001
        costs.append(price * offer.seconds.typical / 3600)
    assert costs[0] == min(costs)


def test_only_clouds_with_credentials_are_considered_unless_the_task_names_some() -> None:
    assert {one.infra.provider for one in read(OWN, "gcp").only.choices} == {"gcp"}
    named = OWN.replace("by: 4d", "by: 4d, only: aws")
    assert {one.infra.provider for one in read(named, "gcp").only.choices} == {"aws"}
    assert any("no credentials of a cloud were found" in note for note in read(OWN).notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("budget: 2000", "budget: 20"), "nothing runs this for $20.00 in 4 d 0 h"),
        (("by: 4d", "by: 20m"), "nothing runs this for $2,000.00 in 20 min"),
        (("by: 4d", "by: soon"), "`resources.auto.by: soon` is not a time"),
        (("by: 4d", "by: '2020-01-01'"), "is over"),
        (("flops: 2e20, ", ""), "needs what your program computes"),
        (("accelerators: auto", "accelerators: H100:8"), "this has nothing to choose"),
        (("accelerators: auto", "accelerators: auto\n  infra: local"), "chooses among rented machines"),
        (("run:", "recovery: {on_demand_fallback: true}\nrun:"), "`accelerators: auto` chooses the markets too"),
        (("auto\n", "auto\n  instance_type: p5.48xlarge\n"), "names the machine that `accelerators: auto` chooses"),
        (("run:", "num_nodes: 2\nrun:"), "`num_nodes` is chosen with the machines"),
        (("by: 4d", "only: moon"), "`moon` is not a cloud, market, chip or machine"),
    ],
)
def test_what_cannot_be_chosen_is_refused_with_the_reason(change: tuple[str, str], message: str) -> None:
    assert message in refused(OWN.replace(*change))


def test_a_task_without_a_chooser_says_where_machines_are_chosen() -> None:
    with pytest.raises(TaskError, match="machines are not chosen here"):
        parse_task(textwrap.dedent(OWN), file="task.yaml", env={})


def plan(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    schema = json.loads(files("orchestrator.plan").joinpath("data", "plan.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    return document, done.stderr


def test_a_training_has_its_own_settings_on_each_candidate() -> None:
    words = "train auto --budget 300 --by 5d --only gcp,aws,v6e,h100 --bucket gs://mine model=1b tokens=20B --dry-run"
    document, notes = plan(*words.split())
    chosen = document["wanted"]["automatic"]
    assert (chosen["budget"], chosen["by"]) == (300, "5d")
    first = [one for one in chosen["offers"] if one["first"]]
    assert all(one["dollars"]["high"] <= 300 for one in first)
    assert all("batch=512" in one["settings"] and "steps=19074" in one["settings"] for one in chosen["offers"])
    assert len({tuple(one["settings"]) for one in chosen["offers"]}) > 1, "each has its own mesh"
    assert "auto: assumed: each spot instance or slice is lost once" in notes
    assert "auto 1: " in notes and "may cost more than the budget" in notes
    script = next(step["script"] for step in document["steps"] if step["do"] == "start_job")
    assert all(word.partition("=")[2] in str(script) for word in first[0]["settings"])


def test_auto_beside_an_instance_type_is_refused() -> None:
    words = "train auto --instance-type p5.48xlarge model=1b --dry-run"
    with pytest.raises(UserError, match=r"--instance-type names p5\.48xlarge"):
        CliRunner().invoke(app, words.split(), catch_exceptions=False)


def test_steps_that_are_given_have_the_batch_of_any_other_run() -> None:
    text = "train: {args: {model: tiny, STEPS}}\nresources: {accelerators: auto, auto: {only: [v6e-8, spot]}}\n"
    file = read(text.replace("STEPS", "steps: 3"))
    (part,) = file.only.split()
    assert part.train is not None and dict(part.train.args)["steps"] == "3"
    assert not {"batch", "seq_len"} & dict(part.train.args).keys()
    assert "auto: the batch is the trainer's default, as the steps are given" in file.notes
    assert read_training(["model=tiny", "steps=3", "batch=8"]).settings == ("model=tiny", "batch=8")
    chosen = read(text.replace("tiny, STEPS", "300m"))
    assert "auto: seq_len=2048 batch=256: usual for the size of the model, as no steps are given" in chosen.notes


def test_an_offer_has_the_price_of_the_cheapest_place_and_a_dearer_place_is_judged_by_its_own() -> None:
    shipped = price_per_hour(resolve("v6e-8"), Spot(), "us-central1")
    dear = PriceRow(
        name="tpu-v6e", market="spot", region="us-east5", low=1.5, typical=1.5, high=1.5, source="gcp",
        as_of="2026-11-26",
    )  # fmt: skip
    write_refreshed(Refreshed(provider="gcp", read_at=time.time(), rows=(dear,)))
    work = read_training(["model=1b"])
    (offer,) = list_offers(work, OfferRequest(only=("v6e-8", "spot")))
    assert shipped is not None and offer.price_per_hour == (shipped.low, shipped.high) and shipped.high < 12
    assert "us-central1" in offer.price_note
    (there,) = list_offers(work, OfferRequest(only=("v6e-8", "spot"), region="us-east5"))
    assert there.price_per_hour == (12, 12)
    text = "train: {args: {model: 1b}}\nresources: {accelerators: auto, auto: {budget: BUDGET, only: [v6e-8, spot]}}\n"
    least = round(offer.dollars.high) + 1
    file = read(text.replace("BUDGET", str(least)))
    assert {one.region for one in list_candidates(file.only)} == {"us-central1"}, "the dear ones are over the budget"
    cost = f"${offer.dollars.low:,.0f} to ${offer.dollars.high:,.0f} (spot seen, us-central1"
    assert any(note.startswith("auto 1: v6e-8, spot: ") and cost in note for note in file.notes)
    more = list_candidates(read(text.replace("BUDGET", str(round(there.dollars.high) + 1))).only)
    assert [one.region for one in more][:2] == ["us-central1", "us-east5"]


def test_a_recorded_task_is_planned_although_prices_rose_or_its_budget_is_smaller() -> None:
    text = OWN.replace("auto\n", "auto\n  infra: gcp/us-central1\n").replace("2000, by: 4d", "800, only: [v6e, spot]")
    task = Task.from_json(read(text).only.to_json())
    before = {one.accelerator for one in list_candidates(task)}
    smaller = task.model_copy(update={"limits": task.limits.model_copy(update={"max_cost": 1.0})})
    assert before and before <= {one.accelerator for one in list_candidates(smaller)}
    risen = PriceRow(
        name="tpu-v6e", market="spot", region="us-central1", low=8.0, typical=8.0, high=8.0, source="gcp",
        as_of="2026-11-26",
    )  # fmt: skip
    write_refreshed(Refreshed(provider="gcp", read_at=time.time(), rows=(risen,)))
    dearer = list_candidates(task)
    assert before <= {one.accelerator for one in dearer} and all(one.price_per_hour for one in dearer)
    ready = prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP)
    assert isinstance(ready.desired, Run) and ready.desired.candidates == dearer


def test_a_recorded_task_whose_prices_are_not_known_any_more_is_refused_with_its_budget() -> None:
    task = read(OWN.replace("by: 4d", "only: [v6e, spot]")).only
    record = task.to_json().replace('"infra": "gcp"', '"infra": "gcp/me-west1"')
    with pytest.raises(UserError, match=r"cheapest now: price not known; budget: \$2,000\.00"):
        list_candidates(Task.from_json(record))


def test_a_range_of_nodes_keeps_the_batch_and_leaves_out_what_cannot_divide_it() -> None:
    file = read("""
        num_nodes: 2-8
        resources: {accelerators: 'H100:8', infra: aws}
        train: {args: {model: 1b, batch: 512, steps: 1000}}
    """)
    assert [one.num_nodes for one in file.only.choices] == [8, 4, 2]
    assert all(dict(part.train.args)["batch"] == "512" for part in file.only.split() if part.train)
    assert any(note.startswith("left out: 7 x H100:8, 6 x H100:8") for note in file.notes)
    assert any(note.endswith("8 first; the batch is the same on all") for note in file.notes)


def test_each_offer_that_is_left_out_is_counted_once() -> None:
    file = read(OWN.replace("budget: 2000, by: 4d", "budget: 300, by: 8h"))
    (note,) = (note for note in file.notes if "offers left out" in note)
    total, dear, late, beaten = map(int, re.findall(r"\d+", note))
    assert total == dear + late + beaten and dear and late


def test_an_own_program_learns_how_many_nodes_there_are() -> None:
    file = read("""
        num_nodes: 2-4
        resources: {accelerators: 'H100:8', infra: aws}
        run: ./train
    """)
    assert not any("batch" in note for note in file.notes), "nothing is known of its batch"
    parts = file.only.split()
    assert [part.num_nodes for part in parts] == [4, 3, 2]
    assert [dict(part.envs)["ORCH_NUM_NODES"] for part in parts] == ["4", "3", "2"]
    assert "is too wide" in refused("num_nodes: 1-200\nresources: {accelerators: 'H100:8'}\nrun: x\n")
    assert "has no size in it" in refused("num_nodes: 4-2\nresources: {accelerators: 'H100:8'}\nrun: x\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {}\nresources: {accelerators: v5e-16, settings: {stepz: 1}}", "has no setting `stepz`"),
        ("train: {}\nresources: {accelerators: v5e-16, settings: {steps: many}}", "steps"),
        ("run: x\nresources: {accelerators: v5e-16, settings: {steps: 1}}", "`settings` without a `train` section"),
        ("run: x\nresources: {infra: 'local:2', num_nodes: 2}", "whose hosts are counted already"),
        ("run: x\nhosts: {addresses: [a]}\nresources: {infra: hosts, num_nodes: 2}", "are counted already"),
    ],
)
def test_what_a_candidate_has_for_itself_is_checked_like_the_rest(text: str, message: str) -> None:
    assert message in refused(text)


def test_candidates_of_a_file_can_have_their_own_number_and_settings() -> None:
    """Then they need not share an engine either: each gets its own scripts."""
    task = read("""
        train: {args: {model: tiny, batch: 64, steps: 10}}
        resources:
          ordered:
          - {accelerators: v5e-16, num_nodes: 2, settings: {accumulate: 2}}
          - {accelerators: 'H100:8', infra: aws, settings: {mesh.fsdp: 8}}
    """).only
    first, second = task.split()
    assert (first.num_nodes, second.num_nodes) == (2, 1)
    assert dict(first.train.args if first.train else ())["accumulate"] == "2"
    assert {one.hosts for one in list_candidates(task)} == {8, 1}
    ready = prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP)
    assert isinstance(ready.desired, Run)
    backends = [one.setup.script.preview() if one.setup else "" for one in ready.desired.variants]
    assert "jax" in backends[0] and backends[0] != backends[1]
    assert [one.num_slices for one in ready.desired.variants] == [2, 1]


def test_an_order_shows_everything_that_a_loss_may_take_and_its_digest_stays() -> None:
    request = PlanRequest(verb="launch", task=OWN.replace("budget: 2000", "budget: 900"))
    plan = make_order_plan(request, "")
    automatic = plan.steps["wanted"]["automatic"]
    assert [one for one in automatic["offers"] if not one["first"]], "some are for the rest alone"
    assert automatic["after_loss"]
    assert describe_difference(plan.digest, make_order_plan(request, "")) == ""
    other = make_order_plan(request.model_copy(update={"task": OWN}), "")
    assert "the machines" in describe_difference(plan.digest, other)


def test_the_same_command_continues_its_job_although_the_choice_would_be_another_one() -> None:
    early = prepare_launch(read(OWN, "gcp").only, cluster="c", after=TeardownPolicy.KEEP)
    late = prepare_launch(read(OWN, "aws").only, cluster="c", after=TeardownPolicy.KEEP)
    assert early.job is not None and late.job is not None
    assert early.desired != late.desired
    assert early.job.digest == late.job.digest


@pytest.mark.parametrize(
    "line",
    [
        "infra: gcp", "infra: gcp/us-central1", "use_spot: true", "disk_size: 777", "labels: {team: nlp}",
        "image_id: 'docker:ubuntu:24.04'", "max_hourly_cost: 500",
    ],
)  # fmt: skip
def test_a_changed_task_is_another_command(line: str) -> None:
    """Its job would be continued without the change."""
    changed = read(OWN.replace("auto\n", f"auto\n  {line}\n", 1)).only
    digest, other = (job_digest("c", "launch:", one, ()) for one in (read(OWN).only, changed))
    assert digest != other
    assert job_digest("c", "launch:", Task.from_json(changed.to_json()), ()) == other
    later = read(OWN.replace("auto\n", f"auto\n  {line}\n", 1), "gcp").only
    assert job_digest("c", "launch:", later, ()) == other


def test_a_budget_for_more_than_ten_years_is_a_limit_of_ten_years() -> None:
    text = "run: x\nresources: {infra: aws/us-east-1, accelerators: p5.48xlarge}\nlimits: {max_cost: 1000000000}\n"
    ready = prepare_launch(read(text).only, cluster="c", after=TeardownPolicy.KEEP)
    assert isinstance(ready.desired, Run) and ready.desired.timer is not None
    assert "87600" in ready.desired.timer.script.preview()


GROWING = """
train: {args: {model: 1b, batch: 512, steps: 5000}}
checkpoint: {bucket: "s3://runs"}
resources: {accelerators: "H100:8", infra: aws, grow: true}
num_nodes: 2-4
"""


def test_a_run_that_may_grow_says_so_and_knows_the_speed_of_each_size() -> None:
    task = read(GROWING).only
    assert task.grow and Task.from_json(task.to_json()) == task
    ready = prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP)
    assert isinstance(ready.desired, Run) and ready.desired.grow and ready.desired.automatic is None
    (said,) = [note for note in ready.notes if note.startswith("grow: ")]
    assert "chance of 80 % or more" in said and "there are never two slices" in said
    speeds = [variant.offer.seconds.typical for variant in ready.desired.variants if variant.offer is not None]
    assert len(speeds) == len(ready.desired.variants) > 1 and speeds == sorted(speeds), "the most nodes are the fastest"
    plan = make_order_plan(PlanRequest(verb="launch", task=GROWING), "")
    assert plan.steps["wanted"]["grow"] is True
    still = read(GROWING.replace(", grow: true", "")).only
    assert not still.grow and "grow" not in still.to_json()
    assert not any(choice.estimate for choice in still.choices), "nothing else changes"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('checkpoint: {bucket: "s3://runs"}', ""), "`grow: true` needs checkpoints"),
        (("num_nodes: 2-4", "num_nodes: 2"), "`grow: true` has nothing to grow to"),
    ],
)
def test_a_run_that_cannot_grow_is_refused_with_the_reason(change: tuple[str, str], message: str) -> None:
    assert message in refused(GROWING.replace(*change))


OWN_GROWING = GROWING.replace("train: {args: {model: 1b, batch: 512, steps: 5000}}", "run: x")
OWN_SIZES = """
run: x
checkpoint: {bucket: "s3://runs"}
resources: {infra: aws, accelerators: "H100:8", grow: true, ordered: [{num_nodes: 4}, {num_nodes: 2}]}
"""


@pytest.mark.parametrize("text", [OWN_GROWING, OWN_SIZES, OWN_SIZES.replace("ordered", "any_of")])
def test_an_own_program_that_may_grow_says_which_checkpoints_it_needs(text: str) -> None:
    ready = prepare_launch(read(text).only, cluster="c", after=TeardownPolicy.KEEP)
    assert isinstance(ready.desired, Run) and ready.desired.grow
    assert [one.nodes for one in ready.desired.variants] in ([4, 3, 2], [4, 2])
    assert not any(one.offer for one in ready.desired.variants), "its speed is not known"
    (said,) = [note for note in ready.notes if note.startswith("grow: your program")]
    assert "save with orch_run" in said and "without a complete checkpoint in the bucket it keeps its machines" in said


def test_an_own_program_that_prefers_fewer_nodes_has_nothing_to_grow_to() -> None:
    said = refused(OWN_SIZES.replace("[{num_nodes: 4}, {num_nodes: 2}]", "[{num_nodes: 2}, {num_nodes: 4}]"))
    assert "`grow: true` has nothing to grow to" in said and "more of a machine before fewer" in said


@pytest.mark.parametrize(("nodes", "step"), [("3", "num_nodes: 3-12   or remove `grow`"), ("4-2", "num_nodes: 2-4")])
def test_a_wrong_number_of_nodes_has_one_next_step_with_the_numbers_of_the_task(nodes: str, step: str) -> None:
    with pytest.raises(TaskError) as error:
        read(GROWING.replace("num_nodes: 2-4", f"num_nodes: {nodes}"))
    assert [problem.next_step for problem in error.value.problems] == [step]


def test_the_run_that_the_page_shows_can_grow() -> None:
    page = (Path(__file__).parents[2] / "docs" / "offers.md").read_text()
    text = page.partition("## Grow while it runs")[2].partition("```yaml plan")[2].partition("```")[0]
    assert read(text.replace("NAME", "mine")).only.grow


def test_a_range_of_nodes_is_an_option_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_AWS_INSTANCE_PROFILE", "runs")
    words = [
        "train",
        "H100:8",
        "--bucket",
        "s3://mine",
        "model=1b",
        "batch=512",
        "steps=5000",
        "--dry-run",
        "--num-nodes",
    ]
    document, notes = plan(*words, "2-4")
    assert {candidate["hosts"] for candidate in document["wanted"]["candidates"]} == {2, 4}
    assert "the most nodes that are there are taken: 4 first" in notes
    with pytest.raises(UserError, match="has no size in it"):
        CliRunner().invoke(app, [*words, "4-2"], catch_exceptions=False)
    for wrong in ("0", "-2", "2-", "many"):
        assert CliRunner().invoke(app, [*words, wrong]).exit_code != 0


def record_losses(path: Path, offer: Offer, count: int, *, hours: float) -> None:
    """Record requests for these machines, each of which got them and lost them after so many hours."""
    hosts = offer.nodes * offer.machine.hosts
    machines = Candidate(
        provider=offer.machine.provider, accelerator=offer.machine.name, hosts=hosts, chips_per_host=1,
        market=offer.market, zone="us-west4-a",
    )  # fmt: skip
    clock = [time.time() - 10 * 24 * 3600]
    with Store(path, lambda: clock[0]) as store:
        for number in range(count):
            cluster = store.open_cluster(name := f"c{number}", "")
            lease = store.acquire(f"cluster:{name}", "test")
            assert isinstance(lease, Lease)
            store.write_intent(lease, cluster, 1, f"{name}-1", machines, f"{cluster.uid}-1", "{}")
            store.update_intent(lease, cluster, f"{name}-1", IntentState.ACCEPTED)
            job = NewJob(
                kind="launch", run_id=name, digest=name, task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP
            )
            store.start_attempt(cluster, store.open_job(cluster, job).id)
            clock[0] += hours * 3600
            for state in (IntentState.ENDING, IntentState.DELETED):
                store.update_intent(lease, cluster, f"{name}-1", state, EndCause.PREEMPTED, "taken")


def test_own_records_of_losses_are_used_said_and_recorded_with_the_task(tmp_path: Path) -> None:
    (tmp_path / "home" / "state").mkdir(parents=True, mode=0o700)
    text = "run: x\nresources: {accelerators: auto, auto: {flops: 2e20, memory: 320, only: spot}}\n"

    def choose(project: str | None) -> TaskFile:
        chooser = MachineChooser(clouds=(), now=NOW, project=project)
        return parse_task(text, file="task.yaml", env={}, choose_machines=chooser)

    assumed = choose("")
    assert any("assumed: each spot instance" in note for note in assumed.notes)
    first = restore_offer(assumed.only.split()[0])
    assert first is not None and first.losses_per_hour is None
    record_losses(store := tmp_path / "home" / "state" / "orch.db", first, 6, hours=30.0)
    known = choose("")
    (said,) = [note for note in known.notes if "losses by our records of 84 days" in note]
    assert f"{first.name}, spot: one in 2" in said
    assert choose(None).only == assumed.only, "nothing is read where a service elsewhere runs it"
    recorded = known.only.to_json()
    store.unlink()
    again = Task.from_json(recorded)
    offers = [offer for part in again.split() if (offer := restore_offer(part)) is not None]
    (same,) = [one for one in offers if (one.machine, one.nodes) == (first.machine, first.nodes)]
    assert same.losses_per_hour == pytest.approx(6.5 / 180, rel=0.2), (
        "the figures of the choice, whatever the store has"
    )
    assert same.seconds.typical < first.seconds.typical and (rest := make_offer(same, 0.5)) is not None
    assert rest.losses_per_hour == same.losses_per_hour, "also of the choice after a loss"
    assert list_candidates(again) == list_candidates(known.only)


def test_no_rule_gives_the_tokens_of_lora() -> None:
    with pytest.raises(UserError, match="how many tokens LoRA trains on is missing"):
        read_training(["model=1b", "lora.rank=8"])
    assert read_training(["model=1b", "lora.rank=8"], tokens=1e8).tokens == 1e8
    assert read_training(["model=1b", "lora.rank=8", "steps=10"]).steps == 10
    assert read_training(["model=1b", "lora.rank=0"]).tokens == 2e10
