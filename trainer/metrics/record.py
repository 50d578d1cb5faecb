"""One line of numbers for each logged step, made by rank 0."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from trainer.checkpoint.layout import timestamp
from trainer.config import Config
from trainer.console import Console
from trainer.data.state import DataState
from trainer.engine import Engine, Numbers
from trainer.environment import Run, World
from trainer.metrics.log import MetricsLog
from trainer.metrics.meter import Meter
from trainer.shape.architecture import MFU_FORMULA, flops_per_token, parameter_count


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One line. step: done so far. tokens: used so far, over all ranks. loss: mean nats a token; `loss_hex` is the same
    number, for comparing bits. grad_norm: global, before clipping.

    tokens_per_s, step_s and its parts: means since the last line; the latter in seconds a step. data_s: waiting for
    rows. compute_s: in the engine; None when not measured. other_s: the rest of step_s.
    checkpoint_stall_s: seconds in all in which training stood still for checkpoints since the last line.
    mfu: share of the published peak of all devices, by `mfu_formula`; None when the peak is not known.
    memory: most bytes in use at once on one device of rank 0. compilations: of rank 0 so far. eta_s: seconds to the
    last step. time: UTC.
    """

    step: int
    loss: float
    loss_hex: str
    lr: float
    grad_norm: float
    tokens: int
    tokens_per_s: float
    tokens_per_s_per_device: float
    step_s: float
    data_s: float
    compute_s: float | None
    other_s: float
    checkpoint_stall_s: float
    mfu: float | None
    mfu_formula: str
    memory: int | None
    compilations: int | None
    eta_s: float
    time: str
    attempt: int
    rank: int
    run_id: str

    def as_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def numbers(self) -> dict[str, float]:
        """What can be drawn as a curve over the steps."""
        return {
            name: float(value)
            for name, value in asdict(self).items()
            if isinstance(value, int | float) and name not in ("step", "attempt", "rank")
        }

    def for_people(self, steps: int) -> str:
        """One line, ending with the time to the last step."""
        mfu = "" if self.mfu is None else f"  mfu {self.mfu:.1%}"
        eta = "" if self.step >= steps else f"  eta {duration(self.eta_s)}"
        return (
            f"step {self.step}/{steps}  loss {self.loss:.4f}  lr {self.lr:.2e}  "
            f"{self.tokens_per_s:,.0f} tok/s{mfu}  grad {self.grad_norm:.2f}{eta}"
        )


class Recorder:
    """Turns the numbers of a logged step into a record and a line for people; only rank 0 writes."""

    def __init__(self, config: Config, run: Run, world: World, engine: Engine) -> None:
        self._config = config
        self._run = run
        self._world = world
        self._engine = engine
        self._flops = flops_per_token(config.model, config.seq_len)
        self._pace: float | None = None  # seconds a step, smoothed
        self._lines = 0

    def headline(self, data: DataState) -> str:
        """What is trained on what, for the start."""
        rows = f"{self._config.batch} x {self._config.seq_len} tokens a step"
        count = parameter_count(self._config.model)
        return f"{count:,} parameters; {data.source}: {data.total_tokens:,} tokens of {data.vocab:,} kinds; {rows}"

    def write(self, metrics: MetricsLog, step: int, numbers: Numbers, rate: float, meter: Meter, stall: float) -> None:
        """step: steps done. rate: its learning rate. stall: seconds that checkpoints held training up since the last
        line. The meter begins again."""
        spent = meter.take()
        if not self._world.is_first:
            return
        per_step = self._config.batch * self._config.seq_len
        speed = per_step / spent.whole
        compilations = self._engine.counters().get("compilations")
        peak = self._engine.peak_flops
        record = StepRecord(
            step=step,
            loss=numbers.loss,
            loss_hex=numbers.loss.hex(),
            lr=rate,
            grad_norm=numbers.grad_norm,
            tokens=step * per_step,
            tokens_per_s=speed,
            tokens_per_s_per_device=speed / self._engine.mesh.devices,
            step_s=spent.whole,
            data_s=spent.data,
            compute_s=spent.compute,
            other_s=max(0.0, spent.whole - spent.data - (spent.compute or 0.0)),
            checkpoint_stall_s=stall,
            mfu=None if peak is None else self._flops * speed / peak,
            mfu_formula=MFU_FORMULA,
            memory=self._engine.memory(),
            compilations=None if compilations is None else int(compilations),
            eta_s=(self._config.steps - step) * self._paced(spent.whole),
            time=timestamp(),
            attempt=self._run.attempt,
            rank=self._world.rank,
            run_id=self._run.run_id,
        )
        Console(self._world).first(record.for_people(self._config.steps))
        metrics.write(record)

    def _paced(self, seconds: float) -> float:
        # The first line is of the first step alone, which compiles: it says little about the others.
        self._lines += 1
        if self._pace is None or self._lines == 2:
            self._pace = seconds
        else:
            self._pace += 0.3 * (seconds - self._pace)
        return self._pace


def duration(seconds: float) -> str:
    """Such as 45 s, 12 min, 3 h 05 min, 2 d 4 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
