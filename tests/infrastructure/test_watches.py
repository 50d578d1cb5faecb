"""tests/watches.toml, and the log of opened files by which each run of a whole folder proves its row."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from support.orch_process import Orch

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from watches import Folder, Watches, is_below  # noqa: E402  # a script, and no part of a package

WATCHES = Watches.load(ROOT)
PART_MINUTES = 40
PLACES = [
    *(path for package in ("orchestrator", "trainer", "templates") for path in sorted((ROOT / package).iterdir())),
    *(ROOT / name for name in ("examples", "docs", "scripts", "tests/fronts", "README.md", "CONTRIBUTING.md")),
]


def test_every_folder_of_tests_has_a_row_and_every_row_a_folder() -> None:
    assert set(WATCHES.folders) == {path.parent.name for path in ROOT.glob("tests/*/test_*.py")}


def test_every_path_that_is_watched_exists() -> None:
    listed = {path for folder in WATCHES.folders.values() for path in folder.watches} | set(WATCHES.everywhere)
    assert [path for path in listed if path != "." and not list(ROOT.glob(path))] == []


@pytest.mark.parametrize("place", [str(place.relative_to(ROOT)) for place in PLACES if place.name != "__pycache__"])
def test_everything_that_orch_consists_of_is_watched(place: str) -> None:
    watching = [name for name in WATCHES.touched([place]) if "." not in WATCHES.folders[name].watches]
    assert watching, f"a change of {place} would run no folder of tests but those that watch everything"


def test_no_part_of_the_full_lane_is_too_long() -> None:
    parts: dict[str, float] = {}
    for folder in WATCHES.folders.values():
        parts[folder.part] = parts.get(folder.part, 0.0) + folder.minutes
    assert 10 <= len(parts) <= 14
    assert {part: minutes for part, minutes in parts.items() if minutes > PART_MINUTES} == {}


@cache
def imported_names(file: Path) -> frozenset[str]:
    """Return the modules and packages that a file imports: `a.b` for `from a.b import c`. It is faster than ast."""
    return frozenset(re.findall(r"^\s*(?:from|import) ([\w.]+)", file.read_text("utf-8"), re.M))


def imported(folder: str) -> set[str]:
    """Return the files of the checkout that a folder's modules import, or those of tests/support that it names."""
    tests = ROOT / "tests"
    files = [*(tests / folder).glob("*.py")]
    files += [tests / "support" / f"{name}.py" for name in WATCHES.support_of(WATCHES.folders[folder])]
    packages = (ROOT, tests / "fronts")
    folders = [tests / name for name in WATCHES.folders]
    names = {name for file in files if file.exists() for name in imported_names(file)}
    names -= {"conftest", *(path.stem for path in (tests / folder).glob("*.py"))}
    ours = {name for name in names if re.match(r"(orchestrator|trainer|orch_fronts)\b", name)}
    stems = [place / name.replace(".", "/") for name in ours for place in packages]
    stems += [folder / name for name in names - ours if "." not in name for folder in folders]
    paths = {path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")}
    return {str(path.relative_to(ROOT)) for path in paths if path.is_file()}


@pytest.mark.parametrize("folder", WATCHES.folders)
def test_a_folder_watches_what_its_own_modules_import(folder: str) -> None:
    assert WATCHES.missing(folder, imported(folder)) == []


def test_the_reader_of_imports_finds_modules_of_the_product_and_of_other_folders() -> None:
    found = imported("front_engine")
    assert {"orchestrator/clock.py", "tests/engine/crash_matrix.py"} <= found
    assert any(path.startswith("tests/fronts/orch_fronts/") for path in found)


def table(tmp_path: Path) -> Watches:
    support = tmp_path / "tests" / "support"
    support.mkdir(parents=True)
    (support / "farm.py").write_text("from support import hosts\n")
    (support / "hosts.py").write_text("")
    (support / "other.py").write_text("")
    (tmp_path / "tests" / "conftest.py").write_text("")
    for name, text in (("plan", ""), ("remote", "from support.farm import Farm\n")):
        (tmp_path / "tests" / name).mkdir()
        (tmp_path / "tests" / name / "test_it.py").write_text(text)
    (tmp_path / "tests" / "watches.toml").write_text("""
everywhere = ["pyproject.toml", "requirements"]
[groups]
base = ["orchestrator/*.py", "orchestrator/values"]
[folders.plan]
part = "pure"
minutes = 1
watches = ["+base", "orchestrator/plan"]
[folders.remote]
part = "hosts"
minutes = 2
watches = ["+base", "orchestrator/remote", "templates/run.sh"]
""")
    return Watches.load(tmp_path)


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("orchestrator/plan/decide.py", ["plan"]),
        ("orchestrator/plan/data/plan.schema.json", ["plan"]),
        ("orchestrator/planning/x.py", []),
        ("orchestrator/errors.py", ["plan", "remote"]),
        ("orchestrator/values/time.py", ["plan", "remote"]),
        ("templates/run.sh", ["remote"]),
        ("templates/setup.sh", []),
        ("requirements/test.lock", ["plan", "remote"]),
        ("tests/plan/test_new.py", ["plan"]),
        ("tests/support/farm.py", ["remote"]),
        ("tests/support/hosts.py", ["remote"]),
        ("tests/support/other.py", []),
        ("docs/design.md", []),
    ],
)
def test_a_changed_path_runs_the_folders_that_watch_it(path: str, folders: list[str], tmp_path: Path) -> None:
    assert list(table(tmp_path).touched([path])) == folders


