"""The tests and amounts of each lane, the quarantine, and the processes of a run that is killed."""

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
from support.lanes import CHANGED_SHARE, evenly_spread, share_of

TESTS = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _without_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    use_lane(monkeypatch, "")


def use_lane(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(lanes, "LANE", name)
    monkeypatch.setattr(lanes, "FULL", name == "full")


@pytest.mark.parametrize(("items", "count"), [(1, 1), (7, 2), (10, 3), (10, 10), (3, 5), (61, 10)])
def test_the_share_of_the_core_is_part_of_that_of_a_change_and_both_are_fixed(
    items: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {}
    for lane in ("core", "changed", "full"):
        use_lane(monkeypatch, lane)
        shares[lane] = share_of(range(items), count)
        assert shares[lane] == share_of(range(items), count) == sorted(set(shares[lane]))
    assert {lane: len(share) for lane, share in shares.items()} == {
        "core": min(count, items),
        "changed": min(count * CHANGED_SHARE, items),
        "full": items,
    }
    assert set(shares["core"]) <= set(shares["changed"]) <= set(range(items))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
def test_every_beginning_of_the_order_is_spread_evenly(count: int) -> None:
    order = evenly_spread(count)
    assert sorted(order) == list(range(count))
    for length in range(2, count + 1):
        first = sorted(order[:length])
        gaps = [later - earlier for earlier, later in zip(first, [*first[1:], first[0] + count], strict=True)]
        assert max(gaps) <= 2 * count / length + 1, first


def test_tests_with_different_turns_take_different_items() -> None:
    assert {item for turn in range(5) for item in share_of(range(10), 2, turn)} == set(range(10))


def test_each_promise_has_one_test_in_the_core() -> None:
    representatives = lanes.list_representatives()
    page = (TESTS.parent / "docs" / "promises.md").read_text()
    assert list(representatives) == re.findall(r"^## (P\d+):", page, re.M)
    for promise, test in representatives.items():
        assert lanes.has_core_tests(TESTS / test.partition("::")[0]), f"{promise}: {test} is of a stack"


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

@pytest.mark.core
@pytest.mark.slow
def test_core(): ...

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.slow
def test_second_slow(): ...

def test_plain(): ...
"""
OF_STACK = """
import pytest

pytestmark = [pytest.mark.jax, pytest.mark.core]

def test_of_stack(): ...
"""
BROKEN = "raise RuntimeError('imported')"


def test_each_lane_has_its_tests(tmp_path: Path) -> None:
    project(tmp_path)
    for name, text in {"plan/test_a": MARKED, "plan/test_b": OF_STACK, "engine/test_c": MARKED}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    of_file = ("full", "core", "slow", "second_slow", "plain")
    every = {"b::of_stack", *(f"{file}::{name}" for file in "ac" for name in of_file)}
    without_full = every - {"a::full", "c::full"}
    one_slow = {"a::slow", "c::slow", "a::second_slow", "c::second_slow"}
    cases: list[tuple[dict[str, str], set[str]]] = [
        ({"ORCH_LANE": "core"}, {"a::core", "a::plain", "c::core"}),
        ({"ORCH_LANE": "changed"}, without_full - one_slow),  # the first slow test of a file is the core one
        ({"ORCH_LANE": "changed", "ORCH_CHANGED_PATHS": "x\ntests/engine/test_c.py"},
         without_full - {"a::slow", "a::second_slow"}),
        ({"ORCH_LANE": "full"}, every),
        ({}, every),
    ]  # fmt: skip
    for lane, names in cases:
        ids = collected(tmp_path, **lane)
        assert {re.sub(r".*test_(\w)\.py::test_", r"\1::", name) for name in ids} == names, lane


def test_the_core_has_the_first_test_of_each_promise_and_imports_no_file_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = lanes.list_representatives()["P1"]
    folder, file, name = re.split("/|::", promised)
    others = f"def test_other(): ...\n\n\ndef {name}(): ...\n"
    project(tmp_path / folder, **{file.removesuffix(".py"): others, "test_elsewhere": BROKEN})
    assert collected(tmp_path / folder, ORCH_LANE="core") == [f"{file}::{name}"]


DRAWING = """
import os
from hypothesis import given, settings, strategies

@settings(max_examples=30)
@given(strategies.lists(strategies.integers(), min_size=8, max_size=8))
def test_draws(numbers):
    with open(os.environ["EXAMPLES"], "a") as file:
        print(numbers, file=file)
"""


def test_property_tests_draw_the_same_examples_but_in_the_full_lane(tmp_path: Path) -> None:
    project(tmp_path / "plan", test_drawing=DRAWING)
    examples = {}
    for number, lane in enumerate(["core", "core", "changed", "full", "full"]):
        file = tmp_path / str(number)
        env = environment(ORCH_LANE=lane, EXAMPLES=str(file))
        subprocess.run(command(tmp_path / "plan"), env=env, capture_output=True, check=True)
        examples[number] = file.read_text()
    assert examples[0] == examples[1] == examples[2]
    assert examples[3] not in (examples[0], examples[4])


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
    run = subprocess.Popen(command(tmp_path), env=environment(), cwd=tmp_path)
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
    done = subprocess.run(command(tmp_path), env=environment(), capture_output=True, text=True, check=False)
    assert "test_unsteady.py::test_first: needed it in this run. Since 2026-11-23: a reason" in done.stdout, done.stdout
    assert "test_second" in done.stdout and "1 failed, 1 passed" in done.stdout


def project(folder: Path, **files: str) -> None:
    """Write test files, and this project's conftest beside them."""
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text().replace("__file__", repr(str(TESTS / "x"))))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    full\n    core\n    slow\n    jax\n")
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


def environment(**env: str) -> dict[str, str]:
    """Return the environment of a run without a lane."""
    ours = {name: value for name, value in os.environ.items() if name not in ("ORCH_LANE", "ORCH_CHANGED_PATHS")}
    return {**ours, "PYTHONPATH": str(TESTS), **env}


def collected(folder: Path, **env: str) -> list[str]:
    """Return the ids of the tests that would run."""
    words = command(folder, "--collect-only")
    done = subprocess.run(words, env=environment(**env), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
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
    """Pytest imports a file by its name: two of one name fail where a run has both."""
    names = [path.name for path in TESTS.glob("*/test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
