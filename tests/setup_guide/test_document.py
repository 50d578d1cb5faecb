"""What is written parses back to exactly what was answered, whatever was typed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.setup_guide.document import find_difference, name_task, write_scalar, write_task
from orchestrator.setup_guide.draft import KEYS, Draft, take
from orchestrator.setup_guide.machines import find_machines
from orchestrator.setup_guide.questions import check_answers
from orchestrator.task.parse import parse_task

YAML = ["#", ": ", "- ", "'", '"', "{", "}", "[", "]", "&a", "*a", "!!x", "|", ">", "%", "@", "`", "---", "...", "\\",
        "\n", "~", "null", "yes", "0x1", "1e3", "1:30", " ", "\t", "$HOME", "${X}", "=", "<<", "? ", "é", "\u2028",
        "\u0085", "\ufeff", "\U0001f600", "a", "b", "1"]  # fmt: skip
anything = st.text(max_size=60)
syntax = st.lists(st.sampled_from(YAML), min_size=1, max_size=12).map("".join)


def answer_all(**answers: str) -> Draft:
    draft = Draft()
    for key, text in {"infra": "aws", "machine": "t3.medium", "market": "spot", "max_cost": "5", **answers}.items():
        draft = take(draft, key, text)
        check_answers(draft)
    return draft


@settings(max_examples=300, deadline=None)
@given(program=anything | syntax, setup=anything | syntax, workdir=syntax | anything)
@example(program="echo 'a: b # c'", setup='"', workdir="a b")
@example(program="yes", setup="0123", workdir="1e3")
@example(program="a\n\n b\n", setup="x\r\ny", workdir="~/x: y")
@example(program="echo \ud800", setup="\x1b[31m", workdir="\x00")
def test_what_was_typed_is_what_a_launch_reads_or_it_is_refused(program: str, setup: str, workdir: str) -> None:
    try:
        draft = answer_all(program=program, setup=setup, workdir=workdir, bucket="s3://mine-runs/a")
        written = write_task(draft, find_machines(draft))
    except UserError as error:
        assert len(error.lines()) <= 5
        return
    task = parse_task(written.text, file="task.yaml", env={}).only
    assert task.run == program
    assert task.setup == ("" if setup.strip().lower() == "none" else setup)
    assert task.workdir == (workdir.strip() if workdir.strip().lower() not in ("", "none") else None)
    assert (str(task.choices[0].infra), task.choices[0].use_spot) == ("aws", True)
    assert (task.limits.max_cost, task.limits.idle_minutes) == (5, 30)
    assert all(len(line) <= 80 for line in written.text.splitlines() if line.lstrip().startswith("#"))


@pytest.mark.parametrize("program", ["python train.py --lr=1e-3", 'bash -c "a; b" # c', "a\nb", "- x", "{a: b}", "yes"])
def test_usual_commands_are_not_refused(program: str) -> None:
    draft = answer_all(program=program, workdir="none", bucket="none")
    assert write_task(draft, find_machines(draft)).task.run == program


@settings(max_examples=300, deadline=None)
@given(value=anything | syntax | st.integers() | st.booleans())
def test_a_scalar_stays_the_same_text_or_number(value: Any) -> None:
    if isinstance(value, str) and any(0xD800 <= ord(one) <= 0xDFFF for one in value):
        return  # no text; the questions refuse it
    line = write_scalar(value)
    assert "\n" not in line
    assert not find_difference({"a": value}, yaml.safe_load(f"a: {line}\n"))
    assert not find_difference({"a": [value]}, yaml.safe_load(f"a:\n  - {line}\n"))


@settings(max_examples=200, deadline=None)
@given(key=st.sampled_from(sorted(KEYS)), text=anything | syntax)
def test_every_answer_is_taken_or_refused_with_a_reason(key: str, text: str) -> None:
    try:
        draft = take(Draft(infra="aws", model=""), key, text)
        check_answers(draft)
    except UserError as error:
        shown = "\n".join(error.lines())
        assert error.what and "\x1b" not in shown and "\x00" not in shown


@settings(max_examples=100, deadline=None)
@given(program=anything | syntax)
def test_a_name_is_always_one_that_a_task_may_have(program: str) -> None:
    name = name_task(Draft(program=program))
    assert parse_task(f"name: {write_scalar(name)}\nrun: a\n", file="x", env={}).only.name == name


def test_comments_hold_nothing_that_was_typed() -> None:
    draft = answer_all(program="echo canary", workdir="canary", setup="canary", bucket="s3://canary", name="canary")
    text = write_task(draft, find_machines(draft)).text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("#") and "canary" in line]


def test_a_text_that_would_be_read_as_another_one_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the guard: a writer without quotes."""
    monkeypatch.setattr("orchestrator.setup_guide.document.write_scalar", str)
    draft = Draft(infra="local:1", machine="", program="a # b", model="", workdir="", bucket="")
    with pytest.raises(UserError, match="`run` cannot be written"):
        write_task(draft, find_machines(draft))
