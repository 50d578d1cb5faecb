"""Each command of docs/google.md, in the order of the page, in a simulated Google and with an empty home folder."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs_page import Command, read_page
from docs_visit import Visit, done_as_said
from google_parser import refused

from orch_fronts.google.cloud import SimulatedGoogle, without_google
from orch_fronts.google.grants import Bucket, Grants, Limit
from orch_fronts.google.server import PROJECT
from orchestrator.simulator.rehearsal import SCENARIO_FILE

PAGE = Path(__file__).parent.parent.parent / "docs" / "google.md"
ITEMS = read_page(PAGE, "gcp")
COMMANDS = [item for item in ITEMS if isinstance(item, Command)]
GCLOUD = shutil.which("gcloud")
WORDS = {"PROJECT": PROJECT, "BUCKET": "my-bucket", "ACCOUNT": "0X0X0X-0X0X0X-0X0X0X", "YOU": "you@example.org"}

# Beginnings of what only the real Google can answer: its accounts, projects, bills, roles and the making of buckets.
# gcloud's own parser looks at them.
ONLY_THERE = ("auth ", "projects ", "billing ", "config ", "services ", "storage ", "iam ")
# What is not run, and why not.
NOT_RUN = {"orch simulate gcp -- bash": "a shell that waits for input; test_simulate.py runs others"}
# What is not served yet, by its text, and why. An entry whose command works turns red: take it out then.
NOT_YET: dict[str, str] = {}

# Like the calm scenario, but the queue does not bore.
QUICK = """
[durations]
create = 0.5
end = 0.2
stop = 0.2
start = 0.5
queue = 0.1
contact = 0
"""


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    place = tmp_path_factory.mktemp("docs")
    home, folder = place / "home", place / "work"
    home.mkdir()
    folder.mkdir()
    (place / "google").mkdir()
    (place / "google" / SCENARIO_FILE).write_text(QUICK)
    limits = (Limit("tpu-v5s-litepod", 64, "us-west4-a"),)
    grants = Grants(limits=limits, buckets={WORDS["BUCKET"]: Bucket("US-WEST4")})
    with SimulatedGoogle(place / "google", grants=grants) as google:
        path = f"{Path(sys.executable).parent}:{without_google()['PATH']}"
        env = without_google() | dict(google.env) | {"HOME": str(home), "PATH": path}
        yield Visit(ITEMS, folder, env, filled, is_run)
        with google.cloud.open() as cloud:
            assert [look.name for look in cloud.live()] == [], "who follows the page leaves nothing that costs"


def filled(text: str) -> str:
    """With words of the reader's own, and with what the page says of trainings in the simulated Google."""
    for word, value in (WORDS | {"model=tiny": "model=tiny threads=1"}).items():
        text = text.replace(word, value)
    return text


def only_there(command: Command) -> bool:
    return command.text.startswith(tuple(f"gcloud {words}" for words in ONLY_THERE))


def by_gcloud(command: Command) -> bool:
    return command.text.startswith("gcloud")


def is_run(command: Command) -> bool:
    if by_gcloud(command):
        return GCLOUD is not None and not only_there(command)
    return command.text not in NOT_RUN


def cases() -> Iterator[Any]:
    for command in COMMANDS:
        if only_there(command) or command.text in NOT_RUN:
            continue
        marks: list[Any] = [pytest.mark.slow, pytest.mark.timeout(240)]
        if command.text in NOT_YET:
            marks.append(pytest.mark.xfail(strict=True, reason=NOT_YET[command.text]))
        if by_gcloud(command):
            marks.append(pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed"))
        yield pytest.param(command, id=f"{command.line}: {command.text}"[:90], marks=marks)


@pytest.mark.parametrize("command", list(cases()))
def test_command_of_the_page_does_what_the_page_says(command: Command, visit: Visit) -> None:
    done_as_said(visit, command)


@pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed")
def test_gclouds_parser_takes_what_only_the_real_google_can_answer(tmp_path: Path) -> None:
    words = [shlex.split(filled(command.text))[1:] for command in COMMANDS if only_there(command)]
    assert len(words) > 10
    assert refused(words, tmp_path) == []
    wrong = ["projects", "create", "p", "--no-such-flag=x"]
    assert [each for each, _ in refused([wrong], tmp_path)] == [wrong], "the parser sees what is wrong"


def test_tables_of_exceptions_name_commands_of_the_page() -> None:
    texts = {command.text for command in COMMANDS}
    assert set(NOT_RUN) | set(NOT_YET) <= texts
    assert all(any(text.startswith(f"gcloud {words}") for text in texts) for words in ONLY_THERE)
