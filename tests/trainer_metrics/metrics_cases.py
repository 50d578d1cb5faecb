"""Records and runs for the tests of the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.config import Config, MetricsConfig
from trainer.environment import Run, World
from trainer.metrics import MetricsLog, StepRecord, open_metrics


def record(step: int, loss: float = 0.1) -> StepRecord:
    return StepRecord(
        step=step,
        loss=loss,
        loss_hex=loss.hex(),
        lr=1e-3,
        grad_norm=1.0,
        router_loss=None,
        expert_share=None,
        tokens=step,
        tokens_per_s=41_000.4,
        tokens_per_s_per_device=41_000.4,
        step_s=0.1,
        data_s=0.0,
        compute_s=None,
        other_s=0.1,
        checkpoint_stall_s=0.0,
        failed_saves=0,
        mfu=None,
        mfu_formula="",
        memory=None,
        compilations=None,
        eval_loss=None,
        eval_perplexity=None,
        eval_losses=None,
        epochs=None,
        sources=None,
        eta_s=8.0,
        time="2026-11-20T18:30:00Z",
        attempt=1,
        rank=0,
        run_id="r",
    )


def logged(notes: list[str], attempt: int = 1, **places: str) -> MetricsLog:
    """Open a log without a bucket; `places` are fields of MetricsConfig."""
    config = Config(metrics=MetricsConfig(**{"file": "", **places}))
    return open_metrics(config, Run(run_id="run-1", attempt=attempt), World(), None, notes.append)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
