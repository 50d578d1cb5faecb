#!/usr/bin/env python3
"""Take a picture of every page of `orch serve`, at three widths, in light and dark.

    python scripts/screenshots.py FOLDER [--only run-llama] [--without-training]

The state is made of records: 300 runs of three people, a run on 256 TPU chips after a preemption, a run on GPUs that
failed, and clusters with a waiting and a stopped one. Two real trainings on this computer come to it. The pictures of
empty, stale and refused pages are of the same server. It needs Chromium and the packages of the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import uvicorn
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "service")]
from service_site import CANDIDATE, record_run, save_steps, write_points
from support.orch_process import Orch

from orchestrator.cloud_access import CloudAccess
from orchestrator.hosts import JobPhase
from orchestrator.plan.observed import Contact, HostView, IntentState
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.service.application import build_application
from orchestrator.service.gate import Gate
from orchestrator.service.host_board import HostBoard
from orchestrator.service.site import Site
from orchestrator.slices import Candidate, OnDemand, Spot
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store
from orchestrator.values import Text

HOUR = 3600.0
SIZES = {"1440": (1440, 900), "1024": (1024, 768), "390": (390, 844)}
PEOPLE = ("ada", "grace", "linus")
TPU = Candidate(
    provider="gcp", accelerator="v5p-512", hosts=64, chips_per_host=4, market=Spot(), region="us-east5",
    zone="us-east5-a", price_per_hour=537.6,
)  # fmt: skip
GPU = Candidate(
    provider="aws", accelerator="p5.48xlarge", hosts=2, chips_per_host=8, market=OnDemand(), region="us-east-1",
    zone="us-east-1a", price_per_hour=110.08,
)  # fmt: skip
PAGES = {
    "runs": "/",
    "run-llama": "/runs/llama-7b",
    "run-llama-dollars": "/runs/llama-7b?x=dollars",
    "run-failed": "/runs/moe-sweep-3",
    "run-without-bucket": "/runs/quick-look",
    "run-starting": "/runs/vit-large",
    "compare": "/compare?run=lr-1e-4&run=lr-3e-4&run=lr-1e-3&run=lr-3e-3&x=dollars",
    "compare-two": "/compare?run=lr-1e-4&run=quick-look",
    "compare-empty": "/compare",
    "clusters": "/clusters",
    "cluster-tpu": "/clusters/llama",
    "cluster-gpu": "/clusters/moe",
    "queue": "/queue",
    "spend": "/spend",
    "spend-days": "/spend?by=day",
    "spend-owner-cluster": "/spend?by=owner%2Ccluster",
    "events": "/events",
    "error": "/runs/llama-8b",
    "refused": "/?limit=0",
}
DOCS = {
    "service-run": ("run-llama-dollars", "light", 820),
    "service-compare": ("compare", "light", 900),
    "service-spend": ("spend-owner-cluster", "dark", 560),
}
EMPTY = {"runs": "/", "clusters": "/clusters", "queue": "/queue", "spend": "/spend", "events": "/events"}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A server of this process."""

    port: int
    gate: Gate
    end: Callable[[], None]


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--only", default="", help="only pages whose name begins so")
    options.add_argument("--docs", action="store_true", help="only those of docs/service.md")
    options.add_argument("--runs", type=int, default=300, help="how many old ones")
    options.add_argument("--without-training", action="store_true")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # thousands of small writes, each to be durable
    with tempfile.TemporaryDirectory(dir=memory) as made, sync_playwright() as playwright:
        folder, empty = Path(made) / "full", Path(made) / "empty"
        empty.mkdir()
        Store(empty / "orch.db").close()
        board = HostBoard(now=lambda: 0.0)  # what it has stays new
        record_everything(folder, board, given.runs, training=not given.without_training)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with serve_here(folder / "orch" / "state" / "orch.db", board) as shown:
            if given.docs:
                take_for_docs(browser, shown, given.folder)
                return 0
            take_pictures(browser, shown, given.folder, {n: p for n, p in PAGES.items() if n.startswith(given.only)})
            if not given.only:
                take_stale(browser, shown, given.folder)
        with serve_here(empty / "orch.db", HostBoard()) as shown:
            pages = {f"empty-{name}": path for name, path in EMPTY.items()}
            take_pictures(browser, shown, given.folder, {n: p for n, p in pages.items() if n.startswith(given.only)})
        browser.close()
    return 0


@contextlib.contextmanager
def serve_here(database: Path, board: HostBoard) -> Generator[Shown]:
    """Serve a store in this process, so that the pages show what the board has."""
    gate = Gate(member="ada", token_file=database.parent / "token")
    gate.read_token()
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    site = Site(location=database, project=DEFAULT_PROJECT, access=CloudAccess(), hosts=board)
    application, streams = build_application(site, gate, port, "0.2.0")
    config = uvicorn.Config(application, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()

    def end() -> None:
        streams.close()
        server.should_exit = True
        thread.join()
        listening.close()

    try:
        while not server.started:
            time.sleep(0.05)
        yield Shown(port=port, gate=gate, end=end)
    finally:
        end()


def take_pictures(browser: Browser, shown: Shown, folder: Path, pages: dict[str, str]) -> None:
    for scheme in ("light", "dark"):
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
            )
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{shown.port}/login?link={shown.gate.make_link()}")
            for name, path in pages.items():
                page.goto(f"http://127.0.0.1:{shown.port}{path}")
                page.wait_for_timeout(250)
                page.screenshot(path=folder / f"{name}.{size}.{scheme}.png", full_page=True)
            context.close()


