"""The commands that a reader types on this computer, in the order of their pages, with an empty home folder.

README's story is typed in a copy of what a clone holds, and its lines for Google Cloud in the simulated one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs_page import Command, read_page
from docs_visit import Visit, done_as_said

from orch_fronts.google.cloud import SimulatedGoogle, without_google
from orch_fronts.google.grants import Bucket, Grants
from orchestrator.simulator.rehearsal import SCENARIO_FILE

ROOT = Path(__file__).parents[2]
BUCKET = "my-bucket"
# Where the page has numbers of a long run, and what is typed in their place.
SHORT = {
    "step < 10_000": "step < 60", "step % 500": "step % 10", "step=700": "step=33", "BUCKET": BUCKET,
    "model=tiny": "model=tiny threads=1",
}  # fmt: skip
# What the first example of docs/own-programs.md leaves to its reader.
OWN_PROGRAM = """
import time

import torch


def make_model():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(model, optimizer, step):
    time.sleep(0.2)  # a rehearsal takes a while to notice a step
    rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
QUICK = "[durations]\ncreate = 0.5\nend = 0.2\nqueue = 0.1\ncontact = 0\n"


def fill(text: str) -> str:
    for word, value in SHORT.items():
        text = text.replace(word, value)
    return OWN_PROGRAM + text if text.startswith("# train.py") else text


def copy_clone(folder: Path) -> None:
    """Copy what git tracks, and lead to the packages that scripts/bootstrap has installed."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")


def change_example(clone: Path, *words: str) -> None:
    """Replace words of the file of the story by those that follow each: a test needs no long training."""
    example = clone / "examples" / "train-local.yaml"
    text = example.read_text()
    for before, after in zip(words[::2], words[1::2], strict=True):
        assert before in text
        text = text.replace(before, after)
    example.write_text(text)


def make_visit(page: Path, how: str, folder: Path, env: dict[str, str]) -> Visit:
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:{env['PATH']}"
    plain = {name: value for name, value in env.items() if name != "ORCH_HOME"}
    here = {"HOME": str(home), "PATH": path, "PYTHONPATH": str(folder), "ORCH_YES": ""}
    items = read_page(page, how, "plan", "")
    typed = {item for item in read_page(page, how) if isinstance(item, Command)}
    return Visit(items, folder, plain | here, fill, lambda command: command in typed, seconds=500)


def visit_to_end(visit: Visit) -> dict[str, str]:
    """Type every command of the page; return what each printed."""
    for command in visit.items:
        if isinstance(command, Command) and visit.is_run(command):
            done_as_said(visit, command)
    return {command.text: done.stdout + done.stderr for command, done in visit.done.items()}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_story_of_the_readme_from_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    copy_clone(clone)
    change_example(
        clone, "/tmp/orch-runs", str(tmp_path / "runs"), "batch: 32", "batch: 16", "seq_len: 128", "seq_len: 64"
    )
    visit = make_visit(clone / "README.md", "run", clone, dict(os.environ))
    printed = visit_to_end(visit)
    rehearsal = next(text for command, text in printed.items() if command.startswith("orch rehearse"))
    assert "your program resumes" in rehearsal and "with the same loss" in rehearsal
    assert list(clone.glob("train-local-*/step-*")), "the checkpoint is here"
    assert json.loads(visit.type("orch status -o json").stdout)["clusters"] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_lines_of_the_readme_for_google_in_the_simulated_one(tmp_path: Path) -> None:
    clone, google_folder = tmp_path / "clone", tmp_path / "google"
    copy_clone(clone)
    change_example(clone, "steps: 120", "steps: 20", "batch: 32", "batch: 4")
    google_folder.mkdir()
    (google_folder / SCENARIO_FILE).write_text(QUICK)
    with SimulatedGoogle(google_folder, grants=Grants(buckets={BUCKET: Bucket("US-WEST4")})) as google:
        visit = make_visit(clone / "README.md", "gcp", clone, without_google() | dict(google.env))
        printed = visit_to_end(visit)
        assert any("succeeded" in text for command, text in printed.items() if "orch launch" in command)
        with google.cloud.open() as cloud:
            assert [look.name for look in cloud.live()] == [], "nothing that costs is left"


def pages() -> list[Any]:
    names = ("offers.md", "own-programs.md", "pipelines.md", "simulator.md")
    return [pytest.param(ROOT / "docs" / name, id=name) for name in names]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "work").mkdir()
    shutil.copytree(ROOT / "examples" / "pipelines", tmp_path / "work" / "examples" / "pipelines")
    yield tmp_path / "work"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", pages())
def test_what_a_page_lets_you_type_does_what_it_says(page: Path, folder: Path) -> None:
    visit = make_visit(page, "run", folder, dict(os.environ) | {"PYTHONPATH": ""})
    printed = visit_to_end(visit)
    assert printed
    for command, text in printed.items():
        if command.startswith("orch rehearse"):
            assert "your program resumes" in text, text
