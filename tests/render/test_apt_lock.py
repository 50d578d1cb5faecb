"""Packages of the distribution while a machine's first upgrade runs: the real apt-get, in separate folders."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from render_support import TEMPLATES, run_script

pytestmark = pytest.mark.skipif(
    shutil.which("apt-get") is None or os.geteuid() != 0, reason="needs apt-get and the rights of root"
)


@pytest.fixture
def apt(tmp_path: Path) -> dict[str, str]:
    """The environment in which apt-get knows no package and no source, and changes nothing of this machine."""
    for name in ("lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/sources.list.d", "dpkg"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("dpkg/status", "etc/sources.list"):
        (tmp_path / name).touch()
    folders = {"State::Lists": "lists", "Cache": "cache", "State::status": "dpkg/status", "Etc": "etc"}
    (tmp_path / "conf").write_text("".join(f'Dir::{key} "{tmp_path / name}";\n' for key, name in folders.items()))
    return {"APT_CONFIG": str(tmp_path / "conf")}


def install(folder: Path, env: dict[str, str], packages: str) -> tuple[int, str, str]:
    functions = "".join((TEMPLATES / "run" / name).read_text() for name in ("root.sh.j2", "apt.sh.j2"))
    done = run_script(f"set -euo pipefail\n{functions}\norch_apt {packages}\n", folder / "home", env)
    return done.returncode, done.stdout, done.stderr


def test_the_lock_of_the_lists_is_waited_for(tmp_path: Path, apt: dict[str, str]) -> None:
    with (tmp_path / "lists/lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        timer = threading.Timer(2, fcntl.lockf, (lock, fcntl.LOCK_UN))
        timer.start()
        began = time.monotonic()
        status, out, err = install(tmp_path, apt, "")
        assert (status, err) == (0, "") and out.startswith("waiting up to 10 min for the lock")
        assert time.monotonic() - began >= 2
        timer.join()


def test_another_failure_is_final_and_reports_the_words_of_apt(tmp_path: Path, apt: dict[str, str]) -> None:
    status, _, err = install(tmp_path, apt, "no-such-package")
    assert status == 100
    assert "Unable to locate package no-such-package" in err
