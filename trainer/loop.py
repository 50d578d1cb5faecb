"""The training loop: `run_training` opens the components of a run in order; `_steps` is the loop.

No device, framework or cloud is named here: they are behind an Engine, a Team and Checkpoints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from trainer.agreement import agree_on_notes, agree_on_program, agree_on_run
from trainer.cadence import Cadence
from trainer.checkpoint.session import Checkpoints
from trainer.compile_cache import CompileCache, open_compile_cache
from trainer.config import Config
from trainer.console import Console
from trainer.data.batches import BatchLoader
from trainer.data.held_out import HeldOutRows
from trainer.data.mixture import check_epochs, describe_uses, open_training_data
from trainer.data.state import DataState
from trainer.data.tokens.marks import count_marked
from trainer.engine import Engine, Numbers
from trainer.engines import Opener, choose_engine_and_device, open_engine, resolve_loss, set_vocabulary_size
from trainer.environment import Run, World
from trainer.errors import DataError, Exit, PeerError, StorageError, TrainerError
from trainer.evaluation import Evaluated, evaluate
from trainer.liveness import Liveness
from trainer.metrics import MetricsLog, Recorder, SaveCosts, StepTimer, open_metrics
from trainer.metrics.run_reports import write_diagnostics, write_environment
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
        held_out: What is evaluated; nothing without evaluations.
    """

    config: Config
    team: Team
    engine: Engine
    batches: BatchLoader
    held_out: tuple[HeldOutRows, ...]
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
    training = open_training_data(config, console.print_on_first)
    corpora = [training.corpus, *(rows.corpus for rows in training.held_out)]
    largest = max(corpus.largest for corpus in corpora)
    config = set_vocabulary_size(choose_engine_and_device(config), training.corpus.vocab, largest)
    data = training.state
    check_epochs(config, data)
    config = resolve_loss(config, corpora)
    # One host may take minutes longer than another to fetch, to compile or to restore.
    start = team.side_channel(max(config.dist.timeout, config.checkpoint.patience))
    programs, engine = _open(config, run, start, opener, data)
    recorder = Recorder(config, run, world, engine)
    console.print_on_first(recorder.headline(data))
    if data.sources:
        console.print_on_first(f"the {config.steps} steps read {describe_uses(replace(data, step=config.steps))}")
    if training.held_out:
        console.print_on_first(_describe_evaluations(config, training.held_out))

    checkpoints = Checkpoints.open(config, run, start, console.print_on_first)
    with checkpoints.beating():
        write_environment(config, run, start, engine, checkpoints.store)
        done = checkpoints.resume(engine, data)
        with StopRequest() as stop:
            with open_metrics(config, run, world, checkpoints.store, console.print_on_first) as metrics:
                parts = LoopContext(
                    config=config,
                    team=team,
                    engine=engine,
                    batches=BatchLoader(training.corpus, data.open_order(), engine.share, config.data.ahead),
                    held_out=training.held_out,
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


def _describe_evaluations(config: Config, held_out: Sequence[HeldOutRows]) -> str:
    tokens = sum(rows.tokens for rows in held_out)
    line = f"evaluated every {config.eval.every} steps on {tokens:,} tokens that are not trained on"
    if config.eval.keep_best and config.checkpoint.every % config.eval.every:
        line += "; the best checkpoint is found among those at a multiple of eval.every"
    return line


def _steps(parts: LoopContext) -> Exit:
    config, engine, checkpoints, pulse = parts.config, parts.engine, parts.checkpoints, parts.liveness
    data, meter, first = parts.data, StepTimer(), parts.data.step + 1
    trains = parts.data.step > 0  # an earlier start may have trained on tokens
    while data.step < config.steps:
        parts.profiler.poll(data.step)
        waited = time.perf_counter()
        rows = parts.batches.take_rows(data.step)
        trains = trains or count_marked(rows) > 0
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
        if last:
            _check_trained(parts, trains)
        evaluating = bool(parts.held_out) and (last or data.step % config.eval.every == 0)
        logged = last or evaluating or data.step == first or data.step % config.log_every == 0
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
        evaluated = _evaluate(parts, data.step, meter) if evaluating and (last or not numbers.stops) else None
        if logged:
            saves = SaveCosts(checkpoints.take_stall(), checkpoints.failed_saves)
            parts.recorder.write(parts.metrics, data.step, numbers, rate, meter, saves, evaluated, data.list_uses())
        if numbers.stops and not last:
            return _save_and_stop(parts, data)
        if due:
            with pulse.extend_for_save(data.step, wait=last):
                checkpoints.save(engine, data, wait=last, evaluated=evaluated)
            parts.metrics.flush()
    _close_components(parts, data)
    parts.compile_cache.close()
    if data.sources:
        parts.console.print_on_first(f"read so far: {describe_uses(data)}")
    more = "" if data.step >= first else f"; steps={config.steps} was reached before: give more steps to continue"
    parts.console.print_on_first(f"done: {data.step} steps{more}")
    return Exit.OK


def _check_trained(parts: LoopContext, trains: bool) -> None:
    """Raise DataError on every rank where no rank had a token to train on in any step; not before the last step.

    Single steps, and all up to the first line of the log, may have none: rows are long, and replies few. What no step
    could have is an error when the data is opened.
    """
    if not any(parts.team.gather(trains)):
        config = parts.config
        raise DataError(
            f"data={config.data.source} has nothing to train on: none of the tokens of {config.steps} steps is marked; "
            "prepare chats with replies, or train on all tokens with data.loss=all"
        )


def _evaluate(parts: LoopContext, step: int, meter: StepTimer) -> Evaluated:
    """Return the loss on the held-out rows; its time is none of the steps'."""
    with meter.paused():
        found = evaluate(parts.engine, parts.held_out, lambda: parts.liveness.report_step(step))
    parts.console.print_on_first(f"evaluated after step {step}: {found.format_line()}")
    return found


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
