"""Each command of docs/aws.md, in the order of the page, in a simulated AWS and with an empty home folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docs_page import Command, read_page, read_prose, to_try
from docs_visit import Visit, done_as_said

from orch_fronts.aws.calls import ACCOUNT
from orch_fronts.aws.cloud import SimulatedAws, without_aws
from orch_fronts.aws.ec2.visit import left
from orch_fronts.aws.grants import owner
from orchestrator.simulator.rehearsal import SCENARIO_FILE

PAGE = Path(__file__).parent.parent.parent / "docs" / "aws.md"
# Commands in sentences that end with another status than 0, and why.
PROSE_STATUS = {
    "orch resume trn": 6,  # its program has succeeded by then
    "orch blocks buy OFFERING": 3,  # no search has listed an offering of this name
}
# Not tried, and why not.
PROSE_NOT_RUN = {"orch simulate aws": "a shell that waits for input; test_simulate.py runs others"}
PROSE = [
    replace(to_try(one), status=PROSE_STATUS.get(one.text, 0))
    for one in read_prose(PAGE)
    if one.text not in PROSE_NOT_RUN
]
ITEMS = tuple(sorted((*read_page(PAGE, "aws"), *PROSE), key=lambda item: item.line))
COMMANDS = [item for item in ITEMS if isinstance(item, Command)]
WORDS = {"BUCKET": "my-bucket", "YOU": "alice", "ACCOUNT": ACCOUNT}

# What is not run, and why not.
NOT_RUN = {"orch simulate aws -- bash": "a shell that waits for input; test_simulate.py runs others"}

# Like the calm scenario, but nothing bores.
QUICK = """
[durations]
create = 0.5
end = 0.2
stop = 0.2
start = 0.5
contact = 0
"""


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    place = tmp_path_factory.mktemp("docs")
    home, folder, cloud_folder = place / "home", place / "work", place / "aws"
    for one in (home, folder, cloud_folder):
        one.mkdir()
    (cloud_folder / SCENARIO_FILE).write_text(QUICK)
    with SimulatedAws(cloud_folder, grants=replace(owner(), profiles={})) as aws:
        path = f"{Path(sys.executable).parent}:{without_aws()['PATH']}"
        env = without_aws() | dict(aws.env) | {"HOME": str(home), "PATH": path}
        visit = Visit(ITEMS, folder, env, filled, is_run)
        yield visit
        known = json.loads(visit.type("orch status -o json").stdout)["clusters"]
        with aws.cloud.open() as cloud:
            there = [look.name for look in cloud.live()] + left(cloud)
        assert (there, known) == ([], []), "who follows the page leaves nothing that costs, and nothing on record"


def filled(text: str) -> str:
    """With words of the reader's own, and with what the page says of trainings in the simulated AWS."""
    for word, value in (WORDS | {"model=tiny": "model=tiny threads=1"}).items():
        text = text.replace(word, value)
    return text


def is_run(command: Command) -> bool:
    return command.text not in NOT_RUN


def cases() -> Iterator[Any]:
    for command in filter(is_run, COMMANDS):
        marks = [pytest.mark.slow, pytest.mark.timeout(240)]
        yield pytest.param(command, id=f"{command.line}: {command.text}"[:90], marks=marks)


@pytest.mark.parametrize("command", list(cases()))
def test_command_of_the_page_does_what_the_page_says(command: Command, visit: Visit) -> None:
    done_as_said(visit, command)


def test_what_is_not_run_stands_on_the_page() -> None:
    assert set(NOT_RUN) <= {command.text for command in COMMANDS}
    assert {*PROSE_STATUS, *PROSE_NOT_RUN} <= {command.text for command in read_prose(PAGE)}
