"""The training loop. `train` opens what a run is made of, in order; `_steps` is the loop.

No device, framework or cloud is named here: they are behind an Engine, a Team and Checkpoints.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace

from trainer.agreement import agree_on_notes, agree_on_program, agree_on_run
from trainer.cadence import Cadence
from trainer.checkpoint.session import Checkpoints
from trainer.config import Config
from trainer.console import Console
from trainer.data.batches import Batches
from trainer.data.corpus import Corpus, open_corpus
from trainer.data.state import DataState
from trainer.engine import Engine, Numbers
from trainer.engines import Opener, open_engine, settle, with_vocabulary
from trainer.environment import Run, World
from trainer.errors import Exit, PeerError, StorageError, TrainerError
from trainer.metrics import Meter, MetricsLog, Recorder, open_metrics
from trainer.metrics.surroundings import write_diagnostics, write_environment
from trainer.order import RowOrder
from trainer.peers import PeerWatch
from trainer.profiling import Profiler
from trainer.programs import Programs, open_programs
from trainer.pulse import Pulse
from trainer.schedule import learning_rate
from trainer.shape.mesh import check_batch
from trainer.signals import StopWish
from trainer.tcp_team import join
from trainer.team import Team


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with. data: at the step where it begins."""

    config: Config
    engine: Engine
    batches: Batches
    data: DataState
    checkpoints: Checkpoints
    metrics: MetricsLog
    recorder: Recorder
    profiler: Profiler
    programs: Programs
    cadence: Cadence
    pulse: Pulse
    stop: StopWish
    console: Console


def train(config: Config, run: Run, world: World, opener: Opener | None = None) -> Exit:
    """Train to the last step, or until a rank is told to stop. Raises TrainerError of some kind.

    opener: of the engine; None: as `engine=` and `device=` say.
    """
    console = Console(world)
    team = join(world, config.dist, run.identity)
    peers = PeerWatch(team, config.dist.join_timeout)
    with ExitStack() as stack:
        stack.callback(team.close)
        pulse = stack.enter_context(Pulse(config, run, world, console))
        stack.enter_context(peers)
        try:
            return _train(config, run, team, opener or open_engine, pulse, peers)
        except PeerError as error:
            raise peers.explained(error) from error


def _train(config: Config, run: Run, team: Team, opener: Opener, pulse: Pulse, peers: PeerWatch) -> Exit:
    world, console = team.world, Console(team.world)
    corpus = open_corpus(config.data, console.first)
    config = with_vocabulary(settle(config), corpus.vocab)
    order = RowOrder(corpus.total, config.batch, config.seq_len, config.seed)
    data = _untouched(config, corpus)
    # One host may take minutes longer than another to fetch, to compile or to restore.
    start = team.side_channel(max(config.dist.timeout, config.checkpoint.timeout))
    programs, engine = _open(config, run, start, opener, data)
    recorder = Recorder(config, run, world, engine)
    console.first(recorder.headline(data))

    checkpoints = Checkpoints.open(config, run, start, console.first)
    write_environment(config, run, start, engine, checkpoints.store)
    done = checkpoints.resume(engine, data)
    with StopWish() as stop:
        with open_metrics(config, run, world, checkpoints.store, console.first) as metrics:
            parts = Parts(
                config=config,
                engine=engine,
                batches=Batches(corpus, order, engine.share, config.data.ahead),
                data=replace(data, step=done),
                checkpoints=checkpoints,
                metrics=metrics,
                recorder=recorder,
                profiler=Profiler(run.job, engine, world, console),
                programs=programs,
                cadence=Cadence(team, engine.read_every),
                pulse=pulse,
                stop=stop,
                console=console,
            )
            start.gather(None)  # from here on `dist.timeout` counts
            start.close()
            with peers.in_own_words():
                status = _steps(parts)
            if status == Exit.STOPPED:
                metrics.be_lenient()
            stop.granted(status)
            peers.over()
        pulse.leave(status)
        _part(team, engine, run, checkpoints, config, console)
    return status


