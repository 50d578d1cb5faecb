"""`orch check --fix`: show the requests that fix what was found, ask, and send them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.errors import OrchError, UserError
from orchestrator.plan.bash_quoting import Variables, bash_word

if TYPE_CHECKING:
    from orchestrator.providers.checks import Finding, Repair
    from orchestrator.slices import Request


def repair(findings: Iterable[Finding], *, agreed: bool) -> bool:
    """Fix what orch can fix itself; return whether anything was changed.

    Args:
        findings: Those of all checks.
        agreed: Whether the user agreed beforehand.

    Raises:
        OrchError: The user declined, there is no terminal to ask on, or the cloud refused.
    """
    repairs = [one.repair for one in findings if one.repair is not None]
    planned = [(one, one.plan()) for one in repairs]
    lines = [line for one, requests in planned for line in _describe(one, requests)]
    if not lines:
        write_stderr("nothing that orch can fix itself")
        return False
    _show(lines)
    _confirm(agreed=agreed)
    for one, requests in planned:
        _send(one, requests)
    return True


def offer_repair(one: Repair, *, agreed: bool) -> bool:
    """Show what one repair would send, ask, and send it; return whether anything was changed.

    Args:
        one: The repair.
        agreed: Whether the user agreed beforehand.

    Raises:
        OrchError: The cloud refused.
    """
    requests = one.plan()
    if not (lines := _describe(one, requests)):
        return False
    _show(lines)
    if not agreed and not click.confirm("send them?", default=False, err=True):
        write_stderr("skipped; nothing was created")
        return False
    _send(one, requests)
    return True


def _show(lines: Iterable[str]) -> None:
    write_stdout("to be sent, in this order:", *(f"  {line}" for line in lines))


def _send(one: Repair, requests: tuple[Request, ...]) -> None:
    for request in requests:
        one.send(request)
        write_stderr(f"done: {request.method} {request.target.partition('/')[2]}")
    _store_settings(one)


def _describe(one: Repair, requests: tuple[Request, ...]) -> list[str]:
    variables = Variables()
    sent = [" ".join(bash_word(word, variables) for word in request.command) for request in requests]
    return sent + [f"orch config set {name} {value}" for name, value in one.settings]


def _confirm(*, agreed: bool) -> None:
    if agreed:
        return
    if not sys.stdin.isatty():
        raise UserError("nothing is created without consent", "there is no terminal to ask on", "add --yes")
    if not click.confirm("send them?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was created")


def _store_settings(one: Repair) -> None:
    from orchestrator.cli.commands.settings.config import store_setting

    for name, value in one.settings:
        write_stderr(f"{name} = {value} is set in {store_setting(name, value)}")
