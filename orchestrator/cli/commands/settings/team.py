"""`orch team`: the computers that share the store, and taking one out."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.cli.parameters.clusters import open_store_reader
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.formatting import format_age, format_utc
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from orchestrator.engine.operations.team import Admitted
    from orchestrator.store.team_records import ComputerRecord

_HERE = "orchestrator.cli.commands.settings.team"


@click.group(
    "team",
    cls=LazyGroup,
    invoke_without_command=True,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("remove", f"{_HERE}:remove_command", "Take a computer or a member out of the team."),
                LazyCommand("add", f"{_HERE}:add_command", "Take a removed computer or member in again."),
            ),
        )
    ],
    examples=[
        ("orch team", "the computers of the team"),
        ("orch team remove bobs-laptop --dry-run", "where its key is admitted, and until when"),
        ("orch team remove bobs-laptop --now", "and take the key off all hosts that answer"),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def team(ctx: click.Context, output: str) -> None:
    """List the computers that share the store. A computer joins with its first command."""
    if ctx.invoked_subcommand is not None:
        return
    with open_store_reader() as store:
        computers, seen, addresses = store.computers(), store.last_changes(), store.admitted_addresses()
    last = {one.uid: seen.get(f"{one.member}@{one.host}") for one in computers}
    places = {one.uid: sorted({row.address for row in addresses if row.computer == one.uid}) for one in computers}
    if output == "json":
        write_stdout(json.dumps(_as_json(computers, last, places), indent=2))
        return
    if not computers:
        write_stderr("no computers: this store is on one computer alone (docs/team.md)")
        return
    now = time.time()
    rows: list[tuple[str, ...]] = [("COMPUTER", "HOST", "MEMBER", "JOINED", "LAST CHANGE", "REMOVED", "ADDRESSES")]
    for one in computers:
        times = (one.joined, last[one.uid], one.removed)
        ages = (format_age(at, now) if at is not None else "-" for at in times)
        rows.append((one.uid, one.host, one.member, *ages, ", ".join(places[one.uid]) or "-"))
    write_stdout(*draw_table(rows, sys.stdout))


@click.command(
    "remove",
    cls=OrchCommand,
    examples=[
        ("orch team remove bobs-laptop --dry-run", "where its key is admitted, and until when"),
        ("orch team remove bob", "all computers of a member"),
        ("orch team remove bobs-laptop --now --yes", "take the key off all hosts that answer, without a question"),
    ],
)
@click.argument("who", metavar="COMPUTER|MEMBER")
@click.option("--now", is_flag=True, help="Connect to the hosts, and take the keys off them.")
@click.option("--dry-run", is_flag=True, help="Show where the keys are admitted; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Skip the question.")
@click.pass_context
def remove_command(ctx: click.Context, who: str, now: bool, dry_run: bool, yes: bool) -> None:
    """Take a computer, or all computers of a member, out of the team.

    The computer may no longer change the store. Clusters that are driven lose its key at the next observation, all
    others when it expires. Its login of the database and its credentials of clouds are not touched: take them away too.
    """
    from orchestrator.engine.operations.team import find_computers, list_admitted

    with open_store_reader() as reader:
        chosen = find_computers(reader, who, removed=False)
        admitted = {one.uid: list_admitted(reader, one.uid) for one in chosen}
    for one in chosen:
        write_stdout(*_describe(one, admitted[one.uid], now=now))
    sys.stdout.flush()  # before what is reported on stderr, also into a pipe
    if dry_run:
        write_stderr("nothing was changed; to do it: orch team remove " + who)
        return
    _confirm(chosen, yes)
    every = [one for found in admitted.values() for one in found]
    made = {one.record.cluster_uid for one in every if one.made}
    ctx.exit(_remove(chosen, {one.record.cluster_uid for one in every} if now else set(), made))


@click.command("add", cls=OrchCommand, examples=[("orch team add bobs-laptop", "let a removed computer in again")])
@click.argument("who", metavar="COMPUTER|MEMBER")
def add_command(who: str) -> None:
    """Take a removed computer, or all removed computers of a member, into the team again."""
    from orchestrator.engine.operations.team import find_computers
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    with open_store_reader() as reader:
        chosen = find_computers(reader, who, removed=True)
    where = load_paths()
    with open_store(where, real_services(where), "team add") as store:
        for one in chosen:
            store.add_computer(one.uid)
            write_stderr(f"{one.host} of {one.member} is in the team again; hosts admit it when they are next driven")


def _remove(chosen: tuple[ComputerRecord, ...], clusters: set[str], made: set[str]) -> int:
    """Remove computers, and withdraw their keys from clusters, by uid. Those that they `made` keep the first key."""
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.team import withdraw_keys
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    where, status = load_paths(), int(Exit.OK)
    services = real_services(where)
    with open_store(where, services, "team remove") as store, TerminalNarrator(sys.stderr) as narrator:
        for one in chosen:
            store.remove_computer(one.uid)
            write_stderr(f"{one.host} of {one.member} is removed; to undo it: orch team add {one.uid}")
        for cluster in (one for one in store.clusters() if one.uid in clusters):
            problem = withdraw_keys(store, services, narrator, cluster)
            status = int(Exit.FAILURE) if problem else status
            done = f"keys remain until they expire: {problem}" if problem else "keys withdrawn"
            if cluster.uid in made:
                done += f", but the key that its machines were made with: orch down {cluster.name} ends them"
            write_stderr(f"{cluster.qualified_name}: {done}")
    return status


def _confirm(chosen: tuple[ComputerRecord, ...], yes: bool) -> None:
    if yes:
        return
    text = f"{count_noun(len(chosen), 'computer')} would be removed from the team"
    if not can_ask():
        raise UserError(f"{text}, and there is no terminal to ask on", next_step="add --yes, or --dry-run to look only")
    if not click.confirm(f"remove {count_noun(len(chosen), 'computer')} from the team?", default=False, err=True):
        raise OrchError("you declined", "nothing was changed")


def _describe(one: ComputerRecord, admitted: tuple[Admitted, ...], *, now: bool) -> list[str]:
    """Return where a computer is admitted, and until when at the latest."""
    lines = [f"{one.host} of {one.member} ({one.uid}) is admitted {'by' if admitted else 'nowhere'}"]
    for found in admitted:
        if found.made:
            until = f"as long as its machines exist, which this computer made: orch down {found.cluster} ends them"
        elif now:
            until = f"until now, or {format_utc(found.record.until)} at the latest where it cannot be withdrawn"
        else:
            until = f"until {format_utc(found.record.until)} at the latest"
        driver = f"driven by {found.driven_by}" if found.driven_by else "driven by no process"
        what = f"firewall, {found.record.address}" if found.record.address else "hosts"
        lines.append(f"  {found.cluster} ({found.where}), {what}: {until}; {driver}")
    return lines


def _as_json(
    computers: tuple[ComputerRecord, ...], last: dict[str, float | None], addresses: dict[str, list[str]]
) -> dict[str, object]:
    """Return the computers as in data/team.schema.json."""
    return {
        "version": 1,
        "kind": "team",
        "computers": [
            {
                "id": one.uid,
                "host": one.host,
                "member": one.member,
                "public_key": one.public_key,
                "joined": format_utc(one.joined),
                "last_change": format_utc(at) if (at := last[one.uid]) is not None else None,
                "removed": format_utc(one.removed) if one.removed is not None else None,
                "addresses": addresses[one.uid],
            }
            for one in computers
        ],
    }
