"""PyTorch Lightning: a callback that saves its checkpoints in the run's bucket, and a function that restores.

In the program:

    callback = OrchCallback(run, every=500)
    trainer = lightning.Trainer(callbacks=[callback], enable_checkpointing=False, ...)
    trainer.fit(model, loader, ckpt_path=restore(run, "restored"), weights_only=True)
    run.wait()
    if callback.stopped:
        raise SystemExit(orch_run.STOPPED)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import lightning
import torch

from . import ConfigError

if TYPE_CHECKING:
    from trainer.program import Run

_FILE = "last.ckpt"


class OrchCallback(lightning.Callback):
    """Saves Lightning's checkpoints, sends heartbeats, and stops on a stop request.

    Attributes:
        stopped: Whether training ended early, after a checkpoint was saved.
    """

    def __init__(self, run: Run, every: int = 0) -> None:
        """Take the run and the steps between checkpoints.

        Args:
            run: Of `orch_run.init()`.
            every: Optimizer steps between checkpoints; 0 for the task's `checkpoint.every`, and without one only the
                end of the training is saved.
        """
        super().__init__()
        self._run, self._every, self.stopped = run, every or run.every, False
        self._seen = self._saved = 0

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """See Callback."""
        self._run.should_stop()  # from here on SIGTERM is a stop request, and not Lightning's
        self._seen = self._saved = trainer.global_step

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Report a step and save when it is due; a stop request of one rank stops all at this step."""
        step = trainer.global_step
        if step == self._seen:  # the batch only added to the gradients
            return
        self._seen = step
        logs = step % max(1, getattr(trainer, "log_every_n_steps", 1)) == 0
        self._run.heartbeat(step, _read_numbers(trainer, outputs) if logs else None)
        stop = trainer.strategy.reduce_boolean_decision(self._run.should_stop(), all=False)
        if stop or (self._every and step % self._every == 0):
            self._save(trainer)
        if stop:
            self.stopped = trainer.should_stop = True

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Save the last step."""
        self._save(trainer)

    def _save(self, trainer: lightning.Trainer) -> None:
        step = trainer.global_step
        if step == self._saved:
            return
        self._saved = step
        folder = self._run.new_folder()
        trainer.save_checkpoint(folder / _FILE)  # every rank calls it, and rank 0 writes the file
        self._run.save(folder, step)


def restore(run: Run, folder: str | os.PathLike[str]) -> str | None:
    """Restore the newest complete checkpoint; return its file for `ckpt_path`, or None for a new run.

    Args:
        run: Of `orch_run.init()`.
        folder: See `Run.restore`; every rank calls this.

    Raises:
        ConfigError: The file names a type that `torch.load(weights_only=True)` does not allow.
    """
    if run.restore(folder) is None:
        return None
    file = Path(folder) / _FILE
    _refuse_code(file)
    return str(file)


def _refuse_code(file: Path) -> None:
    """Refuse a checkpoint that would run code, whatever `weights_only` the program gives to Lightning."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception as error:  # what torch raises for other bytes is of any kind
        raise ConfigError(f"{file} is no checkpoint of Lightning: {type(error).__name__}: {error}") from error
    if names:
        raise ConfigError(
            f"{file} is not loaded: it names {', '.join(sorted(names)[:5])}, which may run code. If the program saved "
            f"these types, allow them before restore(): torch.serialization.add_safe_globals([...])"
        )


def _read_numbers(trainer: lightning.Trainer, outputs: Any) -> dict[str, float]:
    """Return the loss and what the module has logged."""
    numbers = {name: float(value) for name, value in trainer.callback_metrics.items()}
    loss = cast(dict[str, Any], outputs).get("loss") if isinstance(outputs, dict) else outputs
    return numbers if loss is None else {"loss": float(loss), **numbers}
