"""The checks within `orch init`: those of `orch check`, each problem with its fix, which a person may skip."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import current_session
from orchestrator.cli.drawing.terminal import inspect_terminal, write_stderr, write_stdout
from orchestrator.cli.failures import print_error
from orchestrator.errors import OrchError
from orchestrator.setup_guide.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.providers.checks import Ask, Finding


def check_place(draft: Draft, known: Sequence[Finding] = (), *, asks: bool, agreed: bool) -> tuple[Finding, ...]:
    """Check the place of a draft as far as it is answered, and offer each fix.

    Args:
        draft: The answers so far.
        known: What was found before, which is not shown again where nothing needs fixing.
        asks: Whether a person can be asked.
        agreed: Whether fixes are sent without a question.

    Returns:
        What was found last.
    """
    provider, repaired, found = draft.place.provider, False, tuple(known)
    try:
        while True:
            write_stderr("", f"checking {provider}; this takes at most half a minute")
            before, found = found, _run(provider, _make_ask(draft))  # a repair may have changed the configuration
            new = [one for one in found if one.verdict != "ok" or one not in before]
            write_stdout(*_list_lines(provider, new))
            if not any(one.verdict == "fix" for one in found):
                write_stderr("nothing needs fixing")
            if not repaired and _offer_repairs(found, asks=asks, agreed=agreed):
                repaired = True  # what one did not fix, another one would not
            elif not _wants_again(found, asks=asks):
                break
    except OrchError as error:  # a check is no condition of a task file
        print_error(error, debug=current_session().debug)
    return found


def _make_ask(draft: Draft) -> Ask:
    from orchestrator.cli.commands.before.check import find_installation
    from orchestrator.drivers import has_part
    from orchestrator.engine.state.pins import ReadPins
    from orchestrator.paths import load_paths
    from orchestrator.providers.checks import Ask
    from orchestrator.providers.hosts.machines import parse_address
    from orchestrator.task.config import load_config
    from orchestrator.task.parse import read_configured_options

    place, config = draft.place, load_config(os.environ)
    return Ask(
        state=load_paths().state,
        installation=find_installation(),
        region=place.region,
        zone=place.zone,
        accelerator=(draft.machine or "") if draft.rents else "",
        nodes=draft.num_nodes,
        spot=bool(draft.use_spot),
        bucket=draft.bucket or "",
        options=read_configured_options(config, place.provider) if has_part(place.provider, "options") else None,
        hosts=tuple(map(parse_address, draft.hosts)),
        pins=ReadPins(),
    )


def _run(provider: str, ask: Ask) -> tuple[Finding, ...]:
    from orchestrator.providers.checks import load_checks, run_checks

    return run_checks(load_checks(provider, ask), lambda running, done, total: None)  # nothing redrawn


def _list_lines(provider: str, found: Sequence[Finding]) -> list[str]:
    from orchestrator.cli.commands.before.check import format_findings

    return format_findings(provider, found, inspect_terminal(sys.stdout)) if found else []


def _offer_repairs(found: Sequence[Finding], *, asks: bool, agreed: bool) -> bool:
    """Offer what orch can fix itself, one after the other; return whether anything was changed."""
    from orchestrator.cli.commands.before.check_fix import offer_repair

    changed = False
    for one in found:
        if one.repair is not None and (asks or agreed):
            write_stdout("", f"{one.check}: {one.words}")
            changed = offer_repair(one.repair, agreed=agreed) or changed
    return changed


def _wants_again(found: Sequence[Finding], *, asks: bool) -> bool:
    """Ask whether to check again, where a person has something to type in another window."""
    from orchestrator.messages import count_noun

    wrong = [one for one in found if one.verdict == "fix" and one.repair is None]
    if not wrong or not asks:
        return False
    what = f"{count_noun(len(wrong), 'problem')}; each has its fix above, to be typed in another window."
    return click.confirm(f"{what} Check again?", default=False, err=True)
