"""The record of a logged step, made by rank 0."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from trainer.checkpoint.epoch import utc_timestamp
from trainer.config import Config
from trainer.console import Console
from trainer.data.state import DataState, SourceUse
from trainer.engine import Engine, Numbers
from trainer.environment import Run, World
from trainer.evaluation import Evaluated
from trainer.metrics.log import MetricsLog
from trainer.metrics.step_timer import StepTimer, StepTimes
from trainer.shape.architecture import MFU_FORMULA, count_active_parameters, count_parameters
from trainer.shape.lora import count_run_flops_per_token, count_trained_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One JSON line of metrics.

    Means are taken since the last line.

    Attributes:
        step: Number of steps done.
        loss: Mean nats per token.
        loss_hex: The same number in hexadecimal, to compare bits.
        lr: Learning rate.
        grad_norm: Global norm, before clipping.
        router_loss: Loss that balances experts, without its coefficient; None without experts.
        expert_share: Largest share of a block's choices that an expert has; None without experts.
        tokens: Tokens used so far, over all ranks.
        tokens_per_s: Mean over all devices.
        tokens_per_s_per_device: Mean per device.
        step_s: Mean seconds per step.
        data_s: Part of step_s spent waiting for rows.
        compute_s: Part of step_s in the engine; None when not measured.
        other_s: The rest of step_s.
        checkpoint_stall_s: Total seconds for which checkpoints stopped training since the last line.
        failed_saves: Checkpoints of this attempt that could not be written, so far.
        mfu: Share of the published peak of all devices, by `mfu_formula`; None when the peak is unknown.
        mfu_formula: See trainer/shape/architecture.py.
        memory: Peak bytes in use on one device of rank 0; None when unknown.
        compilations: Of rank 0 so far; None when not counted.
        eval_loss: Mean nats a token on rows that are not trained on; None at a step without an evaluation.
        eval_perplexity: Its exponential; None where it is not finite.
        eval_losses: Of each source of a mixture, by its place; None as above, and for a single source.
        epochs: Passes over the data so far; of a mixture, over the source with the most; None when not counted.
        sources: For each source of a mixture its place, rows so far, their share of all rows, and epochs.
        eta_s: Seconds to the last step.
        time: UTC.
        attempt: Number of the attempt, from 1.
        rank: Always 0.
        run_id: Of the run.
    """

    step: int
    loss: float
    loss_hex: str
    lr: float
    grad_norm: float
    router_loss: float | None
    expert_share: float | None
    tokens: int
    tokens_per_s: float
    tokens_per_s_per_device: float
    step_s: float
    data_s: float
    compute_s: float | None
    other_s: float
    checkpoint_stall_s: float
    failed_saves: int
    mfu: float | None
    mfu_formula: str
    memory: int | None
    compilations: int | None
    eval_loss: float | None
    eval_perplexity: float | None
    eval_losses: Mapping[str, float | None] | None
    epochs: float | None
    sources: Sequence[Mapping[str, str | float]] | None
    eta_s: float
    time: str
    attempt: int
    rank: int
    run_id: str

    def to_json_line(self) -> str:
        """Return the record as JSON with a line end."""
        return json.dumps(asdict(self)) + "\n"

    def list_scalars(self) -> dict[str, float]:
        """Return the values that can be drawn as curves over the steps."""
        return {
            name: float(value)
            for name, value in asdict(self).items()
            if isinstance(value, int | float) and name not in ("step", "attempt", "rank")
        }

    def format_line(self, steps: int) -> str:
        """Format the line for the terminal, which ends with the time to the last step."""
        mfu = "" if self.mfu is None else f"  mfu {self.mfu:.1%}"
        eta = "" if self.step >= steps else f"  eta {format_duration(self.eta_s)}"
        # A mean over no token: rows of chat data may have no reply.
        loss = "none (no reply in these rows)" if self.loss == self.grad_norm == 0.0 else f"{self.loss:.4f}"
        return (
            f"step {self.step}/{steps}  loss {loss}  lr {self.lr:.2e}  "
            f"{self.tokens_per_s:,.0f} tok/s{mfu}  grad {self.grad_norm:.2f}{eta}"
        )


@dataclass(frozen=True, slots=True)
class SaveCosts:
    """What checkpoints cost.

    Attributes:
        stall_s: Seconds for which they stopped training since the last line.
        failed: Number of saves that failed in this attempt.
    """

    stall_s: float = 0.0
    failed: int = 0


