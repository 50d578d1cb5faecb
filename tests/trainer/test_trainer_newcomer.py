"""What somebody does on the first evening: closes the terminal, asks for what is done, points at nothing."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainer_ranks import REPOSITORY, SMALL, Launcher

from trainer.commands import split
from trainer.config import DataConfig
from trainer.data.corpus import open_corpus
from trainer.errors import ConfigError, DataError


@pytest.mark.parametrize(("before", "status"), [(signal.SIG_DFL, 75), (signal.SIG_IGN, 0)])
def test_a_closed_terminal_saves_however_often_it_says_so_unless_by_nohup(
    tmp_path: Path, corpus: Path, before: signal.Handlers, status: int
) -> None:
    words = [*SMALL, f"data={corpus}", "steps=6", f"checkpoint.uri={tmp_path}/c", "metrics.file="]
    kept = signal.signal(signal.SIGHUP, before)  # inherited; the tests themselves may run under nohup
    try:
        run = subprocess.Popen(
            [sys.executable, "-m", "support.toy_engine", *words],
            cwd=REPOSITORY / "tests",
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TOY_SECONDS": "0.15"},
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGHUP, kept)
    with run:
        assert run.stdout is not None
        assert any("step 1/" in line for line in run.stdout)
        run.send_signal(signal.SIGHUP)
        time.sleep(0.03)  # two that wait together are one
        run.send_signal(signal.SIGHUP)
        said = run.stdout.read()
        assert run.wait(30) == status, said
    assert ("checkpoint saved" in said) == (status == 75)


def test_a_run_goes_on_when_its_terminal_is_gone(tmp_path: Path, corpus: Path) -> None:
    ours, theirs = pty.openpty()
    words = [*SMALL, f"data={corpus}", "steps=9", f"checkpoint.uri={tmp_path}/c", "metrics.file="]
    with subprocess.Popen(
        [sys.executable, "-m", "support.toy_engine", *words],
        cwd=REPOSITORY / "tests",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TOY_SECONDS": "0.05"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as run:
        os.close(theirs)
        seen, end = b"", time.monotonic() + 30
        while b"step 1/" not in seen and time.monotonic() < end:
            seen += os.read(ours, 4096)
        os.close(ours)
        assert run.wait(30) == 0
    assert (tmp_path / "c/step-00000009/manifest.json").exists()


def test_a_run_that_is_done_says_that_nothing_was_left_to_do(launch: Launcher, tmp_path: Path) -> None:
    words = ("steps=2", f"checkpoint.uri={tmp_path}/c")
    assert "nothing was left" not in launch.toy(1, *words).ok().text()
    again = launch.toy(1, *words).ok()
    assert "done: 2 steps; nothing was left to do for steps=2: give more steps to go on" in again.text()


def test_data_that_is_not_there_or_empty_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: str) -> str:
        with pytest.raises(DataError) as caught:
            open_corpus(DataConfig(source=source), lambda _: None)
        return str(caught.value)

    monkeypatch.chdir(tmp_path)
    assert f"data=bookz: no such file or folder on this host, looked for at {tmp_path}/bookz" in refused("bookz")
    (tmp_path / "a.txt").touch()
    assert refused("a.txt") == "data=a.txt: the file is empty"
    (tmp_path / "b.txt").touch()
    assert refused(f"{tmp_path}:*.txt").endswith("all files here are empty")


def test_a_path_of_the_home_is_found_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "books").mkdir()
    (tmp_path / "books/a.txt").write_text("some text")
    assert open_corpus(DataConfig(source="~/books:*.txt"), lambda _: None).total == 9


def test_a_key_without_its_value_is_told_from_a_command() -> None:
    with pytest.raises(ConfigError, match="write steps=VALUE"):
        split(["steps"])


def test_a_locale_without_our_marks_is_no_reason_to_end(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "smoke", "data=/no/such"],
        cwd=REPOSITORY, env={**os.environ, **plain}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert b"? data" in done.stdout
