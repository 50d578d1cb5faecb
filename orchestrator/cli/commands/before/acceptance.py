"""`orch acceptance`: try every command on a real cloud account within a price cap, and write a report of it."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.drivers import get_driver, list_clouds
from orchestrator.errors import UserError
from orchestrator.exits import Exit
from orchestrator.formatting import format_amount, format_duration
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from orchestrator.acceptance.process import Surroundings
    from orchestrator.acceptance.quotes import Quote
    from orchestrator.acceptance.run import Result, Run
    from orchestrator.acceptance.steps import Request, Step

_LAUNCHER = (sys.executable, "-m", "orchestrator.cli.commands.before.acceptance_process")
_LETTERS = "bcdfghjkmnpqrstvwxz23456789"


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch acceptance gcp --dry-run", "steps and price; no request is sent"),
        ("orch acceptance gcp --bucket gs://my-bucket", "for cents: a CPU machine, and a training on it"),
        ("orch acceptance aws --infra aws/us-east-1 --bucket s3://my-bucket --max-cost 1", "the same on EC2"),
        ("orch acceptance gcp --accelerators v5e-4 --accelerators L4:1", "accelerators, too, one after the other"),
    ],
)
@click.argument("cloud", type=click.Choice([cloud.name for cloud in list_clouds()]))
@click.option("--bucket", metavar="URI", default="", help="Bucket to try; one new folder in it is used, then deleted.")
@click.option("--infra", metavar="PLACE", default="", help="Place: PROVIDER/REGION/ZONE; default: orch chooses.")
@click.option("--accelerators", metavar="NAME", multiple=True, help="An accelerator to launch, too; repeatable.")
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), default=3.0, show_default=True, metavar="USD",
              help="Refuse, or stop early, before the list price passes this.")  # fmt: skip
@click.option("--max-minutes", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True,
              help="Begin no step after this time; machines are ended then.")  # fmt: skip
@click.option("--report", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Where the report goes; default: acceptance-CLOUD-DATE.json here.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print steps and price; send nothing.")
@click.pass_context
def acceptance(
    ctx: click.Context,
    cloud: str,
    bucket: str,
    infra: str,
    accelerators: tuple[str, ...],
    max_cost: float,
    max_minutes: float,
    report: Path | None,
    dry_run: bool,
) -> None:
    """Run orch's commands on your real account of CLOUD, and report what held.

    Rents the cheapest CPU machine, one more for some minutes, and the accelerators you name. Everything is ended
    afterwards, also after a failure or Ctrl-C. Your clusters and records are not touched. Accounts, addresses, keys
    and ids are masked in the report, so that you can attach it to a public issue.
    """
    from orchestrator.acceptance.steps import Request, list_steps

    name = f"acceptance-{''.join(secrets.choice(_LETTERS) for _ in range(5))}"
    request = Request(
        cloud=cloud,
        place=infra or cloud,
        name=name,
        bucket=f"{_read_bucket(cloud, bucket)}/{name}" if bucket else "",
        accelerators=accelerators,
        max_cost=max_cost,
        max_minutes=max_minutes,
    )
    _check_place(request)
    steps = list_steps(request)
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="orch-acceptance-") as folder:
            _plan(request, steps, _prepare(request, Path(folder)), write_stdout)
        return
    ctx.exit(_run(request, steps, report or Path(f"acceptance-{cloud}-{time.strftime('%Y-%m-%d-%H%M%S')}.json")))


def _read_bucket(cloud: str, bucket: str) -> str:
    """Return the bucket without a slash at its end.

    Raises:
        UserError: Its scheme is not that of the cloud.
    """
    scheme = get_driver(cloud).bucket_scheme
    if not bucket.startswith(f"{scheme}://"):
        raise UserError(f"--bucket {bucket} is not a bucket of {cloud}", "", f"--bucket {scheme}://NAME")
    return bucket.rstrip("/")


def _check_place(request: Request) -> None:
    """Raise UserError for a place of another provider."""
    if request.place.partition("/")[0] != request.cloud:
        raise UserError(
            f"--infra {request.place} is not a place of {request.cloud}", "", f"--infra {request.cloud}/REGION"
        )


def _prepare(request: Request, home: Path) -> Surroundings:
    from orchestrator.acceptance.environment import make_environment
    from orchestrator.acceptance.process import Surroundings
    from orchestrator.task.config import load_config

    env = make_environment(request.cloud, home, os.environ, load_config(os.environ))
    return Surroundings(launcher=_LAUNCHER, folder=home, env=env)


def _plan(
    request: Request, steps: Sequence[Step], surroundings: Surroundings, write: Callable[..., None]
) -> dict[str, float]:
    """Print steps and price, and return the price of each cluster in US dollars an hour.

    Raises:
        UserError: The price passes the cap, or a launch would be refused.
    """
    from orchestrator.acceptance.budget import estimate_costs
    from orchestrator.acceptance.quotes import read_quotes

    quotes = read_quotes(request, surroundings)
    prices = {quote.cluster: quote.price for quote in quotes}
    costs = estimate_costs(steps, prices)
    write(*_plan_lines(request, steps, quotes, costs))
    total = sum(costs.values())
    if total > request.max_cost:
        raise UserError(
            f"the run needs about {format_amount(total)}, more than --max-cost {request.max_cost:g}",
            "nothing was rented",
            f"orch acceptance {request.cloud} --max-cost {total * 1.2 + 0.01:.2f}   or fewer accelerators",
        )
    return prices


def _plan_lines(request: Request, steps: Sequence[Step], quotes: Sequence[Quote], costs: dict[str, float]) -> list[str]:
    from orchestrator.cli.drawing.tables import fit_columns

    rows = [("STEP", "COST", "COMMAND AND WHAT MUST HOLD")]
    rows += [
        (step.name, format_amount(costs[step.name], 3), f"orch {shlex.join(step.argv)}: {step.expects.meaning}")
        for step in steps
    ]
    minutes = sum(step.minutes for step in steps)
    machines = [
        f"  {one.cluster}: {one.machine} in {one.place}, {format_amount(one.price, 3)}/h at most" for one in quotes
    ]
    cost = sum(costs.values())
    return [
        f"Acceptance of orch on {request.cloud}: {len(steps)} steps, about {minutes:.0f} min and {format_amount(cost)}",
        f"Caps: {request.max_minutes:g} min and {format_amount(request.max_cost)}",
        "List prices of machines; disks, addresses and traffic are not included.",
        *machines,
        *fit_columns(rows, 120),
    ]


def _run(request: Request, steps: tuple[Step, ...], report: Path) -> int:
    from orchestrator.acceptance.run import Run
    from orchestrator.cli.commands.before.simulated_command import noticed_signals
    from orchestrator.paths import load_paths

    if report.exists():
        raise UserError(f"{report} exists already", "a report is never overwritten", "--report ANOTHER-FILE")
    report.touch()  # a folder that cannot be written is noticed before machines are rented
    kept = load_paths().state / "acceptance"
    kept.mkdir(parents=True, exist_ok=True, mode=0o700)
    home = Path(tempfile.mkdtemp(prefix=f"{request.name}-", dir=kept))
    try:
        surroundings = _prepare(request, home)
        prices = _plan(request, steps, surroundings, write_stderr)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)  # nothing was rented
        report.unlink()
        raise
    write_stderr(f"records of this run: {home}   (removed when nothing is left)")
    with noticed_signals() as signals:
        run = Run(
            request=request, steps=steps, prices=prices, surroundings=surroundings, report=_print_result,
            is_stopped=lambda: bool(signals),
        )  # fmt: skip
        try:
            run.run()
        finally:
            _finish(run, report)
        return Exit.INTERRUPTED if signals else Exit.OK if run.passed else Exit.FAILURE


def _print_result(result: Result) -> None:
    seconds = format_duration(result.output.seconds) if result.output else "-"
    line = f"{result.outcome:<8}  {result.step.name:<20}  {seconds:>8}  {format_amount(result.dollars, 3)}"
    write_stderr(f"{line}  {result.why}".rstrip())


def _finish(run: Run, report: Path) -> None:
    """Write the report, print the results, and remove the folder when nothing is left."""
    from orchestrator.acceptance.report import make_report

    home = run.surroundings.folder
    command = f"ORCH_HOME={shlex.quote(str(home))} orch down {run.request.name}"
    document = make_report(run, end_command=command, names=_list_names(run), now=time.time())
    report.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_stdout(*_result_lines(run, document))
    write_stderr(f"report: {report}   (masked; please read it before you attach it to an issue)")
    if run.left:
        write_stderr(
            "SOMETHING IS LEFT, and may cost money:", *(f"  {one}" for one in run.left),
            f"  see it: ORCH_HOME={shlex.quote(str(home))} orch status --refresh",
            f"  end it: {command}   then: ORCH_HOME={shlex.quote(str(home))} orch reap",
        )  # fmt: skip
    else:
        shutil.rmtree(home, ignore_errors=True)


def _result_lines(run: Run, document: dict[str, Any]) -> list[str]:
    from orchestrator.cli.drawing.tables import fit_columns

    rows = [("STEP", "RESULT", "TIME", "COST", "WHY")]
    rows += [
        (
            result.step.name,
            str(result.outcome),
            format_duration(result.output.seconds) if result.output else "-",
            format_amount(result.dollars, 3),
            result.why,
        )
        for result in run.results
    ]
    word = "passed" if run.passed else "FAILED"
    left = "something is left" if run.left else "nothing is left"
    return [
        *(line.rstrip() for line in fit_columns(rows, 120)),
        f"{word}: {len(run.results)} steps, {format_duration(document['seconds'])}, {format_amount(run.spent)}; {left}",
        f"{count_noun(len(document['refusals']), 'refusal')} of the cloud in the report",
    ]


def _list_names(run: Run) -> dict[str, str]:
    """Return names that only this run knows, each with its replacement in the report."""
    from orchestrator.acceptance.environment import list_account_names, list_secret_values

    env = run.surroundings.env
    names = dict.fromkeys(list_secret_values(env), "<secret>")
    names |= {str(run.surroundings.folder): "<folder>", str(Path.home()): "<home>", os.uname().nodename: "<computer>"}
    with suppress(OSError, KeyError):
        names[getpass.getuser()] = "<user>"
    if bucket := run.request.bucket.removesuffix(f"/{run.request.name}"):
        names[bucket] = "<bucket>"
        names[bucket.partition("://")[2]] = "<bucket>"
    accounts = {*run.accounts, *list_account_names(get_driver(run.request.cloud), env)} - {"", "default"}
    names |= dict.fromkeys(accounts, "<account>")
    names.pop("/", None)
    return names
