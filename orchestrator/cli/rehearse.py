"""`orch rehearse`: the user's own task on simulated machines, with faults, and a report at the end."""

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

from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import duration, plural, price
from orchestrator.cli.task_options import overrides, task_options
from orchestrator.cli.terminal import put, say
from orchestrator.errors import UserError
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from orchestrator.engine.rehearsal_report import Report, Resume
    from orchestrator.engine.rehearse import Faults


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch rehearse task.yaml", "the whole task on simulated machines of its shape; costs nothing"),
        ("orch rehearse task.yaml --preempt rank=2@step=50 --crash-launcher 3", "and see what is lost"),
        ("orch rehearse task.yaml --stockout us-west4-a --scenario flaky.toml", "with a cloud of your own making"),
    ],
)
@click.argument("task", metavar="TASK.yaml", type=click.Path())
@click.option(
    "--preempt",
    multiple=True,
    metavar="RANK@STEP",
    help="Take the slice when this rank makes this step: rank=2@step=50.",
)
@click.option("--stockout", multiple=True, metavar="ZONE", help="This zone has no machines.")
@click.option(
    "--crash-launcher",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Kill orch itself N times, and start it again.",
)
@click.option(
    "--scenario", metavar="FILE", default="", help="A cloud as a TOML file; docs/simulator.md tells its words."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is left to chance.")
@click.option("-c", "--cluster", type=CLUSTER, help="Name of the cluster; default: the task's name.")
@click.option("--keep", is_flag=True, help="Keep the folder with store, bucket and logs, and say where it is.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@task_options
@click.pass_context
def rehearse(
    ctx: click.Context,
    /,
    task: str,
    preempt: tuple[str, ...],
    stockout: tuple[str, ...],
    crash_launcher: int,
    scenario: str,
    seed: int,
    cluster: str | None,
    keep: bool,
    output: str,
    **given: Any,
) -> None:
    """Run a task on simulated machines in the shape of the real ones, with faults, and report what was lost.

    The hosts are real: processes on this computer, reached over SSH, as many as the slice has, with its ranks and its
    environment; the accelerator is replaced by the CPU. The cloud is simulated: it sells, preempts and runs out.
    Buckets are replaced by a folder. Nothing is rented and nothing of yours is touched.
    """
    from orchestrator.engine.rehearse import Faults, parse_preemption

    faults = Faults(tuple(map(parse_preemption, preempt)), stockout, crash_launcher, scenario, seed)
    ctx.exit(_rehearse(task, cluster, faults, given, keep, output))


def _rehearse(path: str, cluster: str | None, faults: Faults, given: dict[str, Any], keep: bool, output: str) -> int:
    from orchestrator.engine.rehearsal_report import read_report
    from orchestrator.engine.rehearse import play, remove, set_up
    from orchestrator.engine.wish import cluster_name
    from orchestrator.spec.config import load_config
    from orchestrator.spec.parse import load_task_file

    file = load_task_file(path, env=os.environ, flags=overrides(given), config=load_config(os.environ))
    if len(file.tasks) != 1:
        raise UserError(
            f"{path} holds {len(file.tasks)} tasks; a rehearsal plays one",
            next_step="put the task into a file of its own, then: orch rehearse FILE",
        )
    say(*(f"note: {note}" for note in file.notes))
    name = cluster_name(file.only, cluster)
    home = Path(tempfile.mkdtemp(prefix="orch-rehearsal-"))
    try:
        stage = set_up(home, file.only, name, faults)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)  # nothing was started there
        raise
    spec = home / "launch.json"
    spec.write_text(json.dumps({"task": stage.task.to_json(), "cluster": stage.cluster}), encoding="utf-8")
    os.environ["ORCH_HOME"] = str(home)
    os.environ.pop("ORCH_STORE", None)
    for secret in file.only.secrets:
        os.environ[secret.name] = secret.value
    _end_as_by_ctrl_c()
    try:
        launcher = [sys.executable, "-m", "orchestrator.cli.rehearsal_launcher", str(spec)]
        status, crashes = play(stage, launcher, say, out=sys.stderr.fileno() if output == "json" else None)
        report = read_report(stage.state / "orch.db", stage.metrics, stage.cluster, crashes, time.time())
    except KeyboardInterrupt:
        say("interrupted; the rehearsal's hosts are ended")
        return Exit.INTERRUPTED
    finally:
        if not keep:
            remove(stage)
    put(json.dumps(_as_json(report), indent=2)) if output == "json" else put(*_page(report))
    happened = sum(resume.cause == "preempted" for resume in report.resumes)
    if happened < len(faults.preemptions):
        say(
            f"note: {happened} of {plural(len(faults.preemptions), 'preemption')} happened; the program was over, or",
            "  had passed the step, before the cloud noticed: choose an earlier step, or more work per step",
        )
    if keep:
        say(f"kept: {home}   (ORCH_HOME={home} orch events {stage.cluster})")
    return status


def _end_as_by_ctrl_c() -> None:
    """A closed terminal, or kill: the rehearsal's hosts must not stay behind it."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)


def _page(report: Report) -> list[str]:
    from orchestrator.engine.rehearsal_report import timeline

    lines = ["", "REHEARSAL", *(f"  {when}  {what}" for when, what in timeline(report)), ""]
    lines.append(f"result        {report.what} (exit {report.status}), after {duration(report.seconds)}")
    lines.append(f"launcher      killed {plural(report.launcher_crashes, 'time')}")
    lines.append(f"resumed       {plural(len(report.resumes), 'time')}")
    lines += [f"  {_resume_words(resume)}" for resume in report.resumes]
    lines.append(f"loss curve    {_loss_words(report)}")
    lines.append(f"real cost     {_cost_words(report)}")
    return lines


def _resume_words(resume: Resume) -> str:
    words = f"attempt {resume.attempt} ended ({resume.cause}: {resume.why}); "
    if resume.seconds is not None:
        words += f"{duration(resume.seconds)} until it moved again; "
    if resume.lost_steps is None:
        return words + "how many steps were lost was not told (see heartbeats in docs/limits.md)"
    return words + f"lost {plural(resume.lost_steps, 'step')}, {duration(resume.lost_seconds or 0.0)} of work"


def _loss_words(report: Report) -> str:
    repeated = sum(resume.repeated for resume in report.resumes)
    if report.loss_continued is None:
        return "no step was made twice" if report.has_losses else "the program tells no losses; the trainer would"
    if report.loss_continued:
        return f"went on: {plural(repeated, 'repeated step')}, all with the same loss to the last bit"
    most = max(resume.largest_difference for resume in report.resumes)
    same = sum(resume.same_loss for resume in report.resumes)
    return f"{same} of {plural(repeated, 'repeated step')} have the same loss; largest difference {most:g}"


def _cost_words(report: Report) -> str:
    if report.dollars is None:
        return "not known: the price of these machines is not in the catalogue"
    return f"${report.dollars:,.2f} for this machine time at list price ({price(report.dollars_per_hour)})"


def _as_json(report: Report) -> dict[str, object]:
    """See data/rehearsal.schema.json."""
    from dataclasses import asdict

    return {"version": 1, "kind": "rehearsal", "loss_continued": report.loss_continued, **asdict(report)}
