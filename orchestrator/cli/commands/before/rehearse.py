"""`orch rehearse`: run the user's own task on simulated machines, with faults, and report what was lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.task import make_overrides, task_options
from orchestrator.cli.parameters.task_argument import join_command, load_task_argument, task_argument
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.formatting import format_amount, format_duration, format_price
from orchestrator.messages import count_noun
from orchestrator.project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from orchestrator.engine.rehearsal.buckets import BucketFolder
    from orchestrator.engine.rehearsal.rehearse import Faults
    from orchestrator.engine.rehearsal.report import Report, Restart
    from orchestrator.task.model import Task


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch rehearse task.yaml", "the task on simulated machines of its shape; costs nothing"),
        ("orch rehearse task.yaml --preempt rank=2@step=50 --crash-launcher 3", "with faults, to see what is lost"),
        ("orch rehearse task.yaml --preempt 50 --step-pattern 'step (\\d+)'", "a program that only prints its steps"),
        ("orch rehearse task.yaml --bucket-folder gs://books/data=./sample", "files for a bucket that the task mounts"),
        ("orch rehearse task.yaml --stockout us-west4-a --scenario flaky.toml", "with your own simulated cloud"),
    ],
)
@task_argument
@click.option(
    "--preempt",
    multiple=True,
    metavar="[RANK@]STEP",
    help="Preempt the slice when this rank reaches this step: rank=2@step=50.",
)
@click.option(
    "--step-pattern",
    metavar="REGEX",
    default="",
    help="Take steps from the log, for programs without heartbeats: 'step (\\d+)'.",
)
@click.option("--stockout", multiple=True, metavar="ZONE", help="Simulate a zone without capacity.")
@click.option(
    "--crash-launcher",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Kill orch itself N times, and start it again.",
)
@click.option("--scenario", metavar="FILE", default="", help="Simulated cloud as a TOML file; see docs/simulator.md.")
@click.option(
    "--bucket-folder",
    "bucket_folders",
    multiple=True,
    metavar="URI=DIR",
    help="Let a copy of DIR stand for what a bucket holds: gs://books/data=./sample.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
@click.option("-c", "--cluster", type=CLUSTER, help="Name of the cluster; default: the task's name.")
@click.option("--keep", is_flag=True, help="Keep the folder with store, bucket and logs, and print its path.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@task_options
@click.pass_context
def rehearse(
    ctx: click.Context,
    /,
    task: tuple[str, ...],
    preempt: tuple[str, ...],
    step_pattern: str,
    stockout: tuple[str, ...],
    crash_launcher: int,
    scenario: str,
    bucket_folders: tuple[str, ...],
    seed: int,
    cluster: str | None,
    keep: bool,
    output: str,
    **given: Any,
) -> None:
    """Run a task on simulated machines in the shape of the real ones, with faults, and report what was lost.

    The hosts are real processes on this computer, reached over SSH, as many as the slice has, with its ranks and its
    environment; the accelerator is replaced by the CPU. The cloud is simulated: it sells, preempts and runs out of
    capacity. Buckets are replaced by folders, which --bucket-folder fills. Nothing is rented, and your clusters and
    buckets are not touched.
    """
    from orchestrator.engine.rehearsal.buckets import parse_bucket_folder
    from orchestrator.engine.rehearsal.rehearse import Faults, check_step_pattern, parse_preemption

    faults = Faults(
        preemptions=tuple(map(parse_preemption, preempt)),
        stockouts=stockout,
        crashes=crash_launcher,
        scenario=scenario,
        seed=seed,
        step_pattern=check_step_pattern(step_pattern) if step_pattern else "",
    )
    folders = tuple(map(parse_bucket_folder, bucket_folders))
    ctx.exit(_rehearse(task, cluster, faults, folders, given, keep, output))


def _rehearse(
    words: tuple[str, ...],
    cluster: str | None,
    faults: Faults,
    folders: tuple[BucketFolder, ...],
    given: dict[str, Any],
    keep: bool,
    output: str,
) -> int:
    from orchestrator.engine.preparation.candidates import list_candidates
    from orchestrator.engine.preparation.cluster_name import choose_cluster_name
    from orchestrator.engine.rehearsal.rehearse import prepare_rehearsal, remove_rehearsal, run_rehearsal
    from orchestrator.engine.rehearsal.report import read_report
    from orchestrator.engine.training.advice import refuse_fatal_settings

    task = _load_task(words, given)
    name = choose_cluster_name(task, cluster)
    refuse_fatal_settings(task, list_candidates(task))
    home = Path(tempfile.mkdtemp(prefix="orch-rehearsal-"))
    try:
        stage = prepare_rehearsal(home, task, name, faults, folders)
        refuse_fatal_settings(stage.task, list_candidates(stage.task))
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)  # nothing was started in it
        raise
    write_stderr(*(f"note: {note}" for note in stage.notes))
    spec = home / "launch.json"
    spec.write_text(json.dumps({"task": stage.task.to_json(), "cluster": stage.cluster}), encoding="utf-8")
    _enter_home(home, task)
    _end_like_ctrl_c()
    try:
        launcher = [sys.executable, "-m", "orchestrator.cli.commands.before.rehearsal_launcher", str(spec)]
        played = run_rehearsal(stage, launcher, write_stderr, out=sys.stderr.fileno() if output == "json" else None)
        report = read_report(stage.state / "orch.db", stage.metrics, stage.cluster, played, time.time())
    except KeyboardInterrupt:
        write_stderr("interrupted; the rehearsal's hosts are ended")
        return Exit.INTERRUPTED
    finally:
        if not keep:
            remove_rehearsal(stage)
    write_stdout(json.dumps(_as_json(report), indent=2)) if output == "json" else write_stdout(
        *_report_lines(report, faults)
    )
    if keep:
        write_stderr(f"kept: {home}   (ORCH_HOME={home} orch events {stage.cluster})")
    error = _find_error(report, faults, with_bucket=bool(task.checkpoint.bucket)) if played.status == 0 else None
    if error is not None:
        write_stderr(*error.lines())
        return Exit.NOT_RESUMED
    return played.status


def _load_task(words: tuple[str, ...], given: dict[str, Any]) -> Task:
    """Return the only task of a command, and print the notes of its file."""
    file = load_task_argument(words, make_overrides(given))
    if len(file.tasks) != 1:
        raise UserError(
            f"{join_command(words)} holds {len(file.tasks)} tasks; a rehearsal runs one",
            next_step="put the task into a separate file, then: orch rehearse FILE",
        )
    write_stderr(*(f"note: {note}" for note in file.notes))
    return file.only


def _enter_home(home: Path, task: Task) -> None:
    """Set this process's environment to a rehearsal's: its store is its own, whatever the configuration names."""
    os.environ["ORCH_HOME"] = str(home)
    for name in ("ORCH_STORE", "ORCH_SERVER"):
        os.environ.pop(name, None)
    os.environ["ORCH_PROJECT"] = DEFAULT_PROJECT
    for secret in task.secrets:
        os.environ[secret.name] = secret.value


def _find_error(report: Report, faults: Faults, *, with_bucket: bool) -> OrchError | None:
    """Return why a rehearsal whose program succeeded has not shown that it resumes."""
    if (restart := report.not_resumed) is not None:
        return _not_resumed_error(restart, with_bucket=with_bucket)
    happened = sum(resume.cause == "preempted" for resume in report.resumes)
    if happened < len(faults.preemptions):
        return _not_preempted_error(happened, len(faults.preemptions), with_steps=report.steps > 0)
    return None


def _not_resumed_error(restart: Restart, *, with_bucket: bool) -> OrchError:
    """Return what to change in a program that begins at its first step again."""
    why = f"after attempt {restart.attempt} it began at its first step again"
    why += f": {count_noun(restart.lost_steps, 'step')} were done twice" if restart.lost_steps else ""
    if not with_bucket:
        why, fix = f"{why}; the task has no bucket for checkpoints", "add to the task: checkpoint: {bucket: ...}"
    elif not restart.found_saved:
        why, fix = f"{why}; it had saved nothing below $ORCH_CHECKPOINT_URI", "save there, and more often"
    else:
        why, fix = f"{why}, though $ORCH_CHECKPOINT_URI holds files", "load the newest save if $ORCH_RESUME_FROM is set"
    error = OrchError("your program does not resume", why, f"{fix}\ndocs/environment.md#resume-in-your-own-program")
    error.code, error.exit_status = "not-resumed", Exit.NOT_RESUMED
    return error


def _not_preempted_error(happened: int, requested: int, *, with_steps: bool) -> OrchError:
    """Return why a requested preemption did not happen, so that the rehearsal shows nothing about it."""
    if with_steps:
        why = "the program had ended, or had passed the step, before the simulated cloud noticed"
        step = "choose an earlier step, or do more work per step"
    else:
        why = "your program writes no steps to $ORCH_HEARTBEAT_FILE, by which the rehearsal knows when"
        step = (
            'write them: echo "$step" >"$ORCH_HEARTBEAT_FILE"   docs/own-programs.md\n'
            "or name how the log has them: --step-pattern 'step (\\d+)'"
        )
    error = OrchError(f"{happened} of {count_noun(requested, 'preemption')} happened", why, step)
    error.code, error.exit_status = "not-preempted", Exit.NOT_RESUMED
    return error


def _end_like_ctrl_c() -> None:
    """Treat a closed terminal or a kill like Ctrl-C, so that the rehearsal's hosts are ended."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a script's background job ignores SIGINT
            signal.signal(number, signal.default_int_handler)


