"""What hosts on this computer need: an SSH server, a folder for them, ports. Only looks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from orchestrator.exits import Exit
from orchestrator.providers.checks import Ask, Check, Outcome, find_write_error, fix, ok
from orchestrator.providers.local.addresses import choose_places
from orchestrator.providers.local.sshd import account, find_sshd


def checks(ask: Ask) -> tuple[Check, ...]:
    return (
        Check("sshd", _sshd),
        Check("folder", partial(_folder, ask.state)),
        Check("ports", _ports),
    )


def _sshd() -> Outcome:
    """Raises UserError when there is none, or when it lets this account in by no means."""
    sshd, who = find_sshd(), account()
    version = ".".join(map(str, sshd.version))
    return ok("sshd", f"{sshd.path}, OpenSSH {version}; hosts are entered as {who.name}")


def _folder(state: Path) -> Outcome:
    words = find_write_error(state)
    if words:
        return fix("folder", words, "give this account that folder, or set ORCH_HOME to another", Exit.USAGE)
    return ok("folder", f"{state} can be written")


def _ports() -> Outcome:
    """Raises CloudError when nothing can listen."""
    return ok("ports", f"free ports on {choose_places('orch check', 1)[0].host}")
