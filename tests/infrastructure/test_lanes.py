"""What the lanes take, who gets a second try, and what outlives a run that is killed."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from datetime import date
from pathlib import Path

import pytest
from support import lanes
from support.lanes import STACK_DAYS, share_of

TESTS = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _short_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "FULL", False)


@pytest.mark.parametrize(("items", "count"), [(1, 1), (7, 2), (10, 3), (10, 10), (3, 5), (61, 10)])
def test_consecutive_days_take_every_item(items: int, count: int) -> None:
    days = range(20_780, 20_780 + -(-items // count))
    shares = [share_of(range(items), count, day) for day in days]
    assert {item for share in shares for item in share} == set(range(items))
    assert all(share == sorted(set(share)) and len(share) == min(count, items) for share in shares)


def test_one_day_takes_the_same_share_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_DAY", "5")
    assert share_of(range(10), 3) == share_of(range(10), 3, 5) == [5, 6, 7]


def test_the_full_lane_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "FULL", True)
    assert share_of(range(10), 3) == list(range(10))


def test_every_test_in_quarantine_exists_and_has_a_reason_and_a_date() -> None:
    for entry in tomllib.loads((TESTS / "quarantine.toml").read_text()).get("tests", []):
        assert set(entry) == {"test", "reason", "since"}, entry
        assert isinstance(entry["since"], date) and entry["reason"], entry
        path, _, name = entry["test"].partition("::")
        functions = ast.walk(ast.parse((TESTS.parent / path).read_text()))
        assert name.rpartition("::")[2] in {node.name for node in functions if isinstance(node, ast.FunctionDef)}, entry


def test_the_page_about_the_tests_names_what_exists() -> None:
    page = (TESTS / "README.md").read_text()
    assert [name for name in re.findall(r"`(support/\w+\.py)`", page) if not (TESTS / name).exists()] == []
    helpers = "".join(path.read_text() for path in (TESTS / "support").glob("*.py"))
    rows = re.findall(r"^\|[^|]+\|([^|]+)\| `support/", page, re.M)
    called = {name for row in rows for name in re.findall(r"(?<![.\w])(\w+)\(", row)} - {
        "Fleet",
        "InMemory",
        "Scenario",
        "ManualClock",
    }
    assert {name for name in called if not re.search(rf"^(def|class) {name}\b", helpers, re.M)} == set()


MARKED = """
import pytest

@pytest.mark.full
def test_full(): ...

@pytest.mark.rotating
@pytest.mark.parametrize("case", range(16))
def test_rotating(case): ...

@pytest.mark.slow
@pytest.mark.parametrize("case", range(16))
def test_slow(case): ...

def test_always(): ...
"""
GROUPED = """
import pytest

@pytest.mark.rotating("pages")
@pytest.mark.parametrize("case", range(2))
def test_grouped(case): ...
"""


def test_the_short_lane_leaves_out_full_tests_and_takes_turns_with_the_rotating(tmp_path: Path) -> None:
    project(tmp_path, test_marked=MARKED, test_a=GROUPED, test_b=GROUPED)
    days = [collected(tmp_path, ORCH_LANE="short", ORCH_DAY=str(day)) for day in range(lanes.TURN_DAYS)]
    for names in days:
        assert [name for name in names if "always" in name or "full" in name] == ["test_marked.py::test_always"]
        assert [sum(kind in name for name in names) for kind in ("rotating", "slow")] == [1, 1]
        assert len({name.split("::")[0] for name in names if "grouped" in name}) == 1
        assert len(names) == 1 + 1 + 1 + 2
    assert len({name for names in days for name in names}) == 1 + 16 + 16 + 4
    assert len(collected(tmp_path, ORCH_LANE="")) == 1 + 1 + 16 + 16 + 4, "who names tests gets them"


def test_every_file_and_every_slow_test_of_it_has_its_days(monkeypatch: pytest.MonkeyPatch) -> None:
    files = lanes.list_rotating_files(TESTS)
    assert len(files) > 200 and {file.parent.name for file in files}.isdisjoint(lanes.EVERY_DAY)
    assert TESTS / "engine" / "test_engine_machine.py" not in files, "its group has its own turns"
    tried, slow = [], set()
    for day in range(20_783, 20_783 + lanes.TURN_DAYS):
        monkeypatch.setenv("ORCH_DAY", str(day))
        of_today = lanes.files_of_today(files)
        tried += of_today
        slow |= {(file, test) for file in of_today for test in lanes.in_turn_of_file(file, range(5))}
    twice = [file for file in files if file.parent.name not in lanes.COSTLY]
    assert len(twice) < len(files) and sorted(tried) == sorted([*files, *twice])
    assert slow == {(file, test) for file in files for test in range(5)}


def test_a_file_with_its_turn_on_another_day_is_not_imported() -> None:
    ours = {name: value for name, value in os.environ.items() if name != "ORCH_EVERY_POINT"}
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests/engine"]
    env = {**ours, "ORCH_LANE": "short", "ORCH_DAY": "20783"}
    done = subprocess.run(words, env=env, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    collected = {line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("tests/engine/test_")}
    files = lanes.list_rotating_files(TESTS)
    left_out = set(files) - set(lanes.files_of_today(files, 20_783))
    assert collected
    assert collected.isdisjoint(str(file.relative_to(TESTS.parent)) for file in left_out)


STACK = """
import pytest

