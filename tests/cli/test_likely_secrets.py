"""Variables of `envs` that are secrets by name or form: no plan and no display shows them, the program gets them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch as OrchProcess

from orchestrator.documents.events import mask_columns
from orchestrator.task.likely_secrets import is_likely_secret

Orch = Callable[..., Any]

BY_NAME = [
    *(
        "WANDB_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "PGPASSWORD",
        "db_passwd",
        "SSH_PRIVATE_KEY",
    ),
    *("DB_PASS", "MYSQL_PWD", "GH_PAT", "API_KEYS", "HF_TOKEN_READ", "SESSION_COOKIE", "PASS"),
    *("SECRET", "MY_CREDENTIAL", "SERVICE_CREDENTIALS", "KEY_PASSPHRASE", "OPENAI_APIKEY", "HF_TOKEN_2"),
]
BY_VALUE = (
    "hf_" + "aB3" * 11,
    "ghp_" + "aB3" * 12,
    "github_pat_" + "aB3" * 12,
    "AKIAIOSFODNN7EXAMPLE",
    "sk-proj-" + "aB3" * 9,
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "postgresql://me:hunter2@db.example/runs",
    "Authorization: Bearer hf_" + "aB3" * 11,
    "Basic aGVsbG86d29ybGQ6b2Y=",
    "https://" + "a1" * 16 + "@o1.ingest.example/1",
    "https://hooks.slack.com/services/T000/B000/XXXX",
    "https://bucket.example/data?X-Amz-Date=1&X-Amz-Signature=0123456789abcdef",
    "AccountName=a;AccountKey=aB3aB3aB3aB3aB3aB3==;EndpointSuffix=core",
)
HARMLESS = {
    "TOKENIZERS_PARALLELISM": "false-value",
    "KEYBOARD": "qwertz-value",
    "TOKEN_COUNT": "1234567",
    "MAX_TOKENS": "2345678",
    "EOS_TOKEN": "<endoftext>",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/google.json",
    "SECRET_NAME": "name-of-one",
    "COMMIT": "0123456789abcdef0123456789abcdef01234567",
    "MODEL": "sk-learn-pipeline-of-ours",
    "HF_HUB_ENABLE_HF_TRANSFER": "hf_transfer",
    "DOCS": "https://example.com/a:b@c",
    "OLDPWD": "/home/me/earlier",
    "COMPASS": "north-value",
    "DATA_PATH": "/data/of-a-path",
    "QUERY": "https://example.com/?tokens=1234567890&design=abcdefgh",
    "KIND": "Basic training of a model",
}


def write_task(folder: Path, envs: dict[str, str], more: str = "") -> str:
    path = folder / "task.yaml"
    path.write_text(f"name: mine\nresources: {{infra: local}}\nrun: echo running\nenvs: {json.dumps(envs)}\n{more}")
    return str(path)


@pytest.mark.parametrize("form", [(), ("-v",), ("-o", "sh"), ("-o", "json")])
def test_no_plan_shows_variables_with_the_name_of_a_secret(orch: Orch, tmp_path: Path, form: Any) -> None:
    said = orch(
        "launch", "--dry-run", *form, write_task(tmp_path, {**dict.fromkeys(BY_NAME, "hunter2"), "LR": "0.125"})
    )
    assert said.status == 0
    assert "hunter2" not in said.out + said.err
    proposed = ", ".join(f"{name}: null" for name in BY_NAME)
    assert f"\n  secrets: {{{proposed}}}\nand " in said.err and said.err.count("look like secrets") == 1
    if form:
        assert all(name in said.out for name in BY_NAME) and "0.125" in said.out


@pytest.mark.parametrize("form", [("-v",), ("-o", "sh"), ("-o", "json")])
def test_no_plan_shows_values_with_the_form_of_a_secret(orch: Orch, tmp_path: Path, form: Any) -> None:
    envs = {f"GIVEN_{number}": value for number, value in enumerate(BY_VALUE)}
    said = orch("launch", "--dry-run", *form, write_task(tmp_path, envs))
    assert said.status == 0
    for name, value in envs.items():
        lines = (value, json.dumps(value)[1:-1], *(line for line in value.split("\n") if line))
        assert not [line for line in lines if line in said.out + said.err]
        assert f"{name}: null" in said.err


def test_other_variables_are_shown_and_cause_no_note(orch: Orch, tmp_path: Path) -> None:
    said = orch("launch", "--dry-run", "-v", write_task(tmp_path, HARMLESS))
    assert not [name for name, value in HARMLESS.items() if value not in said.out] and "secret" not in said.err


def test_the_lines_that_are_proposed_end_the_note(orch: Orch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = orch("launch", "--dry-run", write_task(tmp_path, {"HF_TOKEN": "hunter2"}))
    proposed = next(line.strip() for line in first.err.splitlines() if line.startswith("  secrets:"))
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    said = orch("launch", "--dry-run", "-v", write_task(tmp_path, {}, proposed + "\n"))
    assert said.status == 0 and "look" not in said.err and "HF_TOKEN=****" in said.out


@pytest.mark.parametrize("words", [("--env", "HF_TOKEN=hunter2"), ("--env=HF_TOKEN=hunter2",)])
def test_the_command_that_a_plan_ends_with_shows_none(orch: Orch, tmp_path: Path, words: tuple[str, ...]) -> None:
    for form in ("text", "sh", "json"):
        said = orch("launch", "--dry-run", "-o", form, write_task(tmp_path, {}), *words, "--env", "LR=0.125")
        assert "hunter2" not in said.out + said.err and "LR=0.125" in said.out
        assert f"{words[0].partition('=')[0]}" in said.out and "HF_TOKEN" in said.out


@pytest.mark.parametrize("unit", ["-eyJ", "-sk-", "://:", "-hf_a", "-----BEGIN ", "TOKEN_"])
def test_a_long_value_is_judged_in_linear_time(unit: str) -> None:
    long = unit * (1_000_000 // len(unit))
    begin = time.process_time()
    is_likely_secret(long, long)
    assert time.process_time() - begin < 5


def test_exec_hides_it_too(orch: Orch, filled: Path) -> None:
    said = orch("exec", "mine", "--env", "HF_TOKEN=hunter2", "--env", "LR=0.125", "--dry-run", "-v", "--", "ls")
    assert "HF_TOKEN=****" in said.out and "hunter2" not in said.out and "LR=0.125" in said.out


def test_a_wrong_number_is_not_shown_either(orch: Orch, tmp_path: Path) -> None:
    path = Path(write_task(tmp_path, {}))
    path.write_text("run: x\nenvs: {DB_PASSWORD: 0123}\n")
    said = orch("launch", "--dry-run", str(path))
    assert said.status == 2 and "0123" not in said.err and "quote it" in said.err


def test_the_script_of_a_plan_stops_until_it_has_the_value(orch: Orch, tmp_path: Path) -> None:
    said = orch("launch", "--dry-run", "-o", "sh", write_task(tmp_path, {"HF_TOKEN": "hunter2"}))
    clean = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", said.out], env=clean, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0 and "HF_TOKEN: set this secret" in done.stderr


def test_events_show_no_likely_secret_of_a_command_that_a_service_ran() -> None:
    arguments = {"command": "echo hi", "env": {"DB_PASSWORD": "hunter2", "LEVEL": "3"}, "hosts": [0]}
    shown = json.loads(mask_columns({"arguments": json.dumps(arguments)})["arguments"])
    assert shown == arguments | {"env": {"DB_PASSWORD": "****", "LEVEL": "3"}}
    line: dict[str, Any] = {"command": "X=hf_0123456789abcdefghij ./get", "env": {}}
    assert json.loads(mask_columns({"arguments": json.dumps(line)})["arguments"])["command"] == "****"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[OrchProcess]:
    orch = OrchProcess(tmp_path)
    yield orch
    orch("down", "mine")


@pytest.mark.slow
def test_the_program_gets_the_value_and_no_display_shows_it(local: OrchProcess, tmp_path: Path) -> None:
    path = Path(write_task(tmp_path, {"HF_TOKEN": "hunter2"}))
    path.write_text(path.read_text().replace("echo running", 'echo "${#HF_TOKEN} characters"'))
    assert "7 characters" in local.ok("launch", str(path))
    detached = local("launch", str(path), "--detach")
    assert detached.returncode == 0 and "hunter2" not in detached.stdout + detached.stderr
    for words in (("status", "mine"), ("queue", "--all"), ("runs",), ("events",)):
        for form in ((), ("-o", "json")):
            assert "hunter2" not in local.ok(*words, *form)
    assert b"hunter2" not in (local.state / "engine.log").read_bytes()
    local.ok("events", "--verify")
