"""Rules for every test: signals as in a terminal, no process outlives the run, quarantine, and who runs what first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from support.lanes import FULL, LANE, has_core_tests, is_changed, is_core

# A runner in the background hands down an ignored Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# The time of an example depends on what else runs on the machine. The same commit has the same examples; new ones are
# drawn in the full lane, and what they find is committed as an example.
hypothesis.settings.register_profile("orch", deadline=None, derandomize=not FULL)
hypothesis.settings.load_profile("orch")

ROOT = Path(__file__).parent.parent
QUARANTINE = {
    entry["test"]: entry for entry in tomllib.loads((ROOT / "tests/quarantine.toml").read_text()).get("tests", [])
}
LIST_OF_RAN = os.environ.pop(
    "ORCH_RAN_TESTS", ""
)  # where scripts/test reads which tests ran; not for processes of tests
SECOND_TRY = "traceback of the first try"  # section of a report


@pytest.fixture
def hangups() -> Iterator[None]:
    """A hangup ends what the test starts, although the tests may run under nohup."""
    kept = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, kept)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        _end_processes_with_this_one(config)


def _end_processes_with_this_one(config: pytest.Config) -> None:
    """Start the process that ends what this run leaves behind, even when the run is killed."""
    mark = os.environ["PYTEST_RUN_MARK"] = uuid.uuid4().hex
    basetemp = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # pytest has no public name for it
    # Short, for the paths of sockets; other users may pass, for PostgreSQL does not run as root.
    temporary = os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="orch-")
    Path(temporary).chmod(0o755)
    script = str(Path(__file__).with_name("support") / "end_leftovers.py")
    subprocess.Popen(
        [sys.executable, "-S", "-E", script, str(os.getpid()), mark, str(basetemp), temporary],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files of which the core runs nothing: they are not even imported."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return (LANE == "core" and is_test and not has_core_tests(collection_path)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the lane does not run; begin with the files that have slow tests or those that the core names.

    The other order would leave a worker alone with one of them in the end.
    """
    left_out = list_left_out(items)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    first = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("core")}
    items[:] = sorted((item for item in items if item not in left_out), key=lambda item: item.path not in first)


def list_left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that the lane of this run leaves out. Without a lane, what is named runs."""
    if LANE == "core":
        return {item for item in items if not is_core(item)}
    if LANE != "changed":
        return set()
    left_out = {item for item in items if item.get_closest_marker("full")}
    slow = [item for item in items if item.get_closest_marker("slow") and item not in left_out]
    first = {item.path: item for item in reversed(slow)}
    return left_out | {
        item for item in slow if item is not first[item.path] and not is_core(item) and not is_changed(item.path)
    }


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file on one worker, except those that `support.lanes.spread` sets apart."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.endswith("@apart") else nodeid.split("::", 1)[0]

    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Give a test of tests/quarantine.toml, and no other, a second try, and say so in its report."""
    if item.nodeid.partition("[")[0] not in QUARANTINE:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    first = next((report for report in reports if report.failed), None)
    if first is not None:
        item._initrequest()  # type: ignore[attr-defined]  # makes its own fixtures again; pytest has no public name for it
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            report.sections.append((SECOND_TRY, first.longreprtext))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None]:
    yield
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    ran = {report.nodeid.partition("[")[0]: report for report in reports if report.when == "call"}
    if LIST_OF_RAN:
        ids = {
            report.nodeid.partition("@")[0]
            for kind in terminalreporter.stats.values()
            for report in kind
            if getattr(report, "when", "")
        }
        Path(LIST_OF_RAN).write_text("".join(f"{name}\n" for name in sorted(ids)))
    quarantined = {test: ran[test] for test in sorted(QUARANTINE) if test in ran}
    if quarantined:
        terminalreporter.section("quarantine: these tests get a second try", sep="-")
    for test, report in quarantined.items():
        again = any(name == SECOND_TRY for name, _ in report.sections)
        needed = "needed it in this run" if again else "passed at the first" if report.passed else "failed"
        terminalreporter.line(f"{test}: {needed}. Since {QUARANTINE[test]['since']}: {QUARANTINE[test]['reason']}")
