"""`orch logs`: a job's output from its hosts, now or as it comes."""

from __future__ import annotations

import sys
from typing import Any

import click

from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import parse_size
from orchestrator.cli.options import HOSTS
from orchestrator.cli.terminal import say


class Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_size(str(value))
        except ValueError as error:
            self.fail(f"{error}; write 4096, 64KiB or 1MiB", param, ctx)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch logs mine -f", "the last job, from all hosts, until it ends"),
        ("orch logs mine 2 --host 0 --no-prefix > head.log", "job 2, one host, bytes as they were written"),
        ("orch logs mine -f --since 64KiB", "begin 64 KiB before the end of each host's log"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("job", type=click.IntRange(min=1), required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends; its exit status becomes ours.")
@click.option("--host", "--worker", "ranks", type=HOSTS, help="Some hosts: 0,3-5, or all, the default.")
@click.option(
    "--since", type=Size(), metavar="SIZE", help="Only so much from the end of what is there; 0: only what comes."
)
@click.option("--no-prefix", is_flag=True, help="Do not say on each line whose it is.")
@click.pass_context
def logs(
    ctx: click.Context,
    cluster: str,
    job: int | None,
    follow: bool,
    ranks: tuple[int, ...] | None,
    since: int | None,
    no_prefix: bool,
) -> None:
    """Output of a job, the last one by default. Also when its hosts are gone, as far as it was followed here."""
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.cli.outcomes import tell
    from orchestrator.engine.attach import follow_logs
    from orchestrator.plan.steps import Done

    with TerminalNarrator(sys.stdout, prefix=not no_prefix, stop_when_closed=True) as narrator:
        try:
            ending = follow_logs(cluster, job, narrator.output, narrator, hosts=ranks, follow=follow, tail_bytes=since)
        except KeyboardInterrupt:
            narrator.note(f"stopped watching; the job goes on: orch logs -f {cluster}   end it: orch cancel {cluster}")
            ctx.exit(130)
    if not isinstance(ending.step, Done):
        tell(ending)
    elif follow and ending.step.message:
        say(ending.step.message)
    ctx.exit(ending.status)