def take_for_docs(browser: Browser, shown: Shown, folder: Path) -> None:
    for name, (page_name, scheme, height) in DOCS.items():
        light_or_dark: Literal["light", "dark"] = "dark" if scheme == "dark" else "light"
        context = browser.new_context(viewport={"width": 1024, "height": height}, color_scheme=light_or_dark)
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{shown.port}/login?link={shown.gate.make_link()}")
        page.goto(f"http://127.0.0.1:{shown.port}{PAGES[page_name]}")
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"{name}.png")
        context.close()


def take_stale(browser: Browser, shown: Shown, folder: Path) -> None:
    """Take the page after its server has ended, and the page without a session."""
    context = browser.new_context(viewport={"width": 1024, "height": 768})
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{shown.port}/")
    page.screenshot(path=folder / "no-session.1024.light.png")
    page.goto(f"http://127.0.0.1:{shown.port}/login?link={shown.gate.make_link()}")
    page.goto(f"http://127.0.0.1:{shown.port}/clusters")
    page.wait_for_timeout(500)
    shown.end()
    page.wait_for_timeout(1500)
    page.screenshot(path=folder / "stale.1024.light.png")
    context.close()


def record_everything(folder: Path, board: HostBoard, runs: int, *, training: bool) -> None:
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
    record_llama(orch, bucket, now, chance, board)
    with open_store(orch, now - 0.3 * HOUR, "grace") as store:
        record_run(store, "bench", "quick-look", candidate=replace(CANDIDATE, price_per_hour=None))
        record_run(store, "vit", "vit-large", f"file://{bucket}", ended=False)
    if training:
        for rate in ("1e-3", "3e-3"):
            words = ("model=tiny", "steps=60", f"optim.lr={rate}", "--bucket", f"file://{bucket}", "--yes")
            orch.ok("train", "local:2", "-c", "laptop", *words)
        orch.ok("down", "laptop", "--yes")


def open_store(orch: Orch, at: float, person: str) -> Store:
    """Open the store as a person, some time ago."""
    os.environ["LOGNAME"] = person
    begun = time.time()
    return Store(orch.state / "orch.db", lambda: at + time.time() - begun)


def record_old_run(orch: Orch, name: str, begun: float, chance: random.Random) -> None:
    person = chance.choice(PEOPLE)
    price = chance.choice([7.2, 19.2, 38.4, None])
    status = 3 if chance.random() < 0.15 else 0
    hours = chance.uniform(0.3, 5)
    with open_store(orch, begun, person) as store:
        candidate = replace(CANDIDATE, price_per_hour=price)
        record_run(store, name, f"{name}-base", candidate=candidate, ended=False)
    with open_store(orch, begun + hours * HOUR, person) as store:
        end_run(store, name, status)
        close_cluster(store, name)


def end_run(store: Store, name: str, status: int) -> None:
    from service_site import OUTCOMES

    cluster = store.cluster(name)
    assert cluster is not None
    store.record_outcome(cluster, store.jobs(cluster)[-1].id, OUTCOMES[status])


def close_cluster(store: Store, name: str) -> None:
    cluster, lease = store.cluster(name), store.acquire(f"cluster:{name}", "down")
    assert cluster is not None and isinstance(lease, Lease)
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


def record_llama(orch: Orch, bucket: Path, now: float, chance: random.Random, board: HostBoard) -> None:
    """Record a run with a preemption, lost steps, checkpoints and hosts that are late and silent."""
    begun = now - 2.5 * HOUR
    with open_store(orch, begun, "ada") as store:
        cluster = record_run(store, "llama", "llama-7b", f"file://{bucket}", attempts=2, ended=False, candidate=TPU)
    first = [(step, begun + 900 + step * 1.2, make_loss(step / 9000, 2.1, chance)) for step in range(10, 2410, 10)]
    again = begun + 900 + 2410 * 1.2 + 1500
    second = [
        (step, again + (step - 2000) * 1.2, make_loss(step / 9000, 2.1, chance)) for step in range(2010, 4300, 10)
    ]  # fmt: skip
    write_points(bucket, "llama-7b", 1, first)
    write_points(bucket, "llama-7b", 2, [point for point in second if point[1] < now])
    save_steps(bucket, "llama-7b", range(1000, 4001, 1000))
    board.note(cluster.uid, [view_host(rank, 4240) for rank in range(64)])


def view_host(rank: int, step: int) -> HostView:
    late = {9: 31, 40: 4}.get(rank, 0)
    return HostView(
        rank=rank, internal_ip=Text.of(f"10.0.0.{rank}"), job=JobPhase.RUNNING, step=step - late,
        contact=Contact.DOWN if rank == 17 else Contact.OK, beat_age=95.0 if rank == 33 else 2.0,
    )  # fmt: skip


def make_loss(share: float, best: float, chance: random.Random) -> float:
    return best + 6 * math.exp(-9 * share) + 1.5 * math.exp(-2 * share) + chance.gauss(0, 0.03)


if __name__ == "__main__":
    sys.exit(main())
