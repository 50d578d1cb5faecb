"""Light commands stay light: what they load, and how much of the machine they take, in ratios."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HEAVY = (
    "pydantic", "sqlalchemy", "rich", "jinja2", "paramiko", "fabric", "obstore", "boto3", "botocore", "google", "torch",
    "yaml", "cryptography", "asyncio", "importlib.metadata",
)  # fmt: skip
LIGHT = {
    "version": ["--version"],
    "help": ["--help"],
    "help of a verb": ["launch", "--help"],
    "help of exec": ["exec", "--help"],
    "help of logs": ["logs", "--help"],
    "completion": ["completion", "bash"],
    "notify": ["notify"],
    "status": ["status"],
    "status of one": ["status", "mine"],
    "status as json": ["status", "-o", "json"],
    "events": ["events"],
    "ssh": ["ssh", "--print", "mine"],
    "cost": ["cost"],
    "team": ["team"],
    "config explain": ["config", "explain", "checkpoint.bucket"],
    "accelerators": ["accelerators"],
    "offers": ["offers", "--model", "1b"],
    "a typing error": ["stauts"],
}
MOST_MODULES = 150  # beyond those of a bare interpreter: the time of a light command is that of its imports
LIST_MODULES = (
    "import json, sys; from orchestrator.__main__ import main; status = main(sys.argv[1:]);"
    "print('\\n' + json.dumps(sorted(sys.modules)))"
)


@pytest.mark.parametrize("words", LIGHT.values(), ids=LIGHT)
def test_a_light_command_loads_nothing_heavy(filled: Path, words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LIST_MODULES, *words], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "orchestrator.cli.app" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"{heavy}." for heavy in HEAVY)) or name in HEAVY] == []


@pytest.mark.parametrize("words", [["status"], ["queue"], ["runs"], ["events"]], ids=" ".join)
def test_a_read_command_loads_few_modules(filled: Path, words: list[str]) -> None:
    bare = [sys.executable, "-c", "import json, sys; print(json.dumps(sorted(sys.modules)))"]
    of_python, loaded = (
        set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]))
        for command in (bare, [sys.executable, "-c", LIST_MODULES, *words])
    )
    assert len(loaded - of_python) <= MOST_MODULES
    assert loaded.isdisjoint({"pydantic", "sqlalchemy", "starlette", "http.client", "ssl", "asyncio"})


def test_completing_a_cluster_name_loads_nothing_heavy(filled: Path) -> None:
    code = (
        "import atexit, json, sys; from orchestrator.__main__ import main;"
        "atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules)))); sys.exit(main([]))"
    )
    env = {**os.environ, "_ORCH_COMPLETE": "bash_complete", "COMP_WORDS": "orch logs m", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.startswith("plain,mine\n")
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert loaded.isdisjoint(HEAVY)


def test_completing_a_command_imports_no_command(filled: Path) -> None:
    code = (
        "import atexit, json, sys; from orchestrator.__main__ import main;"
        "atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules)))); sys.exit(main([]))"
    )
    env = {**os.environ, "_ORCH_COMPLETE": "bash_complete", "COMP_WORDS": "orch s", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    verbs = [name for name in loaded if name.startswith("orchestrator.")]
    assert not {
        "orchestrator.cli.commands.watch.status",
        "orchestrator.cli.commands.settings.storage",
        "orchestrator.store.read",
    } & set(verbs)


def ratio(command: Sequence[str], other: Sequence[str], runs: int = 15) -> float:
    """CPU time of one command in that of another, user and system.

    In turns, and the least of each: what else the machine does adds time, and takes none away.
    """
    costs = [(_cost(command), _cost(other)) for _ in range(runs)]
    return min(one for one, _ in costs) / min(two for _, two in costs)


def _cost(command: Sequence[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime


def peak_kib(code: str) -> int:
    """Most memory that a fresh interpreter held while it ran `code`, from the kernel's own count of this program.

    (ru_maxrss will not do: it begins with the size of whoever started the program.)
    """
    print_peak = (
        '; import sys; print(*(x for x in open("/proc/self/status") if x.startswith("VmHWM")), file=sys.stderr)'
    )
    done = subprocess.run([sys.executable, "-c", code + print_peak], capture_output=True, text=True, check=True)
    return int(done.stderr.split()[1])


ORCH = (sys.executable, "-m", "orchestrator")


def test_help_costs_little_more_than_click_itself(home: Path) -> None:
    """A ratio within one run: the machine's speed cancels out."""
    assert ratio((*ORCH, "--help"), (sys.executable, "-c", "import click")) <= 2.0


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_fits_in_30_mib(home: Path, words: list[str]) -> None:
    assert peak_kib(f"from orchestrator.__main__ import main; main({words})") <= 30 * 1024


def test_status_costs_little_more_than_help(filled: Path) -> None:
    assert ratio((*ORCH, "status"), (*ORCH, "--help")) <= 2.2
