"""`orch check`: find what a launch would lack, and print one fix for each. Sends only reads and dry-run requests."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import Style, inspect_terminal, write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import count_noun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.cli.drawing.terminal import Terminal
    from orchestrator.providers.checks import Ask, Finding, Verdict
    from orchestrator.providers.hosts.machines import OwnHost
    from orchestrator.task.infra import Infra


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch check", "every provider that is set up"),
        ("orch check gcp --zone us-west4-a --accelerators v5litepod-16", "quota and permission for this one"),
        ("orch check gcp --bucket gs://my-bucket", "access to the bucket, too"),
        ("orch check gcp --print-role orch > role.yaml", "the smallest role that suffices for orch"),
        (
            "orch check aws --accelerators H100:8 --num-nodes 2",
            "quota, zones, addresses and permissions for two of them",
        ),
        ("orch check aws --print-policy user > policy.json", "the smallest policy that suffices for orch"),
        ("orch check hosts task.yaml", "SSH access to each of your machines that the file names"),
        ("orch check hosts task.yaml --accept-host-key SHA256:…", "the same, and pin the machine with this key to it"),
    ],
)
@click.argument("provider", required=False)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--infra", metavar="PLACE", help="Like gcp/us-west4/us-west4-a.")
@click.option("--region", metavar="REGION", help="Check this region only.")
@click.option("--zone", metavar="ZONE", help="Check this zone only.")
@click.option("--accelerators", metavar="NAME", help="Check whether this accelerator is available.")
@click.option("--num-nodes", type=click.IntRange(min=1), default=1, help="Number of instances (aws).")
@click.option("--use-spot", is_flag=True, help="As spot machines (aws).")
@click.option("--reservation", metavar="ID", help="From this reservation or capacity block (aws).")
@click.option("--bucket", metavar="URI", help="Check that gs://NAME or s3://NAME can be read and written.")
@click.option("--project", metavar="ID", help="Project instead of the configured one (gcp).")
@click.option(
    "--service-account", metavar="EMAIL", help="Service account of the hosts, instead of the project's default (gcp)."
)
@click.option("--profile", metavar="NAME", help="AWS profile instead of the configured one (aws).")
@click.option(
    "--instance-profile", metavar="NAME", help="Instance profile of the hosts, instead of the configured one (aws)."
)
@click.option("--print-role", type=click.Choice(["orch", "hosts"]), help="Print a role file for gcp; check nothing.")
@click.option("--print-policy", type=click.Choice(["user", "hosts", "trust"]),
              help="Print a policy for aws, limited to --bucket; check nothing.")  # fmt: skip
@click.option("--accept-host-key", "named", metavar="SHA256:…", multiple=True,
              help="Pin the machine of yours that presents the key with this fingerprint to it (hosts).")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def check(
    ctx: click.Context,
    /,
    provider: str | None,
    file: Path | None,
    infra: str | None,
    region: str | None,
    zone: str | None,
    print_role: str | None,
    print_policy: str | None,
    named: tuple[str, ...],
    output: str,
    **given: Any,
) -> None:
    """Check that credentials, permissions, quota, buckets and SSH access suffice for a launch.

    Sends only read requests and dry-run requests. The exit status is 0 when nothing needs fixing, else that of the
    first problem.
    """
    if print_role or print_policy:
        write_stdout(_policy_text(print_role, print_policy, given["bucket"] or "").rstrip("\n"))
        return
    from orchestrator.providers.checks import choose_exit_status

    names, ask = _providers_and_place(provider, infra, region, zone, _ask_from_options(given, provider, file))
    if named and not ask.hosts:
        raise UserError("--accept-host-key is about machines of yours", "", "orch check hosts FILE --accept-host-key …")
    found = _run_checks(names, ask, named)
    _refuse_unseen(named, found)
    if output == "json":
        write_stdout(json.dumps(_as_json(found), indent=2))
    else:
        write_stdout(
            *(
                line
                for name, findings in found.items()
                for line in _finding_lines(name, findings, inspect_terminal(sys.stdout))
            )
        )
        _print_summary(found, ask)
    ctx.exit(choose_exit_status([finding for findings in found.values() for finding in findings]))


def _policy_text(role: str | None, policy: str | None, bucket: str) -> str:
    """Return the role or policy file that an option requests.

    Raises:
        UserError: The bucket is not on S3.
    """
    if role:
        from orchestrator.providers.google.check_role import host_role, orch_role

        return orch_role() if role == "orch" else host_role()
    from orchestrator.providers.aws.check_policy import policy_text
    from orchestrator.storage.address import Address

    if not bucket:
        return policy_text(policy or "")
    address = Address.parse(bucket)
    if address.scheme != "s3":
        raise UserError(f"{bucket} is not on S3", "an AWS policy cannot name it", "--bucket s3://NAME/FOLDER")
    return policy_text(policy or "", address.container, address.prefix)


def _ask_from_options(given: Mapping[str, Any], provider: str | None, file: Path | None) -> Ask:
    """Return the question to the providers; what no option gives is as a launch would use it.

    Args:
        given: Values by the names of the options.
        provider: The provider to check, if one is named.
        file: A task file that names the user's machines.
    """
    from dataclasses import replace

    ask = _configured()
    of_options = {name: given[name] for name in ("profile", "instance_profile") if given[name]}
    aws = ask.aws.model_copy(update=of_options)
    return replace(
        ask,
        accelerator=given["accelerators"] or "",
        nodes=given["num_nodes"],
        spot=given["use_spot"],
        reservation=given["reservation"] or "",
        bucket=given["bucket"] or "",
        project=given["project"] or ask.project,
        hosts=_own_hosts(provider, file) if file is not None else (),
        service_account=given["service_account"] or ask.service_account,
        aws=aws,
    )


def _own_hosts(provider: str | None, file: Path) -> tuple[OwnHost, ...]:
    """Return the machines that a task file names.

    Raises:
        UserError: It names none, or another provider is to be checked.
    """
    from orchestrator.providers.hosts.machines import OwnHost
    from orchestrator.task.config import load_config
    from orchestrator.task.parse import load_task_file

    if provider != "hosts":
        raise UserError(
            f"a task file is checked for its hosts only, not for {provider}", "", f"orch check hosts {file}"
        )
    task = load_task_file(str(file), env=os.environ, config=load_config(os.environ)).only
    if not task.hosts:
        raise UserError(
            f"{file} names none of your machines",
            "`orch check hosts` tries those of a task with `infra: hosts`",
            "hosts: {addresses: [user@first, user@second]}   in the task file",
        )
    return tuple(OwnHost(**host.model_dump(exclude_none=True)) for host in task.hosts)


def _configured() -> Ask:
    """Return the question with what the configuration contains, as a launch would use it."""
    from orchestrator.paths import load_paths
    from orchestrator.providers.checks import Ask
    from orchestrator.task.config import load_config
    from orchestrator.task.parse import read_aws_settings

    settings = load_config(os.environ)
    firewall = settings.explain("gcp.firewall")
    return Ask(
        state=load_paths().state,
        installation=_installation(),
        project=settings.text("gcp.project"),
        service_account=settings.text("gcp.service_account"),
        access=settings.text("gcp.access") or ("internal" if settings.flag("gcp.internal_ips") else ""),
        firewall=not firewall or firewall[0].value is not False,
        aws=read_aws_settings(settings),
    )


def _installation() -> str:
    """Return the label of all that orch creates; "" before the first launch or for an unreadable store."""
    from orchestrator.engine.state.recorded import open_reader

    try:
        with open_reader() as reader:
            return reader.installation() or ""
    except OrchError:  # other commands report that
        return ""


def _providers_and_place(
    provider: str | None, infra: str | None, region: str | None, zone: str | None, ask: Ask
) -> tuple[tuple[str, ...], Ask]:
    """Return the providers to check, and the question with its place.

    Raises:
        UserError: Two options contradict each other.
    """
    from dataclasses import replace

    from orchestrator.providers.checks import list_checkable_providers
    from orchestrator.task.infra import InfraProvider

    place = _place("--infra", infra, infra) if infra else None
    chosen = provider or (str(place.provider) if place and place.provider is not InfraProvider.ANY else "")
    if place and provider and place.provider not in (InfraProvider.ANY, provider):
        raise UserError(f"two providers to check: {provider} and --infra {place.provider}", "", "name one")
    for option, word in (("--region", region), ("--zone", zone)):
        if word:
            place = _merge_place(place, option, word, chosen)
            chosen = str(place.provider)
    ask = replace(ask, region=place.region if place else "", zone=place.zone if place else "", named=bool(chosen))
    return ((chosen,) if chosen else list_checkable_providers()), ask


def _merge_place(place: Infra | None, option: str, word: str, provider: str) -> Infra:
    """Return the place with what one option adds to it; provider "" means the one that uses such place names.

    Raises:
        UserError: Two options contradict each other, or the word is not a place.
    """
    from dataclasses import replace

    form = "{}/{}" if option == "--region" else "{}/*/{}"
    named = _place(option, word, form.format(provider or _provider_of_place(form, word), word))
    if place is None:
        return named
    if place.region not in ("", named.region) or (named.zone and place.zone not in ("", named.zone)):
        what = "zones" if option == "--zone" else "regions"
        raise UserError(f"{option} {word} and another option name two {what}", f"{place}", "name one")
    return replace(named, zone=named.zone or place.zone)


def _provider_of_place(form: str, word: str) -> str:
    from orchestrator.task.errors import InvalidValueError
    from orchestrator.task.infra import InfraProvider, parse_infra

    try:
        return str(parse_infra(form.format(InfraProvider.AWS, word)).provider)
    except InvalidValueError:
        return str(InfraProvider.GCP)


def _place(option: str, given: str, whole: str) -> Infra:
    """Parse a place.

    Raises:
        UserError: The word is not a place.
    """
    from orchestrator.task.errors import InvalidValueError
    from orchestrator.task.infra import parse_infra

    try:
        return parse_infra(whole)
    except InvalidValueError as error:
        raise UserError(f"{option} {given} is not a place", error.why or error.what, error.next_step) from error


def _run_checks(names: Sequence[str], ask: Ask, named: tuple[str, ...]) -> Mapping[str, tuple[Finding, ...]]:
    """Run the checks of each provider, and return their findings.

    Raises:
        UserError: A provider cannot be checked.
    """
    from dataclasses import replace

    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.state.pins import ReadPins, open_pins
    from orchestrator.providers.checks import load_checks, run_checks

    with TerminalNarrator(sys.stderr) as narrator, open_pins(narrator.note, named) as pins:
        request = replace(ask, pins=pins if named else ReadPins())
        planned = {name: load_checks(name, request) for name in names}
        return {
            name: run_checks(
                checks,
                lambda running, done, total, name=name: narrator.progress(
                    f"checking {name} ({', '.join(running)})", done, total
                ),
            )
            for name, checks in planned.items()
        }


def _refuse_unseen(named: Sequence[str], found: Mapping[str, Sequence[Finding]]) -> None:
    """Raise UserError for a fingerprint that no machine presented: nothing was pinned for it."""
    words = " ".join(one.words for findings in found.values() for one in findings)
    if unseen := [one for one in named if one not in words]:
        raise UserError(f"no machine presented {unseen[0]}", "", "orch check hosts FILE   shows what they present")


_VERDICT_TEXT = {
    "ok": ("ok", Style.GREEN),
    "fix": ("FIX", Style.RED),
    "unknown": ("?", Style.YELLOW),
    "unused": ("-", Style.DIM),
}


def _finding_lines(provider: str, findings: Sequence[Finding], terminal: Terminal) -> list[str]:
    """Return a line for each finding, and below it how to fix it."""
    width = max(len(finding.check) for finding in findings)
    lines: list[str] = []
    for one in findings:
        word, style = _VERDICT_TEXT[one.verdict]
        lines.append(f"{terminal.paint(f'{word:<3}', style)}  {provider:<5}  {one.check:<{width}}  {one.words}")
        if one.fix:
            lines.append(f"{'':12}{'':{width}}  {_fix_label(one.verdict)}: {one.fix}")
    return lines


def _fix_label(verdict: Verdict) -> str:
    return "to use it" if verdict == "unused" else "next"


def _print_summary(found: Mapping[str, Sequence[Finding]], ask: Ask) -> None:
    """Print how many problems there are, and which options would check more."""
    every = [finding for findings in found.values() for finding in findings]
    wrong = sum(one.verdict == "fix" for one in every)
    open_ = sum(one.verdict == "unknown" for one in every)
    said = [count_noun(wrong, "problem")] if wrong else []
    said += [f"{count_noun(open_, 'check')} inconclusive"] if open_ else []
    write_stderr(", ".join(said) or "nothing needs fixing")
    answering = [
        options
        for provider, check, options in _OPTIONS
        if any(one.verdict == "ok" and one.check == check for one in found.get(provider, ()))
    ]
    missing = dict.fromkeys(option for options in answering for option, field in options if not getattr(ask, field))
    if missing:
        write_stderr(f"not checked; add: {', '.join(missing)}")


# What can be checked at a provider that answers: (provider, the check that shows it, options with their fields).
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
    """Return the findings as in data/check.schema.json."""
    from orchestrator.providers.checks import choose_exit_status

    return {
        "version": 1,
        "kind": "check",
        "status": int(choose_exit_status([finding for findings in found.values() for finding in findings])),
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
