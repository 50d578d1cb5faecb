"""The first evening of a new user: a closed terminal, a finished run, wrong paths and forgotten values."""

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

from trainer.commands import split_command
from trainer.config import DataConfig
from trainer.data.corpus import open_corpus
from trainer.errors import ConfigError, DataError


@pytest.mark.parametrize(("before", "status"), [(signal.SIG_DFL, 75), (signal.SIG_IGN, 0)])
def test_closed_terminal_saves_however_many_signals_it_sends_unless_under_nohup(
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


def test_run_continues_without_its_terminal(tmp_path: Path, corpus: Path) -> None:
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
    assert (tmp_path / "c/step-00000009-e0001-a0001/manifest.json").exists()


def test_finished_run_reports_that_its_steps_were_reached_before(launch: Launcher, tmp_path: Path) -> None:
    words = ("steps=2", f"checkpoint.uri={tmp_path}/c")
    assert "was reached before" not in launch.toy(1, *words).ok().text()
    again = launch.toy(1, *words).ok()
    assert "done: 2 steps; steps=2 was reached before: give more steps to continue" in again.text()


def test_missing_or_empty_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: str) -> str:
        with pytest.raises(DataError) as caught:
            open_corpus(DataConfig(source=source), lambda _: None)
        return str(caught.value)

    monkeypatch.chdir(tmp_path)
    assert f"data=bookz: no such file or folder on this host: {tmp_path}/bookz" in refused("bookz")
    (tmp_path / "a.txt").touch()
    assert refused("a.txt") == "data=a.txt: the file here is empty: a.txt"
    (tmp_path / "b.txt").touch()
    assert refused(f"{tmp_path}:*.txt").endswith("every file here is empty: a.txt, b.txt")


def test_tilde_is_expanded_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "books").mkdir()
    (tmp_path / "books/a.txt").write_text("some text")
    assert open_corpus(DataConfig(source="~/books:*.txt"), lambda _: None).total_tokens == 9


def test_key_without_its_value_is_distinguished_from_a_command() -> None:
    with pytest.raises(ConfigError, match="write steps=VALUE"):
        split_command(["steps"])


def test_locale_without_our_symbols_does_not_end_the_command(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "smoke", "data=/no/such"],
        cwd=REPOSITORY, env={**os.environ, **plain}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert b"? data" in done.stdout
