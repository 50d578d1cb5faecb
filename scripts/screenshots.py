#!/usr/bin/env python3
"""Take a picture of every page of `orch serve`, at three widths, in light and dark.

    python scripts/screenshots.py FOLDER [--only run-llama] [--sizes 390] [--schemes dark] [--state FOLDER]

The pages show what invented_records.py records, an empty store, a server that has ended, and a real rehearsal on this
computer: the trainer on simulated machines of which one is preempted. `--docs FOLDER` takes the pictures of
docs/service.md. It needs Chromium and the packages of the tests. With `--state` the records are kept for the next call.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests"), str(ROOT / "tests" / "service")]
from invented_records import LONG, note_hosts, record_everything
from page_walk import WAYS, open_path, sign_in
from service_here import Shown, serve_here

from orchestrator.service.host_board import HostBoard
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

SIZES = {"1440": (1440, 900), "1024": (1024, 768), "390": (390, 844)}
PAGES = {
    "runs": "/",
    "run-llama": "/runs/llama-7b",
    "run-llama-dollars": "/runs/llama-7b?x=dollars",
    "run-ended": "/runs/lr-1e-3?x=time",
    "run-failed": "/runs/moe-sweep-3",
    "run-without-bucket": "/runs/quick-look",
    "run-bucket-elsewhere": "/runs/bucket-elsewhere",
    "run-starting": "/runs/vit-large",
    "run-long": f"/runs/{LONG}",
    "compare": "/compare?run=lr-1e-4&run=lr-3e-4&run=lr-1e-3&run=lr-3e-3&x=dollars",
    "compare-two": "/compare?run=lr-1e-4&run=quick-look",
    "compare-empty": "/compare",
    "clusters": "/clusters",
    "cluster-tpu": "/clusters/llama",
    "cluster-tpu-memory": "/clusters/llama?chips=memory",
    "cluster-gpu": "/clusters/moe",
    "cluster-gpu-temperature": "/clusters/moe?chips=temperature",
    "cluster-gpu-use": "/clusters/moe?chips=use",
    "queue": "/queue",
    "launch": "/launch",
    "new": "/new",
    "new-machine": "/new?infra=local",
    "order-plan": "/order?verb=down&cluster=moe",
    "order-open": "/orders/order-open",
    "order-failed": "/orders/order-failed",
    "spend": "/spend",
    "spend-days": "/spend?by=day",
    "spend-parts": "/spend?by=part%2Csource",
    "spend-owner-cluster": "/spend?by=owner%2Ccluster",
    "accuracy": "/accuracy",
    "events": "/events",
    "events-cluster": "/events?cluster=llama",
    "token": "/token",
    "error": "/runs/llama-8b",
    "refused": "/?limit=0",
}
OUTSIDE = {"login": "/login", "join": "/join", "no-session": "/clusters"}
EMPTY = {
    "runs": "/", "clusters": "/clusters", "queue": "/queue", "spend": "/spend", "accuracy": "/accuracy",
    "events": "/events",
}  # fmt: skip
DOCS = {  # page, scheme, height at a width of 1024
    "service-compare": ("compare", "light", 900),
    "service-chips": ("cluster-gpu-temperature", "light", 620),
    "service-spend": ("spend", "dark", 860),
    "service-accuracy": ("accuracy", "light", 560),
}
REHEARSED_RUN_HEIGHT = 860
REHEARSED = """\
name: books
num_nodes: 2
resources: {infra: gcp, accelerators: v5litepod-8, use_spot: true}
train:
  args: {model: tiny, steps: 160}
