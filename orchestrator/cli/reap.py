"""`orch reap`: machines that carry our label and that nobody wants any more, found from the cloud's side."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import ago, columns, plural
from orchestrator.cli.terminal import can_ask, put, say
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit

if TYPE_CHECKING:
    from orchestrator.engine.sweep import Finding, Reaped
    from orchestrator.plan.sweep import Judged


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch reap --dry-run", "list what carries our label everywhere, and what would be ended"),
        ("orch reap", "the same, then ask, then end the orphans"),
        ("orch reap --yes", "without asking, for a timer"),
    ],
)
@click.option("--dry-run", is_flag=True, help="List and judge; end nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--grace", type=click.FloatRange(min=0), default=600.0, show_default=True, metavar="SECONDS",
              help="Leave machines without any record alone that are younger.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def reap(ctx: click.Context, dry_run: bool, yes: bool, grace: float, output: str) -> None:
    """Find machines that nobody wants any more, and end them.

    Every provider is asked for what carries this installation's label. What no open record wants is an orphan: a
    create that took effect after we had given up, for instance. Machines of others are never listed, let alone ended.
    """
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.engine.opening import open_store
    from orchestrator.engine.sweep import look, reap
    from orchestrator.engine.world import real_world
    from orchestrator.paths import paths
    from orchestrator.providers.registry import rented

    where = paths()
    world = real_world(where)
    with open_store(where, world) as store, TerminalNarrator(sys.stderr) as narrator:
        findings = look(store, world, rented(where.state), grace)
        orphans = [one for finding in findings for one in finding.judged if one.orphan]
        if output == "text":
            put(*_table(findings))
        reaped: tuple[Reaped, ...] = ()
        if orphans and not dry_run and _agreed(orphans, yes):
            reaped = reap(store, world, narrator, findings, grace)
    if output == "json":
        put(json.dumps(_as_json(findings, reaped), indent=2))
    ctx.exit(_tell(findings, orphans, reaped, dry_run))


def _agreed(orphans: list[Judged], yes: bool) -> bool:
    if yes:
        return True
    if not can_ask():
        words = f"{plural(len(orphans), 'orphan')} would be ended, and there is no terminal to ask on"
        raise UserError(words, next_step="add --yes to agree, or --dry-run to look only")
    if not click.confirm(f"end {plural(len(orphans), 'orphan')}?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was ended")
    return True


def _table(findings: tuple[Finding, ...]) -> list[str]:
    rows = [("SLICE", "CLUSTER", "WHERE", "STATE", "MADE", "STANDING", "WHY")]
    now = time.time()
    for finding in findings:
        for one in finding.judged:
            found = one.slice
            made = ago(found.created, now) if found.created else "-"
            row = (found.name, found.cluster, found.where, str(found.state), made, str(one.standing), one.why)
            rows.append(row)
    return columns(rows) if len(rows) > 1 else []


def _tell(findings: tuple[Finding, ...], orphans: list[Judged], reaped: tuple[Reaped, ...], looked_only: bool) -> int:
    """The closing words; a place that could not be asked, or an orphan that stays, is a failure."""
    status: int = Exit.OK
    for finding in findings:
        if finding.problem is not None:
            say(*finding.problem.lines())
            status = status or int(finding.problem.exit_status)
    for one in reaped:
        if one.problem is not None:
            say(*one.problem.lines())
            status = status or int(one.problem.exit_status)
    if not orphans:
        asked = [finding.provider for finding in findings if finding.problem is None]
        say(f"no orphans ({', '.join(asked) or 'nothing'} asked)")
    elif looked_only:
        say(f"{plural(len(orphans), 'orphan')} would be ended; to do it: orch reap")
    else:
        ended = sum(one.problem is None for one in reaped)
        say(f"{ended} of {plural(len(orphans), 'orphan')} ended")
    return status


def _as_json(findings: tuple[Finding, ...], reaped: tuple[Reaped, ...]) -> dict[str, object]:
    """See data/reap.schema.json."""
    ended = {one.orphan.slice.name: one for one in reaped}
    return {
        "version": 1,
        "kind": "reap",
        "places": [
            {
                "provider": finding.provider,
                "problem": str(finding.problem) if finding.problem is not None else None,
                "slices": [
                    {
                        "name": one.slice.name,
                        "cluster": one.slice.cluster,
                        "where": one.slice.where,
                        "state": str(one.slice.state),
                        "standing": str(one.standing),
                        "why": one.why,
                        "ended": one.slice.name in ended and ended[one.slice.name].problem is None,
                    }
                    for one in finding.judged
                ],
            }
            for finding in findings
        ],
    }
