"""What own machines need: a name that resolves, SSH access with a key, and the programs that orch uses there.

Only looks: nothing is copied to a machine, and a new host key is shown, not kept, unless its fingerprint was named.
"""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostAddress, HostOutcome, HostPin, PinReason, describe_key
from orchestrator.messages import escape_controls, to_one_line
from orchestrator.providers.checks import Ask, Check, Outcome, fix, ok, unknown
from orchestrator.providers.hosts.machines import OwnHost
from orchestrator.providers.ssh_config import own_address
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.host_operations import describe_shell_failure
from orchestrator.remote.identities import KeyRing
from orchestrator.remote.known_hosts import Keys, read_known_hosts
from orchestrator.remote.trust import HostPins, describe_pin, read_kept_keys

_SECONDS = 15.0  # until a host that does not answer is given up
_LONGEST = 300  # characters of what a machine says
_PROGRAMS = ("bash", "ln", "setsid", "tail", "stat", "tar", "sha256sum", "xargs", "timeout")
_ANSWER = "orch-look "
# In several lines, as the commands of a launch: csh runs none of those.
_LINES = (
    f'for p in {" ".join(_PROGRAMS)}; do command -v $p >/dev/null || echo "missing $p"; done',
    f'echo "{_ANSWER}$(uname -sm), $(nproc) cores, $(df -Pk . | awk \'NR==2 {{printf "%d", $4 / 1048576}}\') GiB free"',
)
_LOOK = shlex.join(["exec", "/bin/sh", "-c", "\n".join(_LINES)])


def checks(ask: Ask) -> tuple[Check, ...]:
    """Return one check for each machine. Passphrases are asked for here, before the checks begin.

    Raises:
        UserError: No machines are named.
    """
    if not ask.hosts:
        raise UserError(
            "`orch check hosts` needs to know your machines", "they are named in a task file", "orch check hosts FILE"
        )
    keys, pins = KeyRing(), _Looking(ask.pins) if ask.pins is not None else None
    return tuple(_check(rank, host, keys, pins) for rank, host in enumerate(ask.hosts))


class _Looking:
    """The pins, where only a key whose fingerprint was named is kept."""

    def __init__(self, pins: HostPins) -> None:
        self.named = pins.named
        self.find = pins.find
        self._pins = pins

    def keep(self, address: HostAddress, pin: HostPin, reason: PinReason, instead_of: HostPin | None) -> HostPin:
        return self._pins.keep(address, pin, reason, instead_of) if reason is PinReason.NAMED else pin


def _check(rank: int, host: OwnHost, keys: KeyRing, pins: HostPins | None) -> Check:
    name = f"host {rank}"
    try:
        address = own_address(host, rank=rank, name="check", known_hosts=Path())
        keys.identities(address)
    except UserError as error:
        return Check(name, partial(_raise, error))
    return Check(name, partial(_try_host, name, address, keys, pins), seconds=_SECONDS + 5)


def _raise(error: UserError) -> Outcome:
    raise error


def _try_host(name: str, address: HostAddress, keys: KeyRing, pins: HostPins | None) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        temporary = _keep_keys_in(Path(folder) / "known_hosts", address)
        with Fleet([temporary], deadline=_SECONDS, keys=keys, pins=pins) as fleet:
            outcome = fleet.reachable(timeout=_SECONDS if address.jump else _SECONDS / 3).hosts[0].outcome
            if not outcome.ok:
                return _explain(name, address, outcome)
            transport = fleet.link(temporary).transport(_SECONDS)
            result = fleet.run(_LOOK, timeout=_SECONDS).hosts[0]
        trusted = "; ".join(_describe_trust(temporary, hop, pins) for hop in temporary.hops)
    lines = result.output.decode("utf-8", "replace").strip().splitlines()
    answer = next((line.removeprefix(_ANSWER) for line in lines if line.startswith(_ANSWER)), None)
    if answer is None or not result.outcome.ok:
        failed = result.outcome if result.outcome.failure else describe_shell_failure(result.outcome)
        return _explain(name, address, failed)
    words = f"{_where(address)}, key {_plain(transport.accepted_identity)}; {_plain(answer)}"
    if lacking := " ".join(program for program in _PROGRAMS if f"missing {program}" in lines):
        return fix(name, f"{words}; it has no {lacking}", f"install there: {lacking}", Exit.SETUP_FAILED)
    return ok(name, f"{words}; {trusted}")


def _describe_trust(address: HostAddress, hop: HostAddress, pins: HostPins | None) -> str:
    """Return which key of a machine or jump host is known, and why, or that it is new."""
    name = "its key" if hop == address else f"the key of {hop.pin_name}"
    own, pin = hop.own, pins.find(hop) if pins is not None else None
    if own is not None and (known := read_known_hosts(own.known_hosts, own.known_as).accepted):
        return f"{name} is in your known_hosts: {_describe_keys(known)}"
    if pin is not None:
        return f"{name} is {describe_pin(pin)}"
    return f"{name} is new: {_describe_keys(read_kept_keys(hop))}"


def _describe_keys(keys: Keys) -> str:
    return ", ".join(describe_key(kind, blob) for kind, blob in keys)


def _keep_keys_in(file: Path, address: HostAddress) -> HostAddress:
    return replace(address, known_hosts=file, jump=address.jump and _keep_keys_in(file, address.jump))


def _explain(name: str, address: HostAddress, outcome: HostOutcome) -> Outcome:
    words = f"{_where(address)}: {_plain(outcome.detail or outcome.last_line or outcome.verdict)}"
    login = f"ssh -p {address.port} {shlex.quote(f'{address.user}@{address.host}')}"
    match outcome.failure:
        case Failure.AUTH:
            return fix(name, words, login.replace("ssh ", "ssh-copy-id ", 1), Exit.PERMISSION)
        case Failure.IDENTITY:
            return fix(name, words, outcome.remedy or "ask its administrator", Exit.IDENTITY)
        case Failure.UNREACHABLE if "leads nowhere" in outcome.detail:
            return fix(name, words, f"correct the name, or its HostName in ~/.ssh/config: {login}", Exit.HOST_LOST)
        case Failure.REFUSED | Failure.UNREACHABLE:
            return fix(name, words, f"correct the address or the port, or start the machine: {login}", Exit.HOST_LOST)
        case _ if outcome.remedy:
            return fix(name, words, outcome.remedy, Exit.HOST_LOST)
        case _:
            return unknown(name, words, login, Exit.HOST_LOST)


def _plain(shown: str) -> str:
    """Return what a machine says, as one line that a terminal prints and does not obey."""
    return escape_controls(to_one_line(shown, _LONGEST))


def _where(address: HostAddress) -> str:
    way = f" through {address.jump.host}" if address.jump is not None else ""
    return f"{address.user}@{address.host} port {address.port}{way}"
