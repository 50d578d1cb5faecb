"""One run, two computers (two state folders): one of them drives it, and a take-over loses no checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until

from trainer.checkpoint.manifest import Latest, Manifest, StepFolder

TINY = ("model=tiny", "model.dim=64", "model.layers=2", "seq_len=32", "batch=4", "threads=1", "log_every=50")
OFTEN = ("steps=200000", "checkpoint.every=100", "checkpoint.keep=100000")
AGREED = ("--trust-bucket", "--allow", "infra:local")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def computers(tmp_path: Path) -> Iterator[tuple[Orch, Orch]]:
    """Two installations on one machine; each is left without hosts."""
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text("a line to learn from\n" * 2000)
        found.append(Orch(tmp_path / name, fresh=True))  # the environment in /proc shows whose process it is
    yield found[0], found[1]
    for orch in found:
        orch("down", "train")


class Watcher:
    """Reads latest.json all the time; it must never go back."""

    def __init__(self, checkpoints: Path) -> None:
        self.seen: list[tuple[int, int]] = []
        self._path, self._end = checkpoints / "latest.json", threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.005):
            latest = Latest.from_json(self._path.read_bytes())
            if not self.seen or self.seen[-1] != (latest.epoch, latest.step):
                self.seen.append((latest.epoch, latest.step))


def whole(checkpoints: Path) -> dict[str, Manifest]:
    """Every checkpoint with a manifest; each of its parts must be there in its size."""
    found: dict[str, Manifest] = {}
    for path in checkpoints.glob("step-*/manifest.json"):
        folder = StepFolder.parse(path.parent.name)
        assert folder is not None
        found[folder.name] = Manifest.from_json(path.read_bytes(), folder)
        for part in found[folder.name].parts:
            assert (path.parent / part.name).stat().st_size == part.size
    return found


def drive(orch: Orch, bucket: str) -> tuple[subprocess.Popen[str], Path]:
    """Start a training; return it and its folder once it has a checkpoint."""
    words = ("train", "local:1", *TINY, *OFTEN, f"data={orch.folder}/text.txt", "--bucket", bucket)
    first, root = orch.start(*words), Path(bucket.removeprefix("file://"))

    def saved() -> bool:
        assert first.poll() is None, first.communicate()
        return any(root.glob("*/checkpoints/step-*/manifest.json"))

    until("a checkpoint", saved)
    return first, next(root.glob("*/epoch.json")).parent


def resume_beside(first: subprocess.Popen[str], other: Orch, *words: str) -> tuple[int, str]:
    """Resume from another computer; return its exit status and what it printed on stderr.

    The first driver is frozen until the wait is announced: a beat in its first two seconds would end it before that.
    """
    first.send_signal(signal.SIGSTOP)
    try:
        second, lines = other.start("resume", *words), []
        assert second.stderr is not None
        for line in second.stderr:
            lines.append(line)
            if "looking whether" in line:
                first.send_signal(signal.SIGCONT)
    finally:
        first.send_signal(signal.SIGCONT)
    return second.wait(60), "".join(lines)


@pytest.mark.promise("P17")
def test_a_second_computer_is_refused_until_it_takes_the_run_over(computers: tuple[Orch, Orch], tmp_path: Path) -> None:
    here, there = computers
    bucket = f"file://{tmp_path}/bucket"
    first, run = drive(here, bucket)
    checkpoints = run / "checkpoints"
    with Watcher(checkpoints) as watcher:
        status, said = resume_beside(first, there, run.name, "--bucket", bucket, *AGREED)
        assert status == 6, said
        message = said[said.index("error[conflict]") :].splitlines()
        assert len(message) <= 5
        assert f"run {run.name} is driven by " in message[0] and "since 20" in message[0]
        assert "--take-over" in said and "looking whether" in said
        assert not (there.state / "jobs").exists() and first.poll() is None

        second = there.start("resume", run.name, "--bucket", bucket, *AGREED, "--take-over")
        out, err = first.communicate(timeout=150)
        assert first.returncode == 6, f"{out}\n{err}"
        assert f"run {run.name} was taken over by" in err or "another start of this run has taken it over" in err
        before = whole(checkpoints)
        until("a checkpoint of the second", lambda: any("-e0002-" in name for name in whole(checkpoints)))
        there.ok("cancel", "train")
        second.communicate(timeout=60)
        assert before.keys() <= whole(checkpoints).keys(), "no checkpoint is lost"
        assert watcher.seen == sorted(watcher.seen, key=lambda seen: seen[1])
        assert [epoch for epoch, _ in watcher.seen] == sorted(epoch for epoch, _ in watcher.seen)

    claim = json.loads((run / "epoch.json").read_bytes())
    assert claim["ended"] and claim["epoch"] == 2 and claim["attempt"] == 2
    again, begun = here.start("resume", "train"), time.monotonic()
    try:
        until("the first drives again", lambda: json.loads((run / "epoch.json").read_bytes())["epoch"] == 3)
        assert time.monotonic() - begun < 30, "a driver that ended leaves a mark, and no one waits"
        assert json.loads((run / "epoch.json").read_bytes())["attempt"] == 3, "attempts of two computers differ"
    finally:
        here("cancel", "train")
        again.communicate(timeout=60)


def processes(orch: Orch) -> list[int]:
    """All processes of that installation: orch itself, its hosts' SSH servers, the trainer."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and str(orch.folder).encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended, or is another user's
    return found


@pytest.mark.promise("P17")
def test_a_computer_that_was_frozen_is_taken_over_and_then_ends_its_job(
    computers: tuple[Orch, Orch], tmp_path: Path
) -> None:
    here, there = computers
    bucket = f"file://{tmp_path}/bucket"
    first, run = drive(here, bucket)
    frozen = processes(here)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    with Watcher(run / "checkpoints") as watcher:
        second = there.start("resume", run.name, "--bucket", bucket, *AGREED)
        until("a checkpoint of the second", lambda: any("-e0002-" in name for name in whole(run / "checkpoints")))
        before = whole(run / "checkpoints")
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        out, err = first.communicate(timeout=150)
        assert first.returncode == 6, f"{out}\n{err}"
        assert "taken" in err and "epoch 2" in err
        assert second.poll() is None, second.communicate()
        assert before.items() <= whole(run / "checkpoints").items()
        there.ok("cancel", "train")
        second.communicate(timeout=60)
    steps = [step for _, step in watcher.seen]
    assert steps == sorted(steps)
    assert {epoch for epoch, _ in watcher.seen} == {1, 2}
