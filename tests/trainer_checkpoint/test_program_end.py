"""orch_run: a rank that never comes is named, and a process that is asked to end does not wait for it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from program_crash import save_step, two_ranks

from trainer.program import saver, start


@pytest.mark.parametrize("before", [False, True], ids=["while it waits", "before it ends"])
def test_sigterm_ends_the_wait_for_a_rank_that_never_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: bool
) -> None:
    monkeypatch.setattr(start, "_QUIET_SECONDS", 0)
    monkeypatch.setattr(saver, "_STOPPED_SECONDS", 0.0)
    first, absent = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    assert not first.should_stop() and first._stop is not None
    try:
        for step in (1, 2):
            save_step(first, step, sharded=True)
        if before:
            os.kill(os.getpid(), signal.SIGTERM)
        end = threading.Thread(target=first.close)
        end.start()
        if not before:
            end.join(0.5)
            assert end.is_alive(), "without a request it waits"
            os.kill(os.getpid(), signal.SIGTERM)
        end.join(60)
        assert not end.is_alive()
    finally:
        first._stop.__exit__(None, None, None)
    absent.close()
    said = capsys.readouterr().err
    assert "orch_run[0]: waiting for rank 1 to save checkpoint 1 as well, for at most 15 min" in said or before
    assert "checkpoint 2 was not written: this process ends" in said
    assert first.latest() is None
