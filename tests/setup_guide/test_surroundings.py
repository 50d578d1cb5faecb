"""What is found on a computer, and how it is said: never a value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.drivers import list_clouds
from orchestrator.setup_guide.draft import Draft
from orchestrator.setup_guide.folder import inspect_folder
from orchestrator.setup_guide.questions import QUESTIONS, Step, add_setup, find_question, propose
from orchestrator.setup_guide.surroundings import describe_login, inspect_computer, inspect_program

CANARY = "canary-3f2a"
DOCS = Path(__file__).parents[2]


def test_nothing_found_names_the_commands_and_their_pages(tmp_path: Path) -> None:
    around = inspect_computer({}, tmp_path, str(tmp_path))
    proposal = propose(QUESTIONS[0], Draft(), around)
    assert [one.value for one in proposal.choices] == ["local"] and proposal.default == "local"
    text = "\n".join(proposal.notes)
    for driver in list_clouds():
        assert driver.guide is not None and driver.guide.page in text
        assert all(command in text for command, _ in driver.guide.logins)
        page = (DOCS / driver.guide.page).read_text()
        assert driver.guide.logins[0][0] in page, "the page has the command that is proposed"
        assert max(map(len, describe_login(driver))) <= 76


def test_files_variables_and_own_machines_are_found_without_their_values(tmp_path: Path) -> None:
    gcloud = tmp_path / ".config" / "gcloud"
    (gcloud / "configurations").mkdir(parents=True)
    (gcloud / "application_default_credentials.json").write_text(json.dumps({"refresh_token": CANARY}))
    (gcloud / "configurations" / "config_default").write_text("[core]\nproject = lab-42\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"Host gpu1\n  IdentityFile {CANARY}\nInclude more\nHost *.x !y\n")
    (tmp_path / ".ssh" / "more").write_text("Host=gpu2 # a comment\nhost 'quoted' -oX\n")
    around = inspect_computer({"AWS_ACCESS_KEY_ID": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY}, tmp_path, str(tmp_path))
    assert CANARY not in repr(around)
    assert [one.infra for one in around.places] == ["gcp", "aws", "hosts", "local"]
    assert (
        around.places[0].source
        == "~/.config/gcloud/application_default_credentials.json has credentials; project lab-42"
    )
    assert around.places[1].source == "AWS_ACCESS_KEY_ID is set"
    assert around.hosts == ("gpu1", "gpu2"), "no pattern, and nothing that ssh would take for an option"
    asks_bucket = next(one for one in QUESTIONS if one.step is Step.BUCKET)
    assert propose(asks_bucket, Draft(infra="gcp"), around).default == "gs://lab-42-orch/runs"
    assert propose(asks_bucket, Draft(infra="aws"), around).default == f"s3://{around.label}-orch/runs"
    unknown = inspect_computer(
        {"GOOGLE_APPLICATION_CREDENTIALS": str(gcloud / "x.json")}, tmp_path / "no", str(tmp_path)
    )
    assert propose(asks_bucket, Draft(infra="gcp"), unknown).default == f"gs://{unknown.label}-orch/runs"


@pytest.mark.parametrize(
    ("file", "setup"),
    [
        ("requirements.txt", "-r requirements.txt"),
        ("pyproject.toml", "install --quiet ."),
        ("uv.lock", "uv sync --frozen"),
    ],
)
def test_a_folder_says_how_its_packages_are_installed(tmp_path: Path, file: str, setup: str) -> None:
    (tmp_path / file).write_text("")
    (tmp_path / "train.py").write_text("")
    found = inspect_folder(tmp_path)
    assert setup in found.setup and found.installed_by == file and found.program.endswith("train.py")
    around = inspect_computer({}, Path("/"), str(tmp_path))
    draft = Draft(infra="aws", model="", program="x", workdir=str(tmp_path))
    assert add_setup(draft, around).setup == found.setup
    local = Draft(infra="local:1", model="", program="x", workdir=str(tmp_path))
    assert add_setup(local, around).setup is None, "nothing is installed on this computer unasked"


def test_a_whole_home_folder_is_not_proposed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    assert not inspect_program(str(tmp_path), tmp_path).holds_files
    assert inspect_program(str(tmp_path), tmp_path / "x").holds_files


def test_task_files_are_found_among_other_yaml(tmp_path: Path) -> None:
    (tmp_path / "sky.yaml").write_text("resources:\n  cloud: aws\nrun: |\n  echo\n")
    (tmp_path / "other.yaml").write_text("name: ci\njobs:\n  run: x\n")
    (tmp_path / "big.yaml").write_bytes(b"\xff" * 100_000)
    assert inspect_folder(tmp_path).tasks == ("sky.yaml",)
    assert inspect_folder(tmp_path / "absent") == inspect_folder(tmp_path / "sky.yaml")


def test_there_are_at_most_seven_questions() -> None:
    assert len(Step) == 7
    assert {one.step for one in QUESTIONS} == set(Step)
    for one in QUESTIONS:
        assert 1 <= len(one.help.splitlines()) <= 2 and max(map(len, one.help.splitlines())) <= 100
    assert find_question(Draft()) is QUESTIONS[0]
