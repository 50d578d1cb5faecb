"""`orch profile`: record where the time of a running training goes, on every host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.execution.host_access import enter_hosts
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.client.host_records import host_record_source
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from orchestrator.engine.operations.profile import Profile


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch profile mine", "10 steps of every rank, into ./profiles"),
        ("orch profile mine --steps 3 --rank 0", "only the first rank: smaller, and often sufficient"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.option("--steps", type=click.IntRange(1, 1000), default=10, show_default=True, help="Steps to record.")
@click.option("--rank", type=click.Choice(["all", "0"]), default="all", show_default=True, help="Ranks to record.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("profiles"),
    show_default=True,
    metavar="DIR",
    help="Local folder for the traces.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0.1),
    default=15.0,
    show_default=True,
    metavar="MINUTES",
    help="Longest time to wait.",
)
@click.pass_context
def profile(ctx: click.Context, cluster: str, steps: int, rank: str, into: Path, wait: float) -> None:
    """Record some steps of the training that runs on CLUSTER, and download the traces.

    The training continues. Every rank writes its engine's own trace; those in Chrome's format are also merged into one
    file, with the ranks beside each other. Prints the folder.
    """
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations import profile as engine

    request = engine.ProfileRequest(cluster=cluster, steps=steps, first_only=rank == "0", into=into, wait=wait * 60)
    with host_record_source(cluster) as open_records, TerminalNarrator(sys.stderr) as narrator:
        found = engine.record_profile(
            request,
            lambda done, total: narrator.progress(f"{steps} steps, ranks", done, total),
            narrator.note,
            open_records,
            enter_hosts,
        )
    write_stdout(str(found.folder))
    write_stderr(*_summary_lines(found), *(f"warning: {note}" for note in (*found.notes, *found.failed)))
    ctx.exit(1 if found.failed else 0)


def _summary_lines(found: Profile) -> list[str]:
    """Return what was recorded and how to open it."""
    lines = [f"recorded {count_noun(len(found.ranks), 'rank')}"]
    if found.merged is not None:
        clock = "" if found.merged.one_clock else "; the ranks are aligned by their first event"
        lines.append(f"  {found.merged.file}   all ranks{clock}: open it in ui.perfetto.dev or chrome://tracing")
    if any(found.folder.rglob("*.xplane.pb")):
        lines.append(f"  tensorboard --logdir {found.folder}   for what JAX and XLA add (needs: pip install xprof)")
    return lines