checkpoint: {bucket: gs://books/runs, every: 25}
"""


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--only", default="", help="only pages whose name begins so")
    options.add_argument("--sizes", default=",".join(SIZES))
    options.add_argument("--schemes", default="light,dark")
    options.add_argument("--docs", action="store_true", help="only those of docs/service.md")
    options.add_argument("--runs", type=int, default=300, help="how many old ones")
    options.add_argument("--state", type=Path, help="where records are kept, and found by the next call")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # thousands of small writes, each to be durable
    with tempfile.TemporaryDirectory(dir=memory) as made, sync_playwright() as playwright:
        state = given.state or Path(made)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        camera = Camera(browser, given.folder, given.sizes.split(","), given.schemes.split(","), given.only)
        with serve_records(state, given.runs) as shown:
            if given.docs:
                camera.take_for_docs(shown)
            else:
                camera.take(shown, PAGES)
                camera.take_ways(shown)
                camera.take(shown, OUTSIDE, signed=False)
        with serve_rehearsal(state) as (shown, run_id):
            path = f"/runs/{run_id}"
            if given.docs:
                camera.take_one(shown, f"{path}?x=dollars", "service-run", "light", REHEARSED_RUN_HEIGHT)
            else:
                camera.take(shown, {"rehearsed-run": path, "rehearsed-runs": "/", "rehearsed-events": "/events"})
        if not given.docs:
            with serve_store(state / "empty") as shown:
                camera.take(shown, {f"empty-{name}": path for name, path in EMPTY.items()})
                camera.take_stale(shown)
        browser.close()
    return 0


class Camera:
    """Takes pictures in every chosen size and scheme."""

    def __init__(self, browser: Browser, folder: Path, sizes: list[str], schemes: list[str], only: str) -> None:
        self.browser, self.folder, self.sizes, self.schemes, self.only = browser, folder, sizes, schemes, only

    def open_pages(self, shown: Shown, *, signed: bool = True) -> Iterator[tuple[Page, str]]:
        """Open a browser of each size and scheme, with the end of the names of its pictures."""
        for scheme in self.schemes:
            for size in self.sizes:
                width, height = SIZES[size]
                yield from self._open(shown, scheme, (width, height), f"{size}.{scheme}.png", signed=signed)

    def _open(
        self, shown: Shown, scheme: str, size: tuple[int, int], end: str, *, signed: bool = True
    ) -> Iterator[tuple[Page, str]]:
        light_or_dark: Literal["light", "dark"] = "dark" if scheme == "dark" else "light"
        context = self.browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=light_or_dark)
        page = context.new_page()
        if signed:
            sign_in(page, shown)
        yield page, end
        context.close()

    def take(self, shown: Shown, pages: dict[str, str], *, signed: bool = True) -> None:
        chosen = {name: path for name, path in pages.items() if name.startswith(self.only)}
        for page, end in self.open_pages(shown, signed=signed) if chosen else ():
            for name, path in chosen.items():
                open_path(page, shown, path)
                self._shoot(page, f"{name}.{end}")

    def take_ways(self, shown: Shown) -> None:
        """Take the pages that no address alone opens."""
        chosen = {name: way for name, way in WAYS.items() if name.startswith(self.only)}
        for page, end in self.open_pages(shown) if chosen else ():
            for name, way in chosen.items():
                way(page, shown)
                self._shoot(page, f"{name}.{end}")

    def take_for_docs(self, shown: Shown) -> None:
        for name, (page_name, scheme, height) in DOCS.items():
            self.take_one(shown, PAGES[page_name], name, scheme, height)

    def take_one(self, shown: Shown, path: str, name: str, scheme: str, height: int) -> None:
        for page, _ in self._open(shown, scheme, (1024, height), ""):
            open_path(page, shown, path)
            page.wait_for_timeout(500)
            page.screenshot(path=self.folder / f"{name}.png")

    def take_stale(self, shown: Shown) -> None:
        """Take a page after its server has ended."""
        if not "stale".startswith(self.only):
            return
        for page, end in self._open(shown, "light", SIZES["390"], "390.light.png"):
            open_path(page, shown, "/clusters")
            page.wait_for_timeout(500)
            shown.end()
            page.wait_for_timeout(1500)
            page.screenshot(path=self.folder / f"stale.{end}")

    def _shoot(self, page: Page, name: str) -> None:
        page.wait_for_timeout(250)
        page.screenshot(path=self.folder / name, full_page=True)


@contextmanager
def serve_records(state: Path, runs: int) -> Iterator[Shown]:
    """Serve the invented records."""
    store = state / "full" / "orch" / "state" / "orch.db"
    if not store.exists():
        record_everything(state / "full", runs)
    board = HostBoard(now=lambda: 0.0)  # what it has stays new
    note_hosts(store, board)
    with serve_store(state / "full" / "orch", board) as shown:
        yield shown


@contextmanager
def serve_rehearsal(state: Path) -> Iterator[tuple[Shown, str]]:
    """Rehearse a training of which two machines are preempted, and serve what is kept of it, with the id of its run."""
    homes = [home for home in state.glob("orch-rehearsal-*") if (home / "state" / "orch.db").exists()]
    home = homes[0] if homes else rehearse(state)
    with open_reader_at(home / "state" / "orch.db") as reader:
        run_id = reader.newest_runs(limit=1)[0]
    with serve_store(home) as shown:
        yield shown, run_id


def rehearse(folder: Path) -> Path:
    """Rehearse, and return the folder that is kept."""
    task = folder / "task.yaml"
    task.write_text(REHEARSED)
    command = [sys.executable, "-m", "orchestrator", "rehearse", str(task), "--keep"]
    command += ["--preempt", "rank=1@step=60", "--preempt", "rank=0@step=120"]
    environment = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder), "ORCH_HOME": str(folder / "own")}
    subprocess.run(command, check=True, env=environment, cwd=folder)
    return next(folder.glob("orch-rehearsal-*"))


@contextmanager
def serve_store(folder: Path, board: HostBoard | None = None) -> Iterator[Shown]:
    """Serve the store of an ORCH_HOME, made where there is none, as that of this process."""
    store = folder / "state" / "orch.db"
    store.parent.mkdir(parents=True, exist_ok=True)
    os.environ |= {"ORCH_HOME": str(folder), "HOME": str(folder), "LOGNAME": "ada"}  # orders change the store of these
    Store(store).close()
    with serve_here(store, board or HostBoard(), provider="login.example.org") as shown:
        yield shown


if __name__ == "__main__":
    sys.exit(main())
