"""`orch init` through the command line: on a terminal, with options alone, and with hostile answers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.orch_process import Orch
from support.terminal import Terminal, on_terminal

from orchestrator.task.parse import load_task_file

PROMPT = r"answer, or \? for help.*: $"
RunOrch = Callable[..., Any]


@pytest.fixture
def person(tmp_path: Path) -> Orch:
    """A person without credentials, in a folder with a program."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (work / "train.py").write_text("print('it ran')\n")
    (work / "requirements.txt").write_text("")
    clouds = {name: "" for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_"))}
    folders = {"HOME": str(home), "ORCH_HOME": str(tmp_path / "orch")}
    return Orch(work, {**folders, "AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true", **clouds})


@contextmanager
def init(person: Orch, *words: str) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "orchestrator", "init", *words]
    with on_terminal(command, env=person.env, cwd=person.folder) as terminal:
        yield terminal


@pytest.mark.slow
def test_enter_leads_through_all_questions_to_a_task_file_that_launches(person: Orch) -> None:
    with init(person, "--no-check") as terminal:
        first = terminal.expect(PROMPT)
        assert "1 of 7" in first and "gcloud auth application-default login" in first and "docs/google.md" in first
        assert "aws configure sso" in first and "docs/aws.md" in first and "--print-policy user" in first
        assert "[local]" in first, "this computer is all that was found"
        while terminal.process.poll() is None:
            terminal.type("")
            try:
                terminal.expect(PROMPT)
            except AssertionError:
                break
        assert terminal.finish() == 0, terminal.seen
    assert len(re.findall(r"^\d of 7", terminal.seen, re.MULTILINE)) == 5, "nothing is rented: no market and no limit"
    assert terminal.seen.rstrip().endswith("orch launch task.yaml")
    assert "\x1b[" not in re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen) and "\r" not in terminal.seen, (
        "nothing is redrawn"
    )
    task = load_task_file(str(person.folder / "task.yaml"), env={}).only
    assert task.run == "python3 train.py" and task.workdir == "." and not task.setup
    assert "it ran" in person.ok("launch", "task.yaml", "--yes", "--down")


def test_a_wrong_answer_is_explained_and_the_question_repeated(person: Orch) -> None:
    with init(person, "--no-check", "--infra", "aws", "--model", "tiny", "--tokens", "1M", "--no-use-spot") as terminal:
        terminal.expect(PROMPT)
        terminal.type("?")
        assert "orch accelerators" in terminal.expect(PROMPT)
        terminal.type("H100:7")
        assert "no machine of aws has 7 H100" in terminal.expect(PROMPT)
        terminal.type("1")
        assert "s3://" in terminal.expect(PROMPT)
        terminal.type("s3://../x")
        assert "cannot be a bucket's name" in terminal.expect(PROMPT)
        terminal.type("gs://other/runs")
        assert "cannot use gs://other/runs" in terminal.expect(PROMPT)
        terminal.type("none")
        terminal.expect(PROMPT)
        terminal.type("-5")
        assert "is not an amount" in terminal.expect(PROMPT)
        terminal.type("12")
        assert terminal.finish() == 0, terminal.seen
    found = yaml.safe_load((person.folder / "task.yaml").read_text())
    assert found["limits"] == {"max_cost": 12, "idle_minutes": 30} and "checkpoint" not in found


@pytest.mark.parametrize("answered", [0, 2])
def test_ctrl_c_leaves_nothing_behind(person: Orch, answered: int) -> None:
    before = sorted(person.folder.iterdir())
    with init(person, "--no-check") as terminal:
        for _ in range(answered):
            terminal.expect(PROMPT)
            terminal.type("")
        terminal.expect(PROMPT)
        terminal.interrupt()
        assert terminal.finish() == 130
    assert "interrupted" in terminal.seen and "Traceback" not in terminal.seen
    assert sorted(person.folder.iterdir()) == before


def test_an_existing_file_is_replaced_only_after_a_question(person: Orch) -> None:
    (person.folder / "task.yaml").write_text("mine\n")
    words = ("--no-check", "--infra", "local:1", "--program", "true", "--workdir", "none", "--bucket", "none")
    with init(person, *words) as terminal:
        terminal.expect(r"Replace it\? \[y/N\]: $")
        terminal.type("n")
        assert terminal.finish() == 1
    assert (person.folder / "task.yaml").read_text() == "mine\n"
    done = person("init", *words, "--yes")
    assert done.returncode == 2 and "--overwrite" in done.stderr, "--yes agrees to what is proposed, not to a loss"
    assert (person.folder / "task.yaml").read_text() == "mine\n"
    person.ok("init", *words, "--overwrite")
    assert (person.folder / "task.yaml").read_text() != "mine\n"


def test_a_link_is_not_followed(person: Orch) -> None:
    (person.folder / "precious").write_text("mine\n")
    (person.folder / "task.yaml").symlink_to(person.folder / "precious")
    words = ("--no-check", "--infra", "local:1", "--program", "true", "--workdir", "none", "--bucket", "none")
    assert person("init", *words, "--yes").returncode == 2
    person.ok("init", *words, "--overwrite")
    assert (person.folder / "precious").read_text() == "mine\n"
    assert not (person.folder / "task.yaml").is_symlink()


ALL = ("--infra", "aws", "--program", "python train.py", "--accelerators", "H100:8", "--bucket", "s3://mine-runs/a",
       "--no-use-spot", "--workdir", ".", "--max-cost", "60", "--no-check")  # fmt: skip


