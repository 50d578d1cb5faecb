"""docs/trainer.md, README.md and the trainer's help: their commands can be typed, and the page's links lead somewhere.

Commands of orch that train are planned as they stand; of those for a living cluster the words are read. Of those of the
trainer the settings are read: what they do, other tests show.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from docs_page import Command, read_page, read_prose, to_try

from orchestrator.__main__ import main
from trainer.commands import split_command
from trainer.commands.advise import run as advise
from trainer.help import format_help
from trainer.options import parse_config

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trainer.md"
COMMANDS = [item.text for item in read_page(PAGE) if isinstance(item, Command)]
README = [line.strip() for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("    orch ")]
PLANNED = [words for words in (*COMMANDS, *README) if words.startswith("orch train ")]
# A cluster that is not there: its status is 3, and 2 that of words that cannot be.
_OTHERS = re.compile(r"orch (?!train|launch|rehearse|serve)")
LIVING = [words.partition("#")[0] for words in (*COMMANDS, *README) if _OTHERS.match(words)]
# Engine and device of each one-liner, by the first word after `orch train` and its backend.
STACKS = {
    ("local:2", ""): "engine=torch device=cpu",
    ("v5litepod-16", ""): "engine=jax device=tpu",
    ("v6e-8", "tpu"): "engine=torch device=tpu",
    ("v5litepod-8", "xla"): "engine=torch device=xla",
    ("H100:8", ""): "engine=torch device=cuda",
    ("Trainium:16", ""): "engine=jax device=neuron",
    ("trn2.48xlarge", ""): "engine=torch device=neuron",
}


def typed(words: Sequence[str]) -> tuple[int, str, str]:
    """Status, stdout and stderr of one command of orch, in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return status, said[0], said[1]


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ORCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    (tmp_path / "orch").mkdir()
    (tmp_path / "orch" / "config.toml").write_text('[aws]\ninstance_profile = "orch"\n')  # docs/aws.md sets it up
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("words", PLANNED)
def test_each_one_liner_has_a_plan_that_fits_on_what_the_page_says(words: str) -> None:
    _, _, where, *rest = shlex.split(words)
    status, plan, notes = typed(["train", where, *rest, *(() if "--dry-run" in rest else ("--dry-run",))])
    assert status == 0, notes
    backend = rest[rest.index("--backend") + 1] if "--backend" in rest else ""
    if (where, backend) in STACKS:
        assert f"the trainer: {STACKS[where, backend]}," in notes
        assert STACKS[where, backend] in PAGE.read_text()
    assert "does NOT fit" not in plan
    assert "\n  mind" not in plan, "what the page advises is what the plan would advise"
    assert "  memory" in plan


def test_every_way_to_train_has_its_one_liner() -> None:
    shown = {(words.split()[2], *re.findall(r"--backend (\w+)", words)) for words in COMMANDS if "orch train" in words}
    assert {tuple(filter(None, key)) for key in STACKS} <= shown


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_each_example_has_the_plan_that_it_begins_with(example: Path) -> None:
    first = re.findall(r"^#   orch (plan|launch) (\S+)(.*?)(?: {2,}.*)?$", example.read_text(), re.M)[0]
    dry = ("--dry-run",) if first[0] == "launch" and "--dry-run" not in first[2] else ()
    words = [first[0], str(ROOT / first[1]), *shlex.split(first[2].replace("HF_TOKEN", "HF_TOKEN=x")), *dry]
    status, plan, err = typed(words)
    assert status == 0, err
    assert "does NOT fit" not in plan and "\n  mind" not in plan


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("words", LIVING)
def test_words_for_a_living_cluster_are_understood(words: str, tmp_path: Path) -> None:
    here = words.replace("gs://BUCKET", f"file://{tmp_path}")
    status, _, err = typed([word for word in shlex.split(here)[1:] if word != "-f"])
    assert status in (0, 3), err
    assert "Traceback" not in err


# Of the commands in README's sentences, those that end with another status than 0, and those that are not tried.
PROSE_STATUS = {
    "orch check gcp": 4,  # there are no credentials
    "orch check aws": 4,
    "orch check aws --bucket s3://BUCKET/runs --fix": 4,
    "orch profile CLUSTER": 3,  # it does not exist
    "orch pull RUN": 3,
    "orch resume RUN_ID --bucket URI --expect sha256:...": 2,  # placeholders
    "orch catalog refresh": 2,  # no cloud is set up here
    "orch launch --dry-run": 2,  # of a measurement: no task is named
}
PROSE_NOT_TRIED = {
    "orch simulate gcp -- bash": "a shell that waits for input; test_simulate.py runs others",
    "orch serve --engine-only": "an engine that does not end; tests/engine runs it",
}


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("command", [one for one in read_prose(ROOT / "README.md") if one.text not in PROSE_NOT_TRIED])
def test_commands_in_sentences_of_the_readme_are_understood(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # google-auth and boto3 would look for a machine of a cloud
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(to_try(command).text)]
    status, _, err = typed(words[1:])
    assert status == PROSE_STATUS.get(command.text, 0), err
    assert "Traceback" not in err and "no such option" not in err.lower()


def test_the_exceptions_are_in_the_readme() -> None:
    assert {*PROSE_STATUS, *PROSE_NOT_TRIED} <= {one.text for one in read_prose(ROOT / "README.md")}


def trainers() -> Iterator[str]:
    for line in (*COMMANDS, *(line.strip() for line in format_help().splitlines())):
        if "-m trainer " in line and line.startswith(("python", "torchrun")) and "COMMAND" not in line:
            yield line


@pytest.mark.parametrize("words", list(trainers()))
def test_settings_of_the_trainer_are_understood(words: str) -> None:
    command, rest = split_command(shlex.split(words.partition("-m trainer ")[2]))
    if command == "advise":
        with redirect_stdout(io.StringIO()):
            assert advise(rest) == 0
    elif command in ("train", "eval"):
        parse_config([word for word in rest if "=" in word or command == "train"])
    else:
        assert all("=" not in word or word.startswith(("tokenizer=", "dtype=", "chat=")) for word in rest)


@pytest.mark.usefixtures("nothing_here")
def test_variables_that_the_page_lets_you_set_can_be_set() -> None:
    page = (ROOT / "docs" / "environment.md").read_text()
    table = page.partition("## You may set in `envs`")[2].partition("\n## ")[0]
    names = [name for row in re.findall(r"^\| (`[^|]+) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert "ORCH_DATA_CACHE" in names
    given = [word for name in names for word in ("--env", f"{name}=1")]
    status, _, err = typed(["train", "local:2", "model=tiny", "--dry-run", *given])
    assert status == 0, err


def test_links_of_the_page_lead_somewhere() -> None:
    page = PAGE.read_text()
    heads = {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#{1,3} (.+)$", page, re.M)
    }
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page) if "://" not in link]
    assert len(links) > 5
    for link in links:
        place, _, head = link.partition("#")
        assert (PAGE.parent / place).exists() if place else head in heads, link


def test_statuses_of_the_page_are_those_of_the_trainer() -> None:
    from trainer.errors import Exit

    assert [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.M)] == sorted(Exit)