def test_what_a_folder_opens_and_does_not_watch_is_listed(tmp_path: Path) -> None:
    opened = ["orchestrator/plan/a.py", "orchestrator/errors.py", "tests/plan/data.json", "requirements/test.lock"]
    watches = table(tmp_path)
    assert watches.missing("plan", opened) == []
    more = ["orchestrator/store/rows.py", "tests/support/farm.py", "templates/run.sh", "tests/remote/helper.py"]
    assert watches.missing("plan", opened + more) == sorted(set(more))


def test_a_place_has_what_is_below_it() -> None:
    assert is_below("a/b.py", ["a"]) and is_below("a", ["a"]) and is_below("x", ["."])
    assert is_below("a/b.py", ["a/*.py"]) and not is_below("a/c/b.py", ["a/*.py"]) and not is_below("ab/c", ["a"])


# The log of opened files


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "opened"
    path.touch()
    monkeypatch.setenv("PYTEST_OPENED_FILES", str(path))
    return path


def run_python(code: str, **more: str) -> None:
    env = {**os.environ, **more}
    subprocess.run([sys.executable, "-c", code], env=env, check=False, timeout=60, cwd=ROOT / "docs")


@pytest.mark.parametrize(
    ("end", "first"),
    [
        ("", "pass;"),
        ("import os; os._exit(1)", "pass;"),
        ("import os; os.kill(os.getpid(), 9)", "pass;"),
        ("", "import os; os.fork() and os._exit(os.wait()[1] >> 8);"),
    ],
    ids=["exit", "os._exit", "SIGKILL", "fork"],
)
def test_a_process_is_recorded_however_it_ends(log: Path, first: str, end: str) -> None:
    run_python(f"{first} import orchestrator.errors, orchestrator.catalog; open('design.md').read(); {end}")
    opened = log.read_text().splitlines()
    assert {"orchestrator/errors.py", "orchestrator/catalog/__init__.py", "docs/design.md"} <= set(opened)
    assert not [path for path in opened if "__pycache__" in path or not (ROOT / path).is_file()]


def test_a_name_relative_to_another_folder_is_not_taken_for_a_file_of_the_checkout(log: Path, tmp_path: Path) -> None:
    (tmp_path / "no-such-file").write_text("")
    run_python(f"import os; os.open('no-such-file', os.O_RDONLY, dir_fd=os.open({str(tmp_path)!r}, os.O_RDONLY))")
    assert not [path for path in log.read_text().splitlines() if path.startswith("docs/")]


@pytest.mark.parametrize("fresh", [True, False], ids=["new interpreter", "forked"])
def test_a_command_of_orch_is_recorded_in_a_new_process_and_in_a_forked_one(
    log: Path, tmp_path: Path, fresh: bool
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "from support.orch_process import Orch\n\n"
        f"def test_it(tmp_path):\n    assert Orch(tmp_path, fresh={fresh})('status').returncode == 0\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test)]
    env = {name: value for name, value in os.environ.items() if name != "ORCH_LANE"}
    env["PYTHONPATH"] = str(ROOT / "tests")
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert {"orchestrator/__main__.py", "orchestrator/cli/app.py"} <= set(log.read_text().splitlines())


def test_without_the_variable_nothing_is_recorded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_OPENED_FILES")
    run_python("import orchestrator.errors")
    assert log.read_text() == ""


def test_a_row_is_red_when_a_process_opens_what_it_does_not_name(log: Path) -> None:
    run_python("import orchestrator.errors, trainer.errors")
    narrow = Folder(name="plan", part="pure", minutes=1, watches=("orchestrator",))
    watches = Watches(ROOT, WATCHES.everywhere, {"plan": narrow}, {})
    assert "trainer/errors.py" in watches.missing("plan", log.read_text().splitlines())


def test_the_environment_of_a_command_keeps_the_log(log: Path, tmp_path: Path) -> None:
    assert Orch(tmp_path).env["PYTEST_OPENED_FILES"] == str(log)
