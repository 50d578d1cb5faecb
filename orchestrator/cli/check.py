"""`orch check`: what is missing before a launch, and one line for each that mends it. Only reads are sent."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import plural
from orchestrator.cli.terminal import Style, look_at, put, say
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.cli.terminal import Terminal
    from orchestrator.providers.checks import Ask, Finding, Verdict
    from orchestrator.spec.infra import Infra


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch check", "every provider that is set up"),
        ("orch check gcp --zone us-west4-a --accelerators v5litepod-16", "may I have this one, and how many?"),
        ("orch check gcp --bucket gs://my-bucket", "the bucket, too"),
        ("orch check gcp --print-role orch > role.yaml", "the least role that orch can do with"),
    ],
)
@click.argument("provider", required=False)
@click.option("--infra", metavar="PLACE", help="Like gcp/us-west4/us-west4-a.")
@click.option("--zone", metavar="ZONE", help="Ask about this zone only.")
@click.option("--accelerators", metavar="NAME", help="Ask whether this one can be had.")
@click.option("--bucket", metavar="gs://NAME", help="Ask whether it can be read and written.")
@click.option("--project", metavar="ID", help="Instead of that of your configuration.")
@click.option("--service-account", metavar="EMAIL", help="Of the hosts, instead of the project's default.")
@click.option("--print-role", type=click.Choice(["orch", "hosts"]), help="Print a role file for gcp; ask nothing.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def check(
    ctx: click.Context,
    provider: str | None,
    infra: str | None,
    zone: str | None,
    accelerators: str | None,
    bucket: str | None,
    project: str | None,
    service_account: str | None,
    print_role: str | None,
    output: str,
) -> None:
    """See whether credentials, permissions, quota, buckets and the way to the hosts are as a launch needs them.

    Only reads are sent. The exit status is 0 when nothing has to be mended, else that of the first thing that has.
    """
    if print_role:
        from orchestrator.providers.google.check_role import host_role, orch_role

        put((orch_role() if print_role == "orch" else host_role()).rstrip("\n"))
        return
    from orchestrator.providers.checks import status_of

    ask = _configured()
    ask = replace(
        ask,
        accelerator=accelerators or "",
        bucket=bucket or "",
        project=project or ask.project,
        service_account=service_account or ask.service_account,
    )
    names, ask = _where(provider, infra, zone, ask)
    found = _found(names, ask)
    if output == "json":
        put(json.dumps(_as_json(found), indent=2))
    else:
        put(*(line for name, findings in found.items() for line in _lines(name, findings, look_at(sys.stdout))))
        _close(found, ask)
    ctx.exit(status_of([finding for findings in found.values() for finding in findings]))


def _configured() -> Ask:
    """What the configuration says, as a launch would take it."""
    from orchestrator.paths import paths
    from orchestrator.providers.checks import Ask
    from orchestrator.spec.config import load_config

    settings = load_config(os.environ)

    def value(name: str) -> object:
        layers = settings.explain(f"gcp.{name}")
        return layers[0].value if layers else ""

    return Ask(
        paths().state,
        project=str(value("project")),
        service_account=str(value("service_account")),
        access=str(value("access")) or ("internal" if value("internal_ips") is True else ""),
        firewall=value("firewall") is not False,
    )


def _where(provider: str | None, infra: str | None, zone: str | None, ask: Ask) -> tuple[tuple[str, ...], Ask]:
    """Which providers, and about which place. Raises UserError for places that contradict each other."""
    from orchestrator.providers.checks import names
    from orchestrator.spec.infra import Where

    place = _place("--infra", infra, infra) if infra else None
    chosen = provider or (str(place.provider) if place and place.provider is not Where.ANY else "")
    if place and provider and place.provider not in (Where.ANY, provider):
        raise UserError(f"{provider} is to be checked, and --infra names {place.provider}", "", "give one of them")
    if zone:
        of_zone = _place("--zone", zone, f"{chosen or Where.GCP}/*/{zone}")
        if place and place.zone not in ("", of_zone.zone):
            raise UserError(f"--zone {zone} and --infra {infra} name two zones", "", "give one of them")
        place, chosen = of_zone, chosen or str(of_zone.provider)
    ask = replace(ask, region=place.region if place else "", zone=place.zone if place else "", named=bool(chosen))
    return ((chosen,) if chosen else names()), ask


def _place(option: str, given: str, whole: str) -> Infra:
    """Raises UserError."""
    from orchestrator.spec.errors import FormError
    from orchestrator.spec.infra import parse_infra

    try:
        return parse_infra(whole)
    except FormError as error:
        raise UserError(f"{option} {given} is no place", error.why or error.what, error.next_step) from error


def _found(names: Sequence[str], ask: Ask) -> Mapping[str, tuple[Finding, ...]]:
    """Raises UserError for a provider that cannot be checked."""
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.providers.checks import checks_of, run

    planned = {name: checks_of(name, ask) for name in names}
    with TerminalNarrator(sys.stderr) as narrator:
        return {
            name: run(
                checks,
                lambda running, done, total, name=name: narrator.progress(
                    f"checking {name} ({', '.join(running)})", done, total
                ),
            )
            for name, checks in planned.items()
        }


_WORDS = {
    "ok": ("ok", Style.GREEN),
    "fix": ("FIX", Style.RED),
    "unknown": ("?", Style.YELLOW),
    "unused": ("-", Style.DIM),
}


def _lines(provider: str, findings: Sequence[Finding], terminal: Terminal) -> list[str]:
    """A line for each finding; below it, what mends it."""
    width = max(len(finding.check) for finding in findings)
    lines: list[str] = []
    for one in findings:
        word, style = _WORDS[one.verdict]
        lines.append(f"{terminal.paint(f'{word:<3}', style)}  {provider:<5}  {one.check:<{width}}  {one.words}")
        if one.fix:
            lines.append(f"{'':12}{'':{width}}  {_mark(one.verdict)}: {one.fix}")
    return lines


def _mark(verdict: Verdict) -> str:
    return "to use it" if verdict == "unused" else "next"


def _close(found: Mapping[str, Sequence[Finding]], ask: Ask) -> None:
    """How much is to be mended, and what was not asked about."""
    every = [finding for findings in found.values() for finding in findings]
    wrong = sum(one.verdict == "fix" for one in every)
    open_ = sum(one.verdict == "unknown" for one in every)
    said = [f"{plural(wrong, 'thing')} to mend"] if wrong else []
    said += [f"{plural(open_, 'question')} without an answer"] if open_ else []
    say(", ".join(said) or "nothing to mend")
    asked = any(one.verdict == "ok" and one.check == "project" for one in found.get("gcp", ()))
    missing = {"--bucket gs://NAME": ask.bucket, "--zone ZONE": ask.zone, "--accelerators NAME": ask.accelerator}
    if asked and not all(missing.values()):
        say(f"not asked about: {', '.join(option for option, given in missing.items() if not given)}")


def _as_json(found: Mapping[str, Sequence[Finding]]) -> dict[str, object]:
    """See data/check.schema.json."""
    from orchestrator.providers.checks import status_of

    return {
        "version": 1,
        "kind": "check",
        "status": int(status_of([finding for findings in found.values() for finding in findings])),
        "providers": [
            {
                "provider": name,
                "findings": [
                    {
                        "check": one.check,
                        "verdict": str(one.verdict),
                        "words": one.words,
                        "fix": one.fix or None,
                        "status": int(one.status),
                    }
                    for one in findings
                ],
            }
            for name, findings in found.items()
        ],
    }