pytestmark = [pytest.mark.jax, pytest.mark.rotating]

@pytest.mark.parametrize("case", range(CASES))
def test_of_a_stack(case): ...
"""


@pytest.mark.parametrize("cases", [*range(1, 13), 20, 25, 37])
@pytest.mark.parametrize("remainder", range(STACK_DAYS))
def test_every_rotating_test_of_a_stack_is_reached_on_the_days_of_the_stack(
    cases: int, remainder: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"test_stack_{cases}_{remainder}.py"
    file.write_text(STACK.replace("CASES", str(cases)))
    items = list(pytest.Module.from_parent(request.session, path=file).collect())
    conftest = request.config.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    assert len(items) == cases and conftest is not None
    tried = set()
    for day in range(20_780 + remainder, 20_840, STACK_DAYS):
        monkeypatch.setenv("ORCH_DAY", str(day))
        tried |= set(items) - set(conftest.not_today(items))
    assert tried == set(items), "in 60 days"


STAYS = """
import subprocess, time

def test_stays(tmp_path):
    marked = subprocess.Popen(["sleep", "600"], start_new_session=True)
    by_folder = subprocess.Popen(["env", "-i", "sleep", "600"], start_new_session=True, cwd=tmp_path)
    print(marked.pid, by_folder.pid, file=open({pids!r}, "w"), flush=True)
    time.sleep(600)
"""


def test_a_killed_run_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    project(tmp_path, test_stays=STAYS.format(pids=str(pids)))
    run = subprocess.Popen(command(tmp_path), env={**os.environ, "PYTHONPATH": str(TESTS)}, cwd=tmp_path)
    until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    run.send_signal(signal.SIGKILL)
    run.wait()
    until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))


UNSTEADY = """
from pathlib import Path

def test_first(tmp_path_factory):
    mark = Path(__file__).with_name("mark")
    assert mark.exists() or mark.write_text("") is None and False

def test_second():
    mark = Path(__file__).with_name("mark2")
    assert mark.exists() or mark.write_text("") is None and False
"""


def test_only_a_test_in_quarantine_gets_a_second_try_and_the_run_says_so(tmp_path: Path) -> None:
    project(tmp_path, test_unsteady=UNSTEADY)
    entry = {"test": "test_unsteady.py::test_first", "reason": "a reason", "since": "2026-11-23"}
    conftest = tmp_path / "conftest.py"
    conftest.write_text(f"{conftest.read_text()}\nQUARANTINE[{entry['test']!r}] = {entry!r}\n")
    done = subprocess.run(
        command(tmp_path), env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False
    )
    assert "test_unsteady.py::test_first: needed it in this run. Since 2026-11-23: a reason" in done.stdout, done.stdout
    assert "test_second" in done.stdout and "1 failed, 1 passed" in done.stdout


def project(folder: Path, **files: str) -> None:
    """Write test files, and this project's conftest beside them."""
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text().replace("__file__", repr(str(TESTS / "x"))))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    full\n    rotating\n    slow\n    jax\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def command(folder: Path, *words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        *words,
        str(folder),
    ]


def collected(folder: Path, **env: str) -> list[str]:
    """Return the ids of the tests that would run."""
    ours = {name: value for name, value in os.environ.items() if name != "ORCH_EVERY_POINT"}
    environment = {**ours, "PYTHONPATH": str(TESTS), **env}
    words = command(folder, "--collect-only")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def until(done: object, seconds: float = 60.0) -> None:
    assert callable(done)
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_no_two_files_have_one_name() -> None:
    """Pytest imports a file by its name: two of one name fail on the days on which both have their turn."""
    names = [path.name for path in TESTS.glob("*/test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
