"""How a command line fails: words, statuses, and never a trace unless asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from orchestrator.cli.app import SECTIONS, app
from orchestrator.cli.failures import print_error
from orchestrator.cli.lazy_group import LazyGroup
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit

Orch = Callable[..., Any]
VERBS = [verb.name for section in SECTIONS for verb in section.commands]


@pytest.mark.parametrize("words", [(), *((verb,) for verb in VERBS), ("config", "explain"), ("local", "preempt")])
def test_every_help_begins_with_examples_that_name_the_command(orch: Orch, words: tuple[str, ...]) -> None:
    said = orch(*words, "--help")
    assert said.status == 0 and said.err == ""
    usage = said.out.index("Usage:")
    assert said.out.index("Examples:") < usage
    examples = said.out[said.out.index("Examples:") :].split("\n\n")[0].splitlines()
    lines = [line for line in examples if "orch" in line and not line.strip().startswith("#")]
    assert len(lines) >= 2
    assert any(f"orch {' '.join(words)}" in line for line in lines)


def test_help_groups_commands_by_what_a_person_wants(orch: Orch) -> None:
    out = orch("--help").out
    assert out.startswith("Examples:\n")
    places = [out.index(section.title + ":") for section in SECTIONS]
    assert places == sorted(places)
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S", out, re.MULTILINE)


def test_every_command_of_the_table_exists(orch: Orch) -> None:
    assert isinstance(app, LazyGroup)
    context = click.Context(app)
    for verb in VERBS:
        command = app.get_command(context, verb)
        assert command is not None, verb
        assert command.name == verb


def test_every_changing_command_has_dry_run_and_a_form(orch: Orch) -> None:
    for verb in ("launch", "train", "exec", "resume", "stop", "start", "cancel", "down"):
        out = orch(verb, "--help").out
        assert "--dry-run" in out and "[text|json|sh]" in out and "--yes" in out, verb


def test_no_words_at_all_show_the_help_as_a_mistake(orch: Orch) -> None:
    said = orch()
    assert said.status == 2 and said.out == "" and "Run something" in said.err


@pytest.mark.parametrize(
    ("words", "near"),
    [(("stauts",), "status"), (("lanch", "x"), "launch"), (("status", "--refesh"), "--refresh"), (("exce",), "exec")],
)
def test_a_typing_error_gets_the_nearest_word_and_exit_2(orch: Orch, words: tuple[str, ...], near: str) -> None:
    said = orch(*words)
    assert said.status == Exit.USAGE and said.out == ""
    assert said.err.startswith("error[usage]: ") and near in said.err
    assert "next: orch" in said.err and "--help" in said.err


@pytest.mark.parametrize(
    ("words", "said", "step"),
    [
        (
            ("launch",),
            "TASK.yaml|-|'COMMAND' is missing",
            "orch launch [OPTIONS] TASK.yaml|-|'COMMAND'   (more: orch launch --help)",
        ),
        (("down",), "CLUSTER is missing", "orch down CLUSTER...   or all of yours: orch down --all"),
        (("cancel", "c", "3", "--all"), "--all and the number of a job exclude each other", "orch cancel c --all"),
        (("down", "c", "--all"), "--all and names of clusters exclude each other", "orch down c"),
        (
            ("launch", "--cpus", "4", "x"),
            "there is no option --cpus; write --instance-type TYPE, or in a task file: resources: {cpus: 4+}",
            "orch launch --help",
        ),
        (("queue", "a", "b"), "more was given than this command takes: b", "orch queue --help"),
        (
            ("launch", "a.yaml", "b"),
            "more was given than a task file: b",
            "orch launch a.yaml   or, for a command, one word: orch launch 'COMMAND'",
        ),
        (("logs", "x", "--tail", "abc"), "--tail: 'abc' is not a whole number", "orch logs --help"),
        (("plan", "t", "-o", "x"), "--output: 'x' is not one of 'text', 'json', 'sh'", "orch plan --help"),
        (("check", "--nope"), "there is no option --nope; did you mean --zone?", "orch check --help"),
        (("launch", "t", "-c"), "-c needs a value", "orch launch --help"),
    ],
)
def test_mistakes_in_arguments_are_said_in_plain_words(
    orch: Orch, words: tuple[str, ...], said: str, step: str
) -> None:
    ended = orch(*words)
    assert ended.status == Exit.USAGE
    assert ended.err.splitlines() == [f"error[usage]: {said}", f"  next: {step}"]


@pytest.mark.parametrize("command", ["plan", "launch"])
@pytest.mark.parametrize("machines", ["H100:8", "v5litepod-16", "auto", "local:2"])
def test_machines_and_settings_of_the_trainer_are_no_command(orch: Orch, command: str, machines: str) -> None:
    ended = orch(command, machines, "model=300m", "model.experts=8")
    assert ended.status == Exit.USAGE and f"`{machines}` names machines" in ended.err
    assert f"next: orch train {machines} model=300m model.experts=8 " in ended.err
    assert orch("plan", "--infra", "local:1", "env", "LR=0.1").status == 0
    assert orch("plan", "--infra", "local:1", "make", "part=1").status == 0


def test_a_missing_argument_is_exit_2(orch: Orch) -> None:
    said = orch("down")
    assert said.status == 2 and "CLUSTER" in said.err


def test_a_bug_leaves_its_traceback_in_a_file(orch_process: Orch, home: Path) -> None:
    """A real fault: the store's place is a file where a folder has to be... made by putting a folder at the file."""
    (home / "state" / "orch.db").mkdir(parents=True)
    said = orch_process("status")
    assert said.status == 1 and "Traceback" not in said.err
    assert len(said.err.splitlines()) <= 5
    (log,) = (home / "state" / "crash").iterdir()
    assert str(log) in said.err
    text = log.read_text()
    assert "Traceback" in text and "orchestrator" in text
    assert log.stat().st_mode & 0o077 == 0 or log.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", ["variable", "root", "verb"])
