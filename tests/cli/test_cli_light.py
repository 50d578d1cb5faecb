"""Verbs that only look: what they print, for people and for programs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store

Orch = Callable[..., Any]
PACKAGE = Path(orchestrator.__file__).parent


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(next(PACKAGE.glob(f"*/data/{name}.schema.json")).read_text())
    jsonschema.Draft202012Validator.check_schema(loaded)
    return loaded


def test_status_of_nothing_prints_no_data_and_suggests_the_first_command(orch: Orch) -> None:
    said = orch("status")
    assert (said.status, said.out) == (0, "")
    assert "orch launch --help" in said.err


def test_status_lists_existing_clusters_only(orch: Orch, filled: Path) -> None:
    said = orch("status")
    assert said.status == 0 and said.err == ""
    head, *rows = said.out.splitlines()
    assert head.split() == ["NAME", "STATE", "SEEN", "HOSTS", "MACHINES", "WHERE", "MARKET", "JOB", "PRICE"]
    assert len(rows) == 1 and rows[0].startswith("mine  ready")
    assert "2      cpu       local" in rows[0] and "1 exit 3" in rows[0] and "free" in rows[0]


def test_status_of_one_cluster_shows_hosts_jobs_and_earlier_machines(orch: Orch, filled: Path) -> None:
    said = orch("status", "mine")
    assert "me@127.0.0.11:2201" in said.out
    assert "exit 3: program failed on worker1" in said.out
    assert "mine-1: deleted (taken back)" in said.out
    assert "LAST EVENTS" in said.out


def test_status_shows_which_process_works_on_the_cluster(orch: Orch, filled: Path) -> None:
    assert "at work" not in orch("status", "mine").out
    with Store(filled / "state" / "orch.db") as store:
        lease = store.acquire("cluster:mine", "launch")
        assert isinstance(lease, Lease)
        assert f"process {os.getpid()}" in orch("status", "mine").out
        found = json.loads(orch("status", "mine", "-o", "json").out)
    assert "(launch)" in found["clusters"][0]["working"]


def test_status_as_json_keeps_its_schema(orch: Orch, filled: Path) -> None:
    for words in (("status",), ("status", "mine")):
        said = orch(*words, "-o", "json")
        found = json.loads(said.out)
        jsonschema.validate(found, schema("status"))
        assert [cluster["name"] for cluster in found["clusters"]] == ["mine"]
        assert found["clusters"][0]["machines"]["price_per_hour"] == 0
        assert [job["status"] for job in found["clusters"][0]["jobs"]] == [3, None]
    jsonschema.validate(json.loads(orch("status", "-o", "json").out), schema("status"))


def test_empty_status_as_json_is_a_document_too(orch: Orch) -> None:
    found = json.loads(orch("status", "-o", "json").out)
    jsonschema.validate(found, schema("status"))
    assert found["clusters"] == []


def test_unknown_cluster_is_exit_3_with_the_nearest_name(orch: Orch, filled: Path) -> None:
    said = orch("status", "nine")
    assert said.status == 3 and said.out == ""
    assert "no cluster 'nine'" in said.err and "mine" in said.err and "next: orch status" in said.err


def test_events_of_a_deleted_cluster(orch: Orch, filled: Path) -> None:
    lines = orch("events", "other").out.splitlines()
    assert len(lines) == 2 and "nothing is left" in lines[1]
    assert len(orch("events").out.splitlines()) > len(lines)


def test_events_as_json_keep_their_schema_and_jsonl_has_the_same_items(orch: Orch, filled: Path) -> None:
    found = json.loads(orch("events", "-o", "json").out)
    jsonschema.validate(found, schema("events"))
    lines = [json.loads(line) for line in orch("events", "-o", "jsonl").out.splitlines()]
    assert lines == found["events"] and len(lines) >= 8
    assert [item["seq"] for item in lines] == sorted(item["seq"] for item in lines)


def test_events_after_a_number_are_the_rest(orch: Orch, filled: Path) -> None:
    everything = json.loads(orch("events", "-o", "json").out)["events"]
    middle = everything[3]["seq"]
    rest = json.loads(orch("events", "--after", str(middle), "-o", "json").out)["events"]
    assert rest == everything[4:]
    newest = json.loads(orch("events", "-n", "2", "-o", "json").out)["events"]
    assert newest == everything[-2:]


def test_followed_events_come_as_they_happen_and_ctrl_c_ends_it(filled: Path) -> None:
    command = [sys.executable, "-m", "orchestrator", "events", "mine", "-f", "-o", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Store(filled / "state" / "orch.db") as store:
            store.event("mine", "note", "something new")
            store.event("other", "note", "not for us")
            store.event("mine", "note", "and more")
        seen: list[str] = []
        while "and more" not in seen:
            seen.append(json.loads(process.stdout.readline())["what"])
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert seen[-2:] == ["something new", "and more"]


def test_one_json_document_cannot_follow(orch: Orch, filled: Path) -> None:
    said = orch("events", "-f", "-o", "json")
    assert said.status == 2 and "jsonl" in said.err


def test_ssh_prints_the_command_it_would_become(orch: Orch, filled: Path) -> None:
    said = orch("ssh", "--print", "mine", "1", "--", "python", "-c", "print('a b')")
    assert said.status == 0
    assert "HostKeyAlias=mine-1.1" in said.out and "StrictHostKeyChecking=yes" in said.out
    import shlex

    assert shlex.split(shlex.split(said.out)[-1]) == ["python", "-c", "print('a b')"]


def test_one_word_after_ssh_is_a_shell_line(orch: Orch, filled: Path) -> None:
    import shlex

    assert shlex.split(orch("ssh", "--print", "mine", "--", "df -h | tail").out)[-1] == "df -h | tail"


@pytest.mark.parametrize("words", [("--print", "mine", "1"), ("mine", "--print", "1"), ("mine", "1", "--print")])
def test_ssh_takes_its_options_anywhere_before_the_dashes(orch: Orch, filled: Path, words: tuple[str, ...]) -> None:
    said = orch("ssh", *words, "--", "2", "--print")
    assert said.status == 0 and "HostKeyAlias=mine-1.1" in said.out
    import shlex

    assert shlex.split(said.out)[-1] == "2 --print"


def test_ssh_refuses_an_unknown_option_by_name(orch: Orch, filled: Path) -> None:
    said = orch("ssh", "mine", "--prnt")
    assert said.status == 2 and "--prnt" in said.err and "--print" in said.err


def test_ssh_to_a_host_that_is_not_there_names_those_that_are(orch: Orch, filled: Path) -> None:
    said = orch("ssh", "mine", "7")
    assert said.status == 2 and "no host 7" in said.err and "0 to 1" in said.err


def test_config_explain_names_every_place_and_the_winner_first(
    orch: Orch, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[checkpoint]\nbucket = "gs://from-file"\n')
    monkeypatch.setenv("ORCH_CONFIG", str(file))
    monkeypatch.setenv("ORCH_CHECKPOINT_BUCKET", "gs://from-environment")
    lines = orch("config", "explain", "checkpoint.bucket").out.splitlines()
    assert "effective" in lines[1] and "gs://from-environment" in lines[1] and "ORCH_CHECKPOINT_BUCKET" in lines[1]
    assert "overridden" in lines[2] and "gs://from-file" in lines[2] and f"{file}:2" in lines[2]
    values = json.loads(orch("config", "explain", "checkpoint.bucket", "-o", "json").out)["values"]
    assert [value["source"] for value in values] == ["environment", "configuration"]
    assert orch("config", "path").out.strip() == str(file)
    assert "gs://from-environment" in orch("config", "list").out


def test_config_explain_of_an_unknown_key_suggests_the_right_one(orch: Orch) -> None:
    said = orch("config", "explain", "checkpoint.buckets")
    assert said.status == 2 and "checkpoint.bucket" in said.err


@pytest.mark.parametrize(
    ("words", "step"),
    [("mine uptime -p", "mine -- uptime -p"), ("mine 1 ls -l 'a b'", "mine 1 -- ls -l 'a b'"), ("mine -p", "--help")],
)
def test_an_option_of_the_command_of_a_host_belongs_behind_the_dashes(orch: Orch, words: str, step: str) -> None:
    said = orch("ssh", *shlex.split(words))
    assert said.status == 2 and f"orch ssh {step}" in said.err


def test_machines_without_accelerators_are_listed_by_cpu_and_by_name(orch: Orch) -> None:
    plain = orch("accelerators", "--cpu").out.splitlines()
    assert plain[0].split()[:3] == ["NAME", "VCPUS", "MEMORY"]
    listed = {line.split()[0]: line.split()[1:5] for line in plain[1:]}
    assert listed["t3.medium"] == ["2", "4", "GiB", "$0.04"]
    assert listed["e2-standard-4"] == ["4", "16", "GiB", "$0.13"] and len(listed) == 22 + 43
    assert orch("accelerators", "m7i.xlarge").out.splitlines()[1].split()[:2] == ["m7i.xlarge", "4"]
    assert not [
        line for line in orch("accelerators").out.splitlines() if line.startswith(("t3.", "m7i.", "e2-", "n2-"))
    ]
    of_chip = orch("accelerators", "l4").out.splitlines()
    names = [line.split()[0] for line in of_chip[1:]]
    assert {"g6.xlarge", "g6.2xlarge", "g2-standard-4"} < set(names) and len(names) == 16
    (one,) = json.loads(orch("accelerators", "t3.medium", "-o", "json").out)["accelerators"]
    assert (one["chip"], one["vcpus"], one["memory_gib"], one["chips"]) == (None, 2, 4, 0)


def test_accelerators_by_any_name_and_by_part_of_one(orch: Orch) -> None:
    assert orch("accelerators", "tpu-v5e-16").out.splitlines()[1].split()[:3] == ["v5litepod-16", "4", "16"]
    assert len(orch("accelerators", "v5p").out.splitlines()) > 3
    said = orch("accelerators", "v5e-17")
    assert said.status == 2 and "v5litepod-16" in said.err
    found = json.loads(orch("accelerators", "v5e-16", "-o", "json").out)["accelerators"]
    assert found[0]["chips"] == 16 and found[0]["on_demand_per_hour"]["low"] > 0


def test_a_price_that_is_not_known_is_never_shown_as_nothing(orch: Orch) -> None:
    rows = json.loads(orch("accelerators", "-o", "json").out)["accelerators"]
    unknown = [row["name"] for row in rows if row["on_demand_per_hour"] is None]
    assert unknown
    shown = orch("accelerators", unknown[0]).out
    assert "unknown" in shown and "$0.00" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(orch: Orch, shell: str) -> None:
    said = orch("completion", shell)
    assert said.status == 0 and "_ORCH_COMPLETE" in said.out


def complete(orch_process: Orch, *words: str) -> list[str]:
    env = {"_ORCH_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    said = orch_process(env=env)
    assert said.err == ""
    return [line.partition(",")[2] for line in said.out.splitlines()]


def test_completion_knows_commands_options_and_existing_clusters(orch_process: Orch, filled: Path) -> None:
    assert complete(orch_process, "orch", "st") == ["status", "stop", "start", "storage", "store"]
    assert complete(orch_process, "orch", "logs", "m") == ["mine"]
    assert complete(orch_process, "orch", "down", "") == ["mine"]
    assert "--refresh" in complete(orch_process, "orch", "status", "--r")


def test_bash_completes_through_the_real_script(orch_process: Orch, filled: Path, tmp_path: Path) -> None:
    """The shell's own machinery, with an `orch` on its PATH."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "orch"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m orchestrator "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(orch completion bash)"; COMP_WORDS=(orch status mi); COMP_CWORD=2; '
        '_orch_completion orch mi status; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, check=True, timeout=60)
    assert done.stdout.split() == ["mine"]


def test_preempt_can_be_previewed(orch: Orch, filled: Path) -> None:
    said = orch("local", "preempt", "mine", "1", "--dry-run")
    assert said.status == 0 and "would kill worker1" in said.err and "mine-2" in said.err


def test_status_shows_how_old_its_knowledge_is(orch: Orch, filled: Path) -> None:
    time.sleep(0.01)
    row = orch("status").out.splitlines()[1]
    assert " ago" in row
