"""`orch local`: take a host on this computer away, to see what a preemption does."""

from __future__ import annotations

import click

from orchestrator.cli.clusters import CLUSTER, find, hosts_of, reader
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.lazy import LazyGroup, Section, Verb
from orchestrator.cli.standing import stand
from orchestrator.cli.terminal import say
from orchestrator.errors import NotFoundError, UserError


@click.group(
    cls=LazyGroup,
    sections=[
        Section("Commands", (Verb("preempt", "orchestrator.cli.local:preempt", "Kill one host, as a cloud would."),))
    ],
    examples=[
        ("orch local preempt mine 2", "host 2 is gone at once, with all its processes"),
        ("orch resume mine", "what you would do then"),
    ],
)
def local() -> None:
    """Play with hosts on this computer."""


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch local preempt mine 2", "host 2 of 'mine' is gone at once"),
        ("orch local preempt mine 0 --dry-run", "say what would be killed"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.argument("rank", type=click.IntRange(min=0))
@click.option("--dry-run", is_flag=True, help="Say what would be killed; kill nothing.")
def preempt(cluster: str, rank: int, dry_run: bool) -> None:
    """Kill host RANK of CLUSTER hard, as a cloud that takes its machine back."""
    with reader() as store:
        record = find(store, cluster)
        host = hosts_of(record, (rank,))[0]
        intent = stand(store, record).current
    if intent is None:
        raise NotFoundError(f"cluster '{cluster}' has no machines", next_step=f"orch status {cluster}")
    if dry_run:
        say(f"would kill {host.label} of '{cluster}' ({intent.name}, {host.host}:{host.port}); nothing was done")
        return
    from orchestrator.paths import paths
    from orchestrator.providers.protocol import Preempts
    from orchestrator.providers.registry import open_provider

    provider = open_provider(intent.candidate.provider, paths().state)
    if not isinstance(provider, Preempts):
        raise UserError(
            f"a host on {intent.candidate.where} cannot be taken away on purpose",
            "only hosts on this computer can",
            "orch train local:2 model=tiny steps=100",
        )
    provider.preempt(intent.name, rank)
    say(f"{host.label} of '{cluster}' is gone; watch: orch status {cluster} --refresh")
