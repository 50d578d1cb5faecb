"""`orch profile`: where the time of a running training goes, on every host at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import plural
from orchestrator.cli.terminal import put, say

if TYPE_CHECKING:
    from orchestrator.engine.profile import Profile


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch profile mine", "10 steps of every rank, into ./profiles"),
        ("orch profile mine --steps 3 --rank 0", "the first rank alone: small, and often enough"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.option("--steps", type=click.IntRange(1, 1000), default=10, show_default=True, help="Steps to record.")
@click.option("--rank", type=click.Choice(["all", "0"]), default="all", show_default=True, help="Whose steps.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("profiles"),
    show_default=True,
    metavar="DIR",
    help="Folder here that gets them.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0.1),
    default=15.0,
    show_default=True,
    metavar="MINUTES",
    help="At most so long.",
)
@click.pass_context
def profile(ctx: click.Context, cluster: str, steps: int, rank: str, into: Path, wait: float) -> None:
    """Record some steps of the training that runs on CLUSTER, and bring the traces home.

    The training goes on. Every rank writes its engine's own trace; those in Chrome's form are also made one, with the
    ranks beside each other. Prints the folder.
    """
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.engine import profile as engine

    wanted = engine.Wanted(cluster, steps, rank == "0", into, wait * 60)
    with TerminalNarrator(sys.stderr) as narrator:
        found = engine.profile(wanted, lambda done, total: narrator.progress(f"{steps} steps, ranks", done, total))
    put(str(found.folder))
    say(*_words(found), *(f"warning: {note}" for note in (*found.notes, *found.failed)))
    ctx.exit(1 if found.failed else 0)


def _words(found: Profile) -> list[str]:
    """What is there and how it is opened."""
    lines = [f"recorded {plural(len(found.ranks), 'rank')}"]
    if found.merged is not None:
        clock = "" if found.merged.one_clock else "; ranks are laid side by side by their first event"
        lines.append(f"  {found.merged.file}   all in one{clock}: open it in ui.perfetto.dev or chrome://tracing")
    if any(found.folder.rglob("*.xplane.pb")):
        lines.append(f"  tensorboard --logdir {found.folder}   for what JAX and XLA add (needs: pip install xprof)")
    return lines
