"""docs/trainer.md and the trainer's help: their commands can be typed, and the page's links lead somewhere.

Commands of orch that train are planned as they stand; of those for a living cluster the words are read. Of those of the
trainer the settings are read: what they do, other tests show.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from command_words import type_here
from docs_page import Command, read_page

from trainer.commands import split_command
from trainer.commands.advise import run as advise
from trainer.help import format_help
from trainer.options import parse_config

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trainer.md"
COMMANDS = [item.text for item in read_page(PAGE, "plan", "parse") if isinstance(item, Command)]
PLANNED = [words for words in COMMANDS if words.startswith("orch train ")]
# A cluster that is not there: its status is 3, and 2 that of words that cannot be.
_OTHERS = re.compile(r"orch (?!train|launch|rehearse|serve)")
LIVING = [words.partition("#")[0] for words in COMMANDS if _OTHERS.match(words)]
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
    status, plan, notes = type_here(["train", where, *rest, *(() if "--dry-run" in rest else ("--dry-run",))])
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
    status, plan, err = type_here(words)
    assert status == 0, err
    assert "does NOT fit" not in plan and "\n  mind" not in plan


@pytest.mark.usefixtures("nothing_here")
@pytest.mark.parametrize("words", LIVING)
def test_words_for_a_living_cluster_are_understood(words: str, tmp_path: Path) -> None:
    here = words.replace("gs://BUCKET", f"file://{tmp_path}")
    status, _, err = type_here([word for word in shlex.split(here)[1:] if word != "-f"])
    assert status in (0, 3), err
    assert "Traceback" not in err


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
    status, _, err = type_here(["train", "local:2", "model=tiny", "--dry-run", *given])
    assert status == 0, err


def test_statuses_of_the_page_are_those_of_the_trainer() -> None:
    from trainer.errors import Exit

    assert [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.M)] == sorted(Exit)
