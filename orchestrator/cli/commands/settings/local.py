"""`orch local`: kill a host on this computer, to see what a preemption does."""

from __future__ import annotations

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.client.local import open_own_reader
from orchestrator.documents.clusters import summarize_cluster
from orchestrator.errors import NotFoundError, UserError
from orchestrator.store.lookup import find_cluster, select_hosts


@click.group(
    cls=LazyGroup,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand(
                    "preempt", "orchestrator.cli.commands.settings.local:preempt", "Kill one host, as a cloud would."
                ),
            ),
        )
    ],
    examples=[
        ("orch local preempt mine 2", "host 2 is killed immediately, with all its processes"),
        ("orch resume mine", "what you would do after that"),
    ],
)
def local() -> None:
    """Try failures of hosts on this computer."""


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch local preempt mine 2", "host 2 of 'mine' is killed immediately"),
        ("orch local preempt mine 0 --dry-run", "print what would be killed"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("rank", type=click.IntRange(min=0))
@click.option("--dry-run", is_flag=True, help="Print what would be killed; kill nothing.")
def preempt(cluster: str, rank: int, dry_run: bool) -> None:
    """Kill host RANK of CLUSTER hard, as a cloud that preempts its machine."""
    with open_own_reader() as store:
        record = find_cluster(store, cluster)
        host = select_hosts(record, (rank,))[0]
        intent = summarize_cluster(store, record).current
    if intent is None:
        raise NotFoundError(f"cluster '{cluster}' has no machines", next_step=f"orch status {cluster}")
    if dry_run:
        write_stderr(
            f"would kill {host.label} of '{cluster}' ({intent.name}, {host.host}:{host.port}); nothing was done"
        )
        return
    from orchestrator.paths import load_paths
    from orchestrator.providers.protocol import Preempts
    from orchestrator.providers.registry import open_provider

    provider = open_provider(intent.candidate.provider, load_paths().state)
    if not isinstance(provider, Preempts):
        raise UserError(
            f"a host on {intent.candidate.where} cannot be preempted by this command",
            "only hosts on this computer can be preempted on purpose",
            "orch train local:2 model=tiny steps=100",
        )
    provider.preempt(intent.name, rank)
    write_stderr(f"{host.label} of '{cluster}' is killed; see: orch status {cluster} --refresh")