class Recorder:
    """Turns the numbers of a logged step into a record and a line on the terminal; only rank 0 writes."""

    def __init__(self, config: Config, run: Run, world: World, engine: Engine) -> None:
        self._config = config
        self._run = run
        self._world = world
        self._engine = engine
        self._flops = count_run_flops_per_token(config.model, config.lora, config.seq_len)
        self._pace: float | None = None  # seconds a step, smoothed
        self._lines = 0

    def headline(self, data: DataState) -> str:
        """Describe the model and its data in one line, printed at the start."""
        rows = f"{self._config.batch} x {self._config.seq_len} tokens a step"
        model = self._config.model
        count = count_parameters(model)
        active = f" ({count_active_parameters(model):,} active for a token)" if model.experts else ""
        adapters = count_trained_parameters(model, self._config.lora) if self._config.lora.rank else 0
        trained = f", and {adapters:,} of LoRA adapters, which alone are trained" if adapters else ""
        text = f"{data.source}: {data.total_tokens:,} tokens of {data.vocab:,} kinds"
        return f"{count:,} parameters{active}{trained}; {text}; {rows}"

    def write(
        self,
        metrics: MetricsLog,
        step: int,
        numbers: Numbers,
        rate: float,
        meter: StepTimer,
        saves: SaveCosts,
        evaluated: Evaluated | None = None,
        uses: Sequence[SourceUse] = (),
    ) -> None:
        """Write the record of a step, and restart the timer.

        Args:
            metrics: Receives the record.
            step: Number of steps done.
            numbers: Of the step.
            rate: Learning rate of the step.
            meter: Times since the last line.
            saves: What checkpoints cost since the last line.
            evaluated: The evaluation after the step; None without one.
            uses: How far each source of the data is used.
        """
        times = meter.take_means()
        if not self._world.is_first:
            return
        record = self._make_record(step, numbers, rate, times, saves, evaluated, uses)
        Console(self._world).print_on_first(record.format_line(self._config.steps))
        metrics.write(record)

    def _make_record(
        self,
        step: int,
        numbers: Numbers,
        rate: float,
        times: StepTimes,
        saves: SaveCosts,
        evaluated: Evaluated | None,
        uses: Sequence[SourceUse],
    ) -> StepRecord:
        """Return the record of a step; see `write`. `times` are means of a step since the last line."""
        per_step = self._config.batch * self._config.seq_len
        speed = per_step / times.total_s
        compilations = self._engine.counters().get("compilations")
        peak = self._engine.peak_flops
        return StepRecord(
            step=step,
            loss=numbers.loss,
            loss_hex=numbers.loss.hex(),
            lr=rate,
            grad_norm=numbers.grad_norm,
            router_loss=numbers.router_loss,
            expert_share=numbers.expert_share,
            tokens=step * per_step,
            tokens_per_s=speed,
            tokens_per_s_per_device=speed / self._engine.mesh.devices,
            step_s=times.total_s,
            data_s=times.data_s,
            compute_s=times.compute_s,
            other_s=max(0.0, times.total_s - times.data_s - (times.compute_s or 0.0)),
            checkpoint_stall_s=saves.stall_s,
            failed_saves=saves.failed,
            mfu=None if peak is None else self._flops * speed / peak,
            mfu_formula=MFU_FORMULA,
            memory=self._engine.memory(),
            compilations=None if compilations is None else int(compilations),
            eval_loss=_finite(evaluated.loss) if evaluated is not None else None,
            eval_perplexity=_finite(evaluated.perplexity) if evaluated is not None else None,
            eval_losses=_list_losses(evaluated),
            epochs=max((use.epochs for use in uses), default=None),
            sources=[_describe_use(use) for use in uses] if len(uses) > 1 else None,
            eta_s=(self._config.steps - step) * self._smooth(times.total_s),
            time=utc_timestamp(),
            attempt=self._run.attempt,
            rank=self._world.rank,
            run_id=self._run.run_id,
        )

    def _smooth(self, seconds: float) -> float:
        # The first line covers only the first step, which compiles: it predicts little about the others.
        self._lines += 1
        if self._pace is None or self._lines == 2:
            self._pace = seconds
        else:
            self._pace += 0.3 * (seconds - self._pace)
        return self._pace


def _list_losses(evaluated: Evaluated | None) -> Mapping[str, float | None] | None:
    if evaluated is None or evaluated.losses is None:
        return None
    return {source: _finite(loss) for source, loss in evaluated.losses.items()}


def _describe_use(use: SourceUse) -> Mapping[str, str | float]:
    return {"source": use.source, "rows": use.rows, "share": use.share, "epochs": use.epochs}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no other numbers


def format_duration(seconds: float) -> str:
    """Format a duration, such as 45 s, 12 min, 3 h 05 min, 2 d 4 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
