"""The training loop: `run_training` opens the components of a run in order; `_steps` is the loop.

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
from trainer.compile_cache import CompileCache, open_compile_cache
from trainer.config import Config
from trainer.console import Console
from trainer.data.batches import BatchLoader
from trainer.data.corpus import Corpus, open_corpus
from trainer.data.state import DataState
from trainer.engine import Engine, Numbers
from trainer.engines import Opener, choose_engine_and_device, open_engine, set_vocabulary_size
from trainer.environment import Run, World
from trainer.errors import Exit, PeerError, StorageError, TrainerError
from trainer.liveness import Liveness
from trainer.metrics import MetricsLog, Recorder, SaveCosts, StepTimer, open_metrics
from trainer.metrics.run_reports import write_diagnostics, write_environment
from trainer.order import RowOrder
from trainer.peers import PeerWatch
from trainer.profiling import Profiler
from trainer.schedule import learning_rate
from trainer.shape.mesh import check_batch
from trainer.signals import StopRequest
from trainer.tcp_team import join_team
from trainer.team import Team


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopContext:
    """The components that the loop works with.

    Attributes:
        data: At the step where the loop begins.
    """

    config: Config
    engine: Engine
    batches: BatchLoader
    data: DataState
    checkpoints: Checkpoints
    metrics: MetricsLog
    recorder: Recorder
    profiler: Profiler
    compile_cache: CompileCache
    cadence: Cadence
    liveness: Liveness
    stop: StopRequest
    console: Console


def run_training(config: Config, run: Run, world: World, opener: Opener | None = None) -> Exit:
    """Train to the last step, or until a rank receives a stop request.

    Args:
        config: The settings as given.
        run: Which run and attempt this is.
        world: Which rank this process is.
        opener: Opens the engine; None for the one that `engine=` and `device=` name.

    Returns:
        The exit status of the run.

    Raises:
        TrainerError: The run failed; the subclass determines the exit status.
    """
    console = Console(world)
    team = join_team(world, config.dist, run.identity)
    peers = PeerWatch(team, config.dist.join_timeout)
    with ExitStack() as stack:
        stack.callback(team.close)
        pulse = stack.enter_context(Liveness(config, run, world, console))
        stack.enter_context(peers)
        try:
            return _train(config, run, team, opener or open_engine, pulse, peers)
        except PeerError as error:
            raise peers.explain_loss(error) from error


def _train(config: Config, run: Run, team: Team, opener: Opener, pulse: Liveness, peers: PeerWatch) -> Exit:
    world, console = team.world, Console(team.world)
    corpus = open_corpus(config.data, console.print_on_first)
    config = set_vocabulary_size(choose_engine_and_device(config), corpus.vocab)
    order = RowOrder(total=corpus.total_tokens, batch=config.batch, seq_len=config.seq_len, seed=config.seed)
    data = _initial_data_state(config, corpus)
    # One host may take minutes longer than another to fetch, to compile or to restore.
    start = team.side_channel(max(config.dist.timeout, config.checkpoint.patience))
    programs, engine = _open(config, run, start, opener, data)
    recorder = Recorder(config, run, world, engine)
    console.print_on_first(recorder.headline(data))

    checkpoints = Checkpoints.open(config, run, start, console.print_on_first)
    with checkpoints.beating():
        write_environment(config, run, start, engine, checkpoints.store)
        done = checkpoints.resume(engine, data)
        with StopRequest() as stop:
            with open_metrics(config, run, world, checkpoints.store, console.print_on_first) as metrics:
                parts = LoopContext(
                    config=config,
                    engine=engine,
                    batches=BatchLoader(corpus, order, engine.share, config.data.ahead),
                    data=replace(data, step=done),
                    checkpoints=checkpoints,
                    metrics=metrics,
                    recorder=recorder,
                    profiler=Profiler(run.job, engine, world, console),
                    compile_cache=programs,
                    cadence=Cadence(team, engine.read_every),
                    liveness=pulse,
                    stop=stop,
                    console=console,
                )
                start.gather(None)  # from here on `dist.timeout` applies
                start.close()
                with peers.reporting_own_failure():
                    status = _steps(parts)
                if status == Exit.STOPPED:
                    metrics.tolerate_lost_records()
                stop.set_exit_status(status)
                peers.finish()
            pulse.leave(status)
            _leave_team(team, engine, run, checkpoints, config, console)
    return status


def _open(config: Config, run: Run, team: Team, opener: Opener, data: DataState) -> tuple[CompileCache, Engine]:
    """Open the compile cache and the engine, and check that all ranks are set up for the same run and the same step."""
    console = Console(team.world)
    agree_on_run(team, config, data)
    programs = open_compile_cache(config, run, team, console.print_on_every)
    engine = opener(config, team.world, team)
    check_batch(config, engine.mesh)
    console.print_on_every(f"rank {team.world.rank}/{team.world.size}: {engine.headline()}")
    agree_on_program(team, engine.program())
    agree_on_notes(team, engine.notes(), console.print_on_first)
    return programs, engine


def _initial_data_state(config: Config, corpus: Corpus) -> DataState:
    return DataState(
        step=0,
        seed=config.seed,
        batch=config.batch,
        seq_len=config.seq_len,
        source=corpus.source,
        total_tokens=corpus.total_tokens,
        vocab=corpus.vocab,
        fingerprint=corpus.fingerprint,
    )


def _steps(parts: LoopContext) -> Exit:
    config, engine, checkpoints, pulse = parts.config, parts.engine, parts.checkpoints, parts.liveness
    data, meter, first = parts.data, StepTimer(), parts.data.step + 1
    while data.step < config.steps:
        parts.profiler.poll(data.step)
        waited = time.perf_counter()
        rows = parts.batches.take_rows(data.step)
        meter.add_data_wait(time.perf_counter() - waited)
        rate = learning_rate(config.optim, config.steps, data.step)
        begun = time.perf_counter()
        engine.step(rows, rate, parts.stop.requested, data.step)
        meter.add_compute(time.perf_counter() - begun)
        meter.count_step()
        data = replace(data, step=data.step + 1)
        pulse.report_step(data.step)
        checkpoints.raise_failure()

        last = data.step == config.steps
        logged = last or data.step == first or data.step % config.log_every == 0
        due = last or checkpoints.is_due(data.step)
        if not (logged or due or parts.cadence.is_due(data.step)):
            continue
        begun = time.perf_counter()
        numbers = engine.numbers()
        if not _is_finite(numbers):
            raise _divergence_error(parts, numbers, data.step)
        meter.add_compute(time.perf_counter() - begun)
        parts.cadence.record_read(data.step)
        parts.compile_cache.upload_once_compiled()
        if logged:
            saves = SaveCosts(checkpoints.take_stall(), checkpoints.failed_saves)
            parts.recorder.write(parts.metrics, data.step, numbers, rate, meter, saves)
        if numbers.stops and not last:
            return _save_and_stop(parts, data)
        if due:
            with pulse.extend_for_save(data.step, wait=last):
                checkpoints.save(engine, data, wait=last)
            parts.metrics.flush()
    _close_components(parts, data)
    parts.compile_cache.close()
    more = "" if data.step >= first else f"; steps={config.steps} was reached before: give more steps to continue"
    parts.console.print_on_first(f"done: {data.step} steps{more}")
    return Exit.OK


def _is_finite(numbers: Numbers) -> bool:
    return math.isfinite(numbers.loss) and math.isfinite(numbers.grad_norm)


def _divergence_error(parts: LoopContext, numbers: Numbers, step: int) -> TrainerError:
    # All ranks read the same numbers, so all wait here for the upload that they share.
    with parts.liveness.extend_for_save(step, wait=True):
        parts.checkpoints.finish_save()
    return TrainerError(
        f"loss {numbers.loss} and gradient norm {numbers.grad_norm} at step {step}: lower optim.lr; "
        "the checkpoints before this step are kept"
    )


def _save_and_stop(parts: LoopContext, data: DataState) -> Exit:
    with parts.liveness.extend_for_save(data.step, wait=True):
        saved = parts.checkpoints.save(parts.engine, data, wait=True)
    _close_components(parts, data)
    if saved:
        parts.console.print_on_first(f"stopped by SIGTERM after step {data.step}; checkpoint saved")
        return Exit.STOPPED
    parts.console.print_on_first(
        f"stopped by SIGTERM after step {data.step}; nothing saved, since checkpoint.uri is empty"
    )
    return Exit.TERMINATED


def _close_components(parts: LoopContext, data: DataState) -> None:
    parts.profiler.close(data.step)
    parts.liveness.report_end(data.step)
    parts.batches.close()


def _leave_team(
    team: Team, engine: Engine, run: Run, checkpoints: Checkpoints, config: Config, console: Console
) -> None:
    """Leave the other ranks after everything is saved; a lost rank no longer fails the run."""
    try:
        write_diagnostics(config, run, team, engine, checkpoints.store)
        team.gather(None)  # no rank leaves while another still needs it
    except (PeerError, StorageError) as error:
        console.print_on_every(f"note: while leaving: {error}")
        return
    try:
        engine.close()
    except Exception as error:  # a framework may raise anything, and all results are saved
        console.print_on_every(f"note: while leaving: {type(error).__name__}: {error}")
