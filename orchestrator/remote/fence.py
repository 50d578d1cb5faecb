"""The guard in front of each command on a host, which compares the version of its folder and who sends the command.

The file `format` has the version of the folder. A folder of another version refuses every command, so that no orch
misreads what another one wrote. To rented hosts each command also presents an epoch and an installation; the file
`owner` has the newest. The comparison travels in front of the command itself, so it costs no round trip; as long as
both files are as expected it runs nothing but builtins of the shell. See templates/remote/owner.sh.
"""

from __future__ import annotations

import re
from dataclasses import replace

from orchestrator.distribution import install_command
from orchestrator.hosts import Failure, Fence
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.host_folder import FORMAT
from orchestrator.remote.scripts import shell_command

REFUSED = 79  # of owner.sh; beyond sysexits.h, whose last is 78
_REFUSAL = re.compile(
    rb"^orch-taken-over (\d{1,9}) ([A-Za-z0-9._@-]{1,64}) ([A-Za-z0-9._@-]{1,128}) ([0-9TZ:-]{1,32})\r?$", re.MULTILINE
)
_OTHER_VERSION = re.compile(rb"^orch-other-version (\d{1,9})\r?$", re.MULTILINE)


def guard_command(line: str, fence: Fence | None) -> str:
    """Return the command line that runs `line` unless the host refuses it; with None it compares nothing."""
    return line if fence is None else _guard(line, fence, "")


def guard_output(line: str, fence: Fence | None) -> str:
    """Return the same for a command all of whose output is a program's: it compares the version alone, and silently.

    It ends with REFUSED; the next command finds out why.
    """
    return line if fence is None else _guard(line, replace(fence, epoch=0, installation="", owner=""), ">/dev/null")


def _guard(line: str, fence: Fence, output: str) -> str:
    # The machine's hash takes a program, and a rank has one machine.
    each = 'for orch_f in "$HOME/.orch/hosts/$ORCH_HOST_NAME"-????????'
    reads = 'read -r orch_v orch_w <"$orch_f/format"'
    if fence.epoch:
        reads += '; read -r orch_e orch_i orch_w <"$orch_f/owner"'
    known = f"{each}; do {{ {reads}; }} 2>/dev/null; done"
    presented = (str(FORMAT), str(fence.epoch or ""), fence.installation)
    claim = shell_command("owner.sh", *presented, fence.owner).removeprefix("exec ")
    same = f'[ "$orch_v $orch_e $orch_i" = "{" ".join(presented)}" ]'
    return f"orch_v= orch_e= orch_i=; {known}; {same} || {claim} </dev/null {output} || exit $?; {line}"


def parse_refusal(exit_code: int | None, output: bytes) -> HostFailure | None:
    """Return why a host refused a command, if the command ended because of it."""
    if exit_code != REFUSED:
        return None
    if (other := _OTHER_VERSION.search(output)) is not None:
        return _describe_version(int(other[1]))
    found = _REFUSAL.search(output)
    if found is None:
        return None
    epoch, installation, owner, at = (group.decode("ascii") for group in found.groups())
    return HostFailure(
        Failure.TAKEN_OVER, f"taken over by installation {installation} ({owner}) at {at}, epoch {epoch}"
    )


def parse_epoch(refusal: str) -> int:
    """Return the epoch that a refusal, as `parse_refusal` words it, names; 0 for another text."""
    number = refusal.rpartition("epoch ")[2]
    return int(number) if number.isdecimal() else 0


def _describe_version(version: int) -> HostFailure:
    folder = f"has version {version}" if version else "is of an orch before version 1"
    remedy = f"upgrade orch: {install_command('', '--upgrade')}" if version > FORMAT else "use the older orch for it"
    detail = f"orch's folder there {folder}, and this orch uses version {FORMAT}"
    return HostFailure(Failure.OTHER_VERSION, detail, remedy=remedy)
