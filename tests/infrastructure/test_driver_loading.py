"""Modules of drivers that several threads load at the same time, as an engine does that starts with several jobs."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator import drivers

SLOW = """
import time
from pathlib import Path
Path(__file__).with_suffix(".begun").touch()
time.sleep(0.5)
PLANNER = "complete"
"""


def test_a_module_that_another_thread_imports_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "slow_driver"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "planner.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(drivers._MODULES, "slow", "slow_driver")  # pyright: ignore[reportPrivateUsage]  # a driver of this test
    begun = threading.Event()

    def load_later(_number: int) -> str:
        begun.wait(10)
        return str(drivers.load_part("slow", "planner").PLANNER)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(lambda: str(drivers.load_part("slow", "planner").PLANNER))
        later = [pool.submit(load_later, number) for number in range(3)]
        while not (package / "planner.begun").exists():
            time.sleep(0.01)
        begun.set()
        assert [one.result(20) for one in (first, *later)] == ["complete"] * 4
