"""Records of invented runs for the pictures of `orch serve`: what a team has after some weeks.

300 old runs of three people, a run on 256 TPU chips after a preemption, a run on GPUs that failed, a sweep, runs
without a bucket or with one that cannot be read, long names, budgets, orders, a queue, and estimates of ended runs.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from dataclasses import replace
from pathlib import Path

from support.orch_process import Orch
from support.service_site import CANDIDATE, OUTCOMES, record_run, save_steps, write_points

from orchestrator.hosts import ChipReport, ChipSample, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan.observed import Contact, HostView, IntentState, Outcome
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.service.host_board import HostBoard
from orchestrator.slices import Candidate, OnDemand, Spot
from orchestrator.store.leases import Lease
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.records import ClusterRecord, NewJob
from orchestrator.store.store import Store
from orchestrator.values import Text

HOUR = 3600.0
PEOPLE = ("ada", "grace", "linus")
LONG = "llama-7b-long-context-sft-on-fineweb-edu-dedup-ablation-of-rope-theta-1e6-seed-3"
TPU = Candidate(
    provider="gcp", accelerator="v5p-512", hosts=64, chips_per_host=4, market=Spot(), region="us-east5",
    zone="us-east5-a", price_per_hour=537.6,
)  # fmt: skip
GPU = Candidate(
    provider="aws", accelerator="p5.48xlarge", hosts=2, chips_per_host=8, market=OnDemand(), region="us-east-1",
    zone="us-east-1a", price_per_hour=110.08,
)  # fmt: skip


def record_everything(folder: Path, runs: int) -> None:
    """Make the state, from the oldest record to the newest."""
    folder.mkdir()
    orch, now = Orch(folder), time.time()
    orch.state.mkdir(parents=True)
    bucket = folder / "bucket"
    chance = random.Random(7)
    for number in range(runs):
        begun = now - (runs - number) * 2.2 * HOUR - 10 * HOUR
        record_old_run(orch, f"exp-{number + 1:03}", begun, chance)
    for number, rate in enumerate(("1e-4", "3e-4", "1e-3", "3e-3")):
        record_sweep(orch, bucket, rate, now - (9 - number) * HOUR, chance)
    record_failed(orch, bucket, now - 3 * HOUR, chance)
    record_llama(orch, bucket, now, chance)
    with open_store(orch, now - 0.3 * HOUR, "grace") as store:
        record_run(store, "bench", "quick-look", candidate=replace(CANDIDATE, price_per_hour=None))
        record_run(store, "vit", "vit-large", f"file://{bucket}", ended=False)
        record_run(store, LONG[:40], LONG, f"file://{bucket}", status=3)
        record_run(store, "eval", "bucket-elsewhere", "gs://team-runs/runs")
        queue_jobs(store, "llama")
        store.record_observed_stop(find_cluster(store, "bench"), stopped=True)
    with open_store(orch, now - 0.2 * HOUR, "ada") as store:
        record_budgets(store)
        record_orders(store, now)
        for rate, factor in (("1e-4", 1.0), ("3e-4", 0.9), ("1e-3", 1.02), ("3e-3", 2.3)):
            store.record_prediction(f"lr-{rate}", json.dumps(estimate(factor)))
        store.record_prediction("llama-7b", json.dumps(estimate(5.0, "v5p-512", 537.6)))


def open_store(orch: Orch, at: float, person: str) -> Store:
    """Open the store as a person, some time ago."""
    os.environ["LOGNAME"] = person
    begun = time.time()
    return Store(orch.state / "orch.db", lambda: at + time.time() - begun)


def record_old_run(orch: Orch, name: str, begun: float, chance: random.Random) -> None:
    person = chance.choice(PEOPLE)
    price = chance.choice([7.2, 19.2, 38.4, None if person == "grace" else 12.0])
    status = 3 if chance.random() < 0.15 else 0
    hours = chance.uniform(0.3, 5)
    with open_store(orch, begun, person) as store:
        candidate = replace(CANDIDATE, price_per_hour=price)
        record_run(store, name, f"{name}-base", candidate=candidate, ended=False)
    with open_store(orch, begun + hours * HOUR, person) as store:
        end_run(store, name, status)
        close_cluster(store, name)


def find_cluster(store: Store, name: str) -> ClusterRecord:
    cluster = store.cluster(name)
    assert cluster is not None
    return cluster


def estimate(factor: float, accelerator: str = "v5litepod-16", price: float = 7.2) -> dict[str, object]:
    """Return what a plan has estimated, as orchestrator/offers/predictions.py writes it."""

    def around(value: float) -> dict[str, float]:
        return {"low": 0.7 * value, "typical": value, "high": 1.5 * value}

    seconds = 7000.0 * factor
    found = {
        "tokens_per_s": around(5000.0 / factor), "seconds": around(seconds), "dollars": around(seconds * price / HOUR),
    }  # fmt: skip
    return {"machines": {accelerator: found}}


def queue_jobs(store: Store, name: str) -> None:
    """Queue two jobs behind the one at work, and a pipeline."""
    cluster = find_cluster(store, name)
    for run_id in ("llama-7b-sft", "llama-7b-eval"):
        store.open_job(
            cluster,
            NewJob(kind="launch", run_id=run_id, digest="d", task="", bucket="", ranks=None, queued=True,
                   after_end=TeardownPolicy.KEEP),
        )  # fmt: skip
    store.open_pipeline("tokenize-train-eval", ("{}", "{}", "{}"))


def record_budgets(store: Store) -> None:
    store.set_budget(SpendingBudget(project="", member="", dollars_per_month=250_000.0, largest_slice=1024))
    store.set_budget(SpendingBudget(project="default", member="", dollars_per_month=60_000.0, dollars_per_hour=900.0))
    store.set_budget(
        SpendingBudget(
            project="default",
            member="linus",
            dollars_per_month=15_000.0,
            dollars_per_run=400.0,
            markets=("spot", "reservation"),
            at_limit="stop",
        )
    )


def record_orders(store: Store, now: float) -> None:
    """Record an order of each state: open, refused and done."""
    no_place = Outcome(
        status=5, code="capacity", what="no place has capacity for 2 x p5.48xlarge", why="us-east-1a to us-east-1d",
        next_step=NextStep("orch resume moe-sweep-3 --infra aws"),
    )  # fmt: skip
    orders = (
        ("order-open", "stop", "vit", None), ("order-failed", "resume", "moe", no_place),
        ("order-done", "down", "sweep-3e-3", OUTCOMES[0]),
    )  # fmt: skip
    for number, (uid, verb, cluster, outcome) in enumerate(orders):
        order = OrderRecord(
            uid=uid, project="default", cluster=cluster, verb=verb, arguments="{}", plan="p", fingerprint=uid,
            member="ada", state="open", created=now - 900 + number * 60,
        )  # fmt: skip
        made = store.open_order(order)
        if outcome is not None:
            store.end_order(made, outcome)


def end_run(store: Store, name: str, status: int) -> None:
    cluster = find_cluster(store, name)
    store.record_outcome(cluster, store.jobs(cluster)[-1].id, OUTCOMES[status])


def close_cluster(store: Store, name: str) -> None:
    cluster, lease = find_cluster(store, name), store.acquire(f"cluster:{name}", "down")
    assert isinstance(lease, Lease)
    store.update_intent(lease, cluster, f"{name}-1", IntentState.DELETED)
    store.close_cluster(lease, cluster)
    store.release(lease)


def record_sweep(orch: Orch, bucket: Path, rate: str, begun: float, chance: random.Random) -> None:
    name, run_id = f"sweep-{rate}", f"lr-{rate}"
    task = {
        "resources": {"accelerators": "v5litepod-16", "infra": "gcp/us-west4", "use_spot": False},
        "train": {"args": {"model": "llama-1b", "steps": "4000", "optim.lr": rate, "data": "fineweb"}},
        "envs": {"HF_TOKEN": "hf_0123456789abcdefghij"},
    }
    best = 2.2 + abs(math.log10(float(rate)) + 3) * 0.25
    with open_store(orch, begun, "grace") as store:
        record_run(store, name, run_id, f"file://{bucket}", task=json.dumps(task), ended=False)
    points = [
        (step, begun + 300 + step * 1.6, make_loss(step / 4000, best, chance)) for step in range(20, 4001, 20)
    ]  # fmt: skip
    write_points(bucket, run_id, 1, points)
    save_steps(bucket, run_id, range(1000, 4001, 1000))
    with open_store(orch, begun + 2 * HOUR, "grace") as store:
        end_run(store, name, 0)
        close_cluster(store, name)


def record_failed(orch: Orch, bucket: Path, begun: float, chance: random.Random) -> None:
    with open_store(orch, begun, "linus") as store:
        record_run(store, "moe", "moe-sweep-3", f"file://{bucket}", candidate=GPU, ended=False)
    points = [(step, begun + 600 + step * 4, make_loss(step / 4000, 2.4, chance)) for step in range(10, 1200, 10)]
    write_points(bucket, "moe-sweep-3", 1, points)
    with open_store(orch, begun + 2 * HOUR, "linus") as store:
        end_run(store, "moe", 3)


def note_hosts(store: Path, board: HostBoard) -> None:
    """Fill the board with what an engine would observe of the clusters at work."""
    chance = random.Random(11)
    with Store(store) as opened:
        moe, llama = find_cluster(opened, "moe").uid, find_cluster(opened, "llama").uid
        for name in ("moe", "llama", "vit"):
            opened.note_state(find_cluster(opened, name), "ready")  # it was seen just now
    board.note(moe, [view_host(rank, 1190, view_gpus(rank, chance)) for rank in range(2)])
    board.note(llama, [view_host(rank, 4240, view_tpus(rank, chance)) for rank in range(64)])


def view_gpus(rank: int, chance: random.Random) -> ChipReport:
    """Return eight GPUs of which one is too hot, and one has errors."""
    gib = 2**30
    chips = [
        ChipSample(
            name=str(number), use=0.04 if (rank, number) == (1, 2) else chance.uniform(0.93, 1.0),
            used=int(chance.uniform(60, 74) * gib), total=80 * gib,
            temperature=89.0 if (rank, number) == (0, 5) else float(chance.randint(58, 71)), slowdown=88.0,
            power=chance.uniform(520, 690), errors=2 if (rank, number) == (1, 2) else 0,
        )
        for number in range(8)
    ]  # fmt: skip
    return ChipReport(age=8.0, chips=tuple(chips))


def view_tpus(rank: int, chance: random.Random) -> ChipReport | None:
    """Return the four chips of a host; of some hosts nothing is known."""
    gib = 2**30
    used = [chance.uniform(70, 84) for _ in range(4)]
    chips = [
        ChipSample(name=str(number), use=chance.uniform(0.6, 1.0), used=int(one * gib), total=95 * gib)
        for number, one in enumerate(used)
    ]
    return None if rank in (17, 21) else ChipReport(age=8.0, chips=tuple(chips))


def record_llama(orch: Orch, bucket: Path, now: float, chance: random.Random) -> None:
    """Record a run with a preemption, lost steps, checkpoints and hosts that are late and silent."""
    begun = now - 2.5 * HOUR
    with open_store(orch, begun, "ada") as store:
        record_run(store, "llama", "llama-7b", f"file://{bucket}", attempts=2, ended=False, candidate=TPU)
    first = [(step, begun + 900 + step * 1.2, make_loss(step / 9000, 2.1, chance)) for step in range(10, 2410, 10)]
    again = begun + 900 + 2410 * 1.2 + 1500
    second = [
        (step, again + (step - 2000) * 1.2, make_loss(step / 9000, 2.1, chance)) for step in range(2010, 4300, 10)
    ]  # fmt: skip
    write_points(bucket, "llama-7b", 1, first)
    write_points(bucket, "llama-7b", 2, [point for point in second if point[1] < now], eta_s=2.2 * HOUR)
    save_steps(bucket, "llama-7b", range(1000, 4001, 1000))


def view_host(rank: int, step: int, chips: ChipReport | None = None) -> HostView:
    late = {9: 31, 40: 4}.get(rank, 0)
    return HostView(
        rank=rank, internal_ip=Text.of(f"10.0.0.{rank}"), job=JobPhase.RUNNING, step=step - late,
        contact=Contact.DOWN if rank == 17 else Contact.OK, beat_age=95.0 if rank == 33 else 2.0, chips=chips,
    )  # fmt: skip


def make_loss(share: float, best: float, chance: random.Random) -> float:
    return best + 6 * math.exp(-9 * share) + 1.5 * math.exp(-2 * share) + chance.gauss(0, 0.03)