def _open(config: Config, run: Run, team: Team, opener: Opener, data: DataState) -> tuple[Programs, Engine]:
    """Compiled programs and the engine, once all ranks mean the same run and the same step."""
    console = Console(team.world)
    agree_on_run(team, config, data)
    programs = open_programs(config, run, team, console.every)
    engine = opener(config, team.world, team)
    check_batch(config, engine.mesh)
    console.every(f"rank {team.world.rank}/{team.world.size}: {engine.headline()}")
    agree_on_program(team, engine.program())
    agree_on_notes(team, engine.notes(), console.first)
    return programs, engine


def _untouched(config: Config, corpus: Corpus) -> DataState:
    return DataState(
        step=0,
        seed=config.seed,
        batch=config.batch,
        seq_len=config.seq_len,
        source=corpus.source,
        total_tokens=corpus.total,
        vocab=corpus.vocab,
        fingerprint=corpus.fingerprint,
    )


def _steps(parts: Parts) -> Exit:
    config, engine, checkpoints, pulse = parts.config, parts.engine, parts.checkpoints, parts.pulse
    data, meter, first = parts.data, Meter(), parts.data.step + 1
    while data.step < config.steps:
        parts.profiler.between(data.step)
        waited = time.perf_counter()
        rows = parts.batches.take(data.step)
        meter.waited_for_data(time.perf_counter() - waited)
        rate = learning_rate(config.optim, config.steps, data.step)
        begun = time.perf_counter()
        engine.step(rows, rate, parts.stop.wanted, data.step)
        meter.computed(time.perf_counter() - begun)
        meter.step()
        data = replace(data, step=data.step + 1)
        pulse.beat(data.step)
        checkpoints.check()

        last = data.step == config.steps
        logged = last or data.step == first or data.step % config.log_every == 0
        due = last or checkpoints.due(data.step)
        if not (logged or due or parts.cadence.is_due(data.step)):
            continue
        begun = time.perf_counter()
        numbers = engine.numbers()
        if not _finite(numbers):
            raise _diverged(parts, numbers, data.step)
        meter.computed(time.perf_counter() - begun)
        parts.cadence.looked(data.step)
        parts.programs.offer()
        if logged:
            parts.recorder.write(parts.metrics, data.step, numbers, rate, meter, checkpoints.take_stall())
        if numbers.stops and not last:
            return _stop(parts, data)
        if due:
            with pulse.saving(data.step, to_the_end=last):
                checkpoints.save(engine, data, wait=last)
            parts.metrics.flush()
    _end(parts, data)
    parts.programs.close()
    more = "" if data.step >= first else f"; nothing was left to do for steps={config.steps}: give more steps to go on"
    parts.console.first(f"done: {data.step} steps{more}")
    return Exit.OK


def _finite(numbers: Numbers) -> bool:
    return math.isfinite(numbers.loss) and math.isfinite(numbers.grad_norm)


def _diverged(parts: Parts, numbers: Numbers, step: int) -> TrainerError:
    # All ranks read the same numbers, so all wait here for the upload that they share.
    with parts.pulse.saving(step, to_the_end=True):
        parts.checkpoints.finish()
    return TrainerError(
        f"loss {numbers.loss} and gradient norm {numbers.grad_norm} at step {step}: lower optim.lr; "
        "the checkpoints before this step are kept"
    )


def _stop(parts: Parts, data: DataState) -> Exit:
    with parts.pulse.saving(data.step, to_the_end=True):
        saved = parts.checkpoints.save(parts.engine, data, wait=True)
    _end(parts, data)
    if saved:
        parts.console.first(f"stopped by SIGTERM after step {data.step}; checkpoint saved")
        return Exit.STOPPED
    parts.console.first(f"stopped by SIGTERM after step {data.step}; nothing saved, since checkpoint.uri is empty")
    return Exit.TERMINATED


def _end(parts: Parts, data: DataState) -> None:
    parts.profiler.close(data.step)
    parts.pulse.end(data.step)
    parts.batches.close()


def _part(team: Team, engine: Engine, run: Run, checkpoints: Checkpoints, config: Config, console: Console) -> None:
    """All is saved: whoever is gone by now takes nothing from the run."""
    try:
        write_diagnostics(config, run, team, engine, checkpoints.store)
        team.gather(None)  # nobody leaves while another still needs it
    except (PeerError, StorageError) as error:
        console.every(f"note: while leaving: {error}")
        return
    try:
        engine.close()
    except Exception as error:  # a framework raises anything, and nothing depends on it any more
        console.every(f"note: while leaving: {type(error).__name__}: {error}")
