"""LoRA on the weights of a run that trained all of them: it begins at step 0 and outlives its base; and its loss."""

from __future__ import annotations

import signal
from pathlib import Path

from trainer_ranks import Launcher

from trainer.__main__ import main

LORA = ("lora.rank=4", "optim.schedule=constant")


def _train_base(launch: Launcher, folder: Path) -> Path:
    """Return the folder of the last step of a run that trained all weights."""
    launch(1, "steps=5", f"checkpoint.uri={folder}").ok()
    (step,) = folder.glob("step-00000005*")
    return step


def test_adapters_on_a_full_run_begin_at_step_0_and_survive_their_base(launch: Launcher, tmp_path: Path) -> None:
    base = _train_base(launch, tmp_path / "base")
    words = (*LORA, f"checkpoint.start={base}", f"checkpoint.uri={tmp_path}/run")
    begun = launch(1, "steps=3", *words).ok()
    assert "LoRA adapters begin at step 0, on the weights of step 5" in begun.text()
    assert sorted(begun.losses()) == [1, 2, 3]
    assert main(["export", str(base), str(tmp_path / "hf")]) == 0
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "imported")]) == 0
    imported = launch(1, "steps=3", *LORA, f"checkpoint.start={tmp_path}/imported/step-00000000").ok()
    assert imported.losses() == begun.losses(), "rows and adapters begin as on an import of the same weights"
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    resumed = launch(1, "steps=5", *words).ok()
    assert "resumed from step 3" in resumed.text()
    assert sorted(resumed.losses()) == [4, 5]


def test_a_run_of_adapters_that_is_killed_resumes_exactly(launch: Launcher, tmp_path: Path) -> None:
    base = _train_base(launch, tmp_path / "base")
    words = (*LORA, f"checkpoint.start={base}", "checkpoint.every=3")
    place = f"checkpoint.uri={tmp_path}/run"
    killed = launch(2, "steps=100000", *words, place)
    killed.wait_for("checkpoint 6 written")
    for rank in range(2):
        killed.signal(rank, signal.SIGKILL)
    assert -signal.SIGKILL in killed.wait()
    steps = max(killed.losses()) + 3
    resumed = launch(2, f"steps={steps}", *words, place, environment={"ORCH_ATTEMPT": "2"}).ok()
    straight = launch(2, f"steps={steps}", *words).ok()
    assert 6 < min(resumed.losses()) <= max(killed.losses()) + 1
    assert resumed.losses().items() <= straight.losses().items()
    assert killed.losses() | resumed.losses() == straight.losses()


def test_a_start_that_is_absent_is_a_wrong_setting(launch: Launcher, tmp_path: Path) -> None:
    started = launch(1, "steps=2", f"checkpoint.start={tmp_path}/absent/step-00000000")
    assert started.wait() == [2]
    assert "nothing to start from" in started.text()
