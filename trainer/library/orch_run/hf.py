"""Hugging Face's Trainer: a callback that saves its checkpoints in the run's bucket, and a function that restores.

In the program, where `output_dir` is another folder on each rank:

    callback = OrchCallback(run)
    trainer = Trainer(model, TrainingArguments(f"out/rank-{run.rank}", ...), callbacks=[callback], ...)
    trainer.train(resume_from_checkpoint=restore(run, "restored"))
    run.wait()
    if callback.stopped:
        raise SystemExit(orch_run.STOPPED)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from . import ConfigError

if TYPE_CHECKING:
    from trainer.program import Run


class OrchCallback(TrainerCallback):
    """Uploads each checkpoint that the Trainer writes, sends heartbeats, and stops on a stop request.

    Every rank saves the files in its `output_dir`: rank 0 the model, and each its state of random numbers.

    Attributes:
        stopped: Whether training ended early, after a checkpoint was saved.
    """

    def __init__(self, run: Run) -> None:
        """Take what `orch_run.init()` returned."""
        self._run, self.stopped = run, False

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Refuse an `output_dir` that two ranks share.

        Raises:
            ConfigError: They share it.
        """
        self._run.should_stop()  # from here on SIGTERM is a stop request
        if dist.is_initialized():
            folders: list[Any] = [None] * dist.get_world_size()
            own = str(Path(args.output_dir or ".").resolve())
            dist.all_gather_object(folders, own)  # pyright: ignore[reportUnknownMemberType]  # torch's own
            if len(set(folders)) < len(folders):
                raise ConfigError(
                    f"two ranks have the output_dir {args.output_dir}, so their checkpoints would mix: give each its"
                    ' own, such as TrainingArguments(f"out/rank-{run.rank}", ...)'
                )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report the step; a stop request of one rank stops all at this step."""
        self._run.heartbeat(state.global_step)
        if _is_true_anywhere(self._run.should_stop(), args.device) and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Draw the Trainer's numbers on the run's page."""
        numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)}
        self._run.heartbeat(state.global_step, numbers)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save the checkpoint that the Trainer has just written."""
        folder = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"
        self._run.save(folder, state.global_step, sharded=True)


def restore(run: Run, folder: str | os.PathLike[str]) -> str | None:
    """Restore the newest complete checkpoint; return the folder for `resume_from_checkpoint`, or None for a new run.

    Args:
        run: Of `orch_run.init()`.
        folder: See `Run.restore`; every rank calls this.
    """
    return None if run.restore(folder) is None else str(folder)


def _is_true_anywhere(value: bool, device: torch.device) -> bool:
    if not dist.is_initialized():
        return value
    number = torch.tensor(float(value), device=device)
    dist.all_reduce(number, dist.ReduceOp.MAX)  # pyright: ignore[reportUnknownMemberType]  # torch's own
    return bool(number.item())
