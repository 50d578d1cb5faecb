"""`orch check`: find what a launch would lack, and print one fix for each.

Sends only reads and dry-run requests, unless `--fix` is given and agreed to.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import Style, inspect_terminal, write_stderr, write_stdout
from orchestrator.drivers import has_part, list_clouds, load_part
from orchestrator.errors import OrchError, UserError
from orchestrator.messages import count_noun
from orchestrator.options import list_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.cli.drawing.terminal import Terminal
    from orchestrator.drivers import PermissionFiles
    from orchestrator.options import DriverOptions, Option
    from orchestrator.providers.checks import Ask, Finding, Verdict
    from orchestrator.providers.hosts.machines import OwnHost
    from orchestrator.task.infra import Infra


def _list_flags(provider: str) -> tuple[Option, ...]:
    """Return the options of a driver that this command can set."""
    options: DriverOptions = load_part(provider, "options").OPTIONS
    return tuple(option for option in list_options(options.kind) if option.spec.flag)


def _list_files() -> tuple[tuple[str, PermissionFiles], ...]:
    """Return the files with permissions that drivers make, with the name of each driver."""
    return tuple((one.name, one.check.files) for one in list_clouds() if one.check is not None and one.check.files)


def _parameter(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _with_driver_options(command: Any) -> Any:
    """Add the options that the drivers declare, in their order."""
    added = [
        click.option(
            f"--{option.name.replace('_', '-')}",
            metavar=option.spec.flag,
            help=f"{option.spec.flag_help} ({driver.name}).",
        )
        for driver in list_clouds()
        for option in _list_flags(driver.name)
    ]
    added += [click.option(one.flag, type=click.Choice(one.purposes), help=one.meaning) for _, one in _list_files()]
    for option in reversed(added):
        command = option(command)
    return command


_COUNTING = ", ".join(driver.name for driver in list_clouds() if driver.check is not None and driver.check.counts)


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
        (
            "orch check aws --bucket s3://my-bucket --fix",
            "make the machines' role and instance profile, after a question",
        ),
        ("orch check hosts task.yaml", "SSH access to each of your machines that the file names"),
        ("orch check hosts task.yaml --accept-host-key SHA256:…", "the same, and pin the machine with this key to it"),
    ],
)
@click.argument("provider", required=False)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--infra", metavar="PLACE", help="Provider, region and zone: PROVIDER/REGION/ZONE.")
@click.option("--region", metavar="REGION", help="Check this region only.")
@click.option("--zone", metavar="ZONE", help="Check this zone only.")
@click.option("--accelerators", metavar="NAME", help="Check whether this accelerator is available.")
@click.option("--num-nodes", type=click.IntRange(min=1), default=1, help=f"Number of instances ({_COUNTING}).")
@click.option("--use-spot", is_flag=True, help=f"As spot machines ({_COUNTING}).")
@click.option("--reservation", metavar="ID", help=f"From this reservation or capacity block ({_COUNTING}).")
@click.option("--bucket", metavar="URI", help="Check that gs://NAME or s3://NAME can be read and written.")
@_with_driver_options
@click.option("--accept-host-key", "named", metavar="SHA256:…", multiple=True,
              help="Pin the machine of yours that presents the key with this fingerprint to it (hosts).")  # fmt: skip
@click.option("--fix", is_flag=True, help="Show the requests that fix what orch can fix, ask, and send them.")
@click.option("-y", "--yes", is_flag=True, help="Answer the question of --fix with yes.")
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
    named: tuple[str, ...],
    fix: bool,
    yes: bool,
    output: str,
    **given: Any,
) -> None:
    """Check that credentials, permissions, quota, buckets and SSH access suffice for a launch.

    Sends only read requests and dry-run requests, unless --fix is given. The exit status is 0 when nothing needs
    fixing, else that of the first problem.
    """
    for provider_of_file, files in _list_files():
        if purpose := given[_parameter(files.flag)]:
            text = load_part(provider_of_file, "permission_files").make_permission_file(purpose, given["bucket"] or "")
            write_stdout(text.rstrip("\n"))
            return
    from orchestrator.providers.checks import choose_exit_status

    names, ask = _providers_and_place(provider, infra, region, zone, _ask_from_options(given, provider, file))
    if named and not ask.hosts:
        raise UserError("--accept-host-key is about machines of yours", "", "orch check hosts FILE --accept-host-key …")
    if fix and output == "json":
        raise UserError("--fix asks a question, and answers in text", "", "leave out -o json")
    found = _run_checks(names, ask, {name: _read_options(name, given) for name in names}, named)
    _refuse_unseen(named, found)
    _print_findings(found, ask, output)
    if fix:
        from orchestrator.cli.commands.before.check_fix import repair

        if repair([one for findings in found.values() for one in findings], agreed=yes):
            found = _run_checks(names, ask, {name: _read_options(name, given) for name in names}, named)
            _print_findings(found, ask, output)
    ctx.exit(choose_exit_status([finding for findings in found.values() for finding in findings]))


def _print_findings(found: Mapping[str, tuple[Finding, ...]], ask: Ask, output: str) -> None:
    if output == "json":
        write_stdout(json.dumps(_as_json(found), indent=2))
        return
    terminal = inspect_terminal(sys.stdout)
    write_stdout(*(line for name, findings in found.items() for line in format_findings(name, findings, terminal)))
    _print_summary(found, ask)


def _ask_from_options(given: Mapping[str, Any], provider: str | None, file: Path | None) -> Ask:
    """Return the question to the providers; what no option gives is as a launch would use it.

    Args:
        given: Values by the names of the options.
        provider: The provider to check, if one is named.
        file: A task file that names the user's machines.
    """
    from orchestrator.paths import load_paths
    from orchestrator.providers.checks import Ask

    return Ask(
        state=load_paths().state,
        installation=find_installation(),
        accelerator=given["accelerators"] or "",
        nodes=given["num_nodes"],
        spot=given["use_spot"],
        reservation=given["reservation"] or "",
        bucket=given["bucket"] or "",
        hosts=_own_hosts(provider, file) if file is not None else (),
    )


def _read_options(provider: str, given: Mapping[str, Any]) -> Any:
    """Return the options of a driver as a launch would use them: configuration, project, and the command line."""
    from dataclasses import replace

    from orchestrator.engine.state.identities import override_identity
    from orchestrator.task.config import load_config
    from orchestrator.task.parse import read_configured_options

    if not has_part(provider, "options"):
        return None
    flags = {option.name: given[option.name] for option in _list_flags(provider) if given[option.name]}
    found = override_identity(read_configured_options(load_config(os.environ), provider), provider)
    return replace(found, **flags)


def _own_hosts(provider: str | None, file: Path) -> tuple[OwnHost, ...]:
    """Return the machines that a task file names.

    Raises:
        UserError: It names none, or another provider is to be checked.
    """
    from orchestrator.providers.hosts.machines import OwnHost
    from orchestrator.task.config import load_config
    from orchestrator.task.parse import load_task_file

    if provider != "hosts":
        step = f"orch check {provider}   for the account; orch plan {file}   for the task"
        raise UserError(f"a task file is checked for `infra: hosts` only, not for {provider}", "", step)
    task = load_task_file(str(file), env=os.environ, config=load_config(os.environ)).only
    if not task.hosts:
        raise UserError(
            f"{file} names none of your machines",
            "`orch check hosts` tries those of a task with `infra: hosts`",
            "hosts: {addresses: [user@first, user@second]}   in the task file",
        )
    return tuple(OwnHost(**host.model_dump(exclude_none=True)) for host in task.hosts)


def find_installation() -> str:
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
    from orchestrator.task.infra import ANY

    place = _place("--infra", infra, infra) if infra else None
    chosen = provider or (str(place.provider) if place and place.provider != ANY else "")
    if place and provider and place.provider not in (ANY, provider):
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
    from orchestrator.task.infra import parse_infra

    for driver in list_clouds():
        try:
            return parse_infra(form.format(driver.name, word)).provider
        except InvalidValueError:
            continue
    return list_clouds()[0].name  # whose error names the form


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


def _run_checks(
    names: Sequence[str], ask: Ask, options: Mapping[str, Any], named: tuple[str, ...]
) -> Mapping[str, tuple[Finding, ...]]:
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
        planned = {name: load_checks(name, replace(request, options=options[name])) for name in names}
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


def format_findings(provider: str, findings: Sequence[Finding], terminal: Terminal) -> list[str]:
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
        driver.check
        for driver in list_clouds()
        if driver.check is not None
        and any(one.verdict == "ok" and one.check == driver.check.answered for one in found.get(driver.name, ()))
    ]
    missing = dict.fromkeys(option for offer in answering for option, field in offer.more if not getattr(ask, field))
    if missing:
        write_stderr(f"not checked; add: {', '.join(missing)}")


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