@pytest.mark.parametrize(
    ("left_out", "option"),
    [
        (0, "--infra PLACE"),
        (2, "--program COMMAND or --model PRESET"),
        (4, "--accelerators NAME"),
        (6, "--bucket URI"),
        (8, "--use-spot or --no-use-spot"),
        (9, "--workdir FOLDER"),
        (11, "--max-cost DOLLARS"),
    ],
)
def test_without_a_terminal_a_missing_answer_names_its_option(person: Orch, left_out: int, option: str) -> None:
    count = 1 if ALL[left_out] == "--no-use-spot" else 2
    done = person("init", *ALL[:left_out], *ALL[left_out + count :])
    assert done.returncode == 2 and option in done.stderr and "--yes" in done.stderr, done.stderr
    assert not (person.folder / "task.yaml").exists()


def test_options_alone_write_what_the_questions_write(person: Orch) -> None:
    person("init", *ALL, "-o", "one.yaml")
    done = person("init", "--yes", *ALL[:8], "--no-check", "-o", "two.yaml")
    assert done.returncode == 4 and "instance profile" in done.stderr, (
        "as the launch: the plan is refused, the file saved"
    )
    one, two = ((person.folder / name).read_text() for name in ("one.yaml", "two.yaml"))
    assert re.sub("max_cost: .*", "", one) == re.sub("max_cost: .*", "", two)
    assert done.stdout.startswith(two), "it shows the file"
    assert 'setup: "python3 -m pip install --quiet -r requirements.txt"' in two


@pytest.mark.parametrize(
    "name", ["../there.yaml\n", "x\x1b[31m.yaml", "noending", "a/b/c.yaml", ".", "x" * 300 + ".yaml", "/dev/null", ""]
)
def test_a_file_name_that_cannot_be_is_refused_before_the_questions(orch: RunOrch, name: str) -> None:
    done = orch("init", "--yes", "--infra", "local:1", "--program", "true", "--no-check", "-o", name)
    assert done.status == 2 and len(done.err.splitlines()) <= 5 and "\x1b" not in done.err, done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "300m", "--program", "x"), "exclude each other"),
        (("--model", "300mm"), "did you mean 300m?"),
        (("--tokens", "many"), "not a number of tokens"),
        (("--infra", "azure"), "not a place"),
        (("--infra", "*"), "any cloud"),
        (("--program", "HF_TOKEN=hf_" + "a" * 34 + " python train.py"), "looks like a secret"),
        (("--program", "x" * 10_001), "10,001 characters"),
        (("--program", "a\x00b"), "control characters"),
        (("--name", "../x"), "cannot be a task's name"),
        (("--num-nodes", "0"), "not a number of machines"),
        (("--by", "2001-01-01"), "is over"),
        (("--by", "soon"), "is not a time"),
        (("--flops", "many"), "is not a number such as 1e21"),
        (("--memory", "$320"), "is not a number of GiB"),
        (("--model", "tiny", "--flops", "1e21"), "exclude each other"),
        (("--idle-minutes", "0"), "not a number of minutes"),
        (("--hosts", "-oProxyCommand=x"), "not the address of a host"),
        (("--infra", "local:1", "--workdir", "/no/such"), "does not exist"),
        (("--infra", "gcp", "--bucket", "file:///tmp/x"), "cannot use file:///tmp/x"),
    ],
)
def test_a_wrong_option_is_refused_in_a_few_lines(orch: RunOrch, words: tuple[str, ...], said: str) -> None:
    done = orch("init", *words, "--no-check")
    assert done.status == 2 and said in done.err and len(done.err.splitlines()) <= 5, done.err
    assert "hf_a" not in done.err and "\x00" not in done.err


def test_budget_and_deadline_leave_out_machines(orch: RunOrch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("init", "--yes", "--infra", "gcp", "--program", "true", "--workdir", "none", "--no-check")
    assert orch(*words, "--budget", "0.01", "-o", "a.yaml").status == 2
    assert orch(*words, "--budget", "1", "-o", "b.yaml").status == 0


def test_a_task_file_of_skypilot_in_the_folder_is_pointed_out(person: Orch) -> None:
    (person.folder / "sky.yaml").write_text("resources:\n  cloud: gcp\nrun: echo\n")
    with init(person, "--no-check", "--infra", "local:1") as terminal:
        assert "orch import sky.yaml" in terminal.expect(PROMPT)


def test_the_check_reports_and_may_be_skipped(person: Orch) -> None:
    words = ("--infra", "aws", "--program", "true", "--workdir", "none", "--instance-type", "t3.medium",
             "--no-use-spot", "--bucket", "none", "--max-cost", "1")  # fmt: skip
    with init(person, *words) as terminal:
        assert "there are no AWS credentials" in terminal.expect(r"Check again\? \[y/N\]: $")
        terminal.type("y")
        terminal.expect(r"Check again\? \[y/N\]: $")
        terminal.type("")
        assert terminal.finish() == 0, terminal.seen


def test_a_credential_is_named_and_never_shown(person: Orch) -> None:
    home = person.folder.parent / "home"
    (home / ".aws").mkdir()
    secret = "wJalrXUtnFEMIK7MDENGbPxRfiCYCANARY"
    (home / ".aws" / "credentials").write_text(
        f"[lab]\naws_access_key_id = AKIACANARY\naws_secret_access_key = {secret}\n"
    )
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host gpu1 gpu2\n  User me\nHost *\n  IdentityFile ~/key\nHost a?\n")
    with init(person, "--no-check") as terminal:
        first = terminal.expect(PROMPT)
        assert ".aws/credentials has credentials; profile lab" in re.sub(r"\s+", " ", first)
        assert "gpu1, gpu2" in first and "a?" not in first
        terminal.interrupt()
        terminal.finish()
    assert "CANARY" not in terminal.seen
