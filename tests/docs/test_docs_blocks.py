"""Every block and every command of every page: typed, planned or parsed, as the block says (docs_page.py)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from command_words import list_orch_commands, parse_words, type_here
from docs_page import Block, Command, list_items, read_blocks, read_prose

from orchestrator.cli.app import app
from orchestrator.simulator.scenario_file import parse_scenario

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "iam" / "README.md",
]
# The pages whose blocks of a kind are typed, each with the test that does it.
TYPED: dict[str, dict[str, str]] = {
    "aws": {"aws.md": "test_docs_aws.py"},
    "gcp": {"google.md": "test_docs_google.py", "README.md": "test_docs_typed.py"},
    "run": dict.fromkeys(
        ("README.md", "own-programs.md", "offers.md", "pipelines.md", "simulator.md"), "test_docs_typed.py"
    ),
}
RENTS = frozenset({"launch", "train", "resume", "acceptance"})
# What a page leaves out of a task file that it shows in part.
REST = {"resources": {"accelerators": "v5litepod-16"}, "train": {"args": {"model": "1b", "steps": 1000}}}
_INDENTED = re.compile(r"\n\n {4,}\S")
_COMMAND_LINE = re.compile(rf"^(\$ |orch ({'|'.join(app.list_commands(click.Context(app)))}) (?!.*\[))", re.MULTILINE)


def blocks_of(*kinds: str, how: str = "") -> list[Any]:
    return [
        pytest.param(block, id=f"{page.name}:{block.line}")
        for page in PAGES
        for block in read_blocks(page)
        if block.kind in kinds and (not how or block.how == how)
    ]


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the commands an empty home, with an own task and the role that docs/aws.md makes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    (tmp_path / "orch").mkdir()
    (tmp_path / "orch" / "config.toml").write_text('[aws]\ninstance_profile = "orch"\n')
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(REST))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_how_it_is_tested_and_is(page: Path) -> None:
    blocks = read_blocks(page)
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") == 2 * len(blocks), "each block begins with its kind, at the margin"
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = _INDENTED.search(prose)
    assert indented is None, f"a block without a kind: {indented}"
    for block in blocks:
        if block.how in TYPED:
            assert (ROOT / "tests" / "docs" / TYPED[block.how][page.name]).exists()
        if block.kind == "text":
            assert not _COMMAND_LINE.search(block.text), f"line {block.line}: commands are a block of bash"


@pytest.mark.parametrize("block", blocks_of("bash"))
def test_the_shell_and_orch_understand_the_commands(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for item in list_items(block):
        assert isinstance(item, Command)
        for words in list_orch_commands(item.text):
            assert parse_words(words) == "", item.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_orch_understands_the_commands_in_sentences(page: Path) -> None:
    wrong = {
        command.text: problem
        for command in read_prose(page)
        for words in list_orch_commands(command.text)
        if (problem := parse_words(words, partly=True))
    }
    assert wrong == {}


@pytest.mark.parametrize("block", blocks_of("bash", how="plan"))
def test_what_would_rent_has_a_plan(block: Block) -> None:
    planned = 0
    for item in list_items(block):
        assert isinstance(item, Command)
        for words in list_orch_commands(item.text):
            if words[0] in RENTS | {"plan"} and words[0] != "resume":
                dry = [] if words[0] == "plan" or "--dry-run" in words else ["--dry-run"]
                status, _, err = type_here([*words, *dry])
                assert status == item.status, f"{item.text}\n{err}"
                planned += 1
    assert planned, "a block without a rental is parsed"


@pytest.mark.parametrize("block", blocks_of("yaml", how="plan"))
def test_each_task_file_has_a_plan(block: Block, tmp_path: Path) -> None:
    task, *stages = yaml.safe_load_all(block.text)
    rest = {name: part for name, part in REST.items() if name not in task and not (name == "train" and "run" in task)}
    (tmp_path / "page.yaml").write_text(block.text + yaml.safe_dump(rest) * bool(rest and not stages))
    status, plan, err = type_here(["plan", "page.yaml"])
    assert status == 0, f"{err}\n{plan}"
    assert "does NOT fit" not in plan


@pytest.mark.parametrize("block", blocks_of("yaml", "python", "json", "toml"))
def test_each_parser_understands_its_blocks(block: Block) -> None:
    match block.kind:
        case "yaml":
            assert all(yaml.safe_load_all(block.text))
        case "python":
            compile(block.text, f"line {block.line}", "exec")
        case "json":
            assert json.loads(block.text)
        case _:
            assert parse_scenario(block.text)


def list_anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#{1,4} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads)
    return {re.sub(r"[^\w -]", "", head).replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^) ]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            place, _, head = link.partition("#")
            target = page.parent / place if place else page
            assert target.exists(), link
            assert not head or head in list_anchors(target), link


def test_files_that_contributing_names_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:orchestrator|trainer|tests|scripts|docs)/[\w./-]+)", page))
    assert len(names) > 30
    assert [
        name for name in sorted(names) if not (ROOT / name.removesuffix("/NAME")).exists() and "NAME" not in name
    ] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_what_is_typed_is_on_its_page() -> None:
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for block in read_blocks(page):
            if block.how in TYPED:
                found.setdefault(block.how, set()).add(page.name)
    assert found == {how: set(pages) for how, pages in TYPED.items()}


def test_a_mistake_of_each_kind_is_noticed(tmp_path: Path) -> None:
    assert "no such option" in parse_words(shlex.split("launch task.yaml --no-such-option")).lower()
    assert parse_words(["lanch", "task.yaml"])
    assert parse_words(["launch"]) and not parse_words(["launch"], partly=True)
    (tmp_path / "page.md").write_text("```bash\norch status\n```\n")
    with pytest.raises(ValueError, match="marked 'bash '"):
        read_blocks(tmp_path / "page.md")
    assert [words[0] for words in list_orch_commands("A=1 orch status | tee x && orch logs a > b  # orch lost")] == [
        "status",
        "logs",
    ]
