"""Each command that a page shows as code is one that the command line takes."""

from __future__ import annotations

import re
from html import unescape
from importlib.resources import files

import pytest
from support.command_lines import accepts

TEMPLATES = sorted(
    entry.name for entry in (files("orchestrator.service") / "templates").iterdir() if entry.name.endswith(".html")
)
EXAMPLES = {"RUN": "one", "FILE": "task.yaml", "URI": "s3://bucket"}  # words that a person replaces


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_command_of_a_template_is_one_that_the_command_line_takes(name: str) -> None:
    text = (files("orchestrator.service") / "templates" / name).read_text()
    for shown in re.findall(r"<code[^>]*>(orch .*?)</code>", text):
        filled = re.sub(r"\{\{.*?\}\}", "one", re.sub(r"\{\{ \S+\.id \}\}", "1", unescape(shown)))
        command = " ".join(EXAMPLES.get(word, word) for word in filled.split())
        assert accepts(command), f"{name}: {shown}"


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_next_step_is_drawn_by_the_one_macro_that_parts_command_and_words(name: str) -> None:
    text = (files("orchestrator.service") / "templates" / name).read_text()
    macro = re.compile(r"\{% macro next\(.*?\{%- ?endmacro|\{% macro next\(.*?\{% endmacro", re.DOTALL)
    assert name != "pieces.html" or macro.search(text), "the macro has another name"
    for step in re.findall(r"\{\{[^}]*next_step[^}]*\}\}", macro.sub("", text)):
        assert re.match(r"\{\{ (?:pieces\.)?next\(", step), f"{name}: {step}"


def test_the_parser_refuses_words_behind_a_command() -> None:
    assert accepts("orch resume failing") and not accepts("orch resume failing resumes from the newest checkpoint")
