"""The training loop. `train` puts the pieces together, `_steps` is the loop, `_step` one optimizer step.

No device and no cloud is named here: devices are behind an Accelerator, other ranks behind a Team, the bucket
behind Checkpoints.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from trainer import distributed
from trainer.accelerators.base import Accelerator, micro_batches
from trainer.accelerators.registry import open_accelerator
from trainer.checkpoint.session import Checkpoints
from trainer.config import Config
from trainer.console import Console
from trainer.corpus import open_corpus
from trainer.data import Batches, DataState
from trainer.environment import Run, World
from trainer.errors import Exit, TrainerError
from trainer.gradients import Gradients, Summary
from trainer.heartbeat import Heartbeat
from trainer.metrics import Meter, MetricsLog
from trainer.order import RowOrder
from trainer.record import Recorder, check_same_everywhere, open_metrics, write_environment
from trainer.schedule import learning_rate
from trainer.signals import StopWish
from trainer.state import TrainState


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with."""

    config: Config
    accelerator: Accelerator
    state: TrainState
    model: nn.Module  # the compiled one, with the weights of `state`
    gradients: Gradients
    batches: Batches
    data: DataState
    checkpoints: Checkpoints
    metrics: MetricsLog
    recorder: Recorder
    heartbeat: Heartbeat
    console: Console
    world: World


def train(config: Config, run: Run, world: World) -> Exit:
    """Train to the last step, or until a rank is told to stop. Raises TrainerError of some kind."""
    config.rows_per_micro_batch(world.size)
    console = Console(world)
    distributed.set_threads(world.threads(config.threads))
    accelerator = open_accelerator(config.device, world)
    if config.deterministic:
        accelerator.set_deterministic()
    team = distributed.join(world, accelerator.backend, config.dist)
    console.every(_start_line(accelerator, world))
    if accelerator.note():
        console.every(accelerator.note())

    corpus = open_corpus(config.data.source)
    order = RowOrder(corpus.total, config.batch, config.seq_len, config.seed)
    data = DataState(0, config.seed, config.batch, config.seq_len, corpus.source, corpus.total, corpus.fingerprint)
    check_same_everywhere(team, data, config)
    state = TrainState(config, accelerator, world)
    recorder = Recorder(config, run, world, accelerator, state.model)
    console.first(recorder.headline(data))

    checkpoints = Checkpoints.open(config, run, team, console.first)
    write_environment(config, run, team, accelerator, checkpoints.store)
    start = checkpoints.resume(state, data)
    with open_metrics(config, run, world, checkpoints.store, console.first) as metrics:
        parts = Parts(
            config=config,
            accelerator=accelerator,
            state=state,
            model=accelerator.compile(state.model) if config.compile else state.model,
            gradients=accelerator.gradients(state.model, team),
            batches=Batches(corpus, order, world.rank, world.size),
            data=replace(data, step=start),
            checkpoints=checkpoints,
            metrics=metrics,
            recorder=recorder,
            heartbeat=Heartbeat(run.heartbeat_file, world, console),
            console=console,
            world=world,
        )
        status = _steps(parts)
    team.gather(None)  # nobody leaves while another still needs it
    return status


def _steps(parts: Parts) -> Exit:
    config, checkpoints, accelerator = parts.config, parts.checkpoints, parts.accelerator
    data, meter, first = parts.data, Meter(), parts.data.step + 1
    with StopWish() as stop:
        while data.step < config.steps:
            waited = time.perf_counter()
            rows = accelerator.to_device(parts.batches.take(data.step))
            meter.waited_for_data(time.perf_counter() - waited)
            rate = _rate(config, data.step)
            parts.state.set_rate(rate)
            summary = _step(parts, rows, stop.wanted)
            data = replace(data, step=data.step + 1)
            meter.step()
            parts.heartbeat.beat(data.step)
            checkpoints.check()

            last = data.step == config.steps
            logged = last or data.step == first or data.step % config.log_every == 0
            due = last or checkpoints.due(data.step)
            if not (logged or due or data.step % accelerator.read_every == 0):
                continue
            loss, stops, norm = _read(summary, data.step)
            if logged:
                parts.recorder.write(parts.metrics, data.step, loss, norm, rate, meter, checkpoints.take_stall())
            if stops and not last:
                return _stop(parts, data)
            if due:
                if last:
                    parts.heartbeat.beat(data.step, "saving")  # an upload has no steps: not a hang
                checkpoints.save(parts.state, data, wait=last)
                parts.metrics.flush()
        parts.heartbeat.beat(data.step, final=True)
        parts.batches.close()
        parts.console.first(f"done: {data.step} steps")
        return Exit.OK


def _step(parts: Parts, rows: Tensor, stop: bool) -> Summary:
    """One optimizer step over all ranks; `rows` are this rank's."""
    config, gradients = parts.config, parts.gradients
    gradients.zero()
    total = torch.zeros((), device=rows.device)
    for index, micro in enumerate(micro_batches(rows, config.accumulate)):
        if index == config.accumulate - 1:
            gradients.expect_last()
        with parts.accelerator.autocast(config.dtype):
            loss = parts.model(micro)
        loss = loss / (config.accumulate * parts.world.size)
        loss.backward()
        total += loss.detach()
    summary = gradients.finish(total, stop, config.grad_clip)
    parts.state.optimizer.step()
    parts.accelerator.boundary()
    return summary


def _read(summary: Summary, step: int) -> tuple[float, float, float]:
    numbers = torch.stack([summary.loss, summary.stops.to(summary.loss.device), summary.grad_norm])
    loss, stops, norm = (float(number) for number in numbers.cpu().numpy())
    if not math.isfinite(loss) or not math.isfinite(norm):
        raise TrainerError(
            f"loss {loss} and gradient norm {norm} at step {step}: lower optim.lr; "
            "the checkpoints before this step are kept"
        )
    return loss, stops, norm


def _stop(parts: Parts, data: DataState) -> Exit:
    parts.heartbeat.beat(data.step, "saving")
    saved = parts.checkpoints.save(parts.state, data, wait=True)
    parts.heartbeat.beat(data.step, final=True)
    parts.batches.close()
    if saved:
        parts.console.first(f"stopped by SIGTERM after step {data.step}; checkpoint saved")
        return Exit.STOPPED
    parts.console.first(f"stopped by SIGTERM after step {data.step}; nothing saved, since checkpoint.uri is empty")
    return Exit.TERMINATED


def _rate(config: Config, step: int) -> float:
    optim = config.optim
    return learning_rate(step, peak=optim.lr, warmup=optim.warmup, steps=config.steps, floor=optim.floor)


def _start_line(accelerator: Accelerator, world: World) -> str:
    meeting = f", met at {world.coordinator} ({accelerator.backend})" if world.size > 1 else ""
    return f"rank {world.rank}/{world.size}: {accelerator.device}, {torch.get_num_threads()} threads{meeting}"
