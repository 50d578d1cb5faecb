"""`orch logs`: a job's output from its hosts, now or as it comes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.line_filter import filter_lines
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import HOSTS, NO_PREFIX, RAW
from orchestrator.errors import UserError
from orchestrator.formatting import parse_duration

if TYPE_CHECKING:
    from orchestrator.hosts import HostAddress


class Duration(click.ParamType[int]):
    """Seconds, written as `90s`, `10m`, `2h` or `3d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds."""
        try:
            return value if isinstance(value, int) else parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{error}; write 90s, 10m, 2h or 3d", param, ctx)


class Pattern(click.ParamType["re.Pattern[bytes]"]):
    """A regular expression that is searched for in each line."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[bytes]:
        """Return the compiled expression."""
        try:
            return re.compile(str(value).encode())
        except re.error as error:
            self.fail(f"'{value}' is not a regular expression: {error}", param, ctx)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch logs mine -f", "the running job, from all hosts, until it ends"),
        ("orch logs mine 2 --host 0 --no-prefix > head.log", "job 2, one host, bytes as they were written"),
        ("orch logs mine --since 10m --grep 'loss|Error'", "matching lines of the last ten minutes"),
        ("orch logs mine --setup", "what the setup printed on all hosts, also after it failed"),
        ("orch logs mine -f --tail 20", "begin with the last 20 lines of each host"),
        ("orch logs mine -o jsonl | jq -r .line", "one JSON object per line"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("job", type=click.IntRange(min=1), required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends; exit with its status.")
@click.option("--host", "--worker", "ranks", type=HOSTS, help="Ranks such as 0,3-5; default: all.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines of each host.")
@click.option("--since", type=Duration(), metavar="TIME", help="Only output newer than 90s, 10m, 2h, 3d (within 5 s).")
@click.option("--grep", type=Pattern(), metavar="REGEX", help="Only lines that match a regular expression.")
@click.option("--setup", is_flag=True, help="Show the output of the setup instead of that of the program.")
@NO_PREFIX
@RAW
@click.option("-o", "--output", type=click.Choice(["text", "json", "jsonl"]), default="text", show_default=True)
@click.pass_context
def logs(
    ctx: click.Context,
    cluster: str,
    job: int | None,
    follow: bool,
    ranks: tuple[int, ...] | None,
    tail: int | None,
    since: int | None,
    grep: re.Pattern[bytes] | None,
    setup: bool,
    no_prefix: bool,
    raw: bool,
    output: str,
) -> None:
    """Show the output of a job; of stopped or deleted hosts, as much as was downloaded before.

    Without JOB it is the launch or resume that is running, else the last one. A command (exec) is shown by its number.
    A job that ended in its setup shows the output of its setup.
    """
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import print_ending
    from orchestrator.client.choose import open_documents
    from orchestrator.documents.queries import OutputQuery
    from orchestrator.plan.steps import Done

    if follow and output == "json":
        raise UserError("-f cannot write one JSON document", "it would never be complete", "orch logs -f -o jsonl")
    query = OutputQuery(cluster=cluster, job=job, hosts=ranks, follow=follow, tail=tail, since=since, setup=setup)
    lines: list[dict[str, object]] = []
    with TerminalNarrator(sys.stdout, prefix=not no_prefix, raw=raw, stop_when_closed=True) as narrator:
        write = narrator.output if output == "text" else _json_sink(lines if output == "json" else None)
        if output != "text" and grep is None:
            grep = re.compile(b"")  # complete lines, all of them
        matching = filter_lines(grep, write, raw=raw) if grep is not None else None
        sink = write if matching is None else matching
        try:
            with open_documents() as documents:
                ending = documents.give_output(query, sink, narrator)
        except KeyboardInterrupt:
            again = f"orch logs -f {cluster}" if job is None else f"orch logs -f {cluster} {job}"
            narrator.note(f"stopped watching; the job continues: {again}   end it: orch cancel {cluster}")
            ctx.exit(130)
        if matching is not None:
            matching.close()
    if output == "json":
        head = {"version": 1, "kind": "logs", "cluster": cluster, "job": ending.job_id, "run_id": ending.run_id or None}
        write_stdout(json.dumps({**head, "status": ending.status, "lines": lines}, indent=2))
    if not isinstance(ending.step, Done):
        print_ending(ending)
    elif follow and ending.step.message:
        write_stderr(ending.step.message)
    ctx.exit(ending.status)


def _json_sink(lines: list[dict[str, object]] | None) -> Callable[[HostAddress, bytes], None]:
    """Return a sink for complete lines, as in data/logs.schema.json: into `lines`, or to stdout when it is None."""

    def write(host: HostAddress, block: bytes) -> None:
        found: list[dict[str, object]] = [
            {"rank": host.rank, "host": host.label, "line": line.decode("utf-8", "replace")}
            for line in block.removesuffix(b"\n").split(b"\n")
        ]
        if lines is not None:
            lines.extend(found)
        else:
            write_stdout(*map(json.dumps, found))
            sys.stdout.flush()

    return write
