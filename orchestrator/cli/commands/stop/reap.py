"""`orch reap`: find orphans with our label from the cloud's side, and end them."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.formatting import format_age
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from orchestrator.engine.operations.sweep import ProviderFindings, ReapResult
    from orchestrator.plan.sweep import SweptSlice


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch reap --dry-run", "list what carries our label everywhere, and which would be ended"),
        ("orch reap", "the same, then ask, then end the orphans"),
        ("orch reap --yes", "without asking, for a timer"),
    ],
)
@click.option("--dry-run", is_flag=True, help="List and judge; end nothing.")
@click.option("-y", "--yes", is_flag=True, help="Skip the question before the orphans are ended.")
@click.option("--grace", type=click.FloatRange(min=0), default=600.0, show_default=True, metavar="SECONDS",
              help="Keep machines without a record that are younger than this.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def reap(ctx: click.Context, dry_run: bool, yes: bool, grace: float, output: str) -> None:
    """Find orphaned machines, and end them.

    Every provider lists what carries this installation's label. Machines that no open record wants are orphans: for
    instance, a create that took effect after we had given up. Machines of others are never listed, let alone ended.
    """
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.sweep import end_orphans, judge_owned_slices
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths
    from orchestrator.providers.registry import list_rented_providers

    where = load_paths()
    world = real_services(where)
    with open_store(where, world) as store, TerminalNarrator(sys.stderr) as narrator:
        findings = judge_owned_slices(store, world, list_rented_providers(where.state), grace)
        orphans = [one for finding in findings for one in finding.judged if one.orphan]
        if output == "text":
            write_stdout(*_table(findings))
        reaped: tuple[ReapResult, ...] = ()
        if orphans and not dry_run and _confirm(orphans, yes):
            reaped = end_orphans(store, world, narrator, findings, grace)
    if output == "json":
        write_stdout(json.dumps(_as_json(findings, reaped), indent=2))
    ctx.exit(_print_summary(findings, orphans, reaped, dry_run))


def _confirm(orphans: list[SweptSlice], yes: bool) -> bool:
    if yes:
        return True
    if not can_ask():
        text = f"{count_noun(len(orphans), 'orphan')} would be ended, and there is no terminal to ask on"
        raise UserError(text, next_step="add --yes to agree, or --dry-run to list them only")
    if not click.confirm(f"end {count_noun(len(orphans), 'orphan')}?", default=False, err=True):
        raise OrchError("you declined", "nothing was ended")
    return True


def _table(findings: tuple[ProviderFindings, ...]) -> list[str]:
    rows = [("SLICE", "CLUSTER", "WHERE", "STATE", "CREATED", "VERDICT", "WHY")]
    now = time.time()
    for finding in findings:
        for one in finding.judged:
            found = one.slice
            made = format_age(found.created, now) if found.created else "-"
            row = (found.name, found.cluster, found.where, str(found.state), made, str(one.verdict), one.why)
            rows.append(row)
    return draw_table(rows, sys.stdout) if len(rows) > 1 else []


def _print_summary(
    findings: tuple[ProviderFindings, ...], orphans: list[SweptSlice], reaped: tuple[ReapResult, ...], dry_run: bool
) -> int:
    """Print the result; a place that did not answer, or an orphan that remains, is a failure."""
    status: int = Exit.OK
    for finding in findings:
        if finding.problem is not None:
            write_stderr(*finding.problem.lines())
            status = status or int(finding.problem.exit_status)
    for one in reaped:
        if one.problem is not None:
            write_stderr(*one.problem.lines())
            status = status or int(one.problem.exit_status)
    if not orphans:
        answered = [finding.provider for finding in findings if finding.problem is None]
        write_stderr(f"no orphans ({', '.join(answered) or 'nothing'} answered)")
    elif dry_run:
        write_stderr(f"{count_noun(len(orphans), 'orphan')} would be ended; to do it: orch reap")
    else:
        ended = sum(one.problem is None for one in reaped)
        write_stderr(f"{ended} of {count_noun(len(orphans), 'orphan')} ended")
    return status


def _as_json(findings: tuple[ProviderFindings, ...], reaped: tuple[ReapResult, ...]) -> dict[str, object]:
    """Return the findings as in data/reap.schema.json."""
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
                        "standing": str(one.verdict),
                        "why": one.why,
                        "ended": one.slice.name in ended and ended[one.slice.name].problem is None,
                    }
                    for one in finding.judged
                ],
            }
            for finding in findings
        ],
    }
