"""Who may act on a rented host: each command presents an epoch and an installation, and the host compares them first.

The host keeps them in the file `owner` of its folder. The comparison travels in front of the command itself, so it
costs no round trip; as long as the owner is the same it runs nothing but builtins of the shell. See
templates/remote/owner.sh.
"""

from __future__ import annotations

import re

from orchestrator.hosts import Fence
from orchestrator.remote.scripts import shell_command

REFUSED = 79  # of owner.sh; beyond sysexits.h, whose last is 78
_REFUSAL = re.compile(
    rb"^orch-taken-over (\d{1,9}) ([A-Za-z0-9._@-]{1,64}) ([A-Za-z0-9._@-]{1,128}) ([0-9TZ:-]{1,32})\r?$", re.MULTILINE
)


def guard_command(line: str, fence: Fence | None) -> str:
    """Return the command line that runs `line` unless another installation has taken the host over."""
    if fence is None:
        return line
    # The machine's hash takes a program, and a rank has one machine.
    each = 'for orch_f in "$HOME/.orch/hosts/$ORCH_HOST_NAME"-????????/owner'
    known = f'{each}; do {{ read -r orch_e orch_i orch_w <"$orch_f"; }} 2>/dev/null; done'
    claim = shell_command("owner.sh", str(fence.epoch), fence.installation, fence.owner).removeprefix("exec ")
    same = f'[ "$orch_e $orch_i" = "{fence.epoch} {fence.installation}" ]'
    return f"orch_e= orch_i=; {known}; {same} || {claim} </dev/null || exit $?; {line}"


def parse_refusal(exit_code: int | None, output: bytes) -> str:
    """Return who has taken a host over and when, in words, if a command ended because of it; else ""."""
    found = _REFUSAL.search(output) if exit_code == REFUSED else None
    if found is None:
        return ""
    epoch, installation, owner, at = (group.decode("ascii") for group in found.groups())
    return f"by installation {installation} ({owner}) at {at}, epoch {epoch}"


def parse_epoch(refusal: str) -> int:
    """Return the epoch that a refusal, as `parse_refusal` words it, names; 0 for another text."""
    number = refusal.rpartition("epoch ")[2]
    return int(number) if number.isdecimal() else 0