def _report_lines(report: Report, faults: Faults) -> list[str]:
    from orchestrator.engine.rehearsal.report import format_timeline

    lines = ["", "REHEARSAL", *(f"  {when}  {what}" for when, what in format_timeline(report)), ""]
    lines.append(f"result        {report.what} (exit {report.status}), after {format_duration(report.seconds)}")
    lines.append(f"launcher      killed {count_noun(report.launcher_crashes, 'time')}")
    lines.append(f"resumed       {count_noun(len(report.resumes), 'time')}")
    lines += [f"  {_describe_resume(resume)}" for resume in report.resumes]
    if faults.step_pattern:
        lines.append(f"steps         from the log, by --step-pattern '{faults.step_pattern}'")
    lines.append(f"verdict       {_describe_verdict(report, requested=bool(faults.preemptions))}")
    lines.append(f"loss curve    {_describe_loss(report)}")
    lines.append(f"real cost     {_describe_cost(report)}")
    return lines


def _describe_resume(resume: Restart) -> str:
    text = f"attempt {resume.attempt} ended ({resume.cause}: {resume.why}); "
    if resume.seconds is not None:
        text += f"{format_duration(resume.seconds)} until it made progress again; "
    if resume.lost_steps is None:
        return text + "the number of lost steps is unknown (see heartbeats in docs/limits.md)"
    text += "" if resume.resumed_step is None else f"continued from step {resume.resumed_step}; "
    text += f"lost {count_noun(resume.lost_steps, 'step')}"
    return text if resume.lost_seconds is None else f"{text}, {format_duration(resume.lost_seconds)} of work"


