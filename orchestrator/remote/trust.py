"""The keys that a host may show.

A machine that orch made has a pinned key. For a person's own machine those count that their `known_hosts` has; where it
has none, the pin of the machine; where there is none, the first key that the machine shows, which is pinned.
"""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Collection
from pathlib import Path
from subprocess import SubprocessError
from typing import Protocol

from orchestrator.hosts import Failure, HostAddress, HostPin, PinReason, describe_key, fingerprint
from orchestrator.remote.failures import HostFailure, describe_error
from orchestrator.remote.keys import add_known_host, known_hosts_lock, replace_known_host
from orchestrator.remote.known_hosts import Keys, KnownKeys, is_revoked_by, key_kind, read_known_hosts

_CONFIRMED = "only if its administrator confirms that fingerprint: "
_ASK = "ask its administrator"
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class HostPins(Protocol):
    """The pins of people's own machines, which outlive clusters. Called from several threads."""

    @property
    def named(self) -> Collection[str]:
        """The fingerprints that a person named: a machine that presents one of them is pinned to it."""
        ...

    def find(self, address: HostAddress) -> HostPin | None:
        """Return the pin of a machine, or None."""
        ...

    def keep(self, address: HostAddress, pin: HostPin, reason: PinReason, instead_of: HostPin | None) -> HostPin:
        """Pin a key, and return the pin that holds: another process may have been faster."""
        ...


class Trust:
    """The keys that one host may show. With empty `keys` the first key is accepted and kept."""

    def __init__(self, address: HostAddress, pins: HostPins | None = None) -> None:
        """Read what is known. pins: Those of people's own machines; without them a key is kept for one cluster."""
        self._address = address
        own = address.own
        self._personal = read_known_hosts(own.known_hosts, own.known_as) if own is not None else KnownKeys()
        self._pins = pins if own is not None else None
        self._pin = self._pins.find(address) if self._pins is not None else None
        self.keys: Keys = self._personal.accepted or self._pinned()

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The host key algorithms of the known keys, to be requested first; () for any."""
        return tuple(name for kind, _ in self.keys for name in (_RSA if kind == "ssh-rsa" else (kind,)))

    @property
    def shows_others(self) -> bool:
        """Whether a host that has no such key is asked for another, so that the refusal can name it."""
        return self._address.own is not None

    def check(self, blob: bytes) -> None:
        """Raise HostFailure(IDENTITY) unless `blob`, a key in SSH wire format, is a known one."""
        own = self._address.own
        if blob in self._personal.revoked:
            raise self._refusal(blob, "which your known_hosts marks as revoked", _ASK)
        for file in own.revoked if own is not None else ():
            self._refuse_revoked(file, blob)
        if self._personal.accepted or not self._is_named(blob):
            self._refuse_other(blob)
        if not self.keys and own is not None and own.strict:
            why = "your known_hosts has none, and your ssh has StrictHostKeyChecking yes"
            raise self._refusal(blob, why, f"{_CONFIRMED}add it to your known_hosts")

    def accept(self, kind: str, blob: bytes) -> None:
        """Keep the key of a new host, after the host proved that it owns the key.

        That of a person's own machine is written to the cluster's file too, from which `orch ssh` reads it.
        """
        if self._pins is not None:
            self._pin_key(self._pins, kind, blob)
        elif not self.keys:
            self._keep_for_cluster(kind, blob)
        self._refuse_other(blob)
        if self._address.own is not None:
            write_known_keys(self._address, self.keys or ((kind, blob),))

    def _refuse_revoked(self, file: Path, blob: bytes) -> None:
        """Raise HostFailure(IDENTITY) for a key that RevokedHostKeys names, or if the file cannot be read."""
        try:
            revoked = is_revoked_by(file, key_kind(blob), blob)
        except (OSError, SubprocessError) as error:
            why = f"and RevokedHostKeys {file} cannot be read: {describe_error(error)}"
            raise self._refusal(blob, why, f"ls -l {shlex.quote(str(file))}") from error
        if revoked:
            raise self._refusal(blob, f"which {file} revokes (RevokedHostKeys)", _ASK)

    def _refuse_other(self, blob: bytes) -> None:
        """Raise HostFailure(IDENTITY) for another key than the known ones, where there are any."""
        if not self.keys or blob in (known for _, known in self.keys):
            return
        own, remedy = self._address.own, ""
        if own is not None:
            forget = f"ssh-keygen -R {shlex.quote(own.known_as)}; " if self._personal.accepted else ""
            remedy = f"{_CONFIRMED}{forget}orch check hosts FILE --accept-host-key {fingerprint(blob)}"
        raise self._refusal(blob, self._expectation(), remedy)

    def _pin_key(self, pins: HostPins, kind: str, blob: bytes) -> None:
        """Pin the key where the machine has no pin, or where a person named it."""
        named = self._is_named(blob)
        if self._pin is not None and not named:
            return
        reason = PinReason.NAMED if named else PinReason.KNOWN if self._personal.accepted else PinReason.FIRST
        self._pin = pins.keep(self._address, self._new_pin(kind, blob), reason, self._pin)
        self.keys = self._personal.accepted or self._pinned()

    def _keep_for_cluster(self, kind: str, blob: bytes) -> None:
        with known_hosts_lock(self._address.known_hosts):
            self.keys = read_kept_keys(self._address)  # another process may have accepted a key meanwhile
            if not self.keys:
                add_known_host(self._address.known_hosts, self._address.alias, _line(kind, blob))
                self.keys = ((kind, blob),)

    def _new_pin(self, kind: str, blob: bytes) -> HostPin:
        return HostPin(name=self._address.pin_name, kind=kind, key=base64.b64encode(blob).decode("ascii"))

    def _pinned(self) -> Keys:
        if self._pin is not None:
            return ((self._pin.kind, base64.b64decode(self._pin.key)),)
        if self._address.host_key is None:
            return read_kept_keys(self._address)
        kind, text = self._address.host_key.split()[:2]
        return ((kind, base64.b64decode(text)),)

    def _is_named(self, blob: bytes) -> bool:
        return self._pins is not None and fingerprint(blob) in self._pins.named

    def _expectation(self) -> str:
        expected = ", ".join(describe_key(kind, known) for kind, known in self.keys)
        if self._personal.accepted:
            return f"your known_hosts has {expected}"
        if self._pin is not None:
            return describe_pin(self._pin)
        return f"pinned is {expected}"

    def _refusal(self, blob: bytes, why: str, remedy: str) -> HostFailure:
        name = self._address.pin_name or self._address.alias
        return HostFailure(
            Failure.IDENTITY, f"{name} presented {describe_key(key_kind(blob), blob)}, {why}", remedy=remedy
        )


def describe_pin(pin: HostPin) -> str:
    """Return since when, and by whom, which key is pinned."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(pin.since))
    return f"pinned since {when} by {pin.actor.rpartition(':')[0]}: {pin}"


def write_known_keys(address: HostAddress, keys: Keys) -> None:
    """Make these keys the only ones that the cluster's file has for the host."""
    if read_kept_keys(address) != keys:
        replace_known_host(address.known_hosts, address.alias, [_line(kind, blob) for kind, blob in keys])


def _line(kind: str, blob: bytes) -> str:
    return f"{kind} {base64.b64encode(blob).decode('ascii')}"


def read_kept_keys(address: HostAddress) -> Keys:
    """Return the keys that the cluster's file has for the host."""
    found = read_known_hosts([address.known_hosts], address.alias)
    if found.broken:
        raise HostFailure(Failure.IDENTITY, f"{address.known_hosts} has a broken line: {found.broken}")
    return found.accepted
