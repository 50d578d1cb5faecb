"""`orch check`: what is missing before a launch, and one line for each that mends it. Only reads are sent."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import plural
from orchestrator.cli.terminal import Style, look_at, put, say
from orchestrator.errors import OrchError, UserError

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
        (
            "orch check aws --accelerators H100:8 --num-nodes 2",
            "quota, zones, addresses and permissions for two of them",
        ),
        ("orch check aws --print-policy user > policy.json", "the least policy that orch can do with"),
    ],
)
@click.argument("provider", required=False)
@click.option("--infra", metavar="PLACE", help="Like gcp/us-west4/us-west4-a.")
@click.option("--region", metavar="REGION", help="Ask about this region only.")
@click.option("--zone", metavar="ZONE", help="Ask about this zone only.")
@click.option("--accelerators", metavar="NAME", help="Ask whether this one can be had.")
@click.option("--num-nodes", type=click.IntRange(min=1), default=1, help="So many of them (aws).")
@click.option("--use-spot", is_flag=True, help="As spot machines (aws).")
@click.option("--reservation", metavar="ID", help="From this reservation or capacity block (aws).")
@click.option("--bucket", metavar="URI", help="gs://NAME or s3://NAME: ask whether it can be read and written.")
@click.option("--project", metavar="ID", help="Instead of that of your configuration (gcp).")
@click.option("--service-account", metavar="EMAIL", help="Of the hosts, instead of the project's default (gcp).")
@click.option("--profile", metavar="NAME", help="Instead of that of your configuration (aws).")
@click.option("--instance-profile", metavar="NAME", help="Of the machines, instead of the configured one (aws).")
@click.option("--print-role", type=click.Choice(["orch", "hosts"]), help="Print a role file for gcp; ask nothing.")
@click.option("--print-policy", type=click.Choice(["user", "hosts", "trust"]),
              help="Print a policy for aws, of --bucket; ask nothing.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def check(
    ctx: click.Context,
    /,
    provider: str | None,
    infra: str | None,
    region: str | None,
    zone: str | None,
    print_role: str | None,
    print_policy: str | None,
    output: str,
    **given: Any,
) -> None:
    """See whether credentials, permissions, quota, buckets and the way to the hosts are as a launch needs them.

    Only reads are sent, and requests that say themselves that they are not to be carried out. The exit status is 0 when
    nothing has to be mended, else that of the first thing that has.
    """
    if print_role or print_policy:
        put(_printed(print_role, print_policy, given["bucket"] or "").rstrip("\n"))
        return
    from orchestrator.providers.checks import status_of

    names, ask = _where(provider, infra, region, zone, _asked(given))
    found = _found(names, ask)
    if output == "json":
        put(json.dumps(_as_json(found), indent=2))
    else:
        put(*(line for name, findings in found.items() for line in _lines(name, findings, look_at(sys.stdout))))
        _close(found, ask)
    ctx.exit(status_of([finding for findings in found.values() for finding in findings]))


def _printed(role: str | None, policy: str | None, bucket: str) -> str:
    """The file that was asked for. Raises UserError for a bucket that is not of S3."""
    if role:
        from orchestrator.providers.google.check_role import host_role, orch_role

        return orch_role() if role == "orch" else host_role()
    from orchestrator.providers.aws.check_policy import policy_text
    from orchestrator.storage.address import Address

    if not bucket:
        return policy_text(policy or "")
    address = Address.parse(bucket)
    if address.scheme != "s3":
        raise UserError(f"{bucket} is not of S3", "a policy of AWS cannot name it", "--bucket s3://NAME/FOLDER")
    return policy_text(policy or "", address.container, address.prefix)


def _asked(given: Mapping[str, Any]) -> Ask:
    """given: by the names of the options; what is not given there is as a launch would take it."""
    from dataclasses import replace

    ask = _configured()
    aws = replace(
        ask.aws,
        profile=given["profile"] or ask.aws.profile,
        instance_profile=given["instance_profile"] or ask.aws.instance_profile,
    )
    return replace(
        ask,
        accelerator=given["accelerators"] or "",
        nodes=given["num_nodes"],
        spot=given["use_spot"],
        reservation=given["reservation"] or "",
        bucket=given["bucket"] or "",
        project=given["project"] or ask.project,
        service_account=given["service_account"] or ask.service_account,
        aws=aws,
    )


def _configured() -> Ask:
    """What the configuration says, as a launch would take it."""
    from orchestrator.paths import paths
    from orchestrator.providers.checks import Ask
    from orchestrator.spec.config import load_config
    from orchestrator.spec.task import AwsSettings

    settings = load_config(os.environ)
    firewall = settings.explain("gcp.firewall")
    return Ask(
        paths().state,
        installation=_installation(),
        project=settings.text("gcp.project"),
        service_account=settings.text("gcp.service_account"),
        access=settings.text("gcp.access") or ("internal" if settings.flag("gcp.internal_ips") else ""),
        firewall=not firewall or firewall[0].value is not False,
        aws=AwsSettings(
            profile=settings.text("aws.profile"),
            subnets=settings.texts("aws.subnets"),
            security_group=settings.text("aws.security_group"),
            instance_profile=settings.text("aws.instance_profile"),
            access=settings.text("aws.access"),
            jump=settings.text("aws.jump"),
            ssh_cidr=settings.text("aws.ssh_cidr"),
            user=settings.text("aws.user"),
        ),
    )


def _installation() -> str:
    """The name that is on all that orch makes; "" before the first launch, and for a store that cannot be read."""
    from orchestrator.engine.known import open_reader

    try:
        with open_reader() as reader:
            return reader.installation() or ""
    except OrchError:  # another command tells of that
        return ""


def _where(
    provider: str | None, infra: str | None, region: str | None, zone: str | None, ask: Ask
) -> tuple[tuple[str, ...], Ask]:
    """Which providers, and about which place. Raises UserError for places that contradict each other."""
    from dataclasses import replace

    from orchestrator.providers.checks import names
    from orchestrator.spec.infra import Where

    place = _place("--infra", infra, infra) if infra else None
    chosen = provider or (str(place.provider) if place and place.provider is not Where.ANY else "")
    if place and provider and place.provider not in (Where.ANY, provider):
        raise UserError(f"{provider} is to be checked, and --infra names {place.provider}", "", "give one of them")
    for option, word in (("--region", region), ("--zone", zone)):
        if word:
            place = _agreed(place, option, word, chosen)
            chosen = str(place.provider)
    ask = replace(ask, region=place.region if place else "", zone=place.zone if place else "", named=bool(chosen))
    return ((chosen,) if chosen else names()), ask


def _agreed(place: Infra | None, option: str, word: str, provider: str) -> Infra:
    """The place with what an option says of it. provider: "" for the one whose places are called so.

    Raises UserError.
    """
    from dataclasses import replace

    form = "{}/{}" if option == "--region" else "{}/*/{}"
    named = _place(option, word, form.format(provider or _whose(form, word), word))
    if place is None:
        return named
    if place.region not in ("", named.region) or (named.zone and place.zone not in ("", named.zone)):
        what = "zones" if option == "--zone" else "regions"
        raise UserError(f"{option} {word} and another option name two {what}", f"{place}", "give one of them")
    return replace(named, zone=named.zone or place.zone)


def _whose(form: str, word: str) -> str:
    from orchestrator.spec.errors import FormError
    from orchestrator.spec.infra import Where, parse_infra

    try:
        return str(parse_infra(form.format(Where.AWS, word)).provider)
    except FormError:
        return str(Where.GCP)


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
    answering = [
        options
        for provider, check, options in _OPTIONS
        if any(one.verdict == "ok" and one.check == check for one in found.get(provider, ()))
    ]
    missing = dict.fromkeys(option for options in answering for option, field in options if not getattr(ask, field))
    if missing:
        say(f"not asked about: {', '.join(missing)}")


# What can be asked of a provider that answers: (provider, the check that shows that it does, options and their fields).
_OPTIONS = (
    (
        "gcp",
        "project",
        (("--bucket gs://NAME", "bucket"), ("--zone ZONE", "zone"), ("--accelerators NAME", "accelerator")),
    ),
    (
        "aws",
        "region",
        (("--bucket s3://NAME", "bucket"), ("--region REGION", "region"), ("--accelerators NAME", "accelerator")),
    ),
)


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