def _describe_verdict(report: Report, *, requested: bool) -> str:
    if not report.resumes and report.status != 0:
        return "resuming was not tried: the task failed before a loss"
    if not report.resumes:
        return f"nothing was lost, so resuming was not tried{'' if requested else ': add --preempt step=N'}"
    if report.resumed is None:
        return "whether your program resumes is unknown: it writes no steps to $ORCH_HEARTBEAT_FILE (docs/limits.md)"
    return "your program resumes" if report.resumed else "your program does not resume"


def _describe_loss(report: Report) -> str:
    repeated = sum(resume.repeated for resume in report.resumes)
    if report.loss_continued is None:
        return (
            "no step was repeated" if report.has_losses else "the program reports no losses; the bundled trainer does"
        )
    if report.loss_continued:
        return f"continued: {count_noun(repeated, 'repeated step')}, all with the same loss to the last bit"
    most = max(resume.largest_difference for resume in report.resumes)
    same = sum(resume.same_loss for resume in report.resumes)
    return f"{same} of {count_noun(repeated, 'repeated step')} have the same loss; largest difference {most:g}"


def _describe_cost(report: Report) -> str:
    if report.dollars is None:
        return "unknown: the catalog has no price for these machines"
    return (
        f"{format_amount(report.dollars)} for this machine time at list price ({format_price(report.dollars_per_hour)})"
    )


def _as_json(report: Report) -> dict[str, object]:
    """Return the report as in data/rehearsal.schema.json."""
    from dataclasses import asdict

    verdicts = {"loss_continued": report.loss_continued, "resumed": report.resumed}
    return {"version": 1, "kind": "rehearsal", **verdicts, **asdict(report)}
