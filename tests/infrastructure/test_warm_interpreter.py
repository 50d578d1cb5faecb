"""A command in a forked process cannot be distinguished from one in a new interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import warm_server
from support.orch_process import Orch
from support.warm_interpreter import WarmPopen, can_fork, start_server

TESTS = Path(__file__).parent.parent
PIPE = subprocess.PIPE


@pytest.fixture(autouse=True)
def server() -> None:
    """Start the server before a test changes what it would inherit."""
    start_server()


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    env = {**Orch(tmp_path).env, "PROBE_ODD": "a\nb=é", **more}
    del env["PATH"]  # a variable of the server that the command does not get
    return env


def fresh(tmp_path: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    """Start the probe as `python -m` starts a module."""
    env = environment(tmp_path, PYTHONPATH=str(TESTS), **more)
    return subprocess.Popen(
        [sys.executable, "-m", "support.warm_probe", *words],
        env=env,
        cwd=tmp_path,
        text=True,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )


def warm(tmp_path: Path, *words: str, **more: str) -> WarmPopen:
    env = environment(tmp_path, **more)
    return WarmPopen(words, env=env, cwd=tmp_path, entry="warm_probe", stdin=PIPE, stdout=PIPE, stderr=PIPE)


def state(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    found["environment"].pop("PYTHONPATH", None)
    return found


def test_its_state_is_that_of_a_new_interpreter(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        forked, new = state(warm(tmp_path, "state", "--odd", "")), state(fresh(tmp_path, "state", "--odd", ""))
    finally:
        os.umask(mask)
    assert forked == new
    assert forked["umask"] == 0o027
    assert forked["folder"] == str(tmp_path)


def test_a_signal_that_its_parent_ignores_is_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        forked, new = state(warm(tmp_path, "state")), state(fresh(tmp_path, "state"))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert forked["signals"] == new["signals"]


@pytest.mark.parametrize(
    "words", [("exit", "0"), ("exit", "3"), ("raise", "x"), ("signal", "2"), ("signal", "15"), ("signal", "9")]
)
def test_it_ends_as_a_new_interpreter_does(tmp_path: Path, words: tuple[str, ...]) -> None:
    ends = [process(tmp_path, *words) for process in (warm, fresh)]
    texts = [end.communicate(timeout=60)[1].splitlines()[-1:] for end in ends]
    assert ends[0].returncode == ends[1].returncode
    assert texts[0] == texts[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_it_alone(tmp_path: Path, number: signal.Signals) -> None:
    with warm(tmp_path, "sleep", "60") as other, warm(tmp_path, "sleep", "60") as process:
        for started in (other, process):
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.send_signal(number)
        assert process.wait(30) == -number
        assert process.stdout is not None
        assert process.stdout.read() == "", "its stream ends with it, although another process runs"
        assert other.poll() is None
        other.kill()


def test_its_streams_are_its_own(tmp_path: Path) -> None:
    first, second = warm(tmp_path, "copy"), warm(tmp_path, "copy")
    assert second.communicate("two é\n", timeout=30) == ("two é\n", "é to stderr\n")
    assert first.communicate("one\n" * 100_000, timeout=30)[0] == "one\n" * 100_000


def test_what_is_read_at_the_start_of_an_interpreter_asks_for_a_new_one(tmp_path: Path) -> None:
    assert can_fork(environment(tmp_path))
    for name in ("PYTHONIOENCODING", "LC_ALL", "TZ", "PYTHONPATH"):
        assert not can_fork(environment(tmp_path, **{name: "x"})), name


def test_the_server_imports_and_does_nothing_else() -> None:
    """What it imports starts no thread and depends on no environment and no file of a caller: so do filled caches."""
    script = """
import importlib, json, os, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
from support.warm_server import MODULES
variables, opened = set(), set()
class Recording(type(os.environ)):
    def __getitem__(self, name):
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in ("os", "_collections_abc"):
            frame = frame.f_back
        if frame.f_globals["__name__"].startswith("orchestrator"):
            variables.add(f"{frame.f_globals['__name__']} {name}")
        return super().__getitem__(name)
os.environ.__class__ = Recording
installed = (sys.prefix, sys.base_prefix, *sys.path[:2], "/usr/", "/etc/", "/lib", "/proc/", "/dev/", "/sys/")
def record(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and not arguments[0].startswith(installed):
        opened.add(arguments[0])
sys.addaudithook(record)
for name in MODULES:
    importlib.import_module(name)
print(json.dumps([sorted(variables), sorted(opened), threading.active_count(), len(os.listdir("/proc/self/task"))]))
"""
    folders = json.dumps([str(TESTS), str(TESTS.parent)])
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_OPENED_FILES"}  # it writes there, too
    done = subprocess.run([sys.executable, "-c", script, folders], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout) == [[], [], 1, 1]
    assert "orchestrator.__main__" in warm_server.MODULES


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
from support.warm_interpreter import start_server
print(start_server()._process.pid)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    end = time.monotonic() + 30
    while Path("/proc", done.stdout.strip(), "cmdline").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path("/proc", done.stdout.strip(), "cmdline").exists()
