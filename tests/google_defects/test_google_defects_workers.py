"""Faults that others have on the hosts of a slice, and orch has not. defect_table.py says whose each one is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google_defects_bench import Bench

from orchestrator.simulator.scenario import Deed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_command_that_fails_on_chosen_workers_gives_its_status_and_names_them(bench: Bench, four: str) -> None:
    done = bench.orch("exec", four, "--worker", "1,3", "--", "exit 3")
    assert done.returncode == 3, done.stderr
    assert re.findall(r"^worker(\d) .*exit 3", done.stderr, re.M) == ["1", "3"], done.stderr


def test_a_command_that_ends_with_255_ran_once_on_every_worker(bench: Bench, four: str) -> None:
    done = bench.orch("exec", four, "--", "echo ran >> ~/runs-of-255; exit 255")
    assert done.returncode == 255, done.stderr
    assert "exit 255" in done.stderr and "signal" not in done.stderr, "255 is a status of the program's own"
    told = bench.orch.ok("exec", four, "--no-prefix", "--", "wc -l < ~/runs-of-255")
    assert told.split() == ["1"] * 4


def test_a_program_that_ends_by_a_signal_has_failed_with_it(bench: Bench, four: str) -> None:
    done = bench.orch("exec", four, "--host", "2", "--", "kill -SEGV $$")
    assert done.returncode == 128 + 11, done.stderr
    assert "signal" in done.stderr and "worker2" in done.stderr


def test_each_worker_has_a_log_of_its_own(bench: Bench, four: str) -> None:
    bench.orch.ok("exec", four, "--", "echo only-$ORCH_RANK")
    (newest,) = json.loads(bench.orch.ok("queue", four, "--all", "-o", "json"))["jobs"][-1:]
    for rank in (0, 3):
        words = ("logs", four, str(newest["id"]), "--worker", str(rank), "--no-prefix")
        assert bench.orch.ok(*words) == f"only-{rank}\n"


def test_lines_of_workers_are_whole_and_say_whose_they_are(bench: Bench, four: str) -> None:
    line = "x" * 3000
    said = bench.orch.ok("exec", four, "--", f"for i in $(seq 50); do echo $ORCH_RANK {line} $i; done")
    lines = said.splitlines()
    found = [re.fullmatch(rf"\((?:head|worker\d), rank=(\d), [0-9.]+\) (\d) {line} (\d+)", each) for each in lines]
    assert len(lines) == 200 and all(found)
    assert all(each and each[1] == each[2] for each in found), "a line carries the name of another worker"


def test_standard_input_goes_to_no_worker_by_chance(bench: Bench, four: str) -> None:
    command = [sys.executable, "-m", "orchestrator", "exec", four, "--", "cat; echo end"]
    done = subprocess.run(
        command, input="mine\n", env=bench.orch.env, cwd=bench.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mine" not in done.stdout and done.stdout.count(") end\n") == 4


def test_files_of_several_workers_come_each_into_a_folder_of_its_own(bench: Bench, four: str) -> None:
    bench.orch.ok("exec", four, "--", "echo of-$ORCH_RANK > ~/mine.txt")
    bench.orch.ok("cp", f"{four}:mine.txt", "./got")
    got = {file.parent.name: file.read_text() for file in (bench.folder / "got").glob("*/mine.txt")}
    assert got == {"head": "of-0\n", "worker1": "of-1\n", "worker2": "of-2\n", "worker3": "of-3\n"}


def test_words_arrive_as_they_were_typed(bench: Bench, four: str) -> None:
    words = ["a  b", "$HOME", "it's", 'say "x"', "$(id)", "`id`", "two\nlines", "*", "%TPU%", "\\"]
    said = bench.orch.ok("exec", four, "--head", "--no-prefix", "--", "printf", "[%s]\\n", *words)
    assert said == "".join(f"[{word}]\n" for word in words)


def test_a_host_is_checked_by_its_whole_key_from_the_first_connection(bench: Bench, four: str) -> None:
    shown = bench.orch.ok("ssh", "--print", four, "2")
    assert "StrictHostKeyChecking=yes" in shown
    alias = re.search(r"HostKeyAlias=(\S+)", shown)
    known = re.search(r'UserKnownHostsFile="([^"]+)"', shown)
    assert alias and known
    pins = dict(line.split(" ", 1) for line in Path(known[1]).read_text().splitlines())
    assert alias[1] == alias[1].lower() and len(pins) == 4, "OpenSSH keeps names in lower case"
    kind, key = pins[alias[1]].split()[:2]
    assert kind == "ssh-ed25519" and len(key) == 68, "the whole key, not its end"


def test_commands_at_once_do_not_disturb_each_other(bench: Bench, four: str) -> None:
    def one(rank: int) -> int:
        return bench.orch("exec", four, "--host", str(rank), "--", f"sleep 0.3; exit {10 + rank}").returncode

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, (1, 2))) == [11, 12]


def test_a_preview_makes_no_key_asks_nobody_and_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    before = len(bench.google.server.requests)
    orch = type(bench.orch)(tmp_path, dict(bench.google.env))
    task = bench.folder / bench.task("dry", "hostname")
    for words in (("plan", str(task)), ("launch", str(task), "--dry-run"), ("plan", str(task), "-o", "sh")):
        orch.ok(*words)
    assert list(tmp_path.rglob("*")) == []
    assert len(bench.google.server.requests) == before


def test_hosts_that_are_gone_fail_the_command_and_are_named(bench: Bench, four: str) -> None:
    """Last in this file: it breaks the slice."""
    bench.do(f"{four}-1", Deed.FAIL_HOST, rank=3)
    done = bench.orch("exec", four, "--", "true", timeout=200)
    assert done.returncode == 8, done.stderr
    assert "host 3 of 4" in done.stderr and "Traceback" not in done.stderr, done.stderr