def test_debug_shows_the_traceback(orch_process: Orch, home: Path, how: str) -> None:
    (home / "state" / "orch.db").mkdir(parents=True)
    words = {"variable": ("status",), "root": ("--debug", "status"), "verb": ("status", "--debug")}[how]
    said = orch_process(*words, env={"ORCH_DEBUG": "1"} if how == "variable" else None)
    assert said.status == 1 and "Traceback" in said.err


def test_debug_after_the_dashes_belongs_to_the_command(orch_process: Orch, home: Path) -> None:
    said = orch_process("exec", "nowhere", "--", "prog", "--debug")
    assert said.status == 3 and "Traceback" not in said.err


def test_an_expected_failure_has_no_traceback_and_no_crash_file(orch_process: Orch, home: Path) -> None:
    said = orch_process("status", "nowhere")
    assert said.status == 3 and "Traceback" not in said.err
    assert not (home / "state" / "crash").exists()


def test_a_traceback_that_cannot_be_kept_is_shown(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    home.write_text("in the way of every folder")
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError as error:
        assert print_error(error, debug=False) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err and "raise ZeroDivisionError" in err and "log:" not in err and "a bug in orch" in err


def test_errors_are_at_most_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    status = print_error(UserError("a", "b\nc\nd", "e\nf\ng"), debug=False)
    assert status == 2 and len(capsys.readouterr().err.splitlines()) == 5


def test_a_keyboard_interrupt_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_error(KeyboardInterrupt(), debug=False) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_leaving_on_purpose_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    left = OrchError("stopped watching; job 1 continues to run", next_step="orch logs -f mine   to watch again")
    left.code, left.exit_status = "detached", Exit.INTERRUPTED
    assert print_error(left, debug=False) == 130
    assert capsys.readouterr().err == "stopped watching; job 1 continues to run\n  orch logs -f mine   to watch again\n"


def test_a_reader_that_leaves_ends_us_quietly(filled: Path) -> None:
    """`orch events | head -1` with more output than a pipe holds."""
    from orchestrator.store.store import Store

    with Store(filled / "state" / "orch.db") as store:
        for number in range(900):
            store.event("mine", "note", f"{number} " + "x" * 200)
    script = f'{sys.executable} -m orchestrator events mine | head -1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "141"


def test_a_broken_pipe_that_is_not_stdout_is_a_failure(monkeypatch: pytest.MonkeyPatch, orch: Orch) -> None:
    from orchestrator.cli import app as module

    def broken(_ctx: click.Context) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(module.app, "invoke", broken)
    said = orch("status")
    assert said.status == 1 and "BrokenPipeError" in said.err


def test_exit_statuses_are_documented_as_they_are() -> None:
    """docs/exit-codes.md has one row per value, and no other."""
    text = (Path(__file__).parents[2] / "docs" / "exit-codes.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| `?([A-Z_]+)`? \|", text, re.MULTILINE))
    assert rows == {str(status.value): status.name for status in Exit}
